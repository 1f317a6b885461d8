"""The database file: its address, its creation, its connections, and its errors in our words."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from edgeq.errors import (
    BadSetting,
    NotADatabase,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreMoved,
    StoreReadOnly,
    StoreUnavailable,
)

SCHEME = "sqlite:///"
MEMORY = ":memory:"
OLDEST_SQLITE = (3, 35, 0)  # RETURNING
APPLICATION_ID = 0x65647171  # "edqq": lets file(1) and doctor tell an edgeq database


def path_of(url: str) -> Path:
    """The file that a `sqlite:///` URL names; everything else about it is edgeq's business."""
    if not url.startswith(SCHEME) or len(url) == len(SCHEME):
        raise BadSetting(
            f"{url!r} is not the address of a database. Write sqlite:///edgeq.db for a file in "
            "this folder, or sqlite:////var/lib/edgeq/edgeq.db for an absolute path."
        )
    name = url.removeprefix(SCHEME)
    if "?" in name or "#" in name:
        raise BadSetting(f"{url!r} has options after its path. edgeq sets those itself; drop them.")
    return Path(unquote(name)).absolute()


def create_if_missing(path: Path) -> None:
    """Make an empty private file, so that SQLite's own files beside it are private too.

    Nothing is opened that exists already: closing a descriptor on a live database would drop
    the locks that SQLite holds on it in this process.
    """
    if not path.parent.is_dir():
        raise StoreUnavailable(
            f"The folder {path.parent} does not exist, so {path.name} cannot be created there. "
            "Make the folder, or use another --db."
        )
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except FileExistsError:
        return
    except PermissionError as denied:
        raise StoreReadOnly(
            f"{path} cannot be created: no write access to {path.parent}."
        ) from denied
    except OSError as failed:
        if failed.errno == errno.ENOSPC:
            raise StoreFull(f"The disk is full: {path} cannot be created.") from failed
        raise StoreUnavailable(f"{path} cannot be created: {failed.strerror}.") from failed
    os.close(descriptor)


def connect(path: Path, *, durable: bool = True) -> sqlite3.Connection:
    """A connection that may write, in manual transaction mode."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreUnavailable(
            f"SQLite {sqlite3.sqlite_version} is too old: edgeq needs 3.35 or newer."
        )
    with in_our_words(path):
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=0.1
        )
        try:
            for pragma in _pragmas(durable=durable):
                connection.execute(f"PRAGMA {pragma}").fetchall()
        except BaseException:
            connection.close()
            raise
    return connection


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """A connection that never writes, and never checkpoints."""
    with in_our_words(path):
        # Not even an empty file: a queue that was deleted must be missed, not made again.
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            for pragma in READER_PRAGMAS:
                connection.execute(f"PRAGMA {pragma}").fetchall()
        except BaseException:
            connection.close()
            raise
    return connection


def inode_of(path: Path) -> int | None:
    try:
        return os.stat(path).st_ino  # noqa: PTH116 - one call, no Path in the hot path
    except FileNotFoundError:
        return None


def refuse_replaced(path: Path, inode: int | None) -> None:
    """Raises StoreMoved when a path no longer leads to the file that was opened there."""
    if inode_of(path) != inode:
        raise StoreMoved(
            f"{path} was deleted or replaced while it was in use. Writing on would lose "
            "jobs in the old file: restart this process, and stop edgeq before moving files."
        )


def _pragmas(*, durable: bool) -> tuple[str, ...]:
    return (
        f"synchronous = {'FULL' if durable else 'NORMAL'}",
        "foreign_keys = ON",
        "trusted_schema = OFF",
        "cell_size_check = ON",
        "temp_store = MEMORY",
        "journal_size_limit = 67108864",
        "mmap_size = 0",
        "cache_size = -8000",
    )


READER_PRAGMAS = (
    "query_only = ON",
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "temp_store = MEMORY",
    "mmap_size = 0",
    "wal_autocheckpoint = 0",
    "busy_timeout = 5000",
)


@contextlib.contextmanager
def in_our_words(path: Path) -> Iterator[None]:
    """Turns what SQLite raises into errors that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, path) from error


def translated(error: sqlite3.Error, path: Path) -> StoreError:
    """The error of ours for one of SQLite's, by its result code, never by its text."""
    code = getattr(error, "sqlite_errorcode", None)
    match None if code is None else code & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusy(
                f"{path} is held by a program that does not wait its turn (not edgeq). "
                "Close it, and do not open a live queue for writing with other tools."
            )
        case sqlite3.SQLITE_FULL:
            return StoreFull(
                f"The disk is full: {path} could not grow. Nothing of this was stored."
            )
        case sqlite3.SQLITE_READONLY:
            return StoreReadOnly(
                f"{path} is read only. edgeq needs to write to the file and to its folder."
            )
        case sqlite3.SQLITE_NOTADB:
            return NotADatabase(f"{path} is not an SQLite database. Is it the right file?")
        case sqlite3.SQLITE_CORRUPT:
            return StoreCorrupt(
                f"{path} is damaged. Stop all edgeq processes, keep a copy of the file with its "
                "-wal, and restore the last backup."
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_PERM:
            return StoreUnavailable(f"{path} cannot be read or written ({error}).")
        case _:
            return StoreUnavailable(f"{path}: unexpected answer of SQLite ({error}).")

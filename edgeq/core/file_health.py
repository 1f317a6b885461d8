"""Verdicts about the database file and the system that it lives on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from edgeq.core.findings import Broken, Doubtful, Fine, Verdict

MEGABYTE = 1024 * 1024
FREE_AT_LEAST = 8 * MEGABYTE
FREE_BETTER = 64 * MEGABYTE
WAL_AT_MOST = 64 * MEGABYTE
# What SQLite's own checkpoints keep a log below, unless somebody reads for long.
WAL_ORDINARY = 5 * MEGABYTE
CHECKED_AT_MOST = 256 * MEGABYTE

OLDEST_SQLITE = (3, 35, 0)
# The first safe build of each line that has one; SQLite calls it the WAL-reset bug.
_SAFE_SINCE = (3, 51, 3)
_SAFE_BACKPORTS = ((3, 50, 7), (3, 44, 6))

_PRIVATE = 0o600

Version = tuple[int, int, int]


class FileLook(msgspec.Struct, frozen=True):
    """A file as `stat` shows it to the user who asks."""

    name: str
    mode: int
    owner: int
    is_writable: bool


def is_safe_build(version: Version) -> bool:
    """Whether a checkpoint that meets a writer cannot corrupt the file."""
    return version >= _SAFE_SINCE or any(
        version[:2] == fixed[:2] and version >= fixed for fixed in _SAFE_BACKPORTS
    )


def judge_build(version: Version) -> Verdict:
    name = f"SQLite {'.'.join(map(str, version))}"
    if version < OLDEST_SQLITE:
        return Broken(f"{name} is too old.", "Use a Python whose SQLite is 3.35 or newer.")
    if is_safe_build(version):
        return Fine(f"{name}.")
    return Doubtful(
        f"{name} has the WAL-reset bug: a checkpoint that meets a writer can corrupt the file. "
        "edgeq's gate keeps its own processes out of it.",
        "Let no other program write or checkpoint the file; use SQLite 3.51.3 or newer when you "
        "can.",
    )


def judge_journal(mode: str) -> Verdict:
    if mode == "wal":
        return Fine("The journal is a write-ahead log.")
    return Broken(
        f"The journal mode is {mode}, not wal: readers and the writer lock each other out.",
        "Stop all processes, then: sqlite3 FILE 'PRAGMA journal_mode = WAL'",
    )


def judge_files(files: Sequence[FileLook], user: int) -> Iterator[Verdict]:
    """The database comes first; the files beside it should be as it is."""
    for look in files:
        yield from _judge_file(look, files[0].owner, user)


def _judge_file(look: FileLook, owner: int, user: int) -> Iterator[Verdict]:
    if not look.is_writable:
        yield Broken(
            f"{look.name} cannot be written by this user ({user}; its owner is {look.owner}).",
            f"Run edgeq as the owner, or: chown {user} {look.name} && chmod 600 {look.name}",
        )
    elif look.owner != owner:
        yield Doubtful(
            f"{look.name} belongs to user {look.owner}, the database to {owner}.",
            f"chown {owner} {look.name}",
        )
    if look.mode & ~_PRIVATE & 0o777:
        yield Doubtful(
            f"{look.name} is open to other users (mode {look.mode & 0o777:04o}).",
            f"chmod 600 {look.name}",
        )


def judge_folder(name: str, *, is_writable: bool) -> Verdict:
    if is_writable:
        return Fine("The folder is writable, and the files belong to one user alone.")
    return Broken(
        f"The folder {name} cannot be written by this user: SQLite makes files in it.",
        f"Run edgeq as the folder's owner, or give this user write access to {name}.",
    )


def judge_space(free_bytes: int) -> Verdict:
    free = f"{format_bytes(free_bytes)} free"
    fix = "Make room: a full disk stops every write, even those that would delete something."
    if free_bytes < FREE_AT_LEAST:
        return Broken(f"The disk is as good as full: {free}.", fix)
    if free_bytes < FREE_BETTER:
        return Doubtful(f"The disk is nearly full: {free}.", fix)
    return Fine(f"{free}.")


def judge_wal(wal_bytes: int, open_in: Sequence[int]) -> Verdict:
    if wal_bytes <= WAL_AT_MOST:
        return Fine(f"The write-ahead log has {format_bytes(wal_bytes)}.")
    who = f" Open in process {_listed(open_in)}." if open_in else ""
    return Doubtful(
        f"The write-ahead log has grown to {format_bytes(wal_bytes)}: somebody has been reading "
        f"for long, or has died.{who}",
        "End the long reader; the log shrinks at the next checkpoint, or when the last process "
        "closes the database.",
    )


def judge_readers(readers: Sequence[str] | None, wal_bytes: int) -> Verdict:
    """`readers` stayed in one read for as long as was looked; None: it cannot be seen here."""
    if readers is None:
        return Fine("Who reads cannot be seen on this system.")
    if not readers:
        return Fine("Nobody reads for long.")
    who = ", ".join(readers)
    if wal_bytes <= WAL_ORDINARY:
        return Fine(f"Reading at the moment: {who}.")
    return Doubtful(
        f"The write-ahead log of {format_bytes(wal_bytes)} cannot shrink while these read: {who}.",
        "Let them end their read transaction, or end them.",
    )


def judge_gate(holder: str | None, *, is_stopped: bool, seconds: float) -> Verdict:
    if holder is None:
        return Fine("The gate opens.")
    held = f"Process {holder} has held the gate for more than {seconds:g} s: nobody else can write."
    if is_stopped:
        return Broken(
            f"{held} It is stopped.",
            f"Let it go on (kill -CONT {holder}) or end it (kill -9 {holder}).",
        )
    return Broken(held, f"If it hangs, end it: kill -9 {holder}")


def judge_pages(problems: Sequence[str]) -> Verdict:
    if not problems:
        return Fine("Every page is in order.")
    return Broken(
        f"The file is damaged: {'; '.join(problems)}.",
        "Stop all edgeq processes, keep a copy of the file with its -wal, and restore the last "
        "backup.",
    )


def is_checked(file_bytes: int, *, full: bool) -> bool:
    """A look at every page takes as long as reading the file."""
    return full or file_bytes <= CHECKED_AT_MOST


def format_bytes(count: int) -> str:
    for unit, size in (("GB", 1024 * MEGABYTE), ("MB", MEGABYTE), ("KB", 1024)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))

"""Bringing a database's schema up to date, once, whoever comes first."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from pathlib import Path

from edgeq.errors import EdgeqError, MigrationFailed, NewerSchema
from edgeq.store.gate import PATIENCE_SECONDS, Gate
from edgeq.store.sqlite_file import APPLICATION_ID, connect, in_our_words

# Known here so that a database that is up to date costs one SELECT and no import of Alembic.
# A test compares it with the newest revision in schema/.
REVISIONS = ("0001", "0002")
HEAD = REVISIONS[-1]
_alembic = threading.Lock()


def bring_up_to_date(path: Path, gate: Gate, patience: float = PATIENCE_SECONDS) -> bool:
    """Create or migrate the schema if it is behind; True if this process did it."""
    # Through the gate from the first look on: whoever closes the last connection of a file
    # checkpoints it, and of several processes that find an old version only one may migrate.
    with gate.held(patience):
        if is_current(path):
            return False
        _prepare_new_file(path)
        # Alembic keeps what it works on in globals of its module: one upgrade at a time.
        with _alembic:
            _upgrade(path)
    return True


def is_current(path: Path) -> bool:
    version = read_version(path)
    if version is not None and version not in REVISIONS:
        raise NewerSchema(
            f"{path} has schema {version}, which this edgeq does not know (it knows up to "
            f"{HEAD}). Install the newer edgeq; the file was not touched."
        )
    return version == HEAD


def read_version(path: Path) -> str | None:
    connection = connect(path)
    try:
        with in_our_words(path):
            has_table = connection.execute(
                "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"
            ).fetchall()
            if not has_table:
                return None
            rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
            return rows[0][0] if rows else None
    finally:
        connection.close()


def _prepare_new_file(path: Path) -> None:
    """What has to be said before a file's first table; does nothing to a file that has one."""
    connection = connect(path)
    try:
        with in_our_words(path):
            connection.execute("PRAGMA busy_timeout = 5000")
            if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    finally:
        connection.close()
    if mode != "wal":
        raise MigrationFailed(
            f"{path} cannot use a write-ahead log (SQLite says {mode!r}). Is it on a network or "
            "shared file system? Put it on a local disk."
        )


def _upgrade(path: Path) -> None:
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import NullPool, create_engine, event

    engine = create_engine("sqlite://", creator=lambda: connect(path), poolclass=NullPool)
    event.listen(engine, "begin", lambda begun: begun.exec_driver_sql("BEGIN IMMEDIATE"))
    settings = Config()
    settings.set_main_option("script_location", str(schema_folder()).replace("%", "%%"))
    try:
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)  # noqa: S101 - made by connect()
            # Rebuilding a table with foreign keys on would delete the rows that refer to it.
            driver.execute("PRAGMA foreign_keys = OFF")
            with connection.begin():
                settings.attributes["connection"] = connection
                settings.attributes["instance_id"] = uuid.uuid4().hex
                command.upgrade(settings, "head")
                broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
                if broken:
                    raise MigrationFailed(f"a revision left {len(broken)} dangling references")
    except EdgeqError:
        raise
    except Exception as failure:
        raise MigrationFailed(
            f"{path} could not be brought to schema {HEAD}: {failure}. Nothing was changed; the "
            "edgeq that used it before can go on with it."
        ) from failure
    finally:
        engine.dispose()


def schema_folder() -> Path:
    """The revisions: inside the wheel, or beside the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    bundled = package / "_schema"
    return bundled if bundled.is_dir() else package.parent / "schema"

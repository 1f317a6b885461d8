"""A database looked at from outside: nothing is made, migrated, checkpointed or written."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import bindparam, func, select
from sqlalchemy.sql.expression import Executable

from edgeq.core.job_types import JobType
from edgeq.core.jobs import JobStatus
from edgeq.core.queue_health import Latest
from edgeq.ports.queries import COUNTED_AT_MOST
from edgeq.store import due, jobs_sql, system_sql, types_sql
from edgeq.store.migrate import REVISIONS
from edgeq.store.prepared import PlainSqlite, Prepared
from edgeq.store.session import Row
from edgeq.store.sqlite_file import APPLICATION_ID, READER_PRAGMAS, in_our_words
from edgeq.store.tables import LOCKED, guard, jobs, runs

KNOWN_REVISIONS = REVISIONS
_BUSY_MS = 1000
_MOST_PROBLEMS = 5
_DIALECT = PlainSqlite()

_running = jobs_sql.is_status(JobStatus.PROCESSING)
_held = select(jobs.c.id).with_hint(jobs, f"INDEXED BY {LOCKED}", "sqlite").where(_running)
_EXPIRED = (
    _held.where(jobs.c.lock_expires_at < bindparam("before"))
    .order_by(jobs.c.lock_expires_at)
    .limit(COUNTED_AT_MOST)
)
_ORPHANED = (
    _held.join(runs, runs.c.id == jobs.c.locked_by)
    .where(runs.c.ended_at.is_not(None))
    .limit(COUNTED_AT_MOST)
)
_LAST_LOCK = (
    select(func.max(jobs.c.lock_expires_at))
    .with_hint(jobs, f"INDEXED BY {LOCKED}", "sqlite")
    .where(_running)
)
# Ids sort by the time of creation, so the last one has the latest.
_LAST_CREATED = select(jobs.c.created_at).order_by(jobs.c.id.desc()).limit(1)
_LAST_STARTED = select(func.max(runs.c.started_at))
_SILENT = select(func.count()).where(
    runs.c.ended_at.is_(None), runs.c.last_seen_at < bindparam("before")
)
_GUARD_MODE = select(guard.c.mode)


def sqlite_version() -> tuple[int, int, int]:
    major, minor, patch = sqlite3.sqlite_version_info[:3]
    return major, minor, patch


def beside(database: Path) -> tuple[Path, Path]:
    """SQLite's own files: the log and its index."""
    return database.with_name(f"{database.name}-wal"), database.with_name(f"{database.name}-shm")


class Inspection:
    """A connection that can change nothing, and what it has to say.

    With a log beside the file somebody has it open, or has crashed: it is read as any reader does.
    Without one even a reading connection would make the log and leave it behind, perhaps under
    another owner. Then the file is read as it lies there, without locks, and `is_undisturbed`
    tells afterwards whether anybody came by meanwhile.
    """

    def __init__(self, path: Path, now: int) -> None:
        self.path = path
        self.now = now
        self._is_alone = not beside(path)[0].exists()
        self._looked = _look(path)
        self._connection = _connect(path, "immutable=1" if self._is_alone else "")
        try:
            self._ask("SELECT count(*) FROM sqlite_master")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        # No gate: a connection that may not write cannot checkpoint when it closes.
        self._connection.close()

    def is_undisturbed(self) -> bool:
        """Whether what was read is one state of the database, and not pages of two."""
        return not self._is_alone or (
            _look(self.path) == self._looked and not beside(self.path)[0].exists()
        )

    def rows(self, statement: Executable, **parameters: Any) -> list[Row]:
        prepared = Prepared(statement, _DIALECT)
        return self._ask(prepared.sql, prepared.lay_out(parameters))

    def journal_mode(self) -> str:
        if not self._is_alone:
            return str(self._ask("PRAGMA journal_mode")[0][0])
        # Read as it lies there, every file says "delete". Without locks, but not as if nobody
        # else could write, SQLite refuses to open one that has a write-ahead log.
        connection = _connect(self.path, "nolock=1")
        try:
            return str(connection.execute("PRAGMA journal_mode").fetchall()[0][0])
        except sqlite3.OperationalError as refused:
            if refused.sqlite_errorcode == sqlite3.SQLITE_CANTOPEN:
                return "wal"
            raise
        finally:
            connection.close()

    def is_empty(self) -> bool:
        return self._ask("SELECT count(*) FROM sqlite_master") == [(0,)]

    def is_ours(self) -> bool:
        return self._ask("PRAGMA application_id") == [(APPLICATION_ID,)]

    def schema_version(self) -> str | None:
        if not self._has_table("alembic_version"):
            return None
        rows = self._ask("SELECT version_num FROM alembic_version")
        return str(rows[0][0]) if rows else None

    def guard_mode(self) -> str | None:
        rows = self.rows(_GUARD_MODE)
        return str(rows[0][0]) if rows else None

    def damaged_pages(self) -> tuple[str, ...]:
        """What SQLite finds wrong when it looks at every page; it takes as long as reading them."""
        told = [str(row[0]) for row in self._ask(f"PRAGMA quick_check({_MOST_PROBLEMS})")]
        return () if told == ["ok"] else tuple(told)

    def types(self) -> tuple[JobType, ...]:
        return types_sql.read_all(self)

    def count_due(self, job_type: JobType) -> int:
        return due.count(self, job_type)

    def expired_locks(self, before: int) -> tuple[str, ...]:
        return tuple(str(row[0]) for row in self.rows(_EXPIRED, before=before))

    def locks_of_ended_runs(self) -> tuple[str, ...]:
        return tuple(str(row[0]) for row in self.rows(_ORPHANED))

    def latest(self) -> Latest:
        created = self.rows(_LAST_CREATED)
        return Latest(
            created_at=created[0][0] if created else None,
            started_at=self.rows(_LAST_STARTED)[0][0],
            lock_expires_at=self.rows(_LAST_LOCK)[0][0],
        )

    def count_silent_runs(self, before: int) -> int:
        return int(self.rows(_SILENT, before=before)[0][0])

    def config(self) -> Mapping[str, object]:
        return system_sql.read_config(self)

    def _has_table(self, name: str) -> bool:
        found = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return bool(self._ask(found, (name,)))

    def _ask(self, sql: str, parameters: Any = ()) -> list[Row]:
        with in_our_words(self.path):
            return list(self._connection.execute(sql, parameters).fetchall())


def _connect(path: Path, options: str) -> sqlite3.Connection:
    with in_our_words(path):
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(path))}?mode=ro&{options}", uri=True, isolation_level=None
        )
        try:
            for pragma in (*READER_PRAGMAS, f"busy_timeout = {_BUSY_MS}"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
        except BaseException:
            connection.close()
            raise
    return connection


def _look(path: Path) -> tuple[int, int, int] | None:
    """How the file is, from outside; None when it is gone."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns

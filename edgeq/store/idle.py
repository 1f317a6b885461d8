"""Whether a tick has nothing to do, asked with the standard library alone.

A crontab line runs every minute and mostly finds nothing. Importing SQLAlchemy to learn that would
cost ten times as much as the question. So this module, and only this one, writes SQL as text; a
test holds its answers against those of the store.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from edgeq.errors import StoreBusy
from edgeq.store.gate import Gate

KNOWN_REVISION = "0002"
_LONGEST_LOCK_MS = 61_000
_PATIENCE_SECONDS = 1.0
_INDEXES = (("jobs_ready", "losses = 0"), ("jobs_suspect", "losses > 0"))


class Idle(NamedTuple):
    """No job is due and no lock has expired; whether the switch is on is told with it."""

    is_enabled: bool
    next_due_at: int | None


class Source(NamedTuple):
    """A handlers folder as it looks now; None when there is none."""

    path: str
    fingerprint: str


def look(path: Path, source: Source | None, now: int, types: tuple[str, ...] = ()) -> Idle | None:
    """None when there may be something to do, or when anything is not as expected."""
    if not path.is_file():
        return None
    gate = Gate(path)
    try:
        connection = sqlite3.connect(path, isolation_level=None, timeout=0.1)
        try:
            idle = _idle(connection, source, now) if _are_known(connection, types) else None
        finally:
            with gate.held(_PATIENCE_SECONDS):
                connection.close()
    except (sqlite3.Error, StoreBusy):
        return None
    finally:
        gate.close()
    return idle


def count_tick(path: Path, worker_name: str, report: str, stopped: str, now: int) -> None:
    """Count the tick in the one row that stands for all idle ones.

    A tick that could not be counted harms nobody, so it is not worth an error.
    """
    gate = Gate(path)
    connection = sqlite3.connect(path, isolation_level=None, timeout=1)
    try:
        with suppress(sqlite3.Error, StoreBusy), gate.held(_PATIENCE_SECONDS):
            try:
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(
                    "INSERT INTO worker_runs (id, kind, worker_name, started_at, last_seen_at,"
                    " ended_at, stopped, report) VALUES ('idle', 'idle', ?1, ?2, ?2, ?2, ?3, ?4)"
                    " ON CONFLICT (id) DO UPDATE SET ticks = ticks + 1, last_seen_at = ?2,"
                    " ended_at = ?2, stopped = ?3, report = ?4",
                    (worker_name, now, stopped, report),
                )
                connection.execute("COMMIT")
            finally:
                connection.close()
    finally:
        gate.close()


def _idle(connection: sqlite3.Connection, source: Source | None, now: int) -> Idle | None:
    if not _is_ours_and_open(connection) or not _handlers_are_known(connection, source):
        return None
    if _has_expired_locks(connection, now):
        return None
    next_due_at = _first_due(connection)
    if next_due_at is not None and next_due_at <= now:
        return None
    switch = connection.execute(
        "SELECT value FROM worker_config WHERE key = 'worker_enabled'"
    ).fetchall()
    return Idle(is_enabled=switch != [("false",)], next_due_at=next_due_at)


def _is_ours_and_open(connection: sqlite3.Connection) -> bool:
    version = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    guard = connection.execute("SELECT mode FROM queue_guard").fetchall()
    return version == [(KNOWN_REVISION,)] and guard == [("open",)]


def _handlers_are_known(connection: sqlite3.Connection, source: Source | None) -> bool:
    """A new or changed handler has to be registered before anybody can enqueue for it."""
    if source is None:
        return True
    seen = connection.execute(
        "SELECT fingerprint FROM handler_sources WHERE source = ?", (source.path,)
    ).fetchall()
    return seen == [(source.fingerprint,)]


def _are_known(connection: sqlite3.Connection, types: tuple[str, ...]) -> bool:
    """A run that is asked for a type that nobody has is refused, and the engine says how."""
    known = {name for (name,) in connection.execute("SELECT name FROM background_job_types")}
    return known.issuperset(types)


def _has_expired_locks(connection: sqlite3.Connection, now: int) -> bool:
    return bool(
        connection.execute(
            "SELECT 1 FROM background_jobs INDEXED BY jobs_locked WHERE status = 'processing'"
            " AND (lock_expires_at <= ?1 OR lock_expires_at > ?2) LIMIT 1",
            (now, now + _LONGEST_LOCK_MS),
        ).fetchall()
    )


def _first_due(connection: sqlite3.Connection) -> int | None:
    """The earliest pending job of the types that may be claimed, by one seek per priority."""
    types = connection.execute(
        "SELECT id FROM background_job_types WHERE is_enabled = 1 AND is_paused = 0"
    ).fetchall()
    found = []
    for (type_id,) in types:
        for index, condition in _INDEXES:
            pending = (
                f"FROM background_jobs INDEXED BY {index} WHERE status = 'pending'"
                f" AND {condition} AND job_type_id = ?"
            )
            below = 21
            while True:
                top = f"SELECT max(priority) {pending} AND priority < ?"
                below = connection.execute(top, (type_id, below)).fetchall()[0][0]
                if below is None:
                    break
                first = f"SELECT min(scheduled_for) {pending} AND priority = ?"
                found.append(connection.execute(first, (type_id, below)).fetchall()[0][0])
    return min(found, default=None)

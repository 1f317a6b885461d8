"""The floor: the same work by hand, in plain sqlite3, over the same table and indexes."""

from __future__ import annotations

import secrets
import sqlite3
import time
from pathlib import Path

from edgeq.core.ids import uuid7
from edgeq.core.job_types import type_id

INPUT = '{"n":1,"to":"user@example.com"}'
_TYPE = type_id("noop")
INSERT = (
    "INSERT INTO background_jobs (id, job_type_id, input_data, scheduled_for, created_at,"
    " updated_at) VALUES (?, ?, ?, ?, ?, ?)"
)
COMPLETE = (
    "UPDATE background_jobs SET status = 'completed', progress = 100, output_data = ?,"
    " completed_at = ?, updated_at = ?, result_expires_at = ?, locked_at = NULL,"
    " locked_by = NULL, lock_expires_at = NULL WHERE seq = ? AND fence = ?"
    " AND status = 'processing'"
)
DUE = (
    "SELECT seq, id, fence, input_data, retry_count FROM background_jobs INDEXED BY jobs_ready"
    " WHERE status = 'pending' AND losses = 0 AND job_type_id = ? AND priority = 10"
    " AND scheduled_for <= ? ORDER BY scheduled_for, seq LIMIT ?"
)
LOCK = (
    "UPDATE background_jobs SET status = 'processing', locked_at = ?, locked_by = 'floor',"
    " lock_expires_at = ?, started_at = ?, updated_at = ?, fence = fence + 1"
    " WHERE seq = ? AND status = 'pending'"
)


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _row(type_name: str = "noop") -> tuple[object, ...]:
    now = time.time_ns() // 1_000_000
    return (uuid7(now, secrets.randbits(74)), type_id(type_name), INPUT, now, now, now)


def insert_singly(path: Path, count: int) -> float:
    """Jobs per second, one commit each."""
    connection = connect(path)
    began = time.perf_counter()
    for _ in range(count):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(INSERT, _row())
        connection.execute("COMMIT")
    took = time.perf_counter() - began
    connection.close()
    return count / took


def insert_many(path: Path, count: int, batch: int, type_name: str = "noop") -> float:
    """Jobs per second, `batch` a commit."""
    connection = connect(path)
    began = time.perf_counter()
    for _ in range(count // batch):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(INSERT, [_row(type_name) for _ in range(batch)])
        connection.execute("COMMIT")
    took = time.perf_counter() - began
    connection.close()
    return count / took


def drain(path: Path, count: int, batch: int) -> float:
    """Jobs per second: complete the last batch and claim the next one, one commit a turn."""
    connection = connect(path)
    done = 0
    running: list[tuple[int, int]] = []
    began = time.perf_counter()
    while done < count:
        now = time.time_ns() // 1_000_000
        connection.execute("BEGIN IMMEDIATE")
        if running:
            connection.executemany(
                COMPLETE,
                [("null", now, now, now + 3_600_000, seq, fence) for seq, fence in running],
            )
            done += len(running)
        found = connection.execute(DUE, (_TYPE, now, batch)).fetchall()
        connection.executemany(LOCK, [(now, now + 30_000, now, now, seq) for seq, *_ in found])
        connection.execute("COMMIT")
        running = [(seq, fence + 1) for seq, _, fence, *_ in found]
        if not running:
            break
    took = time.perf_counter() - began
    connection.close()
    return done / took

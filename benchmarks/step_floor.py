"""The floor of steps: the same by hand in plain sqlite3, a transaction for each step."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.floor import COMPLETE, DUE, LOCK, connect
from benchmarks.step_engine import STEPS
from edgeq.core.job_types import type_id

_TYPE = type_id("in_steps")
_FENCED = "UPDATE background_jobs SET steps = steps + 1, interruptions = 0, updated_at = ?"
_COUNT = f"{_FENCED} WHERE seq = ? AND fence = ? AND status = 'processing'"
_KEEP = (
    "INSERT INTO background_job_steps (job_id, name, key, kind, result, attempt, run_id,"
    " duration_ms, created_at) VALUES (?, 'part', ?, 'step', '1', 1, 'floor', 0, ?)"
)


def drain(path: Path, count: int, batch: int) -> float:
    """Jobs per second: claims are shared by a batch, each step and each completion is its own."""
    connection = connect(path)
    done = 0
    began = time.perf_counter()
    while done < count:
        now = time.time_ns() // 1_000_000
        connection.execute("BEGIN IMMEDIATE")
        found = connection.execute(DUE, (_TYPE, now, batch)).fetchall()
        connection.executemany(LOCK, [(now, now + 30_000, now, now, seq) for seq, *_ in found])
        connection.execute("COMMIT")
        for seq, job_id, fence, *_ in found:
            for number in range(STEPS):
                now = time.time_ns() // 1_000_000
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(_COUNT, (now, seq, fence + 1))
                connection.execute(_KEEP, (job_id, str(number), now))
                connection.execute("COMMIT")
            now = time.time_ns() // 1_000_000
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(COMPLETE, ("null", now, now, now + 3_600_000, seq, fence + 1))
            connection.execute("COMMIT")
        done += len(found)
        if not found:
            break
    took = time.perf_counter() - began
    connection.close()
    return done / took

"""Requests and answers between two processes: how long one takes, many at once, and idling."""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from benchmarks import engine, floor
from edgeq import Queue
from edgeq.core.ids import uuid7
from edgeq.core.job_types import type_id

ROOT = Path(__file__).parents[1]
WAITERS = 5_000
_WARM_UP = 20
_POLL_SECONDS = 0.002
_PATIENCE_SECONDS = 60.0
_ANSWER = (
    "UPDATE background_jobs SET status = 'completed', output_data = 'null', completed_at = ?"
    " WHERE status = 'pending' RETURNING id"
)


@dataclass(frozen=True)
class Times:
    """Of single requests, in milliseconds."""

    median: float
    p99: float


def sequential(path: Path, count: int) -> Times:
    """One `enqueue_and_wait` after the other, answered by an `edgeq worker`."""

    async def run() -> Times:
        async with Queue(f"sqlite:///{path}", handlers=[engine.noop]) as queue:
            took = []
            for _ in range(_WARM_UP + count):
                began = time.perf_counter()
                await queue.enqueue_and_wait(engine.noop, engine.INPUT, timeout=_PATIENCE_SECONDS)
                took.append((time.perf_counter() - began) * 1000)
            return _times(took[_WARM_UP:])

    with _worker(path):
        return asyncio.run(run())


def concurrent(path: Path, count: int) -> float:
    """Seconds until that many callers, who all wait at once, have their answers."""

    async def run() -> float:
        async with Queue(f"sqlite:///{path}", handlers=[engine.noop]) as queue:
            await queue.enqueue_and_wait(engine.noop, engine.INPUT, timeout=_PATIENCE_SECONDS)
            began = time.perf_counter()
            calls = (
                queue.enqueue_and_wait(engine.noop, engine.INPUT, timeout=_PATIENCE_SECONDS)
                for _ in range(count)
            )
            answers = await asyncio.gather(*calls)
            assert len(answers) == count
            return time.perf_counter() - began

    with _worker(path):
        return asyncio.run(run())


def idle_share(path: Path, seconds: float) -> float:
    """The share of a core that a worker takes while there is nothing to do."""
    with _worker(path) as worker:
        asyncio.run(_first_answer(path))
        # What it does after work belongs to the work.
        time.sleep(2)
        before, began = _cpu_seconds(worker.pid), time.perf_counter()
        time.sleep(seconds)
        return (_cpu_seconds(worker.pid) - before) / (time.perf_counter() - began)


def sequential_floor(path: Path, count: int) -> Times:
    """The same by hand: a commit that asks, one that answers, and polls for the other's."""
    server = subprocess.Popen([sys.executable, "-m", "benchmarks.requests", str(path)], cwd=ROOT)
    try:
        took = _ask(path, _WARM_UP + count)
    finally:
        server.terminate()
        server.wait()
    return _times(took[_WARM_UP:])


def _ask(path: Path, count: int) -> list[float]:
    asking, watching = floor.connect(path), floor.connect(path)
    took = []
    for _ in range(count):
        now = time.time_ns() // 1_000_000
        job_id = uuid7(now, secrets.randbits(74))
        began = time.perf_counter()
        asking.execute("BEGIN IMMEDIATE")
        asking.execute(floor.INSERT, (job_id, type_id("noop"), floor.INPUT, now, now, now))
        asking.execute("COMMIT")
        query = "SELECT output_data FROM background_jobs WHERE id = ? AND status = 'completed'"
        for _ in _changes(watching):
            if watching.execute(query, (job_id,)).fetchall():
                break
        took.append((time.perf_counter() - began) * 1000)
    asking.close()
    watching.close()
    return took


def _serve(path: Path) -> None:
    """The other process of the floor, until it is ended."""
    answering, watching = floor.connect(path), floor.connect(path)
    for _ in _changes(watching):
        answering.execute("BEGIN IMMEDIATE")
        answering.execute(_ANSWER, (time.time_ns() // 1_000_000,)).fetchall()
        answering.execute("COMMIT")


def _changes(connection: sqlite3.Connection) -> Iterator[None]:
    """One for each change of the file by others, and one at first: it may have been missed."""
    seen = None
    while True:
        version = connection.execute("PRAGMA data_version").fetchone()
        if version != seen:
            seen = version
            yield
        else:
            time.sleep(_POLL_SECONDS)


@contextmanager
def _worker(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = ["-m", "edgeq", "--db", f"sqlite:///{path}", "--handlers", "benchmarks.engine"]
    worker = subprocess.Popen(
        [sys.executable, *command, "worker", "--json"], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    try:
        yield worker
    finally:
        worker.terminate()
        assert worker.wait(_PATIENCE_SECONDS) == 0, "the worker did not end well"


async def _first_answer(path: Path) -> None:
    async with Queue(f"sqlite:///{path}", handlers=[engine.noop]) as queue:
        await queue.enqueue_and_wait(engine.noop, engine.INPUT, timeout=_PATIENCE_SECONDS)


def _cpu_seconds(pid: int) -> float:
    """User and system time, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _times(took: list[float]) -> Times:
    return Times(median(took), quantiles(took, n=100)[98])


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))

"""Races: real processes on one file never claim one job twice, and limits hold over all of them."""

from __future__ import annotations

import itertools
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from edgeq.core.job_types import TypePolicy
from edgeq.ports.commands import InsertJobs, RegisterTypes
from edgeq.store.sqlite import SqliteStore
from edgeq.testing import FakeClock
from tests.conftest import JobBuilder
from tests.store.programs import run_together

PROCESSES = 4
FREE, LIMITED, AT_ONCE = 1200, 200, 2


def fill(path: Path, new_job: JobBuilder) -> set[str]:
    store = SqliteStore(f"sqlite:///{path}", FakeClock(), durable=False)
    store.open_blocking()
    limited = TypePolicy(name="limited", max_concurrent=AT_ONCE)
    store.write_blocking(RegisterTypes((TypePolicy(name="free"), limited)))
    jobs = [new_job("free", priority=1 + n % 20) for n in range(FREE)]
    jobs += [new_job("limited", priority=1 + n % 20) for n in range(LIMITED)]
    store.write_blocking(InsertJobs(tuple(jobs)))
    store.close_blocking()
    return {job.id for job in jobs}


def most_at_once(path: Path, job_type: str) -> int:
    """How many jobs of a type were ever running together, by the feed of all commits."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT changes FROM job_changes ORDER BY id").fetchall()
    running: set[str] = set()
    most = 0
    for (changes,) in rows:
        for job_id, status, kind, *_ in json.loads(changes):
            if kind == job_type and status == "processing":
                running.add(job_id)
            else:
                running.discard(job_id)
        most = max(most, len(running))
    return most


@pytest.mark.process
def test_four_processes_claim_each_job_once_and_keep_within_the_limit(
    tmp_path: Path, new_job: JobBuilder
) -> None:
    path = tmp_path / "queue.db"
    jobs = fill(path, new_job)

    claimed = run_together(PROCESSES, "claim_all", path)

    everything = list(itertools.chain.from_iterable(claimed))
    assert len(everything) == len(set(everything))
    assert set(everything) == jobs
    assert most_at_once(path, "limited") == AT_ONCE

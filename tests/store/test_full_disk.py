"""A full disk: what was accepted is kept, what was refused is not there, and it goes on after."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeq.core.job_types import TypePolicy
from edgeq.core.jobs import NewJob
from edgeq.errors import StoreFull
from edgeq.ports.commands import InsertJobs, RegisterTypes
from edgeq.store.executors import EXECUTORS
from edgeq.store.gate import Gate
from edgeq.store.sqlite_file import connect
from edgeq.store.sqlite_session import SqliteSession
from edgeq.store.writer import Writer
from edgeq.testing import FakeClock
from tests.conftest import JobBuilder

PAGES = 120


class SmallDisk:
    """A writer on a file that may have few pages, until it gets more."""

    def __init__(self, path: Path, clock: FakeClock) -> None:
        self._connection = connect(path, durable=False)
        self.give(PAGES)
        session = SqliteSession(self._connection, path, Gate(path), clock.now)
        self.writer = Writer(
            lambda: session, EXECUTORS, describe_holder=lambda: "", elapsed=clock.elapsed
        )

    def give(self, pages: int) -> None:
        self._connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()


@pytest.fixture
def path(tmp_path: Path, migrated_file: Path) -> Path:
    return Path(shutil.copy(migrated_file, tmp_path / "queue.db"))


@pytest.fixture
def disk(path: Path, clock: FakeClock) -> Iterator[SmallDisk]:
    disk = SmallDisk(path, clock)
    disk.writer.open()
    disk.writer.write_blocking(RegisterTypes((TypePolicy(name="noop"),)))
    yield disk
    disk.writer.close()


def stored(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    ids = {job_id for (job_id,) in connection.execute("SELECT id FROM background_jobs")}
    connection.close()
    return ids


def large(new_job: JobBuilder) -> NewJob:
    return new_job(input_data='"' + "x" * 4000 + '"')


def fill(disk: SmallDisk, new_job: JobBuilder) -> set[str]:
    """Insert until nothing more fits; answers with what was accepted."""
    accepted: set[str] = set()
    for _ in range(PAGES):
        job = large(new_job)
        try:
            disk.writer.write_blocking(InsertJobs((job,)))
        except StoreFull:
            return accepted
        accepted.add(job.id)
    raise AssertionError("the disk has no end")


def test_what_was_accepted_is_kept_and_what_was_refused_is_not_there(
    disk: SmallDisk, path: Path, new_job: JobBuilder
) -> None:
    accepted = fill(disk, new_job)

    assert accepted
    assert stored(path) == accepted


def test_it_goes_on_by_itself_when_there_is_space_again(
    disk: SmallDisk, path: Path, new_job: JobBuilder
) -> None:
    accepted = fill(disk, new_job)
    disk.give(10 * PAGES)
    job = large(new_job)

    disk.writer.write_blocking(InsertJobs((job,)))

    assert stored(path) == accepted | {job.id}


async def test_in_a_group_only_those_that_do_not_fit_are_refused(
    disk: SmallDisk, path: Path, new_job: JobBuilder
) -> None:
    jobs = [large(new_job) for _ in range(PAGES)]

    answers = await asyncio.gather(
        *(disk.writer.write(InsertJobs((job,))) for job in jobs), return_exceptions=True
    )

    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    accepted = {
        job.id for job, answer in zip(jobs, answers, strict=True) if isinstance(answer, tuple)
    }
    assert refused
    assert all(isinstance(answer, StoreFull) for answer in refused)
    assert len(accepted) > 20
    assert stored(path) == accepted

"""What a run does when its store cannot take what it brings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from edgeq import Context, Queue, handler
from edgeq.core.outcomes import Completed
from edgeq.errors import StoreBusy, StoreError, StoreFull, StoreUnavailable
from edgeq.ports.commands import Command, Cycle
from edgeq.ports.store import Store
from edgeq.settings import Settings
from edgeq.store.sqlite import SqliteStore
from edgeq.testing import FakeClock
from edgeq.wiring import SystemClock

T = TypeVar("T")
Fault = Callable[[Command[Any]], BaseException | None]


class FaultyStore(SqliteStore):
    """A real store that fails when the test says so, before it has done anything."""

    fault: Fault = staticmethod(lambda _: None)

    async def write(self, command: Command[T]) -> T:
        fault = self.fault(command)
        if fault is not None:
            raise fault
        return await super().write(command)


@handler("echo", max_retries=0)
async def echo(ctx: Context, input: dict[str, Any]) -> Any:
    return input["n"]


@pytest.fixture
def faulty(tmp_path: Path) -> FaultyStore:
    return FaultyStore(f"sqlite:///{tmp_path / 'queue.db'}", SystemClock(), durable=False)


def _queue(store: Store) -> Queue:
    return Queue(store=store, handlers=[echo], settings=Settings())


def _outcomes(command: Command[Any]) -> list[object]:
    return [each.outcome for each in command.settled] if isinstance(command, Cycle) else []


@pytest.mark.parametrize("error", [StoreFull("the disk is full"), StoreBusy("held")])
async def test_outcomes_wait_for_a_database_that_is_full_or_held(
    faulty: FaultyStore, error: StoreError
) -> None:
    failures = iter([error, None])
    async with _queue(faulty) as queue:
        await queue.enqueue_many(echo, [{"n": n} for n in range(5)])
        faulty.fault = lambda command: next(failures, None) if _outcomes(command) else None
        report = await queue.process_jobs(budget=10)
    assert (report.completed, report.lost_locks) == (5, 0)


async def test_one_outcome_that_cannot_be_stored_fails_its_own_job_only(
    faulty: FaultyStore,
) -> None:
    def fault(command: Command[Any]) -> BaseException | None:
        is_odd = Completed("3") in _outcomes(command)
        return OverflowError("too large for a column") if is_odd else None

    async with _queue(faulty) as queue:
        jobs = await queue.enqueue_many(echo, [{"n": n} for n in range(5)])
        faulty.fault = fault
        report = await queue.process_jobs(budget=10)
        odd = await queue.get(jobs[3].job_id)
    assert (report.completed, report.failed, report.claimed) == (4, 1, 5)
    assert (odd.status, odd.error_class) == ("failed", "non_retryable")


@pytest.mark.parametrize("error", [StoreFull("full"), StoreUnavailable("gone")])
async def test_a_run_that_cannot_write_to_its_end_says_so_and_its_jobs_come_back(
    faulty: FaultyStore, error: StoreError
) -> None:
    async with _queue(faulty) as queue:
        job_id = (await queue.enqueue(echo, {"n": 1})).job_id
        faulty.fault = lambda command: error if _outcomes(command) else None
        with pytest.raises(type(error)):
            await queue.process_jobs(budget=0.2, grace=0.1)
        faulty.fault = lambda _: None
        while (await queue.get(job_id)).status != "completed":
            await queue.process_jobs(budget=1)
            await asyncio.sleep(0.05)
        assert await queue.result(job_id) == 1


async def test_a_frozen_queue_takes_nothing_and_goes_on_when_it_thaws(
    tmp_path: Path, clock: FakeClock
) -> None:
    import sqlite3

    path = tmp_path / "queue.db"
    async with Queue(f"sqlite:///{path}", handlers=[echo], clock=clock) as queue:
        for mode, code in (("frozen", "store_frozen"), ("moved", "store_moved")):
            with sqlite3.connect(path) as connection:
                connection.execute("UPDATE queue_guard SET mode = ?", (mode,))
            connection.close()
            with pytest.raises(StoreError) as refused:
                await queue.enqueue(echo, {"n": 1})
            assert refused.value.code == code
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE queue_guard SET mode = 'open'")
        connection.close()
        assert (await queue.enqueue(echo, {"n": 1})).status == "pending"

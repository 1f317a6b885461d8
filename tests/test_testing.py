"""What users get for their own tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

import edgeq
from edgeq import Context, Queue, handler
from edgeq.events import JobMoved, RunEnded
from edgeq.testing import FakeChance, FakeClock, RecordingObserver, drain


@handler("greet")
async def greet(ctx: Context, input: dict[str, Any]) -> str:
    return f"hello {input['name']}"


async def test_the_fixtures_open_a_queue_whose_time_the_test_moves(
    edgeq_queue: Callable[..., AbstractAsyncContextManager[Queue]], edgeq_clock: FakeClock
) -> None:
    async with edgeq_queue([greet]) as queue:
        job_id = (await queue.enqueue(greet, {"name": "you"}, delay=60)).job_id
        await drain(queue)
        assert (await queue.get(job_id)).status == "pending"
        edgeq_clock.advance(60)
        await drain(queue)
        assert await queue.result(job_id) == "hello you"


async def test_an_observer_waits_for_what_has_happened_or_will(
    edgeq_queue: Callable[..., AbstractAsyncContextManager[Queue]],
) -> None:
    seen = RecordingObserver()
    async with edgeq_queue([greet], observers=[seen]) as queue:
        await queue.enqueue(greet, {"name": "you"})
        await queue.process_jobs()
        moved = await seen.wait_for(JobMoved, lambda event: event.after == "completed")
        ended = await seen.wait_for(RunEnded)
    assert moved.type == "greet"
    assert ended.claimed == 1


async def test_an_observer_gives_up_on_what_never_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("edgeq.testing._PATIENCE_SECONDS", 0.05)
    with pytest.raises(TimeoutError, match="RunEnded"):
        await RecordingObserver().wait_for(RunEnded)


def test_chance_from_a_seed_repeats() -> None:
    assert FakeChance(3).bits(74) == FakeChance(3).bits(74)
    assert FakeChance(3).unit() == FakeChance(3).unit()


def test_the_plain_entry_point_runs_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "handlers").mkdir()
    report = edgeq.process_jobs(f"sqlite:///{tmp_path}/queue.db", budget=1)
    assert (report.claimed, report.stopped) == (0, "empty")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_plain_entry_point_comes_back_from_a_handler_that_cannot_be_stopped(
    tmp_path: Any,
) -> None:
    @handler("stubborn", timeout=0.05, max_retries=0)
    async def stubborn(ctx: Context, input: dict[str, Any]) -> None:
        for _ in range(1000):
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                continue

    url = f"sqlite:///{tmp_path}/queue.db"

    async def enqueue() -> None:
        async with Queue(url, handlers=[stubborn]) as queue:
            await queue.enqueue(stubborn, {})

    asyncio.run(enqueue())
    began = time.monotonic()
    report = edgeq.process_jobs(url, [stubborn], budget=2, grace=0.5)
    assert report.failed == 1
    assert time.monotonic() - began < 4


async def test_a_queue_in_memory_lives_as_long_as_it_is_open() -> None:
    async with Queue("sqlite:///:memory:", handlers=[greet]) as queue:
        job_id = (await queue.enqueue(greet, {"name": "you"})).job_id
        await queue.process_jobs(budget=5)
        assert await queue.result(job_id) == "hello you"
        folder = queue.store.path.parent  # type: ignore[attr-defined]
        assert folder.exists()
    assert not folder.exists()

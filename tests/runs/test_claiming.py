"""Which jobs a run takes, in which order, and how many at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import Any

import pytest

from edgeq import Context, handler
from edgeq.events import JobMoved
from edgeq.registry import load
from edgeq.testing import FakeClock, RecordingObserver, drain, queue_for_test

ORDER: list[Any] = []


@handler("write_down")
async def write_down(ctx: Context, input: dict[str, Any]) -> None:
    ORDER.append(input["n"])


@pytest.fixture(autouse=True)
def _nothing_yet() -> None:
    ORDER.clear()


async def test_higher_priority_first_then_the_one_that_is_due_longer(clock: FakeClock) -> None:
    async with queue_for_test([write_down], clock=clock) as queue:
        for n, (priority, ago) in enumerate([(10, 1), (10, 5), (20, 0), (1, 9), (10, 5)]):
            await queue.enqueue(
                write_down, {"n": n}, priority=priority, scheduled_for=clock.now() - ago
            )
        await queue.process_jobs(concurrency=1)
    assert ORDER == [2, 1, 4, 0, 3]


async def test_a_job_is_not_run_before_its_time_nor_after_its_expiry(clock: FakeClock) -> None:
    async with queue_for_test([write_down], clock=clock) as queue:
        await queue.enqueue(write_down, {"n": "later"}, delay=60)
        expiring = await queue.enqueue(
            write_down, {"n": "never"}, delay=30, expires_at=clock.now() + 40_000
        )
        assert (await queue.process_jobs()).claimed == 0
        clock.advance(60)
        await queue.process_jobs()
        assert (await queue.get(expiring.job_id)).status == "cancelled"
    assert ORDER == ["later"]


async def test_max_jobs_types_and_lanes_narrow_a_run() -> None:
    @handler("quick", lane="fast")
    async def quick(ctx: Context, input: dict[str, Any]) -> None:
        return None

    async with queue_for_test([write_down, quick]) as queue:
        await queue.enqueue_many(write_down, [{"n": n} for n in range(5)])
        await queue.enqueue_many(quick, [{} for _ in range(5)])
        some = await queue.process_jobs(max_jobs=3, types=["write_down"])
        fast = await queue.process_jobs(lanes=["fast"])
        rest = await queue.process_jobs()
    assert (some.claimed, some.completed, some.stopped) == (3, 3, "max_jobs")
    assert (fast.completed, fast.remaining, fast.unhandled_types) == (5, 2, ())
    assert (rest.completed, rest.remaining, rest.stopped) == (2, 0, "empty")


async def test_no_more_than_max_concurrent_run_at_once() -> None:
    most = running = 0

    @handler("limited", max_concurrent=2)
    async def limited(ctx: Context, input: dict[str, Any]) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    async with queue_for_test([limited]) as queue:
        await queue.enqueue_many(limited, [{} for _ in range(10)])
        report = await queue.process_jobs(concurrency=8)
    assert (report.completed, most) == (10, 2)


async def test_slow_work_leaves_the_fast_slots_free() -> None:
    let_go = asyncio.Event()
    quick_done = asyncio.Event()

    @handler("slow")
    async def slow(ctx: Context, input: dict[str, Any]) -> None:
        await let_go.wait()

    @handler("quick", lane="fast")
    async def quick(ctx: Context, input: dict[str, Any]) -> None:
        quick_done.set()

    async with queue_for_test([slow, quick]) as queue:
        await queue.enqueue_many(slow, [{} for _ in range(10)], priority=20)
        await queue.enqueue(quick, {}, priority=1)
        run = asyncio.create_task(queue.process_jobs(concurrency=4, fast_slots=1, budget=20))
        await asyncio.wait_for(quick_done.wait(), 5)
        let_go.set()
        report = await run
    assert report.completed == 11


async def test_types_without_a_handler_are_left_alone_and_listed() -> None:
    async with queue_for_test([write_down]) as queue:
        await queue.create_type("elsewhere")
        left = await queue.enqueue("elsewhere", {})
        await queue.enqueue(write_down, {"n": 1})
        report = await queue.process_jobs()
        assert (await queue.get(left.job_id)).status == "pending"
    assert (report.completed, report.unhandled_types, report.remaining) == (1, ("elsewhere",), 1)


async def test_several_types_may_share_one_handler() -> None:
    async with queue_for_test([write_down]) as queue:
        await queue.create_type("alias", handler_name="write_down")
        await queue.enqueue("alias", {"n": "by another name"})
        await queue.process_jobs()
    assert ORDER == ["by another name"]


async def test_the_switch_stops_runs_before_and_during_their_work() -> None:
    @handler("switch_off")
    async def switch_off(ctx: Context, input: dict[str, Any]) -> None:
        await queue.set_config({"worker_enabled": False})

    async with queue_for_test([switch_off]) as queue:
        await queue.enqueue_many(switch_off, [{}, {}, {}])
        during = await queue.process_jobs(concurrency=1)
        before = await queue.process_jobs()
    assert (during.completed, during.stopped, during.remaining) == (1, "disabled", 2)
    assert (before.claimed, before.stopped) == (0, "disabled")


async def test_short_jobs_are_claimed_ahead_and_given_back_untouched() -> None:
    @handler("tiny")
    async def tiny(ctx: Context, input: dict[str, Any]) -> None:
        if input["n"] == 60:
            await asyncio.sleep(30)

    async with queue_for_test([tiny]) as queue:
        await queue.enqueue_many(tiny, [{"n": n} for n in range(150)])
        report = await queue.process_jobs(concurrency=1, budget=0.4, grace=0.1)
        states = Counter([str(job.status) for job in (await queue.list(limit=200)).items])
        untouched = (await queue.list(status="pending", limit=200)).items
    assert report.claimed == report.completed + report.interrupted
    assert report.interrupted == 1
    assert states["processing"] == 0
    assert all(job.retry_count == 0 and job.locked_by is None for job in untouched)
    assert sum(job.interruptions for job in untouched) == 1


async def test_a_run_claims_what_is_enqueued_while_it_works() -> None:
    @handler("chain")
    async def chain(ctx: Context, input: dict[str, Any]) -> None:
        if input["n"]:
            await queue.enqueue(chain, {"n": input["n"] - 1})

    async with queue_for_test([chain]) as queue:
        await queue.enqueue(chain, {"n": 5})
        report = await queue.process_jobs(budget=20)
    assert report.completed == 6


async def test_lifespan_opens_once_for_a_run_and_reaches_every_handler() -> None:
    opened: list[str] = []

    @asynccontextmanager
    async def lifespan() -> Any:
        opened.append("open")
        yield {"pool": 42}
        opened.append("closed")

    @handler("uses_state")
    async def uses_state(ctx: Context, input: dict[str, Any]) -> int:
        pool: int = ctx.state["pool"]
        return pool

    async with queue_for_test([uses_state]) as queue:
        registry = load([uses_state])
        queue._registry = type(registry)(registry.handlers, lifespan)
        ids = [e.job_id for e in await queue.enqueue_many(uses_state, [{}, {}])]
        await drain(queue)
        results = [await queue.result(job_id) for job_id in ids]
    assert results == [42, 42]
    assert opened == ["open", "closed"]


async def test_runs_are_recorded_and_idle_ones_share_a_row() -> None:
    async with queue_for_test([write_down]) as queue:
        for _ in range(3):
            await queue.process_jobs()
        await queue.enqueue(write_down, {"n": 1})
        await queue.process_jobs()
        rows = {row.kind: row for row in await queue.runs()}
    assert rows["idle"].ticks == 3
    assert rows["process"].report is not None
    assert rows["process"].report["completed"] == 1
    assert len(rows) == 2


async def test_every_transition_is_announced() -> None:
    seen = RecordingObserver()
    async with queue_for_test([write_down], observers=[seen]) as queue:
        job_id = (await queue.enqueue(write_down, {"n": 1})).job_id
        await queue.process_jobs()
    moves = [(e.before, e.after) for e in seen.of(JobMoved) if e.job_id == job_id]
    assert moves == [(None, "pending"), ("pending", "processing"), ("processing", "completed")]


async def test_jobs_claimed_ahead_respect_lanes_and_concurrency() -> None:
    at_once: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def work(lane: str, n: int) -> None:
        at_once[lane] += 1
        most[lane] = max(most[lane], at_once[lane])
        most["all"] = max(most["all"], at_once["general"] + at_once["fast"])
        await asyncio.sleep(0.02 if n > 30 else 0)
        at_once[lane] -= 1

    @handler("slow")
    async def slow(ctx: Context, input: dict[str, Any]) -> None:
        await work("general", input["n"])

    @handler("quick", lane="fast")
    async def quick(ctx: Context, input: dict[str, Any]) -> None:
        await work("fast", input["n"])

    async with queue_for_test([slow, quick]) as queue:
        await queue.enqueue_many(slow, [{"n": n} for n in range(100)])
        await queue.enqueue_many(quick, [{"n": n} for n in range(100)])
        report = await queue.process_jobs(budget=20, concurrency=8, fast_slots=3)
    assert report.completed == 200
    assert most["all"] <= 8
    assert most["general"] <= 5


async def test_an_urgent_job_overtakes_a_backlog_that_was_claimed_ahead() -> None:
    order: list[str] = []

    @handler("tiny")
    async def tiny(ctx: Context, input: dict[str, Any]) -> None:
        order.append("tiny")
        await asyncio.sleep(0.002)
        if len(order) >= 100:
            await queue.enqueue(urgent, {}, priority=20, idempotency_key="once")

    @handler("urgent", max_concurrent=1)
    async def urgent(ctx: Context, input: dict[str, Any]) -> None:
        order.append("urgent")

    async with queue_for_test([tiny, urgent]) as queue:
        await queue.enqueue_many(tiny, [{} for _ in range(2000)])
        await queue.process_jobs(budget=30, concurrency=2, fast_slots=0)
    assert order.index("urgent") < 600


async def test_long_types_share_half_of_the_open_slots() -> None:
    running = most = 0

    def long_type(name: str) -> Any:
        @handler(name)
        async def long(ctx: Context, input: dict[str, Any]) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                await asyncio.sleep(30)
            finally:
                running -= 1

        return long

    async with queue_for_test([long_type(name) for name in ("a", "b", "c")]) as queue:
        for name in ("a", "b", "c"):
            await queue.enqueue_many(name, [{} for _ in range(6)])
        await queue.process_jobs(budget=0.2, grace=0, concurrency=20)
        most = 0
        await queue.process_jobs(budget=0.2, grace=0, concurrency=8)
    assert 0 < most <= 2


async def test_what_is_taken_back_or_expires_is_announced(clock: FakeClock) -> None:
    seen = RecordingObserver()
    async with queue_for_test([write_down], clock=clock, observers=[seen]) as queue:
        job_id = (await queue.enqueue(write_down, {"n": 1}, expires_at=clock.now() + 1)).job_id
        clock.advance(1)
        await queue.process_jobs()
    moves = [(event.before, event.after) for event in seen.of(JobMoved) if event.job_id == job_id]
    assert moves == [(None, "pending"), ("pending", "cancelled")]

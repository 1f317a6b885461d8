"""Admission of stepwise work: a claim asks for its first part, and every part that ran is known."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edgeq import Context, Queue, handler
from edgeq.core.durations import Histogram
from edgeq.core.steps import FIRST_PART, TOTAL, WHOLE, runs_needed
from edgeq.ports.queries import GetDurations
from edgeq.testing import FakeClock, drain, queue_for_test


def filler_of(clock: FakeClock, seconds: float) -> Any:
    @handler("filler")
    async def filler(ctx: Context, input: dict[str, Any]) -> None:
        clock.advance(seconds)

    return filler


def stepwise_of(clock: FakeClock, steps: int) -> Any:
    @handler("stepwise")
    async def stepwise(ctx: Context, input: dict[str, Any]) -> None:
        for n in range(steps):
            await ctx.step("part", clock.advance, 1.0, key=n)

    return stepwise


async def durations(queue: Queue, job_type: str, part: str) -> Histogram:
    return await queue.store.read(GetDurations(job_type, part))


async def test_a_claim_asks_for_the_first_part_and_not_for_the_whole_job() -> None:
    clock = FakeClock()
    filler, stepwise = filler_of(clock, 2), stepwise_of(clock, 8)

    @handler("whole")
    async def whole(ctx: Context, input: dict[str, Any]) -> None:
        clock.advance(8)

    async with queue_for_test([filler, stepwise, whole], clock=clock) as queue:
        for each in (stepwise, whole):
            await queue.enqueue_many(each, [{}] * 6)
        await queue.process_jobs(budget=1000, concurrency=1, fast_slots=0)
        # Both take 8 s, of which 6 are left behind the filler.
        await queue.enqueue(filler, {}, priority=20)
        jobs = [(await queue.enqueue(each, {})).job_id for each in (stepwise, whole)]
        report = await queue.process_jobs(budget=9, grace=0, concurrency=1, fast_slots=0)
        stepwise_job, whole_job = [await queue.get(job_id) for job_id in jobs]
    assert stepwise_job.steps >= 4
    assert (whole_job.status, whole_job.started_at) == ("pending", None)
    # Of the first, what is left of it at the end of the run.
    assert report.deferred == report.remaining == 2


async def test_what_never_fits_starts_early_and_in_half_of_the_slots() -> None:
    clock, started = FakeClock(), list[int]()
    is_learning = True

    @handler("huge")
    async def huge(ctx: Context, input: dict[str, Any]) -> None:
        async def part() -> None:
            started.append(1)
            if not is_learning:
                await asyncio.sleep(0.2)  # the others have time to start, if they may
            clock.advance(9)

        await ctx.step("part", part)

    async with queue_for_test([huge], clock=clock) as queue:
        await queue.enqueue_many(huge, [{}] * 6)
        await queue.process_jobs(budget=1000, concurrency=1, fast_slots=0)
        is_learning = False
        started.clear()
        await queue.enqueue_many(huge, [{}] * 6)
        await queue.process_jobs(budget=5, grace=0, concurrency=4, fast_slots=0)
    assert len(started) == 2


@pytest.mark.parametrize("how", ["interrupted", "timed out"])
async def test_a_part_that_is_cut_short_counts_as_long_as_it_took(how: str) -> None:
    timeout = 0.2 if how == "timed out" else 60.0

    async def hang() -> None:
        await asyncio.sleep(30)

    @handler("cut", timeout=timeout, max_retries=0)
    async def cut(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.step("quick", int)
        await ctx.step("hang", hang)

    async with queue_for_test([cut]) as queue:
        await queue.enqueue(cut, {})
        await queue.process_jobs(budget=0.3, grace=0)
        hung = await durations(queue, "cut", "hang")
        first = await durations(queue, "cut", FIRST_PART)
        whole = await durations(queue, "cut", WHOLE)
    assert (hung.samples, first.samples, whole.samples) == (1, 1, 1)
    assert (hung.quantile(0.5) or 0) >= 150
    assert (first.quantile(0.5) or 0) < 150


async def test_a_first_part_that_is_cut_short_counts_as_one() -> None:
    async def hang() -> None:
        await asyncio.sleep(30)

    @handler("cut")
    async def cut(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.step("hang", hang)

    async with queue_for_test([cut]) as queue:
        await queue.enqueue(cut, {})
        await queue.process_jobs(budget=0.3, grace=0)
        first = await durations(queue, "cut", FIRST_PART)
    assert (first.samples, (first.quantile(0.5) or 0) >= 250) == (1, True)


async def test_what_a_job_took_over_all_its_runs_tells_how_many_a_new_one_needs() -> None:
    clock = FakeClock()
    stepwise = stepwise_of(clock, 100)
    async with queue_for_test([stepwise], clock=clock) as queue:
        job_id = (await queue.enqueue(stepwise, {})).job_id
        assert await queue.runs_left(await queue.get(job_id)) is None
        await queue.process_jobs(budget=25, grace=0)
        assert await queue.runs_left(await queue.get(job_id)) is None
        reports = await drain(queue, budget=25, runs=20)
        total = await durations(queue, "stepwise", TOTAL)
        assert total.samples == 1
        assert 100_000 <= (total.quantile(0.5) or 0) <= 200_000
        assert await queue.runs_left(await queue.get(job_id)) is None
        assert len(reports) >= 3

        second = (await queue.enqueue(stepwise, {})).job_id
        await queue.process_jobs(budget=25, grace=0)
        job = await queue.get(second)
        left = await queue.runs_left(job)
    assert job.status == "pending"
    assert left == runs_needed(total, done_ms=job.steps * 1000, budget=25)


async def test_a_job_without_steps_adds_nothing_to_what_is_known_of_parts() -> None:
    clock = FakeClock()
    async with queue_for_test([filler_of(clock, 1)], clock=clock) as queue:
        await queue.enqueue("filler", {})
        await queue.process_jobs(budget=5)
        assert (await durations(queue, "filler", FIRST_PART)).samples == 0
        assert (await durations(queue, "filler", TOTAL)).samples == 0
        assert (await durations(queue, "filler", WHOLE)).samples == 1

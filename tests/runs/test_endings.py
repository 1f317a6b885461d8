"""How a run ends: budgets, interruptions, cancellations, lost locks, dead processes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from typing import Any

import pytest

from edgeq import Context, SyncContext, handler
from edgeq.core.jobs import JobStatus
from edgeq.core.lanes import ClaimStep
from edgeq.errors import LockLost
from edgeq.events import ClockJumped, LockWasLost
from edgeq.ports.commands import Claim, ClaimableType, Cycle, StartRun
from edgeq.testing import FakeClock, RecordingObserver, drain, queue_for_test


@handler("sleeper")
async def sleeper(ctx: Context, input: dict[str, Any]) -> None:
    await asyncio.sleep(30)


async def test_at_the_end_of_its_time_a_run_interrupts_what_still_runs() -> None:
    async with queue_for_test([sleeper]) as queue:
        job_id = (await queue.enqueue(sleeper, {})).job_id
        began = time.monotonic()
        report = await queue.process_jobs(budget=0.2, grace=0.1)
        took = time.monotonic() - began
        job = await queue.get(job_id)
        attempts = await queue.attempts(job_id)
    assert (report.interrupted, report.stopped) == (1, "budget")
    assert took < 1.3
    assert (job.status, job.retry_count, job.interruptions) == ("pending", 0, 1)
    assert job.error_class is None
    assert [each.outcome for each in attempts] == ["interrupted"]


async def test_after_too_many_interruptions_a_job_fails() -> None:
    @handler("endless", max_interruptions=1)
    async def endless(ctx: Context, input: dict[str, Any]) -> None:
        await asyncio.sleep(30)

    async with queue_for_test([endless]) as queue:
        job_id = (await queue.enqueue(endless, {})).job_id
        for _ in range(2):
            await queue.process_jobs(budget=0.1, grace=0)
        job = await queue.get(job_id)
    assert (job.status, job.error_class) == ("failed", "budget_exceeded")


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_checkpoint_stops_a_handler_when_the_budget_is_over(kind: str) -> None:
    @handler("polite")
    async def polite(ctx: Context, input: dict[str, Any]) -> None:
        while True:
            await asyncio.sleep(0.01)
            await ctx.checkpoint()

    @handler("polite")
    def polite_thread(ctx: SyncContext, input: dict[str, Any]) -> None:
        while True:
            threading.Event().wait(0.01)
            ctx.checkpoint()

    function: Any = polite if kind == "async" else polite_thread
    async with queue_for_test([function]) as queue:
        job_id = (await queue.enqueue("polite", {})).job_id
        began = time.monotonic()
        report = await queue.process_jobs(budget=0.2, grace=20)
        took = time.monotonic() - began
        assert (await queue.get(job_id)).status == "pending"
    assert report.interrupted == 1
    assert took < 5


async def test_in_a_library_a_handler_that_cannot_be_stopped_keeps_its_lock() -> None:
    let_go = asyncio.Event()

    @handler("stubborn")
    async def stubborn(ctx: Context, input: dict[str, Any]) -> str:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return "done after all"

    async with queue_for_test([stubborn]) as queue:
        job_id = (await queue.enqueue(stubborn, {})).job_id
        report = await queue.process_jobs(budget=0.1, grace=0.1)
        held = await queue.get(job_id)
        let_go.set()
        while (job := await queue.get(job_id)).status != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (report.claimed, report.interrupted) == (1, 1)
    assert held.status == "processing"
    assert (job.status, job.output) == ("completed", "done after all")


async def test_what_would_not_fit_the_time_left_is_deferred() -> None:
    @handler("half_second")
    async def half_second(ctx: Context, input: dict[str, Any]) -> None:
        await asyncio.sleep(0.3)

    async with queue_for_test([half_second]) as queue:
        await queue.enqueue_many(half_second, [{} for _ in range(40)])
        await queue.process_jobs(budget=0.5, grace=2, concurrency=8)
        report = await queue.process_jobs(budget=0.9, grace=0, concurrency=8)
    assert report.interrupted == 0
    assert report.deferred > 0
    assert (report.stopped, report.deferred) == ("budget", report.remaining)


async def test_a_cancel_request_leaves_success_a_success() -> None:
    started = asyncio.Event()

    @handler("finisher")
    async def finisher(ctx: Context, input: dict[str, Any]) -> str:
        started.set()
        while not ctx.cancelled:  # noqa: ASYNC110 - what handlers do
            await asyncio.sleep(0.01)
        return "finished anyway"

    async with queue_for_test([finisher]) as queue:
        job_id = (await queue.enqueue(finisher, {})).job_id
        run = asyncio.create_task(queue.process_jobs(budget=20))
        await asyncio.wait_for(started.wait(), 5)
        assert await queue.cancel(job_id) == "requested"
        report = await run
        assert await queue.result(job_id) == "finished anyway"
    assert report.completed == 1


async def test_a_cancel_request_stops_a_handler_at_its_checkpoint() -> None:
    started = asyncio.Event()

    @handler("checker")
    async def checker(ctx: Context, input: dict[str, Any]) -> None:
        started.set()
        while True:
            await asyncio.sleep(0.01)
            await ctx.checkpoint()

    async with queue_for_test([checker]) as queue:
        job_id = (await queue.enqueue(checker, {})).job_id
        run = asyncio.create_task(queue.process_jobs(budget=20))
        await asyncio.wait_for(started.wait(), 5)
        await queue.cancel(job_id)
        report = await run
        assert (await queue.get(job_id)).status == "cancelled"
    assert report.cancelled == 1


async def test_a_handler_whose_lock_was_taken_learns_it_and_changes_nothing() -> None:
    started, learned = asyncio.Event(), asyncio.Event()
    refused: list[type[Exception]] = []
    seen = RecordingObserver()

    @handler("zombie")
    async def zombie(ctx: Context, input: dict[str, Any]) -> str:
        started.set()
        try:
            await asyncio.sleep(30)
        finally:
            for late in (ctx.log("late"), ctx.progress(50), ctx.checkpoint()):
                try:
                    await late
                except LockLost as lost:
                    refused.append(type(lost))
            assert ctx.lost
            learned.set()
        return "never"

    async with queue_for_test([zombie], observers=[seen]) as queue:
        job_id = (await queue.enqueue(zombie, {})).job_id
        run = asyncio.create_task(queue.process_jobs(budget=20, max_jobs=1))
        await asyncio.wait_for(started.wait(), 5)
        await queue.pause_type("zombie")
        await queue.release(job_id)
        await asyncio.wait_for(learned.wait(), 5)
        report = await run
        job = await queue.get(job_id)
        log = (await queue.logs(job_id)).items
    assert (report.claimed, report.lost_locks) == (1, 1)
    assert (job.status, job.progress, log) == ("pending", 0, ())
    assert refused == [LockLost, LockLost, LockLost]
    assert len(seen.of(LockWasLost)) == 1


async def test_a_signal_stops_handlers_at_their_checkpoints_uncounted() -> None:
    started = asyncio.Event()

    @handler("polite")
    async def polite(ctx: Context, input: dict[str, Any]) -> None:
        started.set()
        while True:
            await asyncio.sleep(0.01)
            await ctx.checkpoint()

    async with queue_for_test([polite]) as queue:
        job_id = (await queue.enqueue(polite, {})).job_id
        run = queue.new_run(queue.limits(budget=30, grace=20))
        running = asyncio.create_task(run.process())
        await asyncio.wait_for(started.wait(), 5)
        run.stop()
        report = await asyncio.wait_for(running, 5)
        job = await queue.get(job_id)
    assert (report.interrupted, report.stopped) == (1, "signal")
    assert (job.status, job.interruptions) == ("pending", 0)


async def test_a_stop_before_the_first_claim_starts_nothing() -> None:
    async with queue_for_test([sleeper]) as queue:
        await queue.enqueue(sleeper, {})
        run = queue.new_run(queue.limits(budget=30))
        run.stop()
        report = await run.process()
    assert (report.claimed, report.stopped, report.remaining) == (0, "signal", 1)


async def test_cancelling_the_run_itself_puts_its_jobs_back() -> None:
    started = asyncio.Event()

    @handler("worker")
    async def worker(ctx: Context, input: dict[str, Any]) -> None:
        started.set()
        await asyncio.sleep(30)

    async with queue_for_test([worker]) as queue:
        await queue.enqueue_many(worker, [{} for _ in range(3)])
        run = asyncio.create_task(queue.process_jobs(budget=20))
        await asyncio.wait_for(started.wait(), 5)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        jobs = (await queue.list()).items
    assert {job.status for job in jobs} == {"pending"}
    assert sum(job.interruptions for job in jobs) == 0


async def _die_holding(queue: Any, clock: FakeClock, run_id: str, count: int = 8) -> int:
    """What a process leaves behind that is killed right after a claim."""
    await queue.store.write(StartRun(run_id, "process", "", "{}"))
    claim = Claim((ClaimableType("quick", count, 1),), (ClaimStep(None, count),), wants="suspect")
    answer = await queue.store.write(Cycle(run_id, clock.now() + 5_000, claim=claim))
    return len(answer.claimed)


@handler("quick")
async def quick(ctx: Context, input: dict[str, Any]) -> None:
    return None


async def test_jobs_of_a_dead_run_come_back_when_their_locks_expire(clock: FakeClock) -> None:
    async with queue_for_test([quick], clock=clock) as queue:
        await queue.enqueue_many(quick, [{} for _ in range(3)])
        assert await _die_holding(queue, clock, "dead") == 3
        early = await queue.process_jobs()
        clock.advance(5)
        late = await queue.process_jobs()
        losses = [job.losses for job in (await queue.list()).items]
    assert (early.claimed, early.reclaimed) == (0, 0)
    assert (late.reclaimed, late.completed) == (3, 3)
    assert losses == [1, 1, 1]


async def test_three_losses_fail_a_job_as_lost_with_its_worker(clock: FakeClock) -> None:
    async with queue_for_test([quick], clock=clock) as queue:
        job_id = (await queue.enqueue(quick, {})).job_id
        for number in range(3):
            assert await _die_holding(queue, clock, f"dead-{number}") == 1
            clock.advance(5)
            await queue.store.write(Cycle("sweeper", clock.now(), claim=Claim((), ())))
        job = await queue.get(job_id)
        attempts = await queue.attempts(job_id)
    assert (job.status, job.error_class, job.losses) == ("failed", "worker_lost", 3)
    assert [each.outcome for each in attempts] == ["lost", "lost", "lost"]


async def test_a_job_that_was_lost_runs_alone(clock: FakeClock) -> None:
    together: list[int] = []
    running = 0

    @handler("quick")
    async def watched(ctx: Context, input: dict[str, Any]) -> None:
        nonlocal running
        running += 1
        await asyncio.sleep(0.01)
        if ctx.job.losses:
            together.append(running)
        running -= 1

    async with queue_for_test([watched], clock=clock) as queue:
        await queue.enqueue_many(watched, [{} for _ in range(4)])
        await _die_holding(queue, clock, "dead", count=2)
        clock.advance(5)
        await queue.enqueue_many(watched, [{} for _ in range(6)])
        report = await queue.process_jobs(budget=20)
    assert report.completed == 10
    assert together == [1, 1]


async def test_after_a_clock_jump_locks_are_left_alone_for_a_while(clock: FakeClock) -> None:
    seen = RecordingObserver()

    @handler("jumper")
    async def jumper(ctx: Context, input: dict[str, Any]) -> None:
        clock.jump(3600)

    async with queue_for_test([quick, jumper], clock=clock, observers=[seen]) as queue:
        await queue.enqueue(quick, {})
        await _die_holding(queue, clock, "alive elsewhere")
        await queue.enqueue(jumper, {})
        report = await queue.process_jobs(budget=20)
    assert report.reclaimed == 0
    assert [event.by_ms for event in seen.of(ClockJumped)] == [pytest.approx(3_600_000, abs=500)]


async def test_drain_runs_until_nothing_is_planned(clock: FakeClock) -> None:
    tries: list[int] = []

    @handler("flaky", max_retries=3)
    async def flaky(ctx: Context, input: dict[str, Any]) -> None:
        tries.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError("not yet")

    async with queue_for_test([flaky], clock=clock) as queue:
        await queue.enqueue(flaky, {}, delay=3600)
        reports = await drain(queue, clock=clock)
    assert tries == [1, 2, 3]
    assert sum(report.completed for report in reports) == 1


async def test_a_timed_out_handler_that_swallows_its_cancellation_is_left_behind() -> None:
    let_go = asyncio.Event()

    @handler("stubborn", timeout=0.05, max_retries=0)
    async def stubborn(ctx: Context, input: dict[str, Any]) -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    async with queue_for_test([stubborn]) as queue:
        job_id = (await queue.enqueue(stubborn, {})).job_id
        run = queue.new_run(queue.limits(budget=5))
        report = await asyncio.wait_for(run.process(), 4)
        assert run.has_leftovers()
        assert (await queue.get(job_id)).error_class == "timeout"
        let_go.set()
    assert report.failed == 1


async def test_max_jobs_with_jobs_claimed_ahead_ends_at_the_budget() -> None:
    @handler("tiny")
    async def tiny(ctx: Context, input: dict[str, Any]) -> None:
        if input["n"] >= 20:
            await asyncio.sleep(30)

    async with queue_for_test([tiny]) as queue:
        await queue.enqueue_many(tiny, [{"n": n} for n in range(100)])
        run = queue.process_jobs(budget=0.4, grace=0.1, max_jobs=100, concurrency=2, fast_slots=0)
        report = await asyncio.wait_for(run, 5)
        jobs = (await queue.list(status="processing")).items
    assert report.claimed == report.completed + report.interrupted
    assert jobs == ()


async def test_a_job_that_was_released_and_claimed_again_by_the_same_run_is_two_attempts() -> None:
    release = threading.Event()
    attempts: list[int] = []

    @handler("twice")
    def twice(ctx: SyncContext, input: dict[str, Any]) -> str:
        attempts.append(ctx.job.fence)
        if len(attempts) == 1:
            release.wait(10)
        return "second"

    async with queue_for_test([twice]) as queue:
        job_id = (await queue.enqueue(twice, {})).job_id
        run = asyncio.create_task(queue.process_jobs(budget=20))
        while not attempts:  # noqa: ASYNC110 - the handler runs in a thread
            await asyncio.sleep(0.01)
        await queue.release(job_id)
        while len(attempts) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        release.set()
        report = await asyncio.wait_for(run, 10)
        assert await queue.result(job_id) == "second"
    assert (report.claimed, report.completed, report.lost_locks) == (2, 1, 1)


@pytest.mark.parametrize("seed", range(8))
async def test_a_run_that_is_cancelled_anywhere_leaves_nothing_locked(seed: int) -> None:
    chosen = random.Random(seed)
    async with queue_for_test([quick]) as queue:
        await queue.enqueue_many(quick, [{} for _ in range(300)])
        run = asyncio.create_task(queue.process_jobs(budget=20, concurrency=chosen.choice([1, 8])))
        await asyncio.sleep(chosen.random() * 0.02)
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run
        stats = (await queue.stats()).types[0]
    assert stats.counts[JobStatus.PROCESSING] == 0
    assert stats.counts[JobStatus.PENDING] + stats.counts[JobStatus.COMPLETED] == 300


async def test_max_jobs_with_a_single_slot_runs_what_was_claimed_ahead() -> None:
    @handler("tiny")
    async def tiny(ctx: Context, input: dict[str, Any]) -> None:
        await asyncio.sleep(0.003)

    async with queue_for_test([tiny]) as queue:
        await queue.enqueue_many(tiny, [{} for _ in range(100)])
        report = await queue.process_jobs(budget=10, concurrency=1, max_jobs=60)
    assert (report.completed, report.stopped) == (60, "max_jobs")
    assert report.duration_ms < 5_000


async def test_a_handler_that_cancels_its_own_task_has_failed() -> None:
    @handler("suicidal", max_retries=0)
    async def suicidal(ctx: Context, input: dict[str, Any]) -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return 1

    async with queue_for_test([suicidal]) as queue:
        job_id = (await queue.enqueue(suicidal, {})).job_id
        report = await queue.process_jobs(budget=5)
        assert (await queue.get(job_id)).status in ("failed", "completed")
    assert report.claimed == 1


async def test_a_guard_that_wants_to_leave_fails_its_job_only() -> None:
    is_running = False

    def guard(plain: dict[str, Any]) -> str | None:
        if is_running:
            raise SystemExit(7)
        return None

    @handler("guarded", max_retries=0, guard=guard)
    async def guarded(ctx: Context, input: dict[str, Any]) -> None:
        return None

    async with queue_for_test([guarded]) as queue:
        await queue.enqueue(guarded, {})
        is_running = True
        report = await queue.process_jobs(budget=5)
    assert report.failed == 1

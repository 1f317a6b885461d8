"""What handlers answer, and what becomes of their jobs."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from edgeq import (
    Context,
    Fail,
    RateLimited,
    Retry,
    Review,
    Skip,
    Snooze,
    SyncContext,
    handler,
)
from edgeq.registry import AnyHandler
from edgeq.testing import FakeClock, drain, queue_for_test


class Item(msgspec.Struct):
    n: int


async def _run_once(function: AnyHandler, clock: FakeClock, **options: Any) -> Any:
    async with queue_for_test([function], clock=clock) as queue:
        job_id = (await queue.enqueue(function, {}, **options)).job_id
        report = await queue.process_jobs(budget=5)
        job = await queue.get(job_id)
        return report, job, (await queue.logs(job_id)).items, await queue.attempts(job_id)


async def test_an_exception_is_retried_after_a_growing_delay(clock: FakeClock) -> None:
    @handler("t", max_retries=2, retry_delay=10)
    async def boom(ctx: Context, input: dict[str, Any]) -> None:
        raise ValueError("boom")

    async with queue_for_test([boom], clock=clock) as queue:
        job_id = (await queue.enqueue(boom, {})).job_id
        delays = []
        for _ in range(2):
            await queue.process_jobs()
            delays.append((await queue.get(job_id)).scheduled_for - clock.now())
            assert (await queue.process_jobs()).claimed == 0
            clock.advance(delays[-1] / 1000)
        report = await queue.process_jobs()
        job = await queue.get(job_id)
    assert 8_000 <= delays[0] <= 12_000
    assert 16_000 <= delays[1] <= 24_000
    assert (report.failed, job.status, job.error_class) == (1, "failed", "transient")
    assert job.error_message == "ValueError: boom"
    assert job.attempt == 3


async def test_secrets_in_an_exception_reach_neither_message_nor_log(clock: FakeClock) -> None:
    @handler("t", max_retries=0)
    async def leaky(ctx: Context, input: dict[str, Any]) -> None:
        raise RuntimeError("GET https://user:hunter2@example.com failed, Bearer abc.def.ghi")

    _, job, log, _ = await _run_once(leaky, clock)
    kept = f"{job.error_message} {log}"
    assert "hunter2" not in kept
    assert "abc.def.ghi" not in kept
    assert "Traceback" in log[0].details


@pytest.mark.parametrize(
    ("raised", "status", "error_class", "delay_ms"),
    [
        (Retry("later", after=90), "pending", "transient", 90_000),
        (RateLimited(), "pending", "rate_limited", 60_000),
        (RateLimited(after=5), "pending", "rate_limited", 5_000),
        (Fail("never"), "failed", "non_retryable", 0),
        (Snooze(30), "pending", None, 30_000),
        (Review("look"), "review_needed", None, 0),
        (KeyError("mapped"), "failed", "non_retryable", 0),
    ],
)
async def test_what_a_handler_raises_decides(
    clock: FakeClock, raised: Exception, status: str, error_class: str | None, delay_ms: int
) -> None:
    @handler("t", errors={KeyError: "non_retryable"})
    async def answers(ctx: Context, input: dict[str, Any]) -> None:
        raise raised

    _, job, _, _ = await _run_once(answers, clock)
    assert (job.status, job.error_class) == (status, error_class)
    assert job.scheduled_for - clock.now() == delay_ms


async def test_a_snooze_counts_no_attempt(clock: FakeClock) -> None:
    @handler("t")
    async def sleepy(ctx: Context, input: dict[str, Any]) -> None:
        raise Snooze(1)

    report, job, _, attempts = await _run_once(sleepy, clock)
    assert (report.snoozed, job.retry_count, attempts) == (1, 0, ())


async def test_skipping_is_a_success_that_says_so(clock: FakeClock) -> None:
    @handler("t")
    async def idle(ctx: Context, input: dict[str, Any]) -> Skip:
        return Skip("nothing new")

    report, job, log, _ = await _run_once(idle, clock)
    assert (report.completed, job.output) == (1, {"skipped": "nothing new"})
    assert log[0].message == "skipped: nothing new"


async def test_an_output_that_cannot_be_kept_fails_the_job(clock: FakeClock) -> None:
    @handler("t", output_max_bytes=100)
    async def large(ctx: Context, input: dict[str, Any]) -> str:
        return "x" * 200

    @handler("t")
    async def strange(ctx: Context, input: dict[str, Any]) -> Any:
        return {"a": float("nan")}

    for function in (large, strange):
        report, job, _, _ = await _run_once(function, clock)
        assert (report.failed, job.error_class) == (1, "non_retryable")
        assert "output" in job.error_message


async def test_nested_outputs_are_kept_and_wrong_ones_refused(clock: FakeClock) -> None:
    @handler("t")
    async def nested(ctx: Context, input: dict[str, Any]) -> list[Item]:
        return [Item(1), Item(2)]

    @handler("t")
    async def either(ctx: Context, input: dict[str, Any]) -> dict[str, int] | Skip:
        return {"n": 3}

    @handler("t")
    async def wrong(ctx: Context, input: dict[str, Any]) -> dict[str, int]:
        return {"n": "three"}  # type: ignore[dict-item]

    assert (await _run_once(nested, clock))[1].output == [{"n": 1}, {"n": 2}]
    assert (await _run_once(either, clock))[1].output == {"n": 3}
    _, job, _, _ = await _run_once(wrong, clock)
    assert (job.status, job.error_class) == ("failed", "non_retryable")


async def test_logs_progress_and_stages_are_kept_with_their_durations(clock: FakeClock) -> None:
    @handler("t", stages=["fetch", "store"])
    async def staged(ctx: Context, input: dict[str, Any]) -> None:
        async with ctx.stage("fetch"):
            await ctx.log("fetching", level="debug", url="https://u:p@h/", rows=3)
        await ctx.progress(60, stage="store")

    report, job, log, _ = await _run_once(staged, clock)
    assert report.completed == 1
    assert (job.progress, job.current_stage) == (100, "store")
    assert [(line.level, line.stage, line.message) for line in log] == [
        ("debug", "fetch", "fetching"),
        ("info", "fetch", "fetch done"),
    ]
    assert "u:p" not in log[0].details
    assert log[1].duration_ms is not None


async def test_a_stage_that_fails_is_logged_as_failed(clock: FakeClock) -> None:
    @handler("t")
    def staged(ctx: SyncContext, input: dict[str, Any]) -> None:
        with ctx.stage("fetch"):
            raise OSError("gone")

    _, _, log, _ = await _run_once(staged, clock)
    assert log[0].message == "fetch failed: OSError"


async def test_a_plain_function_runs_in_a_thread_of_ours(clock: FakeClock) -> None:
    @handler("t")
    def plain(ctx: SyncContext, input: dict[str, Any]) -> str:
        ctx.log("from a thread")
        ctx.progress(10)
        ctx.checkpoint()
        return threading.current_thread().name

    report, job, log, _ = await _run_once(plain, clock)
    assert (report.completed, job.output) == (1, "edgeq-handler")
    assert log[0].message == "from a thread"


async def test_bad_calls_of_the_context_fail_the_attempt(clock: FakeClock) -> None:
    @handler("t", max_retries=0)
    async def wrong(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.progress(101)

    @handler("t", max_retries=0)
    async def loud(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.log("x", level="shouting")

    for function in (wrong, loud):
        _, job, _, _ = await _run_once(function, clock)
        assert job.error_message.startswith("InvalidInput")


async def test_a_handler_that_times_out_is_stopped_and_retried(clock: FakeClock) -> None:
    @handler("t", timeout=0.05)
    async def slow(ctx: Context, input: dict[str, Any]) -> None:
        await asyncio.sleep(30)

    report, job, _, attempts = await _run_once(slow, clock)
    assert (report.retried, job.error_class) == (1, "timeout")
    assert attempts[0].outcome == "retried"


async def test_an_answer_after_the_timeout_does_not_count(clock: FakeClock) -> None:
    @handler("t", timeout=0.05)
    async def late(ctx: Context, input: dict[str, Any]) -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "too late"
        return "in time"

    _, job, _, _ = await _run_once(late, clock)
    assert (job.status, job.error_class, job.output) == ("pending", "timeout", None)


async def test_a_job_may_bring_its_own_timeout_and_retries(clock: FakeClock) -> None:
    @handler("t")
    async def slow(ctx: Context, input: dict[str, Any]) -> None:
        await asyncio.sleep(30)

    _, job, _, _ = await _run_once(slow, clock, timeout=0.05, max_retries=0)
    assert (job.status, job.error_class) == ("failed", "timeout")


async def test_a_thread_that_outlives_its_timeout_holds_up_nobody(clock: FakeClock) -> None:
    let_go = threading.Event()
    learned = threading.Event()

    @handler("stuck", timeout=0.05, max_retries=0)
    def stuck(ctx: SyncContext, input: dict[str, Any]) -> None:
        let_go.wait(10)
        if ctx.lost:
            learned.set()

    @handler("other")
    def other(ctx: SyncContext, input: dict[str, Any]) -> None:
        return None

    async with queue_for_test([stuck, other], clock=clock) as queue:
        await queue.enqueue("stuck", {})
        await queue.enqueue_many("other", [{} for _ in range(20)])
        began = time.monotonic()
        report = await queue.process_jobs(budget=5, concurrency=1, fast_slots=0)
        took = time.monotonic() - began
    let_go.set()
    assert (report.completed, report.failed) == (20, 1)
    assert took < 4
    assert await asyncio.to_thread(learned.wait, 5)


async def test_stored_input_that_no_longer_fits_fails_without_retry(clock: FakeClock) -> None:
    @handler("t")
    async def old(ctx: Context, input: dict[str, Any]) -> None:
        return None

    @handler("t")
    async def new(ctx: Context, input: dict[str, int]) -> None:
        return None

    async with queue_for_test([old], clock=clock) as queue:
        job_id = (await queue.enqueue(old, {"a": "text"})).job_id
        queue._registry = type(queue._registry)({"t": new})
        report = await queue.process_jobs()
        job = await queue.get(job_id)
    assert (report.failed, job.error_class) == (1, "non_retryable")


async def test_older_inputs_are_upgraded_and_newer_ones_left_alone(clock: FakeClock) -> None:
    def upgrade(version: int, plain: dict[str, Any]) -> dict[str, Any]:
        return {"name": f"{plain['first']} {plain['last']}", "was": version}

    @handler("t", version=2, upgrade=upgrade)
    async def person(ctx: Context, input: dict[str, Any]) -> dict[str, Any]:
        return input

    async with queue_for_test([person], clock=clock) as queue:
        old = await queue.enqueue(person, {"first": "A", "last": "B"}, payload_version=1)
        now = await queue.enqueue(person, {"name": "C"})
        newer = await queue.enqueue(person, {"name": "D"}, payload_version=3)
        await drain(queue)
        assert await queue.result(old.job_id) == {"name": "A B", "was": 1}
        assert await queue.result(now.job_id) == {"name": "C"}
        assert (await queue.get(newer.job_id)).status == "pending"


async def test_a_guard_may_refuse_before_running(clock: FakeClock) -> None:
    allowed = True

    def guard(plain: dict[str, Any]) -> str | None:
        return None if allowed else "the flag is off"

    @handler("t", guard=guard)
    async def guarded(ctx: Context, input: dict[str, Any]) -> None:
        return None

    async with queue_for_test([guarded], clock=clock) as queue:
        job_id = (await queue.enqueue(guarded, {})).job_id
        allowed = False
        await queue.process_jobs()
        job = await queue.get(job_id)
    assert (job.status, job.error_class) == ("failed", "non_retryable")
    assert "the flag is off" in (job.error_message or "")


async def test_children_exist_once_their_parent_has_completed(clock: FakeClock) -> None:
    @handler("child")
    async def child(ctx: Context, input: dict[str, Any]) -> None:
        return None

    @handler("parent", max_retries=1, retry_delay=0)
    async def parent(ctx: Context, input: dict[str, Any]) -> str:
        child_id = await ctx.enqueue("child", {"of": ctx.attempt}, priority=20)
        if ctx.attempt == 1:
            raise ValueError("the first attempt's child must not exist")
        return child_id

    async with queue_for_test([parent, child], clock=clock) as queue:
        job_id = (await queue.enqueue(parent, {}, tenant_id="t1", correlation_id="trace")).job_id
        await drain(queue, clock=clock)
        children = (await queue.list(parent_job_id=job_id)).items
        assert [c.id for c in children] == [await queue.result(job_id)]
    assert (children[0].tenant_id, children[0].correlation_id) == ("t1", "trace")
    assert (children[0].input, children[0].priority) == ({"of": 2}, 20)
    assert children[0].status == "completed"


async def test_a_handler_without_annotations_may_return_a_value(clock: FakeClock) -> None:
    @handler("t")
    async def bare(ctx, input):  # type: ignore[no-untyped-def]
        return {"n": 1}

    report, job, _, _ = await _run_once(bare, clock)
    assert (report.completed, job.output) == (1, {"n": 1})


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (Snooze(1e17), "pending"),
        (Snooze(timedelta(minutes=1)), "pending"),
        (Retry("later", after=1e17), "pending"),
        (Retry("later", after="soon"), "pending"),  # type: ignore[arg-type]
        (Fail(ValueError("an exception as reason")), "failed"),  # type: ignore[arg-type]
        (Unprintable(), "failed"),
        (SystemExit(3), "failed"),
        (KeyboardInterrupt(), "failed"),
        (BaseExceptionGroup("several", [GeneratorExit()]), "failed"),
    ],
)
async def test_whatever_a_handler_raises_ends_its_job_and_no_other(
    clock: FakeClock, raised: BaseException, status: str
) -> None:
    @handler("odd", max_retries=0 if status == "failed" else 3)
    async def odd(ctx: Context, input: dict[str, Any]) -> None:
        raise raised

    @handler("plain")
    async def plain(ctx: Context, input: dict[str, Any]) -> None:
        return None

    async with queue_for_test([odd, plain], clock=clock) as queue:
        job_id = (await queue.enqueue(odd, {})).job_id
        await queue.enqueue_many(plain, [{} for _ in range(4)])
        report = await queue.process_jobs(budget=5)
        job = await queue.get(job_id)
    assert (report.completed, job.status) == (4, status)


@pytest.mark.parametrize("stage", ["password=hunter2 " + "x" * 5000, "\ud800"])
async def test_stage_names_are_kept_short_and_safe(clock: FakeClock, stage: str) -> None:
    @handler("t")
    async def staged(ctx: Context, input: dict[str, Any]) -> None:
        async with ctx.stage(stage):
            await ctx.log("inside")

    report, job, log, _ = await _run_once(staged, clock)
    assert report.completed == 1
    assert len(job.current_stage) <= 100
    assert "hunter2" not in f"{job.current_stage} {log}"


@pytest.mark.parametrize("stage", ["", object()])
async def test_a_stage_without_a_name_fails_the_attempt(clock: FakeClock, stage: Any) -> None:
    @handler("t", max_retries=0)
    async def staged(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.progress(5, stage=stage)

    _, job, _, _ = await _run_once(staged, clock)
    assert job.error_message.startswith("InvalidInput: stage")


async def test_a_child_that_is_refused_fails_its_parents_attempt_only(clock: FakeClock) -> None:
    @handler("child", max_pending=1)
    async def child(ctx: Context, input: dict[str, Any]) -> None:
        return None

    @handler("parent", max_retries=0)
    async def parent(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.enqueue("child", {})
        await ctx.enqueue("child", {})

    async with queue_for_test([parent, child], clock=clock) as queue:
        job_id = (await queue.enqueue(parent, {})).job_id
        report = await queue.process_jobs(budget=5, types=["parent"])
        job = await queue.get(job_id)
        assert (await queue.list(type="child")).items == ()
    assert (report.failed, job.error_class) == (1, "transient")
    assert "child was refused" in (job.error_message or "")


async def test_a_checkpoint_inside_a_task_group_stops_the_handler() -> None:
    started = asyncio.Event()

    @handler("grouped")
    async def grouped(ctx: Context, input: dict[str, Any]) -> None:
        async def watch() -> None:
            started.set()
            while True:
                await asyncio.sleep(0.01)
                await ctx.checkpoint()

        async with asyncio.TaskGroup() as group:
            group.create_task(watch())

    async with queue_for_test([grouped]) as queue:
        job_id = (await queue.enqueue(grouped, {})).job_id
        run = asyncio.create_task(queue.process_jobs(budget=20))
        await asyncio.wait_for(started.wait(), 5)
        await queue.cancel(job_id)
        report = await asyncio.wait_for(run, 10)
        assert (await queue.get(job_id)).status == "cancelled"
    assert report.cancelled == 1

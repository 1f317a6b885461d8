"""Steps of running handlers: done once, kept, and stopped in between."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import math
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypedDict

import msgspec
import pytest

from edgeq import Context, Queue, Retry, SyncContext, handler
from edgeq.errors import InvalidInput, LockLost
from edgeq.testing import FakeClock, drain, queue_for_test
from edgeq.wiring import SystemClock

Calls = Counter[str]


class Page(msgspec.Struct):
    number: int
    words: tuple[str, ...] = ()


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Found(TypedDict):
    name: str


def flaky(calls: Calls, kind: str) -> Any:
    """A handler of three steps that fails after the second, once."""

    def one(n: int) -> int:
        calls["one"] += 1
        return n + 1

    async def two(n: int) -> int:
        return plain_two(n)

    def plain_two(n: int) -> int:
        calls["two"] += 1
        return n * 10

    @handler("flaky", retry_delay=0)
    async def steps(ctx: Context, input: dict[str, Any]) -> int:
        first = await ctx.step("one", one, 1)
        second = await ctx.step("two", two, n=first)
        _fail_at_first(ctx.attempt)
        return second + await ctx.step("one", one, 0, key="again")

    @handler("flaky", retry_delay=0)
    def thread_steps(ctx: SyncContext, input: dict[str, Any]) -> int:
        first = ctx.step("one", one, 1)
        second = ctx.step("two", plain_two, n=first)
        # A step's function runs in the thread of its handler, where thread locals are.
        assert ctx.step("where", threading.get_ident) == threading.get_ident() or ctx.attempt > 1
        _fail_at_first(ctx.attempt)
        return second + ctx.step("one", one, 0, key="again")

    return steps if kind == "async" else thread_steps


def _fail_at_first(attempt: int) -> None:
    if attempt == 1:
        raise RuntimeError("between the steps")


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_retried_handler_gets_its_results_without_their_functions(kind: str) -> None:
    calls: Calls = Counter()
    clock = FakeClock()
    async with queue_for_test([flaky(calls, kind)], clock=clock) as queue:
        job_id = (await queue.enqueue("flaky", {})).job_id
        await drain(queue, clock=clock)
        job, steps = await queue.get(job_id), await queue.steps(job_id)
    assert (job.status, job.output, job.attempt) == ("completed", 21, 2)
    assert calls == {"one": 2, "two": 1}
    kept = [(step.name, step.key, step.attempt) for step in steps if step.name != "where"]
    assert kept == [("one", "", 1), ("two", "", 1), ("one", "again", 2)]


async def run_one(function: Any, *, attempts: int = 1, **limits: Any) -> Any:
    """What became of one job of a handler."""
    clock = FakeClock()
    async with queue_for_test([function], clock=clock) as queue:
        job_id = (await queue.enqueue(function, {})).job_id
        for _ in range(attempts):
            await queue.process_jobs(**{"budget": 10, **limits})
            clock.advance(1)
        return await queue.get(job_id), await queue.steps(job_id)


def page() -> Page:
    return Page(3, ("a",))


def point() -> Point:
    return Point(1, 2)


def found() -> Found:
    return {"name": "x"}


def pages() -> list[Page]:
    return [Page(1), Page(2)]


def maybe() -> Page | None:
    return None


async def soon() -> Page:
    return Page(9)


def unsaid():  # type: ignore[no-untyped-def]
    return (1, 2)


def anything() -> Any:
    return {"t": (1, Page(1))}


@functools.wraps(page)
def wrapped() -> Any:
    return page()


class Callable5:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self) -> int:
        return 5

    def method(self) -> Page:
        return Page(6)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (page, Page(3, ("a",))),
        (point, Point(1, 2)),
        (found, {"name": "x"}),
        (pages, [Page(1), Page(2)]),
        (maybe, None),
        (soon, Page(9)),
        (wrapped, Page(3, ("a",))),
        (functools.partial(page), Page(3, ("a",))),
        (Callable5().method, Page(6)),
        (Callable5(), 5),
        (unsaid, [1, 2]),
        (anything, {"t": [1, {"number": 1, "words": []}]}),
        (lambda: (1,), [1]),
    ],
)
async def test_a_result_is_the_same_when_it_is_made_and_when_it_is_read_again(
    function: Callable[[], Any], expected: Any
) -> None:
    seen: list[Any] = []

    @handler("typed", retry_delay=0)
    async def typed(ctx: Context, input: dict[str, Any]) -> None:
        seen.append(await ctx.step("it", function))
        if ctx.attempt == 1:
            raise RuntimeError("again")

    job, _ = await run_one(typed, attempts=2)
    assert job.status == "completed"
    assert seen == [expected, expected]
    assert type(seen[0]) is type(seen[1]) is type(expected)


def wrong() -> int:
    return "no number"  # type: ignore[return-value]


def wrong_inside() -> Page:
    return Page("no number")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (object, "cannot be stored"),
        (wrong, "its result"),
        (wrong_inside, "its result"),
        (lambda: math.nan, "its result"),
        (lambda: 2**70, "its result"),
        (lambda: "x" * 300_000, "output_max_bytes"),
    ],
)
@pytest.mark.parametrize("kind", ["step", "transaction"])
async def test_a_result_that_cannot_be_kept_fails_the_job_for_good(
    function: Callable[[], Any], why: str, kind: str
) -> None:
    @handler("bad")
    async def bad(ctx: Context, input: dict[str, Any]) -> None:
        if kind == "step":
            await ctx.step("it", function)
        else:
            await ctx.transaction("it", lambda _connection: function())

    job, steps = await run_one(bad)
    if kind == "transaction" and function in (wrong, wrong_inside):
        return  # the lambda around it says nothing of what it returns
    assert (job.status, job.error_class, job.retry_count) == ("failed", "non_retryable", 0)
    assert "Step it of job" in job.error_message
    assert why in job.error_message
    assert steps == ()


@pytest.mark.parametrize(
    ("name", "key", "why"),
    [("", None, "printable"), ("*", None, "own"), ("sleep", None, "own"), ("a", 1.5, "key")],
)
async def test_what_is_no_name_or_key_fails_the_job_for_good(name: str, key: Any, why: str) -> None:
    @handler("bad")
    async def bad(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.step(name, page, key=key)

    job, _ = await run_one(bad)
    assert (job.status, job.error_class) == ("failed", "non_retryable")
    assert why in job.error_message


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_asking_twice_for_one_name_fails_the_job_for_good(kind: str) -> None:
    @handler("twice")
    async def twice(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.step("it", page)
        await ctx.step("it", page)

    @handler("twice")
    def thread_twice(ctx: SyncContext, input: dict[str, Any]) -> None:
        ctx.step("it", page)
        ctx.step("it", page)

    job, steps = await run_one(twice if kind == "async" else thread_twice)
    assert (job.status, job.error_class) == ("failed", "non_retryable")
    assert "give each a key" in job.error_message
    assert len(steps) == 1


async def test_a_result_that_no_longer_fits_its_function_fails_the_job_for_good() -> None:
    def number() -> int:
        return 1

    def text() -> str:
        return "1"

    @handler("changed", retry_delay=0)
    async def changed(ctx: Context, input: dict[str, Any]) -> None:
        if ctx.attempt == 1:
            await ctx.step("it", number)
            raise RuntimeError("then somebody deploys")
        await ctx.step("it", text)

    job, _ = await run_one(changed, attempts=2)
    assert (job.status, job.error_class) == ("failed", "non_retryable")
    assert "Retry the job from this step on" in job.error_message


async def test_steps_may_run_at_the_same_time() -> None:
    calls: Calls = Counter()
    both = asyncio.Barrier(3)

    async def fetch(n: int) -> int:
        calls["fetch"] += 1
        await both.wait()
        return n

    @handler("wide", retry_delay=0)
    async def wide(ctx: Context, input: dict[str, Any]) -> list[int]:
        got = await asyncio.gather(*(ctx.step("fetch", fetch, n, key=n) for n in range(3)))
        if ctx.attempt == 1:
            raise RuntimeError("after all of them")
        return got

    job, steps = await run_one(wide, attempts=2)
    assert (job.output, calls["fetch"]) == ([0, 1, 2], 3)
    assert sorted(step.key for step in steps) == ["0", "1", "2"]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_step_may_be_made_of_steps(kind: str) -> None:
    calls: Calls = Counter()

    def inner() -> int:
        calls["inner"] += 1
        return 1

    @handler("nested", retry_delay=0)
    async def nested(ctx: Context, input: dict[str, Any]) -> int:
        async def outer() -> int:
            calls["outer"] += 1
            got = await ctx.step("inner", inner)
            if calls["outer"] == 1:
                raise RuntimeError("inside of the outer")
            return got + 1

        return await ctx.step("outer", outer)

    @handler("nested", retry_delay=0)
    def thread_nested(ctx: SyncContext, input: dict[str, Any]) -> int:
        def outer() -> int:
            calls["outer"] += 1
            got = ctx.step("inner", inner)
            if calls["outer"] == 1:
                raise RuntimeError("inside of the outer")
            return got + 1

        return ctx.step("outer", outer)

    function: Any = nested if kind == "async" else thread_nested
    job, steps = await run_one(function, attempts=2)
    assert (job.output, calls) == (2, {"inner": 1, "outer": 2})
    assert [step.name for step in steps] == ["inner", "outer"]


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize("raised", [ValueError("x"), SystemExit(3), StopIteration()])
async def test_what_a_step_raises_is_what_the_handler_sees(
    kind: str, raised: BaseException
) -> None:
    seen: list[BaseException] = []

    def fails() -> None:
        raise raised

    @handler("raising")
    async def raising(ctx: Context, input: dict[str, Any]) -> str:
        try:
            await ctx.step("it", fails)
        except BaseException as error:  # noqa: BLE001 - it is looked at
            seen.append(error)
        return "went on"

    @handler("raising")
    def thread_raising(ctx: SyncContext, input: dict[str, Any]) -> str:
        try:
            ctx.step("it", fails)
        except BaseException as error:  # noqa: BLE001 - it is looked at
            seen.append(error)
        return "went on"

    job, steps = await run_one(raising if kind == "async" else thread_raising)
    assert (job.output, steps) == ("went on", ())
    expected = RuntimeError if isinstance(raised, StopIteration) else type(raised)
    assert [type(error) for error in seen] == [expected]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_retry_and_the_like_can_be_raised_in_a_step(kind: str) -> None:
    def later() -> None:
        raise Retry("busy", after=60)

    @handler("busy")
    async def busy(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.step("it", later)

    @handler("busy")
    def thread_busy(ctx: SyncContext, input: dict[str, Any]) -> None:
        ctx.step("it", later)

    job, _ = await run_one(busy if kind == "async" else thread_busy)
    assert (job.status, job.retry_count, job.error_message) == ("pending", 1, "busy")


def long_job(clock: FakeClock, calls: Calls, steps: int, seconds: float = 1.0) -> Any:
    def work(n: int) -> int:
        calls[f"{n}"] += 1
        clock.advance(seconds)
        return n

    @handler("long")
    async def long(ctx: Context, input: dict[str, Any]) -> list[int]:
        return [await ctx.step("part", work, n, key=n) for n in range(steps)]

    return long


async def test_a_job_of_twenty_steps_is_done_over_several_runs_each_step_once() -> None:
    clock, calls = FakeClock(), Counter[str]()
    function = long_job(clock, calls, 20)
    async with queue_for_test([function], clock=clock) as queue:
        job_id = (await queue.enqueue(function, {})).job_id
        reports = []
        while (job := await queue.get(job_id)).status == "pending":
            began = clock.now()
            reports.append(await queue.process_jobs(budget=5, grace=0))
            assert clock.now() - began <= 5000
            assert len(reports) < 12
        steps = await queue.steps(job_id)
    assert (job.status, job.output) == ("completed", list(range(20)))
    assert set(calls.values()) == {1}
    assert len(calls) == len(steps) == 20
    # No run is wasted: three steps of a second and more fit into each.
    assert 4 <= len(reports) <= 7
    assert [report.interrupted for report in reports[:-1]] == [1] * (len(reports) - 1)
    assert (job.interruptions, job.retry_count, job.attempt) == (0, 0, 1)
    assert len({step.run_id for step in steps}) == len(reports)


async def test_at_the_end_of_the_budget_a_job_stops_at_its_next_step() -> None:
    """With grace, the step that runs is finished, and the next one is not begun."""
    clock, calls = FakeClock(), Counter[str]()
    function = long_job(clock, calls, 4, seconds=6.0)
    async with queue_for_test([function], clock=clock) as queue:
        job_id = (await queue.enqueue(function, {})).job_id
        report = await queue.process_jobs(budget=5, grace=20)
        job = await queue.get(job_id)
    assert report.interrupted == 1
    assert (job.status, job.steps, sum(calls.values())) == ("pending", 1, 1)


async def test_an_interrupted_job_goes_on_before_its_equals() -> None:
    clock, order = FakeClock(), list[str]()

    def part(name: str) -> None:
        order.append(name)
        clock.advance(6)

    @handler("turns", max_concurrent=1)
    async def turns(ctx: Context, input: dict[str, Any]) -> None:
        for n in range(2):
            await ctx.step("part", part, input["name"], key=n)

    async with queue_for_test([turns], clock=clock) as queue:
        for name in "ab":
            await queue.enqueue(turns, {"name": name})
        for _ in range(4):
            await queue.process_jobs(budget=5, grace=20)
    assert order == ["a", "a", "b", "b"]


async def test_a_step_that_would_not_end_in_time_is_not_begun_and_not_claimed_again() -> None:
    """Its p95 is known; short jobs go on in the time that is left."""
    clock, calls = FakeClock(), Counter[str]()

    def work(name: str, seconds: float) -> None:
        calls[name] += 1
        clock.advance(seconds)

    @handler("mixed")
    async def mixed(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.step("short", work, "short", 0.1)
        await ctx.step("big", work, "big", 3)

    @handler("filler")
    async def filler(ctx: Context, input: dict[str, Any]) -> None:
        clock.advance(0.5)

    async with queue_for_test([mixed, filler], clock=clock) as queue:
        await queue.enqueue_many(mixed, [{}] * 6)
        await drain(queue, clock=clock, budget=100)
        calls.clear()
        job_id = (await queue.enqueue(mixed, {}, priority=1)).job_id
        await queue.enqueue_many(filler, [{}] * 3)
        report = await queue.process_jobs(budget=4, grace=0, concurrency=1, fast_slots=0)
        job = await queue.get(job_id)
        assert (report.completed, report.interrupted) == (3, 1)
        assert (job.status, job.steps, job.interruptions) == ("pending", 1, 1)
        assert calls == {"short": 1}
        assert report.remaining == 1
        await queue.process_jobs(budget=4, grace=0)
        assert (await queue.get(job_id)).status == "completed"
    assert calls == {"short": 1, "big": 1}


async def test_the_first_step_of_an_attempt_is_begun_however_long_it_takes() -> None:
    clock, calls = FakeClock(), Counter[str]()
    function = long_job(clock, calls, 3, seconds=9.0)
    async with queue_for_test([function], clock=clock) as queue:
        job_id = (await queue.enqueue(function, {})).job_id
        for _ in range(3):
            await queue.process_jobs(budget=5, grace=5)
        assert (await queue.get(job_id)).status == "completed"
    assert set(calls.values()) == {1}


async def test_a_step_that_is_cut_short_runs_again_and_those_before_it_do_not() -> None:
    calls: Calls = Counter()

    async def cut() -> None:
        calls["cut"] += 1
        if calls["cut"] == 1:
            await asyncio.sleep(30)

    def done() -> None:
        calls["done"] += 1

    @handler("cutting")
    async def cutting(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.step("done", done)
        await ctx.step("cut", cut)

    async with queue_for_test([cutting]) as queue:
        job_id = (await queue.enqueue(cutting, {})).job_id
        assert (await queue.process_jobs(budget=0.3, grace=0.1)).interrupted == 1
        assert (await queue.process_jobs(budget=5)).completed == 1
        assert (await queue.get(job_id)).attempt == 1
    assert calls == {"done": 1, "cut": 2}


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_sleep_puts_the_job_back_without_counting_and_it_goes_on_afterwards(
    kind: str,
) -> None:
    clock, calls = FakeClock(), Counter[str]()

    def work(name: str) -> None:
        calls[name] += 1

    @handler("sleepy")
    async def sleepy(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.step("before", work, "before")
        await ctx.sleep(60)
        await ctx.step("between", work, "between")
        await ctx.sleep(timedelta(hours=1))
        await ctx.sleep(-5)
        await ctx.sleep(0)

    @handler("sleepy")
    def thread_sleepy(ctx: SyncContext, input: dict[str, Any]) -> None:
        ctx.step("before", work, "before")
        ctx.sleep(60)
        ctx.step("between", work, "between")
        ctx.sleep(timedelta(hours=1))
        ctx.sleep(-5)
        ctx.sleep(0)

    function: Any = sleepy if kind == "async" else thread_sleepy
    async with queue_for_test([function], clock=clock) as queue:
        job_id = (await queue.enqueue("sleepy", {})).job_id
        began = clock.now()
        report = await queue.process_jobs(budget=5)
        job = await queue.get(job_id)
        assert (report.snoozed, job.status) == (1, "pending")
        assert (job.retry_count, job.interruptions, job.error_class) == (0, 0, None)
        assert began + 60_000 <= job.scheduled_for <= began + 61_000
        assert job.locked_by is None
        clock.advance(30)
        assert (await queue.process_jobs(budget=5)).claimed == 0
        clock.advance(31)
        assert (await queue.process_jobs(budget=5)).snoozed == 1
        clock.advance(3601)
        assert (await queue.process_jobs(budget=5)).completed == 1
        steps = await queue.steps(job_id)
    assert calls == {"before": 1, "between": 1}
    assert [step.key for step in steps if step.kind == "sleep"] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("seconds", [math.nan, "5", None, True])
async def test_what_is_no_time_to_sleep_is_refused(seconds: Any) -> None:
    seen: list[Exception] = []

    @handler("sleepy")
    async def sleepy(ctx: Context, input: dict[str, Any]) -> None:
        try:
            await ctx.sleep(seconds)
        except InvalidInput as wrong:
            seen.append(wrong)

    job, steps = await run_one(sleepy)
    assert (job.status, steps, len(seen)) == ("completed", (), 1)


async def test_an_endless_sleep_ends_within_a_century() -> None:
    @handler("sleepy")
    async def sleepy(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.sleep(math.inf)

    job, _ = await run_one(sleepy)
    assert job.status == "pending"
    assert job.scheduled_for < 2**47


async def test_a_sleeping_job_takes_no_slot_and_its_end_is_when_the_next_run_is_due() -> None:
    clock = FakeClock()

    @handler("sleepy", max_concurrent=1)
    async def sleepy(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.sleep(60)

    async with queue_for_test([sleepy], clock=clock) as queue:
        await queue.enqueue_many(sleepy, [{}] * 3)
        report = await queue.process_jobs(budget=5)
    assert (report.snoozed, report.remaining) == (3, 0)
    assert report.next_due_at is not None
    assert report.next_due_at >= clock.now() + 59_000


async def test_a_handler_can_see_how_much_time_it_has() -> None:
    clock, seen = FakeClock(), list[float]()

    @handler("watching", timeout=8)
    async def watching(ctx: Context, input: dict[str, Any]) -> None:
        seen.append(ctx.remaining)
        await ctx.step("wait", clock.advance, 3)
        seen.append(ctx.remaining)

    async with queue_for_test([watching], clock=clock) as queue:
        await queue.enqueue(watching, {})
        await queue.process_jobs(budget=100)
    assert 7.5 < seen[0] <= 8
    assert 4.5 < seen[1] <= 5


async def test_a_cancelled_job_stops_at_its_next_step() -> None:
    calls: Calls = Counter()
    is_inside = asyncio.Event()

    @handler("cancelled")
    async def cancelled(ctx: Context, input: dict[str, Any]) -> None:
        async def wait() -> None:
            is_inside.set()
            while not ctx.cancelled:  # noqa: ASYNC110 - told by the run, not by an event
                await asyncio.sleep(0.01)

        await ctx.step("wait", wait)
        calls["after"] += 1
        await ctx.step("never", page)

    async with queue_for_test([cancelled]) as queue:
        job_id = (await queue.enqueue(cancelled, {})).job_id
        run = asyncio.create_task(queue.process_jobs(budget=10))
        await is_inside.wait()
        assert await queue.cancel(job_id) == "requested"
        report = await run
        job, steps = await queue.get(job_id), await queue.steps(job_id)
    assert (report.cancelled, job.status) == (1, "cancelled")
    assert ([step.name for step in steps], calls["after"]) == (["wait"], 1)


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_timeout_inside_a_step_is_a_failed_attempt_that_keeps_what_was_done(
    kind: str,
) -> None:
    calls: Calls = Counter()
    let_go = threading.Event()

    def first() -> None:
        calls["first"] += 1

    async def hang() -> str:
        calls["hang"] += 1
        if calls["hang"] == 1:
            await asyncio.sleep(30)
        return "done"

    def thread_hang() -> str:
        calls["hang"] += 1
        if calls["hang"] == 1:
            let_go.wait(30)
        return "done"

    @handler("hanging", timeout=0.2, retry_delay=0)
    async def hanging(ctx: Context, input: dict[str, Any]) -> str:
        await ctx.step("first", first)
        return await ctx.step("hang", hang)

    @handler("hanging", timeout=0.2, retry_delay=0)
    def thread_hanging(ctx: SyncContext, input: dict[str, Any]) -> str:
        ctx.step("first", first)
        return ctx.step("hang", thread_hang)

    function: Any = hanging if kind == "async" else thread_hanging
    async with queue_for_test([function]) as queue:
        job_id = (await queue.enqueue("hanging", {})).job_id
        report = await queue.process_jobs(budget=10)
        let_go.set()
        job = await queue.get(job_id)
    assert (report.retried, report.completed) == (1, 1)
    assert (job.status, job.output, job.attempt) == ("completed", "done", 2)
    assert calls == {"first": 1, "hang": 2}


@pytest.mark.parametrize("kind", ["step", "sleep", "transaction"])
async def test_a_handler_that_lost_its_lock_learns_it_at_its_next_step(kind: str) -> None:
    seen: list[BaseException] = []
    is_inside, may_go_on = asyncio.Event(), asyncio.Event()

    @handler("loser")
    async def loser(ctx: Context, input: dict[str, Any]) -> str:
        is_inside.set()
        await may_go_on.wait()
        try:
            match kind:
                case "step":
                    await ctx.step("it", page)
                case "sleep":
                    await ctx.sleep(5)
                case _:
                    await ctx.transaction("it", lambda _connection: None)
        except LockLost as lost:
            seen.append(lost)
            raise
        return "never"

    async with queue_for_test([loser]) as queue:
        job_id = (await queue.enqueue(loser, {})).job_id
        run = asyncio.create_task(queue.process_jobs(budget=10, max_jobs=1))
        await is_inside.wait()
        await queue.release(job_id)
        may_go_on.set()
        report = await run
        job, steps = await queue.get(job_id), await queue.steps(job_id)
    assert (report.lost_locks, job.status, steps) == (1, "pending", ())
    # Either the store refused it, or the run was faster to stop it.
    assert len(seen) <= 1


async def test_a_failed_job_is_retried_from_where_it_was_or_from_a_step_or_afresh() -> None:
    calls: Calls = Counter()

    def work(name: str) -> None:
        calls[name] += 1

    @handler("hopeless", max_retries=0)
    async def hopeless(ctx: Context, input: dict[str, Any]) -> None:
        for name in "abc":
            await ctx.step(name, work, name)
        raise RuntimeError("always")

    async with queue_for_test([hopeless]) as queue:
        job_id = (await queue.enqueue(hopeless, {})).job_id

        async def again(**how: Any) -> Calls:
            calls.clear()
            await queue.retry(job_id, **how)
            await queue.process_jobs(budget=5)
            return Counter(calls)

        await queue.process_jobs(budget=5)
        assert calls == {"a": 1, "b": 1, "c": 1}
        assert await again() == {}
        assert await again(from_step="b") == {"b": 1, "c": 1}
        assert await again(fresh=True) == {"a": 1, "b": 1, "c": 1}
        with pytest.raises(InvalidInput):
            await queue.retry(job_id, fresh=True, from_step="a")


@asynccontextmanager
async def at_work(queue: Queue) -> AsyncIterator[None]:
    worker = asyncio.create_task(queue.work())
    try:
        yield
    finally:
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker


async def test_a_resident_worker_does_steps_and_wakes_for_what_slept() -> None:
    calls: Calls = Counter()

    def work(name: str) -> str:
        calls[name] += 1
        return name

    @handler("resident", retry_delay=0)
    async def resident(ctx: Context, input: dict[str, Any]) -> list[str]:
        got = [await ctx.step("part", work, f"{n}", key=n) for n in range(5)]
        await ctx.sleep(0.05)
        if ctx.attempt == 1:
            raise RuntimeError("again")
        return got

    async with queue_for_test([resident], clock=SystemClock()) as queue, at_work(queue):
        output = await queue.enqueue_and_wait(resident, {}, timeout=20)
    assert output == ["0", "1", "2", "3", "4"]
    assert set(calls.values()) == {1}

"""Waiting for the end of a job: how it ends, how long it lasts, and what it costs."""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from edgeq import Context, Fail, Queue, Review, handler
from edgeq.errors import (
    IdempotencyConflict,
    InvalidInput,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultExpired,
    StoreClosed,
    StoreMoved,
    StoreUnavailable,
    WaitTimeout,
)
from edgeq.ports.commands import Command, InsertJobs
from edgeq.ports.queries import GetJobs, Query
from edgeq.queue import endings
from edgeq.settings import Settings
from edgeq.store import watcher
from edgeq.store.sqlite import SqliteStore
from edgeq.testing import FakeClock
from tests.cli.command_line import MISSING

T = TypeVar("T")
SOON = 20.0


@handler("echo")
async def echo(ctx: Context, input: dict[str, Any]) -> Any:
    return input.get("say")


@handler("hopeless", max_retries=0)
async def hopeless(ctx: Context, input: dict[str, Any]) -> None:
    raise Fail("it cannot be done")


@handler("flaky", max_retries=1, retry_delay=1)
async def flaky(ctx: Context, input: dict[str, Any]) -> None:
    raise OSError("not now")


@handler("doubtful")
async def doubtful(ctx: Context, input: dict[str, Any]) -> str:
    raise Review("is that so?", output="maybe")


class CountingStore(SqliteStore):
    """A real store that counts its reads, and can keep writes waiting or fail reads."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.answered = 0
        self.reads: list[Query[Any]] = []
        self.may_insert = asyncio.Event()
        self.may_insert.set()
        self.is_inserting = asyncio.Event()
        self.failure: BaseException | None = None

    async def read(self, query: Query[T]) -> T:
        self.reads.append(query)
        if self.failure is not None and isinstance(query, GetJobs):
            raise self.failure
        answer = await super().read(query)
        self.answered += 1
        return answer

    async def write(self, command: Command[T]) -> T:
        if isinstance(command, InsertJobs):
            self.is_inserting.set()
            await self.may_insert.wait()
        return await super().write(command)

    def listeners(self) -> int:
        return 0 if self._watcher is None else len(self._watcher._listeners)


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'queue.db'}"


@pytest.fixture
async def store(database: str, clock: FakeClock) -> CountingStore:
    return CountingStore(database, clock, durable=False)


@pytest.fixture
async def queue(store: CountingStore, clock: FakeClock) -> AsyncIterator[Queue]:
    handlers = [echo, hopeless, flaky, doubtful]
    async with Queue(store=store, handlers=handlers, clock=clock, settings=Settings()) as queue:
        yield queue


@pytest.fixture
async def elsewhere(queue: Queue, database: str, clock: FakeClock) -> AsyncIterator[Queue]:
    """The same queue, opened by somebody else."""
    handlers = [echo, hopeless, flaky, doubtful]
    async with Queue(database, handlers=handlers, clock=clock, settings=Settings()) as other:
        yield other


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(SOON):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.001)


async def waiting(queue: Queue, *job_ids: str) -> list[asyncio.Task[Any]]:
    """Tasks that wait for jobs, once each of them does."""
    tasks = [asyncio.create_task(queue.wait(job_id)) for job_id in job_ids]
    await until(lambda: waiters(queue) >= len(tasks))
    return tasks


def waiters(queue: Queue) -> int:
    return 0 if queue._endings is None else sum(map(len, queue._endings._waiting.values()))


async def answer(task: asyncio.Task[T]) -> T:
    async with asyncio.timeout(SOON):
        return await task


async def test_a_completed_job_is_answered_with_its_output(queue: Queue, elsewhere: Queue) -> None:
    job_id = (await queue.enqueue(echo, {"say": "hello"})).job_id
    (wait,) = await waiting(queue, job_id)

    await elsewhere.process_jobs(budget=5)

    job = await answer(wait)
    assert (job.id, job.status, job.output) == (job_id, "completed", "hello")
    assert await queue.result(job_id, timeout=1) == "hello"


async def test_a_job_that_has_ended_is_answered_at_once(queue: Queue) -> None:
    job_id = (await queue.enqueue(echo, {"say": 1})).job_id
    await queue.process_jobs(budget=5)

    assert (await queue.wait(job_id, 5)).output == 1
    assert (await queue.wait(job_id, 0)).output == 1
    assert await queue.result(job_id, 0) == 1


async def test_a_failed_job_is_answered_and_its_result_raises_with_its_attempts(
    queue: Queue, clock: FakeClock
) -> None:
    job_id = (await queue.enqueue(flaky)).job_id
    result = asyncio.create_task(queue.result(job_id, timeout=60))
    await queue.process_jobs(budget=5)
    clock.advance(10)
    await queue.process_jobs(budget=5)

    with pytest.raises(JobFailed) as failed:
        await answer(result)

    assert (await queue.wait(job_id)).status == "failed"
    assert failed.value.error_class == "transient"
    assert len(failed.value.attempts) == 2


async def test_a_cancelled_job_is_answered_and_its_result_raises(queue: Queue) -> None:
    job_id = (await queue.enqueue(echo)).job_id
    (wait,) = await waiting(queue, job_id)

    await queue.cancel(job_id)

    assert (await answer(wait)).status == "cancelled"
    with pytest.raises(JobCancelled):
        await queue.result(job_id, timeout=1)


async def test_an_expired_result_is_gone(queue: Queue, clock: FakeClock) -> None:
    job_id = (await queue.enqueue(echo, {"say": 1}, result_ttl=5)).job_id
    await queue.process_jobs(budget=5)
    clock.advance(6)

    with pytest.raises(ResultExpired):
        await queue.result(job_id, timeout=1)
    job = await queue.wait(job_id)
    assert (job.status, job.output) == ("completed", None)


async def test_a_job_under_review_has_not_ended(queue: Queue) -> None:
    job_id = (await queue.enqueue(doubtful)).job_id
    (wait,) = await waiting(queue, job_id)
    await queue.process_jobs(budget=5)

    with pytest.raises(WaitTimeout):
        await queue.wait(job_id, 0.05)
    assert not wait.done()
    await queue.approve(job_id)

    assert (await answer(wait)).output == "maybe"


async def test_a_job_that_is_retried_is_waited_for_again(queue: Queue, elsewhere: Queue) -> None:
    job_id = (await queue.enqueue(hopeless)).job_id
    await elsewhere.process_jobs(budget=5)
    assert (await queue.wait(job_id)).status == "failed"
    await elsewhere.retry(job_id)

    with pytest.raises(WaitTimeout):
        await queue.wait(job_id, 0.05)
    (wait,) = await waiting(queue, job_id)
    await elsewhere.process_jobs(budget=5)

    assert (await answer(wait)).status == "failed"


@pytest.mark.parametrize("job_id", [MISSING, "no id", ""])
async def test_a_job_that_is_not_there_is_not_waited_for(queue: Queue, job_id: str) -> None:
    for timeout in (None, 0, 5):
        with pytest.raises((JobNotFound, InvalidInput)):
            await queue.wait(job_id, timeout)
    assert waiters(queue) == 0


@pytest.mark.parametrize("job_type", [echo, doubtful])
async def test_a_job_that_is_deleted_is_no_longer_waited_for(
    queue: Queue, elsewhere: Queue, job_type: Any
) -> None:
    job_id = (await queue.enqueue(job_type, delay=60 if job_type is echo else 0)).job_id
    (wait,) = await waiting(queue, job_id)
    await elsewhere.process_jobs(budget=5)

    await elsewhere.delete(job_id)

    async with asyncio.timeout(endings._LOOK_AT_ALL_SECONDS / 3):
        with pytest.raises(JobNotFound):
            await wait


async def test_a_timeout_leaves_the_job_alive_and_no_waiter_behind(queue: Queue) -> None:
    job_id = (await queue.enqueue(echo, {"say": 1})).job_id

    for timeout in (0, 0.01):
        with pytest.raises(WaitTimeout, match="still alive"):
            await queue.wait(job_id, timeout)
        with pytest.raises(WaitTimeout):
            await queue.result(job_id, timeout)

    assert waiters(queue) == 0
    assert (await queue.process_jobs(budget=5)).completed == 1


BAD_TIMEOUTS = [True, "5", math.nan, -1, -0.001, [1]]


@pytest.mark.parametrize("timeout", BAD_TIMEOUTS)
async def test_a_timeout_that_is_none_is_refused_before_anything_happens(
    queue: Queue, timeout: Any
) -> None:
    job_id = (await queue.enqueue(echo)).job_id

    for refused in (
        queue.wait(job_id, timeout),
        queue.result(job_id, timeout),
        queue.enqueue_and_wait(echo, timeout=timeout),
    ):
        with pytest.raises(InvalidInput, match="timeout"):
            await refused

    assert [job.id for job in (await queue.list()).items] == [job_id]
    assert waiters(queue) == 0


@pytest.mark.parametrize("timeout", [None, math.inf, 10**30, 1e300])
async def test_a_timeout_may_be_as_long_as_one_likes(queue: Queue, timeout: Any) -> None:
    job_id = (await queue.enqueue(echo)).job_id
    wait = asyncio.create_task(queue.wait(job_id, timeout))

    await queue.process_jobs(budget=5)

    assert (await answer(wait)).status == "completed"


async def test_enqueue_and_wait_answers_with_the_output(queue: Queue, elsewhere: Queue) -> None:
    asked = asyncio.create_task(queue.enqueue_and_wait(echo, {"say": [1, 2]}, timeout=SOON))
    while not (await elsewhere.process_jobs(budget=5)).completed:
        pass

    assert await answer(asked) == [1, 2]


@pytest.mark.parametrize(("job_type", "error"), [(hopeless, JobFailed), (echo, JobCancelled)])
async def test_enqueue_and_wait_raises_what_became_of_the_job(
    queue: Queue, job_type: Any, error: type[Exception]
) -> None:
    asked = asyncio.create_task(queue.enqueue_and_wait(job_type, priority=15))
    while not (jobs := (await queue.list()).items):
        pass
    if job_type is echo:
        await queue.cancel(jobs[0].id)
    await queue.process_jobs(budget=5)

    with pytest.raises(error):
        await answer(asked)
    assert jobs[0].priority == 15


async def test_enqueue_and_wait_lets_go_of_a_job_that_takes_too_long(queue: Queue) -> None:
    with pytest.raises(WaitTimeout):
        await queue.enqueue_and_wait(echo, {"say": 1}, timeout=0.01)
    with pytest.raises(WaitTimeout):
        await queue.enqueue_and_wait(echo, {"say": 1}, timeout=0)

    assert (await queue.process_jobs(budget=5)).completed == 2
    assert waiters(queue) == 0


async def test_a_key_whose_job_has_completed_answers_at_once(queue: Queue) -> None:
    await queue.enqueue(echo, {"say": "once"}, idempotency_key="k")
    await queue.process_jobs(budget=5)

    said = await queue.enqueue_and_wait(echo, {"say": "once"}, idempotency_key="k", timeout=SOON)

    assert said == "once"


async def test_a_key_whose_job_is_alive_waits_for_that_job(queue: Queue, elsewhere: Queue) -> None:
    await elsewhere.enqueue(echo, {"say": "once"}, idempotency_key="k")
    calls = [
        asyncio.create_task(queue.enqueue_and_wait(echo, {"say": "once"}, idempotency_key="k"))
        for _ in range(3)
    ]
    await until(lambda: waiters(queue) >= 3)

    report = await elsewhere.process_jobs(budget=5)

    assert [await answer(call) for call in calls] == ["once"] * 3
    assert report.claimed == 1


async def test_a_key_with_another_input_is_a_conflict(queue: Queue) -> None:
    await queue.enqueue(echo, {"say": 1}, idempotency_key="k")

    with pytest.raises(IdempotencyConflict):
        await queue.enqueue_and_wait(echo, {"say": 2}, idempotency_key="k")
    await asyncio.sleep(0)
    assert waiters(queue) == 0


async def test_a_job_that_is_still_being_stored_is_not_missed(
    queue: Queue, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "_LOOK_AT_ALL_SECONDS", 0.001)
    store.may_insert.clear()
    asked = asyncio.create_task(queue.enqueue_and_wait(echo, {"say": 1}, timeout=SOON))
    await store.is_inserting.wait()
    before = store.answered
    await until(lambda: store.answered > before)

    store.may_insert.set()
    while not (await queue.process_jobs(budget=5)).completed:
        pass

    assert await answer(asked) == 1


async def test_a_thousand_who_wait_are_answered_with_few_reads(
    queue: Queue, store: CountingStore, elsewhere: Queue
) -> None:
    ids = [e.job_id for e in await queue.enqueue_many(echo, [{"say": n} for n in range(1000)])]
    tasks = await waiting(queue, *ids)
    await until(lambda: not (endings_of(queue)._to_look_at or endings_of(queue)._kick.is_set()))

    await elsewhere.process_jobs(budget=30, concurrency=50)
    async with asyncio.timeout(SOON):
        jobs = await asyncio.gather(*tasks)

    assert [job.output for job in jobs] == list(range(1000))
    reads = [query for query in store.reads if isinstance(query, GetJobs)]
    assert sum(len(query.job_ids) for query in reads) <= 2000
    assert len(reads) < 200
    assert waiters(queue) == 0


def endings_of(queue: Queue) -> endings.Endings:
    assert queue._endings is not None
    return queue._endings


async def test_many_may_wait_for_one_job(queue: Queue) -> None:
    job_id = (await queue.enqueue(echo, {"say": 1})).job_id
    tasks = await waiting(queue, *[job_id] * 100)

    tasks[0].cancel()
    await queue.process_jobs(budget=5)

    assert [(await answer(task)).output for task in tasks[1:]] == [1] * 99
    assert tasks[0].cancelled()
    assert waiters(queue) == 0


async def test_whoever_is_cancelled_at_any_point_leaves_no_waiter_behind(queue: Queue) -> None:
    job_id = (await queue.enqueue(echo, delay=60)).job_id
    for calls in (
        lambda: queue.wait(job_id, 60),
        lambda: queue.result(job_id, timeout=60),
        lambda: queue.enqueue_and_wait(echo, delay=60, timeout=60),
    ):
        for turns in range(25):
            task = asyncio.create_task(calls())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert waiters(queue) == 0


async def test_closing_the_queue_answers_those_who_wait(
    store: CountingStore, clock: FakeClock
) -> None:
    queue = Queue(store=store, handlers=[echo], clock=clock, settings=Settings())
    await queue.open()
    job_id = (await queue.enqueue(echo)).job_id
    tasks = await waiting(queue, job_id, job_id)
    tasks.append(asyncio.create_task(queue.enqueue_and_wait(echo)))
    await until(lambda: waiters(queue) >= 3)

    await queue.close()

    for task in tasks:
        with pytest.raises(StoreClosed):
            await answer(task)
    with pytest.raises(StoreClosed):
        await queue.wait(job_id)


async def test_waiting_and_closing_at_once_ends_in_good_order(
    database: str, clock: FakeClock
) -> None:
    for turns in range(15):
        store = CountingStore(database, clock, durable=False)
        queue = Queue(store=store, handlers=[echo], clock=clock, settings=Settings())
        await queue.open()
        job_id = (await queue.enqueue(echo, delay=60)).job_id
        tasks = [asyncio.create_task(queue.wait(job_id)) for _ in range(2)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await queue.close()
        for task in tasks:
            with pytest.raises(StoreClosed):
                await answer(task)


async def test_a_read_that_fails_is_heard_by_those_who_wait(
    queue: Queue, store: CountingStore
) -> None:
    job_id = (await queue.enqueue(echo)).job_id
    for failure in (StoreUnavailable("gone"), ValueError("a row that is none")):
        store.failure = failure
        with pytest.raises(type(failure)):
            await queue.wait(job_id, SOON)
    store.failure = None

    await queue.process_jobs(budget=5)

    assert (await queue.wait(job_id, SOON)).status == "completed"


async def test_a_change_that_was_not_told_is_found_all_the_same(
    queue: Queue, database: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "_LOOK_AT_ALL_SECONDS", 0.01)
    job_id = (await queue.enqueue(echo)).job_id
    (wait,) = await waiting(queue, job_id)
    store = queue.store
    assert isinstance(store, CountingStore)
    assert store._watcher is not None
    store._watcher._listeners = ()

    await queue.process_jobs(budget=5)

    assert (await answer(wait)).status == "completed"


async def test_a_database_that_was_replaced_is_told_to_those_who_wait_and_who_come(
    queue: Queue, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "_LOOKS_BETWEEN_STATS", 1)
    job_id = (await queue.enqueue(echo)).job_id
    (wait,) = await waiting(queue, job_id)
    await until(lambda: store.answered)

    store.path.unlink()

    with pytest.raises(StoreMoved):
        await answer(wait)
    with pytest.raises(StoreMoved):
        await queue.wait(job_id, SOON)
    await until(lambda: waiters(queue) == 0)


async def test_nobody_is_told_of_answers_that_came_too_late(
    queue: Queue, store: CountingStore
) -> None:
    """An exception for somebody who has gone is no `never retrieved` in the log."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    store.may_insert.clear()

    async def ask_and_leave() -> None:
        asked = asyncio.create_task(queue.enqueue_and_wait(echo))
        await store.is_inserting.wait()
        endings_of(queue)._give_up(StoreMoved("moved"))
        asked.cancel()
        await asyncio.wait([asked])

    await asyncio.create_task(ask_and_leave())
    gc.collect()
    await asyncio.sleep(0)

    assert reports == []


async def test_a_queue_belongs_to_one_event_loop_at_a_time(queue: Queue) -> None:
    job_id = (await queue.enqueue(echo)).job_id
    (here,) = await waiting(queue, job_id)

    def wait_there() -> None:
        with pytest.raises(RuntimeError, match="one event loop"):
            asyncio.run(queue.wait(job_id))

    await asyncio.to_thread(wait_there)
    await queue.process_jobs(budget=5)

    assert (await answer(here)).status == "completed"


def test_a_queue_may_be_used_by_one_event_loop_after_the_other(
    database: str, clock: FakeClock
) -> None:
    queue = Queue(database, handlers=[echo], clock=clock, settings=Settings())

    async def ask(say: int) -> Any:
        asked = asyncio.create_task(queue.enqueue_and_wait(echo, {"say": say}, timeout=SOON))
        while not (await queue.process_jobs(budget=5)).completed:
            pass
        return await asked

    asyncio.run(queue.open())
    answers = [asyncio.run(ask(n)) for n in range(3)]
    asyncio.run(queue.close())

    assert answers == [0, 1, 2]

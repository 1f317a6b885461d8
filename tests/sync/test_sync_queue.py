"""The blocking queue: the same methods, for threads."""

from __future__ import annotations

import asyncio
import inspect
import shutil
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, assert_type

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

import edgeq
from edgeq import (
    Context,
    Enqueued,
    Job,
    JobStatus,
    Queue,
    RunReport,
    SyncContext,
    SyncQueue,
    handler,
)
from edgeq.errors import BadSetting, JobNotFound, StoreClosed, UnknownType, WriterHeld
from edgeq.events import Event
from edgeq.settings import Settings
from edgeq.store.gate import Gate
from edgeq.sync_queue import _twin_iterator

SETTINGS = Settings(synchronous="normal", busy_timeout=5.0)


@handler("greet")
async def greet(ctx: Context, input: dict[str, Any]) -> str:
    return f"Hello, {input['name']}!"


@handler("sleep", max_interruptions=9)
async def sleep(ctx: Context, input: dict[str, Any]) -> None:
    await asyncio.sleep(60)


@pytest.fixture
def file(tmp_path: Path, migrated_file: Path) -> Path:
    path = tmp_path / "app.db"
    shutil.copy(migrated_file, path)
    return path


@pytest.fixture
def queue(file: Path) -> Iterator[SyncQueue]:
    queue = SyncQueue(f"sqlite:///{file}", handlers=[greet, sleep], settings=SETTINGS)
    yield queue
    queue.close()


def _methods(kind: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def _waits(method: Any) -> bool:
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


def test_every_public_coroutine_of_the_queue_has_a_twin_of_the_same_signature() -> None:
    ours = _methods(SyncQueue)
    theirs = {name: method for name, method in _methods(Queue).items() if _waits(method)}
    assert theirs.keys() <= ours.keys()
    for name, method in theirs.items():
        assert inspect.signature(ours[name]) == inspect.signature(method), name
        assert not _waits(ours[name]), name


def typed_as_the_queue_is(queue: SyncQueue) -> None:
    """Never called: an `ignore` that is not needed, or a type that differs, fails mypy."""
    assert_type(queue.enqueue("greet", {}, priority=3), Enqueued)
    assert_type(queue.get("id"), Job)
    assert_type(queue.find("greet", key="k"), Job | None)
    assert_type(queue.process_jobs(budget=3), RunReport)
    queue.get(3)  # type: ignore[arg-type]
    queue.find("greet")  # type: ignore[call-arg]
    queue.process_jobs(budget="long")  # type: ignore[arg-type]


def test_it_is_made_like_a_queue() -> None:
    assert inspect.signature(SyncQueue) == inspect.signature(Queue)


def test_it_opens_on_first_use(queue: SyncQueue) -> None:
    job = queue.enqueue("greet", {"name": "Ada"})
    assert queue.get(job.job_id).status is JobStatus.PENDING


def test_a_job_is_enqueued_run_and_answered(queue: SyncQueue) -> None:
    job = queue.enqueue("greet", {"name": "Ada"})
    report = queue.process_jobs(budget=5)
    assert (report.completed, queue.result(job.job_id)) == (1, "Hello, Ada!")


def test_errors_come_through(queue: SyncQueue) -> None:
    with pytest.raises(UnknownType):
        queue.enqueue("nothing")
    with pytest.raises(JobNotFound):
        queue.get("nothing")


def test_with_opens_and_closes(queue: SyncQueue) -> None:
    with queue:
        queue.enqueue("greet", {"name": "Ada"})
    with pytest.raises(StoreClosed, match="Open it again"):
        queue.stats()


def test_closing_twice_changes_nothing_and_it_can_be_opened_again(queue: SyncQueue) -> None:
    queue.stats()
    queue.close()
    queue.close()
    with queue:
        assert queue.list().items == ()


def test_closed_before_its_first_use_it_stays_closed(queue: SyncQueue) -> None:
    queue.close()
    with pytest.raises(StoreClosed):
        queue.enqueue("greet", {"name": "Ada"})


def test_closing_leaves_no_thread(queue: SyncQueue) -> None:
    before = set(threading.enumerate())
    queue.stats()
    queue.close()
    assert {thread.name for thread in set(threading.enumerate()) - before} == set()


def test_what_cannot_be_opened_leaves_no_thread_and_can_be_tried_again(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    folder = tmp_path / "missing"
    queue = SyncQueue(f"sqlite:///{folder}/app.db", settings=SETTINGS)
    with pytest.raises(edgeq.errors.StoreUnavailable):
        queue.stats()
    assert set(threading.enumerate()) == before
    folder.mkdir()
    with queue:
        assert queue.list().items == ()


def test_threads_share_it_from_their_first_call_on(queue: SyncQueue) -> None:
    ids: list[str] = []
    together = threading.Barrier(8)

    def add() -> None:
        together.wait()
        ids.extend(queue.enqueue("greet", {"name": "Ada"}).job_id for _ in range(50))

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 400
    assert len(queue.get_many(ids)) == 400


async def test_it_works_on_the_thread_of_a_running_event_loop(queue: SyncQueue) -> None:
    job = queue.enqueue("greet", {"name": "Ada"})
    assert queue.process_jobs(budget=5).completed == 1
    assert queue.get(job.job_id).status is JobStatus.COMPLETED


def _waits_for_a_lock(thread: int) -> bool:
    innermost = sys._current_frames()[thread].f_code
    return (innermost.co_filename, innermost.co_name) == (threading.__file__, "wait")


@contextmanager
def _interrupted(when: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Ctrl-C, once something is so and this thread waits."""
    main = threading.get_ident()
    begun = threading.Event()

    def press() -> None:
        begun.wait()
        when()
        while not _waits_for_a_lock(main):
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    begun.set()
    with pytest.raises(KeyboardInterrupt):
        yield
    presser.join()


def test_an_enqueue_that_is_interrupted_while_it_waits_never_happens(
    queue: SyncQueue, file: Path
) -> None:
    queue.open()
    gate = Gate(file)
    gate.acquire()
    with _interrupted():
        queue.enqueue("greet", {"name": "Ada"})
    gate.release()
    gate.close()
    assert queue.list().items == ()


def test_a_run_that_is_interrupted_puts_its_job_back(queue: SyncQueue) -> None:
    job = queue.enqueue("sleep")

    def it_runs() -> None:
        while queue.get(job.job_id).status is not JobStatus.PROCESSING:
            pass

    with _interrupted(when=it_runs):
        queue.process_jobs(budget=30)
    assert queue.get(job.job_id).status is JobStatus.PENDING


def test_closing_ends_what_other_threads_wait_for(queue: SyncQueue) -> None:
    queue.enqueue("sleep")
    failures: list[BaseException] = []

    def run() -> None:
        try:
            queue.process_jobs(budget=30)
        except StoreClosed as closed:
            failures.append(closed)

    thread = threading.Thread(target=run)
    thread.start()
    while not queue.list(status="processing").items:
        pass
    queue.close()
    thread.join(10)
    assert len(failures) == 1


def test_a_call_on_its_own_loop_is_refused(file: Path) -> None:
    raised: list[BaseException] = []

    @handler("inner")
    async def inner(ctx: Context, input: dict[str, Any]) -> None:
        try:
            own.stats()
        except WriterHeld as held:
            raised.append(held)

    with SyncQueue(f"sqlite:///{file}", handlers=[inner], settings=SETTINGS) as own:
        own.enqueue("inner")
        own.process_jobs(budget=5)
    assert len(raised) == 1


def test_a_handler_in_a_thread_may_use_it(file: Path) -> None:
    @handler("outer")
    def outer(ctx: SyncContext, input: dict[str, Any]) -> str:
        return own.get(ctx.job.id).status.value

    with SyncQueue(f"sqlite:///{file}", handlers=[outer], settings=SETTINGS) as own:
        job = own.enqueue("outer")
        own.process_jobs(budget=5)
        assert own.result(job.job_id) == "processing"


def test_observers_hear_of_it(file: Path) -> None:
    heard: list[Event] = []
    with SyncQueue(
        f"sqlite:///{file}", handlers=[greet], observers=[heard.append], settings=SETTINGS
    ) as queue:
        queue.enqueue("greet", {"name": "Ada"})
    assert len(heard) == 1


def test_a_job_joins_a_transaction(queue: SyncQueue, file: Path) -> None:
    engine = edgeq.attach(create_engine(f"sqlite:///{file}"), settings=SETTINGS)
    with engine.begin(), pytest.raises(WriterHeld, match="Open the queue before"):
        queue.stats()
    queue.open()
    with engine.begin() as connection:
        queue.enqueue("greet", {"name": "Ada"}, connection=connection)
        assert queue.list().items == ()
        with pytest.raises(WriterHeld, match="connection="):
            queue.enqueue("greet", {"name": "Ada"})
        with pytest.raises(WriterHeld, match="connection="):
            queue.process_jobs(budget=1)
    with Session(engine) as session:
        queue.enqueue_many("greet", [{"name": "Ada"}, {"name": "Eve"}], connection=session)
    assert len(queue.list().items) == 1
    engine.dispose()


def test_an_async_connection_is_refused(queue: SyncQueue, file: Path) -> None:
    engine = edgeq.attach(create_async_engine(f"sqlite+aiosqlite:///{file}"))
    with pytest.raises(BadSetting, match="event loop"):
        queue.enqueue("greet", {"name": "Ada"}, connection=engine.connect())


async def _countdown(queue: Queue, start: int) -> AsyncIterator[int]:
    try:
        for number in range(start, 0, -1):
            await asyncio.sleep(0)
            yield number
    finally:
        ended.append(start)


ended: list[int] = []


class _Counting(SyncQueue):
    countdown = _twin_iterator(_countdown)


def test_what_comes_one_by_one_is_a_blocking_iterator(file: Path) -> None:
    ended.clear()
    with _Counting(f"sqlite:///{file}", settings=SETTINGS) as queue:
        assert list(queue.countdown(3)) == [3, 2, 1]
        assert ended == [3]

        left_early = queue.countdown(5)
        assert next(left_early) == 5
        del left_early
        assert ended == [3, 5]


def test_an_iterator_ends_with_its_queue(file: Path) -> None:
    queue = _Counting(f"sqlite:///{file}", settings=SETTINGS)
    numbers = queue.countdown(3)
    assert next(numbers) == 3
    queue.close()
    with pytest.raises(StoreClosed):
        next(numbers)


def test_chains_and_steps_are_the_same_blocking(file: Path) -> None:
    @handler("double")
    def double(ctx: SyncContext, input: dict[str, int]) -> dict[str, int]:
        return {"n": ctx.step("double", lambda: input["n"] * 2)}

    with SyncQueue(f"sqlite:///{file}", handlers=[double], settings=SETTINGS) as queue:
        jobs = queue.chain([(double, {"n": 1}), edgeq.link(double), edgeq.link(double)])
        assert queue.waiting_for(jobs[1].job_id) == (jobs[0].job_id,)
        report = queue.process_jobs(budget=10)
        assert report.completed == 3
        assert queue.result(jobs[-1].job_id) == {"n": 8}
        (step,) = queue.steps(jobs[0].job_id)
        assert (step.name, step.result) == ("double", "2")
        assert queue.runs_left(queue.get(jobs[0].job_id)) is None


def test_a_batch_is_a_block(queue: SyncQueue) -> None:
    with queue.batch("greetings", callback=(greet, {"name": "all"})) as batch:
        for name in ("Ann", "Bob"):
            batch.add(greet, {"name": name})
    assert [job.status for job in batch.jobs] == ["pending", "pending"]
    queue.process_jobs(budget=10)
    found = queue.get_batch(batch.id)
    assert (found.completed, found.total) == (2, 2)
    assert queue.result(found.callback_job_id or "") == "Hello, all!"


def test_a_batch_whose_block_fails_leaves_nothing(queue: SyncQueue) -> None:
    def begin() -> None:
        with queue.batch() as batch:
            batch.add(greet, {"name": "Ann"})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        begin()
    assert queue.list().items == ()

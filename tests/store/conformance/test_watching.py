"""Watching: every commit is told, whoever made it, in order and once."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator

import pytest

from edgeq.core.outcomes import Completed
from edgeq.errors import StoreClosed, StoreError, UnknownType
from edgeq.ports.commands import InsertJobs
from edgeq.ports.queries import Changes
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import Backend, JobBuilder, Register
from tests.store.conformance.acts import claim_one, end, insert

PATIENCE_SECONDS = 20.0


class Listening:
    """A listener that keeps what it is told, and lets a test wait for it."""

    def __init__(self) -> None:
        self._told: queue.SimpleQueue[Changes | StoreError] = queue.SimpleQueue()
        self.positions: list[int] = []
        self.job_ids: list[str] = []
        self.events: list[str] = []

    def __call__(self, news: Changes | StoreError) -> None:
        self._told.put(news)

    def _hear_one(self) -> None:
        """Take what was told next; blocks the thread, so that only the store can be at work."""
        news = self._told.get(timeout=PATIENCE_SECONDS)
        assert isinstance(news, Changes)
        for position, _, change in news.changes:
            self.positions.append(position)
            self.job_ids.append(change.job_id)
            self.events.append(change.event)

    def hear_until(self, job_id: str) -> list[str]:
        """The jobs that were told, once this one is among them."""
        while job_id not in self.job_ids:
            self._hear_one()
        return self.job_ids


@pytest.fixture
async def other(backend: Backend, clock: FakeClock, store: Store) -> AsyncIterator[Store]:
    """Another store on the same database: another process, as far as it can tell."""
    other = backend.store(clock)
    await other.open()
    yield other
    await other.close()


async def test_commits_of_this_store_and_of_another_are_told_in_order_and_once(
    store: Store, other: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    listening = Listening()
    stop = await store.watch(listening)

    ids: list[str] = []
    for turn in range(20):
        ids += await insert(other if turn % 3 else store, new_job(), new_job())

    assert listening.hear_until(ids[-1]) == ids
    assert listening.positions == sorted(listening.positions)
    assert len(set(listening.positions)) == 20
    stop()


async def test_the_whole_life_of_a_job_is_told(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    listening = Listening()
    stop = await store.watch(listening)

    await end(store, await claim_one(store, new_job()), Completed())
    (last,) = await insert(store, new_job())

    listening.hear_until(last)
    assert listening.events == ["queued", "processing", "completed", "queued"]
    stop()


async def test_what_is_committed_right_after_watching_began_is_heard(
    store: Store, other: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    for writer in (other, store) * 10:
        listening = Listening()
        stop = await store.watch(listening)
        (job_id,) = await insert(writer, new_job())
        assert listening.hear_until(job_id)[-1] == job_id
        stop()


async def test_every_listener_hears_everything(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    several = [Listening() for _ in range(5)]
    stops = [await store.watch(each) for each in several]

    ids = [(await insert(store, new_job()))[0] for _ in range(5)]

    assert [each.hear_until(ids[-1]) for each in several] == [ids] * 5
    for stop in stops:
        stop()


async def test_a_listener_that_was_removed_hears_no_more(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    gone, there = Listening(), Listening()
    stop = await store.watch(gone)
    stop_other = await store.watch(there)
    (first,) = await insert(store, new_job())
    gone.hear_until(first)

    stop()
    stop()
    (second,) = await insert(store, new_job())

    there.hear_until(second)
    assert gone._told.empty()
    stop_other()


async def test_a_function_that_listens_twice_leaves_once(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    listening = Listening()
    stop_one = await store.watch(listening)
    stop_other = await store.watch(listening)

    stop_one()
    (job_id,) = await insert(store, new_job())

    assert listening.hear_until(job_id) == [job_id]
    stop_other()


async def test_a_listener_that_fails_does_not_keep_others_from_hearing(
    store: Store, new_job: JobBuilder, registered: Register, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(news: Changes | StoreError) -> None:
        raise RuntimeError("a bad listener")

    await registered(store, "noop")
    stop_bad = await store.watch(fails)
    listening = Listening()
    stop = await store.watch(listening)

    ids = [(await insert(store, new_job()))[0] for _ in range(3)]

    assert listening.hear_until(ids[-1]) == ids
    assert "a bad listener" in caplog.text
    stop_bad()
    stop()


async def test_what_was_refused_is_not_told(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    listening = Listening()
    stop = await store.watch(listening)
    good, undone, last = new_job(), new_job(), new_job()

    refused = await asyncio.gather(
        store.write(InsertJobs((undone, new_job("nobody-knows")))),
        store.write(InsertJobs((good,))),
        return_exceptions=True,
    )
    await insert(store, last)

    assert isinstance(refused[0], UnknownType)
    assert listening.hear_until(last.id) == [good.id, last.id]
    stop()


async def test_many_commits_made_while_a_listener_is_busy_are_told_all(
    store: Store, other: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    listening = Listening()
    may_go_on = threading.Event()

    def slow(news: Changes | StoreError) -> None:
        assert may_go_on.wait(PATIENCE_SECONDS)
        listening(news)

    stop = await store.watch(slow)

    ids = [(await insert(other, new_job()))[0] for _ in range(50)]
    may_go_on.set()

    assert listening.hear_until(ids[-1]) == ids
    stop()


def watcher_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if "watcher" in each.name]


async def test_closing_ends_the_watching(backend: Backend, clock: FakeClock) -> None:
    store = backend.store(clock)
    await store.open()
    await store.watch(Listening())
    while_open = watcher_threads()

    await store.close()

    assert (len(while_open), watcher_threads()) == (1, [])
    with pytest.raises(StoreClosed):
        await store.watch(Listening())


async def test_watching_and_closing_at_once_leaves_nothing_behind(
    backend: Backend, clock: FakeClock
) -> None:
    for turn in range(20):
        store = backend.store(clock)
        await store.open()
        watches = [asyncio.create_task(store.watch(Listening())) for _ in range(3)]
        for _ in range(turn % 4):
            await asyncio.sleep(0)
        await store.close()
        for answer in await asyncio.gather(*watches, return_exceptions=True):
            assert callable(answer) or isinstance(answer, StoreClosed)
        assert watcher_threads() == []


async def test_one_watcher_serves_all_who_begin_at_once(store: Store) -> None:
    stops = await asyncio.gather(*(store.watch(Listening()) for _ in range(10)))

    assert len(watcher_threads()) == 1
    for stop in stops:
        stop()

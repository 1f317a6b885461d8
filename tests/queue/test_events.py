"""The stream of events: in order, resumable at any of them, and nothing is left out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from edgeq import Context, Queue, handler
from edgeq.core.feed import FeedReset, JobEvent, position_of
from edgeq.errors import InvalidInput, StoreClosed, StoreMoved
from edgeq.ports.commands import ExtendLocks
from edgeq.ports.queries import Changes, GetChanges
from edgeq.queue import event_stream
from edgeq.settings import Settings
from edgeq.store import watcher
from edgeq.store.sqlite import SqliteStore
from edgeq.testing import FakeClock
from tests.store.programs import program

SOON = 20.0
HOUR_SECONDS = 3600


@handler("free")
async def free(ctx: Context, input: dict[str, Any]) -> None:
    if "percent" in input:
        await ctx.progress(input["percent"])


@handler("limited")
async def limited(ctx: Context, input: dict[str, Any]) -> None:
    pass


class Reading:
    """A reader of a stream, which begins with a change that it has seen."""

    def __init__(self, queue: Queue, **wanted: Any) -> None:
        self._events = queue.events(**wanted)

    async def next(self) -> JobEvent | FeedReset:
        async with asyncio.timeout(SOON):
            return await anext(self._events)

    async def take(self, count: int) -> list[JobEvent]:
        events = [await self.next() for _ in range(count)]
        assert all(isinstance(event, JobEvent) for event in events)
        return events  # type: ignore[return-value]

    async def close(self) -> None:
        await self._events.aclose()  # type: ignore[attr-defined]


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'queue.db'}"


@pytest.fixture
async def queue(database: str, clock: FakeClock) -> AsyncIterator[Queue]:
    settings = Settings(synchronous="normal")
    async with Queue(database, handlers=[free, limited], clock=clock, settings=settings) as queue:
        yield queue


@pytest.fixture
async def elsewhere(queue: Queue, database: str, clock: FakeClock) -> AsyncIterator[Queue]:
    settings = Settings(synchronous="normal")
    async with Queue(database, handlers=[free, limited], clock=clock, settings=settings) as other:
        yield other


def listeners(queue: Queue) -> int:
    store = queue.store
    assert isinstance(store, SqliteStore)
    return 0 if store._watcher is None else len(store._watcher._listeners)


async def begun(queue: Queue, **wanted: Any) -> tuple[Reading, asyncio.Task[JobEvent | FeedReset]]:
    """A reader of what happens from now on, and its first event, which has not come yet."""
    reading = Reading(queue, **wanted)
    before = listeners(queue)
    first = asyncio.create_task(reading.next())
    async with asyncio.timeout(SOON):
        while True:
            if listeners(queue) > before:
                break
            await asyncio.sleep(0.001)
    # Where it begins has been read when this has been: both wait for the same readers.
    for _ in range(3):
        await queue.store.read(GetChanges(0, limit=0))
    return reading, first


async def test_what_happens_from_now_on_is_told_in_order(queue: Queue, elsewhere: Queue) -> None:
    await queue.enqueue(free)
    reading, first = await begun(queue)

    job_id = (await elsewhere.enqueue(free, {"percent": 40}, tenant_id="t", priority=20)).job_id
    await elsewhere.process_jobs(budget=5, max_jobs=1)
    events = [await first, *await reading.take(3)]

    assert all(isinstance(event, JobEvent) for event in events)
    told = [(e.event, e.status, e.progress) for e in events if isinstance(e, JobEvent)]
    assert told == [
        ("job.queued", "pending", 0),
        ("job.processing", "processing", 0),
        ("job.progress", "processing", 40),
        ("job.completed", "completed", 100),
    ]
    assert {(e.job_id, e.type, e.tenant_id) for e in events if isinstance(e, JobEvent)} == {
        (job_id, "free", "t")
    }
    positions = [event.position for event in events]
    assert positions == sorted(set(positions))
    await reading.close()


async def test_the_past_is_told_from_the_beginning_on_demand(
    queue: Queue, clock: FakeClock
) -> None:
    ids = [(await queue.enqueue(free)).job_id for _ in range(3)]
    reading = Reading(queue, after=0)

    events = await reading.take(3)

    assert [event.job_id for event in events] == ids
    assert {event.at for event in events} == {clock.now()}
    await reading.close()


async def test_a_reader_resumes_exactly_anywhere_inside_a_commit(queue: Queue) -> None:
    await queue.enqueue(free)
    await queue.enqueue_many(free, [{}] * 7)
    await queue.enqueue(limited)
    reading = Reading(queue, after=0)
    events = await reading.take(9)
    await reading.close()

    for seen, event in enumerate(events[:-1], start=1):
        resumed = Reading(queue, after=event.position)
        assert await resumed.take(9 - seen) == events[seen:]
        await resumed.close()


async def test_a_reader_that_has_seen_everything_hears_what_comes_next(queue: Queue) -> None:
    await queue.enqueue_many(free, [{}] * 3)
    reading = Reading(queue, after=0)
    last = (await reading.take(3))[-1]
    await reading.close()

    resumed = Reading(queue, after=last.position)
    next_one = asyncio.create_task(resumed.next())
    job_id = (await queue.enqueue(free)).job_id

    event = await next_one
    assert isinstance(event, JobEvent)
    assert event.job_id == job_id
    await resumed.close()


async def test_a_reader_hears_only_what_it_wants(queue: Queue) -> None:
    one = (await queue.enqueue(free, tenant_id="a")).job_id
    two = (await queue.enqueue(limited, tenant_id="a")).job_id
    three = (await queue.enqueue(limited, tenant_id="b")).job_id
    for wanted, ids in (
        ({"job_id": two}, [two]),
        ({"types": ["limited"]}, [two, three]),
        ({"types": ("free", "limited")}, [one, two, three]),
        ({"tenant_id": "a"}, [one, two]),
        ({"tenant_id": "b", "types": {"limited"}}, [three]),
    ):
        reading = Reading(queue, after=0, **wanted)
        assert [event.job_id for event in await reading.take(len(ids))] == ids
        await reading.close()


async def pass_an_hour(queue: Queue, clock: FakeClock) -> None:
    clock.advance(HOUR_SECONDS + 1)
    for _ in range(130):
        await queue.store.write(ExtendLocks("nobody", 0))


async def test_a_position_that_is_too_old_gets_a_reset_and_then_what_is_kept(
    queue: Queue, clock: FakeClock
) -> None:
    await queue.enqueue(free)
    reading = Reading(queue, after=0)
    (first,) = await reading.take(1)
    await reading.close()
    await queue.enqueue_many(free, [{}] * 2)
    await queue.enqueue_many(free, [{}] * 2)
    await pass_an_hour(queue, clock)
    job_id = (await queue.enqueue(free)).job_id

    resumed = Reading(queue, after=first.position)
    reset = await resumed.next()
    kept = await resumed.take(3)

    assert isinstance(reset, FeedReset)
    assert kept[-1].job_id == job_id
    assert reset.position < kept[0].position
    await resumed.close()
    again = Reading(queue, after=reset.position)
    assert await again.take(3) == kept
    await again.close()


async def test_a_position_beyond_the_end_gets_a_reset_and_then_what_comes(queue: Queue) -> None:
    await queue.enqueue(free)
    reading = Reading(queue, after=position_of(1000, 3))

    reset = await reading.next()
    next_one = asyncio.create_task(reading.next())
    job_id = (await queue.enqueue(free)).job_id

    assert reset == FeedReset(position_of(2, 0))
    event = await next_one
    assert isinstance(event, JobEvent)
    assert event.job_id == job_id
    await reading.close()


async def test_a_reader_of_rare_events_is_not_left_behind_by_the_others(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy queue the feed moves on, and with it who only waits for something rare."""
    reading, first = await begun(queue, types=["limited"])
    witness, seen = await begun(queue)
    for _ in range(3):
        await queue.enqueue(free)
        await seen
        seen = asyncio.create_task(witness.next())
    await pass_an_hour(queue, clock)
    await queue.enqueue(free)
    await seen

    # The next look by itself reads from where the reader is.
    monkeypatch.setattr(event_stream, "_LOOK_SECONDS", 0.001)
    await queue.enqueue(free)
    await witness.next()
    job_id = (await queue.enqueue(limited)).job_id

    event = await first
    assert isinstance(event, JobEvent)
    assert event.job_id == job_id
    await reading.close()
    await witness.close()


async def test_a_slow_reader_loses_nothing(
    queue: Queue, elsewhere: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "_KEPT_AT_MOST", 100)
    reading, first = await begun(queue)
    ids: list[str] = []
    for _ in range(30):
        ids += [e.job_id for e in await elsewhere.enqueue_many(free, [{}] * 20)]

    events = [await first, *await reading.take(299)]
    for _ in range(15):
        ids += [e.job_id for e in await elsewhere.enqueue_many(free, [{}] * 20)]
    events += await reading.take(600)

    assert [event.job_id for event in events if isinstance(event, JobEvent)] == ids
    await reading.close()


async def test_a_reader_that_is_more_than_ten_thousand_events_behind_loses_nothing(
    queue: Queue,
) -> None:
    reading, first = await begun(queue)
    ids: list[str] = []
    for _ in range(13):
        ids += [e.job_id for e in await queue.enqueue_many(free, [{}] * 1000)]

    events = [await first, *await reading.take(12_999)]

    assert [event.job_id for event in events if isinstance(event, JobEvent)] == ids
    await reading.close()


async def test_a_long_past_is_read_to_its_end(queue: Queue) -> None:
    ids = [(await queue.enqueue(free)).job_id for _ in range(450)]
    reading = Reading(queue, after=0)

    async with asyncio.timeout(event_stream._LOOK_SECONDS / 2):
        events = await reading.take(450)

    assert [event.job_id for event in events] == ids
    await reading.close()


async def test_several_streams_go_at_their_own_pace(queue: Queue) -> None:
    quick, first = await begun(queue)
    slow, slow_first = await begun(queue)
    ids = [(await queue.enqueue(free)).job_id for _ in range(10)]

    told = [await first, *await quick.take(9)]
    late = [await slow_first, *await slow.take(9)]

    assert told == late
    assert [event.job_id for event in told if isinstance(event, JobEvent)] == ids
    await quick.close()
    await slow.close()


async def test_a_stream_that_is_closed_early_leaves_no_listener(queue: Queue) -> None:
    await queue.enqueue_many(free, [{}] * 3)
    async with aclosing(queue.events(after=0)) as events:  # type: ignore[type-var]
        async for _ in events:
            break
    reading, first = await begun(queue)
    assert listeners(queue) == 1

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await reading.close()

    assert listeners(queue) == 0
    assert queue._streams == frozenset()


async def test_changes_made_by_another_process_are_told(queue: Queue, tmp_path: Path) -> None:
    ids = [e.job_id for e in await queue.enqueue_many(free, [{}] * 3)]
    reading, first = await begun(queue)

    with program("claim_all", tmp_path / "queue.db") as other:
        other.go()
        await asyncio.to_thread(other.answer)

    events = [await first, *await reading.take(5)]
    told = [(e.job_id, e.status) for e in events if isinstance(e, JobEvent)]
    assert told == [(job_id, status) for status in ("processing", "completed") for job_id in ids]
    await reading.close()


@pytest.mark.parametrize("after", [True, "1", 1.5, -1, 2**63])
async def test_a_position_that_is_none_is_refused(queue: Queue, after: Any) -> None:
    with pytest.raises(InvalidInput, match="after"):
        await anext(queue.events(after=after))


async def test_one_name_instead_of_several_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidInput, match="types"):
        await anext(queue.events(types="free"))


async def test_closing_the_queue_ends_its_streams_at_once(database: str, clock: FakeClock) -> None:
    queue = Queue(database, handlers=[free], clock=clock)
    await queue.open()
    _, first = await begun(queue)

    await queue.close()

    async with asyncio.timeout(event_stream._LOOK_SECONDS / 3):
        with pytest.raises(StoreClosed):
            await first


async def test_a_database_that_was_replaced_ends_its_streams(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "_LOOKS_BETWEEN_STATS", 1)
    _, first = await begun(queue)

    (tmp_path / "queue.db").unlink()

    with pytest.raises(StoreMoved):
        await first


async def test_a_change_that_was_not_told_is_found_all_the_same(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "_LOOK_SECONDS", 0.01)
    reading, first = await begun(queue)
    store = queue.store
    assert isinstance(store, SqliteStore)
    assert store._watcher is not None
    store._watcher._listeners = ()

    job_id = (await queue.enqueue(free)).job_id

    event = await first
    assert isinstance(event, JobEvent)
    assert event.job_id == job_id
    await reading.close()


async def test_a_failing_watcher_does_not_end_a_stream(queue: Queue) -> None:
    reading, first = await begun(queue)
    store = queue.store
    assert isinstance(store, SqliteStore)
    is_broken = False

    def breaks(_: Changes | Exception) -> None:
        nonlocal is_broken
        if not is_broken:
            is_broken = True
            assert store._watcher is not None
            store._watcher._connection.close()

    await store.watch(breaks)

    ids = [(await queue.enqueue(free)).job_id for _ in range(5)]

    events = [await first, *await reading.take(4)]
    assert [event.job_id for event in events if isinstance(event, JobEvent)] == ids
    await reading.close()

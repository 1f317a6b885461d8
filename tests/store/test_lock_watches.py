"""Lock watches: locks live as long as the work, and a run hears what it holds, loop or no loop."""

from __future__ import annotations

import queue
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edgeq.core.jobs import JobStatus
from edgeq.ports.commands import CancelJob, Held, ReleaseJob, SetConfig
from edgeq.ports.store import LockWatch
from edgeq.store import lock_watches
from edgeq.store.sqlite import SqliteStore
from edgeq.testing import FakeClock
from tests.conftest import Backend, JobBuilder, Register, SqliteBackend
from tests.store.conformance.acts import BOSS, LOCK_MS, claim, claim_one, get, insert

PATIENCE_SECONDS = 20.0


class Watching:
    """A run that listens: what it was told, and how often it was asked for its lock."""

    def __init__(self, run_id: str, clock: FakeClock) -> None:
        self._clock = clock
        self._told: queue.SimpleQueue[Held | None] = queue.SimpleQueue()
        self._looks: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.watch = LockWatch(run_id, self._lock_until, self._told.put)

    def _lock_until(self) -> int:
        self._looks.put(None)
        return self._clock.now() + LOCK_MS

    def next(self) -> Held | None:
        """What is told next; blocks the calling thread, and its event loop."""
        return self._told.get(timeout=PATIENCE_SECONDS)

    def wait_for_none(self) -> None:
        while self.next() is not None:
            pass

    def wait_for_look(self) -> None:
        """Wait until the store has looked at this run twice from now on."""
        while not self._looks.empty():
            self._looks.get()
        for _ in range(2):
            self._looks.get(timeout=PATIENCE_SECONDS)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Backend:
    return SqliteBackend(request)


@pytest.fixture(autouse=True)
def frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_watches, "LOOK_SECONDS", 0.02)


@pytest.fixture
async def other(
    backend: Backend, clock: FakeClock, store: SqliteStore
) -> AsyncIterator[SqliteStore]:
    """Another process, as far as SQLite can tell."""
    other = backend.store(clock)
    assert isinstance(other, SqliteStore)
    await other.open()
    yield other
    await other.close()


async def test_locks_are_extended_although_the_event_loop_is_blocked(
    store: SqliteStore, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    job = await claim_one(store, new_job(), run="mine")
    mine = Watching("mine", clock)
    stop = store.keep_locks(mine.watch)

    clock.advance(40)
    held = mine.next()
    while (await get(store, job.id)).lock_expires_at != clock.now() + LOCK_MS:
        held = mine.next()
    clock.advance(40)
    reclaimed = (await claim(store, run="other")).reclaimed

    stop()
    assert held is not None
    assert held.fences == {job.seq: job.fence}
    assert reclaimed == 0


async def test_a_lock_that_still_lasts_is_left_alone(
    store: SqliteStore, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    job = await claim_one(store, new_job(), run="mine")
    mine = Watching("mine", clock)
    stop = store.keep_locks(mine.watch)

    clock.advance(19)
    mine.wait_for_look()

    stop()
    assert (await get(store, job.id)).lock_expires_at == clock.now() - 19_000 + LOCK_MS


async def test_after_its_end_a_run_is_not_kept_alive(
    store: SqliteStore, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    job = await claim_one(store, new_job(), run="mine")
    store.keep_locks(Watching("mine", clock).watch)()
    other = Watching("other", clock)
    stop = store.keep_locks(other.watch)

    clock.advance(61)
    other.wait_for_look()
    await claim(store, run="other", slots=0)

    stop()
    assert (await get(store, job.id)).status is JobStatus.PENDING


async def test_a_run_hears_what_another_process_did_to_its_jobs(
    store: SqliteStore,
    other: SqliteStore,
    new_job: JobBuilder,
    registered: Register,
    clock: FakeClock,
) -> None:
    await registered(store, "noop")
    kept, taken = [await claim_one(store, new_job(), run="mine") for _ in range(2)]
    mine = Watching("mine", clock)
    stop = store.keep_locks(mine.watch)

    await other.write(ReleaseJob(taken.id, BOSS))
    await other.write(CancelJob(kept.id, BOSS))
    await other.write(SetConfig({"worker_enabled": False}, BOSS))
    held = mine.next()
    while held is None or held.is_enabled:
        held = mine.next()

    stop()
    assert held.fences == {kept.seq: kept.fence}
    assert held.cancel_requested == {kept.seq}


async def test_a_run_hears_what_its_own_process_did_to_its_jobs(
    store: SqliteStore, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    job = await claim_one(store, new_job(), run="mine")
    mine = Watching("mine", clock)
    stop = store.keep_locks(mine.watch)

    await store.write(ReleaseJob(job.id, BOSS))
    held = mine.next()
    while held is None or held.fences:
        held = mine.next()

    stop()


async def test_a_frozen_store_does_not_end_the_writer(
    store: SqliteStore,
    backend: Backend,
    new_job: JobBuilder,
    registered: Register,
    clock: FakeClock,
) -> None:
    await registered(store, "noop")
    await claim_one(store, new_job(), run="mine")
    mine = Watching("mine", clock)
    stop = store.keep_locks(mine.watch)

    backend.sql("UPDATE queue_guard SET mode = 'frozen'")
    mine.wait_for_look()
    backend.sql("UPDATE queue_guard SET mode = 'open'")

    await insert(store, new_job())
    stop()


async def test_a_run_whose_locks_cannot_be_extended_is_told_not_to_trust_them(
    store: SqliteStore,
    new_job: JobBuilder,
    registered: Register,
    clock: FakeClock,
    tmp_path: Path,
) -> None:
    await registered(store, "noop")
    await claim_one(store, new_job(), run="mine")
    mine = Watching("mine", clock)
    stop = store.keep_locks(mine.watch)
    store.path.rename(tmp_path / "aside.db")

    clock.advance(41)
    mine.wait_for_none()

    stop()


async def test_a_failed_extension_is_made_up_for_when_the_store_is_back(
    store: SqliteStore,
    backend: Backend,
    new_job: JobBuilder,
    registered: Register,
    clock: FakeClock,
) -> None:
    await registered(store, "noop")
    job = await claim_one(store, new_job(), run="mine")
    mine = Watching("mine", clock)
    stop = store.keep_locks(mine.watch)

    backend.sql("UPDATE queue_guard SET mode = 'frozen'")
    clock.advance(30)
    mine.wait_for_look()
    backend.sql("UPDATE queue_guard SET mode = 'open'")
    while (await get(store, job.id)).lock_expires_at != clock.now() + LOCK_MS:
        assert mine.next() is not None

    stop()

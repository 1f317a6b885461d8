"""The watcher of an SQLite file: replaced files, failing connections, other processes."""

from __future__ import annotations

import asyncio
import os
import queue
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeq.errors import StoreError, StoreMoved, StoreUnavailable
from edgeq.ports.commands import ExtendLocks
from edgeq.ports.queries import Changes, GetChanges, ListTypes
from edgeq.store import watcher
from edgeq.store.sqlite import SqliteStore
from edgeq.testing import FakeClock
from tests.conftest import Backend, JobBuilder, Register, SqliteBackend
from tests.store.conformance.acts import insert, position
from tests.store.programs import program
from tests.store.test_writer import open_files, own_threads

PATIENCE_SECONDS = 20.0
HOUR_SECONDS = 3600


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Backend:
    return SqliteBackend(request)


@pytest.fixture(autouse=True)
def quick_mending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "_MEND_SECONDS", 0.01)
    monkeypatch.setattr(watcher, "_LOOKS_BETWEEN_STATS", 2)


class Told:
    """What a watcher told, to be waited for."""

    def __init__(self) -> None:
        self._news: queue.SimpleQueue[Changes | StoreError] = queue.SimpleQueue()

    def __call__(self, news: Changes | StoreError) -> None:
        self._news.put(news)

    def next(self) -> Changes | StoreError:
        return self._news.get(timeout=PATIENCE_SECONDS)

    def wait_for(self, is_it: Callable[[Changes | StoreError], bool]) -> Changes | StoreError:
        while not is_it(news := self.next()):
            pass
        return news

    def wait_for_job(self, job_id: str) -> None:
        self.wait_for(lambda news: isinstance(news, Changes) and job_id in ids_of(news))


def threads_that_stay() -> set[threading.Thread]:
    """Those of the driver end by themselves, a moment after their connections are closed."""
    for thread in own_threads():
        if not thread.name.startswith(("edgeq", "MainThread")):
            thread.join(5)
    return own_threads()


def ids_of(news: Changes) -> list[str]:
    return [change.job_id for _, _, change in news.changes]


def _delete(path: Path) -> None:
    path.unlink()


def _replace(path: Path) -> None:
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    os.replace(copy, path)  # noqa: PTH105


@pytest.mark.parametrize("do", [_delete, _replace])
async def test_a_file_that_is_deleted_or_replaced_is_told_and_ends_the_watching(
    store: SqliteStore, do: Callable[[Path], None]
) -> None:
    told = Told()
    await store.watch(told)

    do(store.path)

    news = told.next()
    assert isinstance(news, StoreMoved)
    with pytest.raises(StoreMoved, match="deleted or replaced"):
        await store.watch(Told())


async def break_connection_at_next_change(store: SqliteStore) -> None:
    """The watcher's own connection fails then, as if the system had taken its file."""
    is_broken = False

    def breaks(_: Changes | StoreError) -> None:
        # On the watcher's thread: nobody else may touch its connection while it is in use.
        nonlocal is_broken
        if not is_broken:
            is_broken = True
            assert store._watcher is not None
            store._watcher._connection.close()

    await store.watch(breaks)


async def test_a_deleted_file_is_not_made_again_by_watching_it(
    store: SqliteStore,
    new_job: JobBuilder,
    registered: Register,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watcher, "_LOOKS_BETWEEN_STATS", 1_000_000)
    await registered(store, "noop")
    told = Told()
    await store.watch(lambda _: store.path.unlink(missing_ok=True))
    await break_connection_at_next_change(store)
    await store.watch(told)

    await insert(store, new_job())
    told.wait_for(lambda news: isinstance(news, StoreMoved))

    assert not store.path.exists()


async def test_a_connection_that_failed_is_opened_again_and_nothing_was_missed(
    store: SqliteStore, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    told = Told()
    await store.watch(told)
    await break_connection_at_next_change(store)

    ids = [(await insert(store, new_job()))[0] for _ in range(5)]

    heard: list[str] = []
    failures: list[type[StoreError]] = []
    while ids[-1] not in heard or not failures:
        news = told.next()
        if isinstance(news, Changes):
            heard += ids_of(news)
        else:
            failures.append(type(news))
    (last,) = await insert(store, new_job())
    told.wait_for_job(last)
    assert heard == ids
    assert failures == [StoreUnavailable]


async def test_a_feed_that_cannot_be_understood_for_a_while_is_read_again(
    store: SqliteStore, backend: Backend, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    told = Told()
    await store.watch(told)
    backend.sql("INSERT INTO job_changes (at, changes) VALUES (0, 'no JSON at all')")

    news = told.next()
    backend.sql("UPDATE job_changes SET changes = '[]' WHERE at = 0")
    (job_id,) = await insert(store, new_job())

    assert isinstance(news, StoreUnavailable)
    told.wait_for_job(job_id)


async def test_a_reader_that_slept_longer_than_the_feed_is_kept_is_told_of_a_gap(
    store: SqliteStore, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    told = Told()
    sleeps, may_wake = threading.Event(), threading.Event()

    def sleep(news: Changes | StoreError) -> None:
        """Keeps the watcher's thread, as a stopped process would."""
        sleeps.set()
        assert may_wake.wait(PATIENCE_SECONDS)

    await store.watch(sleep)
    await store.watch(told)
    (first,) = await insert(store, new_job())
    assert sleeps.wait(PATIENCE_SECONDS)
    for _ in range(3):
        await insert(store, new_job())
    clock.advance(HOUR_SECONDS + 1)
    for _ in range(130):
        await store.write(ExtendLocks("nobody", store.now()))
    (last,) = await insert(store, new_job())

    may_wake.set()
    told.wait_for_job(first)
    news = told.next()

    assert isinstance(news, Changes)
    assert news.reset
    assert ids_of(news)[-1] == last
    assert news.position == await position(store)


async def test_a_commit_of_another_process_is_heard(
    store: SqliteStore, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "free", "limited")
    ids = await insert(store, *(new_job("free") for _ in range(3)))
    told = Told()
    await store.watch(told)

    with program("claim_all", store.path) as other:
        other.go()
        await asyncio.to_thread(other.answer)

    heard: list[tuple[str, str]] = []
    while {job_id for job_id, status in heard if status == "completed"} != set(ids):
        news = told.next()
        assert isinstance(news, Changes)
        heard += [(change.job_id, change.status) for _, _, change in news.changes]
    assert heard == [(job_id, status) for status in ("processing", "completed") for job_id in ids]


async def test_nothing_of_a_watcher_is_left_after_closing(
    tmp_path: Path, clock: FakeClock, migrated_file: Path
) -> None:
    threads = own_threads()
    path = shutil.copy(migrated_file, tmp_path / "queue.db")
    store = SqliteStore(f"sqlite:///{path}", clock)

    await store.open()
    await store.watch(Told())
    await store.read(ListTypes())
    await store.close()

    assert threads_that_stay() == threads
    assert open_files(tmp_path) == set()
    assert sorted(os.listdir(tmp_path)) == ["queue.db", "queue.db.gate"]  # noqa: PTH208


async def test_a_watcher_that_cannot_begin_leaves_nothing_behind(
    store: SqliteStore, backend: Backend
) -> None:
    backend.sql("ALTER TABLE job_changes RENAME TO gone")
    files, threads = open_files(store.path.parent), own_threads()

    with pytest.raises(StoreUnavailable):
        await store.watch(Told())
    after = (open_files(store.path.parent), own_threads())
    backend.sql("ALTER TABLE gone RENAME TO job_changes")

    assert after == (files, threads)


async def test_reading_while_closing_is_refused_and_leaves_nothing_behind(
    tmp_path: Path, clock: FakeClock, migrated_file: Path
) -> None:
    threads = own_threads()
    path = shutil.copy(migrated_file, tmp_path / "queue.db")
    store = SqliteStore(f"sqlite:///{path}", clock)
    await store.open()
    await store.read(GetChanges(0))

    async def read_until_refused() -> None:
        while True:
            await store.read(GetChanges(0))

    reading = [asyncio.create_task(read_until_refused()) for _ in range(3)]
    for _ in range(20):
        await asyncio.sleep(0)
    await store.close()
    answers = await asyncio.gather(*reading, return_exceptions=True)

    assert all(isinstance(answer, StoreError) for answer in answers)
    assert threads_that_stay() == threads
    assert open_files(tmp_path) == set()


async def test_reading_does_not_make_a_deleted_file_again(store: SqliteStore) -> None:
    store.path.unlink()

    with pytest.raises(StoreUnavailable):
        await store.read(ListTypes())

    assert not store.path.exists()


async def test_a_path_with_strange_characters_can_be_read_and_watched(
    tmp_path: Path, clock: FakeClock, migrated_file: Path
) -> None:
    path = shutil.copy(migrated_file, tmp_path / "a queue &mode=ro %41 'é'.db")
    store = SqliteStore(f"sqlite:///{path}", clock)
    await store.open()
    await store.watch(Told())
    types = await store.read(ListTypes())
    await store.close()

    assert types == ()
    assert all(name.startswith("a queue") for name in os.listdir(tmp_path))  # noqa: PTH208

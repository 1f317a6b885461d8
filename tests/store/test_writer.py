"""The writer: shared commits, units that happen or do not, and a store that is always honest."""

from __future__ import annotations

import asyncio
import filecmp
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgeq.core.jobs import NewJob
from edgeq.errors import (
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFrozen,
    StoreMoved,
    UnknownType,
    WriterHeld,
)
from edgeq.ports.commands import ExtendLocks, Inserted, InsertJobs
from edgeq.ports.flow_commands import LookUpSteps, NewStep, RecordStep
from edgeq.ports.queries import GetJobs, ListTypes
from edgeq.ports.store import LockWatch
from edgeq.store.gate import Gate
from edgeq.store.sqlite import SqliteStore
from edgeq.testing import FakeClock
from tests.conftest import Backend, JobBuilder, Register, SqliteBackend
from tests.store.conformance.acts import RUN, claim_one, insert, position
from tests.store.programs import program

PATIENCE_SECONDS = 20.0


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Backend:
    return SqliteBackend(request)


@pytest.fixture
async def queue(store: SqliteStore, registered: Register) -> SqliteStore:
    """The store, with one type in it."""
    await registered(store, "noop")
    return store


@contextmanager
def held(store: SqliteStore) -> Iterator[None]:
    """The gate in other hands: the writer waits."""
    gate = Gate(store.path)
    try:
        with gate.held():
            yield
    finally:
        gate.close()


class SlowJobs(tuple[NewJob, ...]):
    """Jobs that the writer can only read once they are let go."""

    is_reached: threading.Event
    may_go_on: threading.Event

    def __iter__(self) -> Iterator[NewJob]:
        self.is_reached.set()
        assert self.may_go_on.wait(PATIENCE_SECONDS)
        return super().__iter__()


def slow(*jobs: NewJob) -> SlowJobs:
    made = SlowJobs(jobs)
    made.is_reached, made.may_go_on = threading.Event(), threading.Event()
    return made


async def hand_in(*writes: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
    """Start writes, and go on when each of them waits for the writer."""
    tasks = [asyncio.create_task(write) for write in writes]
    await asyncio.sleep(0)
    return tasks


async def exist(store: SqliteStore, *jobs: NewJob) -> list[bool]:
    found = await store.read(GetJobs(tuple(job.id for job in jobs)))
    return [job.id in found for job in jobs]


async def test_writes_that_come_together_share_a_commit(
    queue: SqliteStore, new_job: JobBuilder
) -> None:
    before = await position(queue)
    with held(queue):
        writes = await hand_in(*(queue.write(InsertJobs((new_job(),))) for _ in range(64)))

    answers = await asyncio.gather(*writes)

    assert all(isinstance(answer, Inserted) for (answer,) in answers)
    assert await position(queue) == before + 1


async def test_a_commit_takes_no_more_than_five_hundred_units(
    queue: SqliteStore, new_job: JobBuilder
) -> None:
    before = await position(queue)
    with held(queue):
        writes = await hand_in(*(queue.write(InsertJobs((new_job(),))) for _ in range(1001)))

    await asyncio.gather(*writes)

    assert await position(queue) == before + 3


async def test_a_unit_that_is_refused_undoes_only_itself(
    queue: SqliteStore, new_job: JobBuilder
) -> None:
    good, bad, alone = [new_job() for _ in range(3)], new_job(), new_job("nobody-knows")
    with held(queue):
        writes = await hand_in(
            queue.write(InsertJobs((good[0],))),
            queue.write(InsertJobs((bad, new_job("nobody-knows")))),
            queue.write(InsertJobs((good[1],))),
            queue.write(InsertJobs((alone,))),
            queue.write(InsertJobs((good[2],))),
        )

    answers = await asyncio.gather(*writes, return_exceptions=True)

    kinds = [tuple if isinstance(answer, tuple) else type(answer) for answer in answers]
    assert kinds == [tuple, UnknownType, tuple, UnknownType, tuple]
    assert await exist(queue, *good, bad, alone) == [True, True, True, False, False]


async def test_a_unit_that_the_database_refuses_does_not_fail_its_neighbours(
    queue: SqliteStore, new_job: JobBuilder
) -> None:
    good, wrong = [new_job() for _ in range(4)], new_job(priority=99)
    before = await position(queue)
    with held(queue):
        writes = await hand_in(
            *(queue.write(InsertJobs((job,))) for job in (*good[:2], wrong, *good[2:]))
        )

    answers = await asyncio.gather(*writes, return_exceptions=True)

    assert [isinstance(answer, StoreError) for answer in answers] == [
        job is wrong for job in (*good[:2], wrong, *good[2:])
    ]
    assert await exist(queue, *good, wrong) == [True] * 4 + [False]
    assert await position(queue) == before + 4


async def test_a_write_that_is_cancelled_before_it_began_never_happens(
    queue: SqliteStore, new_job: JobBuilder
) -> None:
    dropped, kept = new_job(), new_job()
    with held(queue):
        first, second = await hand_in(
            queue.write(InsertJobs((dropped,))), queue.write(InsertJobs((kept,)))
        )
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    await second

    assert await exist(queue, dropped, kept) == [False, True]


async def test_a_step_that_is_done_is_kept_even_if_its_job_is_interrupted_before_it_is_written(
    queue: SqliteStore, new_job: JobBuilder
) -> None:
    job = await claim_one(queue, new_job())
    step = NewStep(
        seq=job.seq,
        fence=job.fence,
        job_id=job.id,
        type=job.type,
        tenant_id=None,
        attempt=1,
        progress=0,
        run_id=RUN,
        name="page",
        key="1",
        result="7",
    )
    with held(queue):
        (keeping,) = await hand_in(queue.write(RecordStep(step)))
        keeping.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await keeping

    (kept,) = await queue.write(LookUpSteps(job.id))
    assert (kept.name, kept.key, kept.result) == ("page", "1", "7")


async def test_a_write_that_is_cancelled_after_it_began_happens_whole(
    queue: SqliteStore, new_job: JobBuilder
) -> None:
    jobs = slow(new_job(), new_job())
    (write,) = await hand_in(queue.write(InsertJobs(jobs)))
    assert await asyncio.to_thread(jobs.is_reached.wait, PATIENCE_SECONDS)

    write.cancel()
    await asyncio.sleep(0)
    was_waiting = not write.done()
    jobs.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await write

    assert was_waiting
    assert await exist(queue, *tuple.__iter__(jobs)) == [True, True]


async def test_a_store_that_another_process_holds_is_busy_and_names_it(
    queue: SqliteStore, new_job: JobBuilder, clock: FakeClock
) -> None:
    awaited, blocking, later = new_job(), new_job(), new_job()
    hasty = SqliteStore(f"sqlite:///{queue.path}", clock, patience=0.2)
    await hasty.open()

    with program("hold_gate", queue.path) as holder:
        with pytest.raises(StoreBusy, match=f"process {holder.pid}"):
            await hasty.write(InsertJobs((awaited,)))
        with pytest.raises(StoreBusy, match=f"process {holder.pid}"):
            await asyncio.to_thread(hasty.write_blocking, InsertJobs((blocking,)))
        with pytest.raises(StoreBusy, match=f"process {holder.pid}"):
            await SqliteStore(f"sqlite:///{queue.path}", clock, patience=0.2).open()
    await hasty.write(InsertJobs((later,)))
    await hasty.close()

    assert await exist(queue, awaited, blocking, later) == [False, False, True]


async def test_a_blocking_write_can_have_less_patience(
    queue: SqliteStore, new_job: JobBuilder
) -> None:
    job = new_job()

    with held(queue), pytest.raises(StoreBusy):
        await asyncio.to_thread(queue.write_blocking, InsertJobs((job,)), 0.05)

    await insert(queue, new_job())
    assert await exist(queue, job) == [False]


async def test_reads_go_on_while_the_store_is_held(queue: SqliteStore) -> None:
    with held(queue):
        types = await queue.read(ListTypes())

    assert [each.name for each in types] == ["noop"]


async def test_threads_and_loops_can_write_at_once(queue: SqliteStore, new_job: JobBuilder) -> None:
    jobs = [new_job() for _ in range(40)]

    await asyncio.gather(
        *(queue.write(InsertJobs((job,))) for job in jobs[:20]),
        *(asyncio.to_thread(queue.write_blocking, InsertJobs((job,))) for job in jobs[20:]),
    )

    assert await exist(queue, *jobs) == [True] * 40


USES: list[Callable[[SqliteStore], Any]] = [
    lambda store: store.write(ExtendLocks("nobody", 0)),
    lambda store: store.read(ListTypes()),
    lambda store: asyncio.to_thread(store.write_blocking, ExtendLocks("nobody", 0)),
    lambda store: asyncio.to_thread(
        store.keep_locks, LockWatch("nobody", lambda: 0, lambda _held: None)
    ),
]


@pytest.mark.parametrize("use", USES)
async def test_a_closed_store_says_so(
    queue: SqliteStore, use: Callable[[SqliteStore], Any]
) -> None:
    await queue.close()

    with pytest.raises(StoreClosed):
        await use(queue)


async def test_closing_finishes_what_was_handed_in(queue: SqliteStore, new_job: JobBuilder) -> None:
    jobs = [new_job() for _ in range(5)]
    with held(queue):
        writes = await hand_in(*(queue.write(InsertJobs((job,))) for job in jobs), queue.close())

    await asyncio.gather(*writes)
    await queue.open()

    assert await exist(queue, *jobs) == [True] * 5


async def test_after_the_last_words_nobody_else_is_heard(
    queue: SqliteStore, new_job: JobBuilder
) -> None:
    before, last, late = new_job(), new_job(), new_job()
    heard = threading.Event()

    def speak() -> None:
        queue.take_last_words()
        heard.set()
        queue.write_blocking(InsertJobs((last,)))

    with held(queue):
        earlier = await hand_in(queue.write(InsertJobs((before,))))
        speaking = asyncio.create_task(asyncio.to_thread(speak))
        await asyncio.to_thread(heard.wait, PATIENCE_SECONDS)
        unheard = await hand_in(queue.write(InsertJobs((late,))))
    await asyncio.gather(speaking, *earlier)

    assert await exist(queue, before, last, late) == [True, True, False]
    assert not unheard[0].done()
    unheard[0].cancel()


async def test_an_opening_that_was_cancelled_leaves_the_next_one_alone(
    tmp_path: Path, clock: FakeClock, new_job: JobBuilder, migrated_file: Path
) -> None:
    threads = own_threads()
    path = shutil.copy(migrated_file, tmp_path / "queue.db")
    store = SqliteStore(f"sqlite:///{path}", clock)
    gate = Gate(Path(path))
    gate.acquire()

    (first,) = await hand_in(store.open())
    first.cancel()
    (second,) = await hand_in(store.open())
    gate.release()
    gate.close()
    await second
    while len(own_threads()) > len(threads) + 1:  # noqa: ASYNC110 - an abandoned end is not told
        await asyncio.sleep(0)
    await store.write(ExtendLocks("nobody", 0))
    await store.close()

    assert first.cancelled()
    assert own_threads() == threads
    assert open_files(tmp_path) == set()


async def test_a_read_that_was_cancelled_while_it_connected_leaves_no_connection(
    tmp_path: Path, clock: FakeClock, migrated_file: Path
) -> None:
    path = shutil.copy(migrated_file, tmp_path / "queue.db")
    for turns in range(1, 8):
        store = SqliteStore(f"sqlite:///{path}", clock)
        await store.open()
        reading = asyncio.create_task(store.read(ListTypes()))
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        await store.close()

        assert open_files(tmp_path) == set()


async def test_a_call_from_inside_the_writers_own_transaction_is_refused(
    queue: SqliteStore, new_job: JobBuilder
) -> None:
    class Reentrant(tuple[NewJob, ...]):
        def __iter__(self) -> Iterator[NewJob]:
            queue.write_blocking(ExtendLocks("nobody", 0))
            return super().__iter__()

    with pytest.raises(WriterHeld):
        await queue.write(InsertJobs(Reentrant((new_job(),))))

    await insert(queue, new_job())


async def test_a_file_that_was_deleted_takes_no_more_writes(
    queue: SqliteStore, new_job: JobBuilder, tmp_path: Path
) -> None:
    job, aside = new_job(), tmp_path / "aside.db"
    queue.path.rename(aside)

    with pytest.raises(StoreMoved):
        await insert(queue, job)
    aside.rename(queue.path)
    await insert(queue, new_job())

    assert await exist(queue, job) == [False]


async def test_a_file_that_was_replaced_takes_no_more_writes(
    queue: SqliteStore, new_job: JobBuilder, tmp_path: Path, migrated_file: Path
) -> None:
    queue.path.rename(tmp_path / "aside.db")
    shutil.copy(migrated_file, queue.path)

    with pytest.raises(StoreMoved):
        await insert(queue, new_job())

    assert filecmp.cmp(queue.path, migrated_file, shallow=False)


@pytest.mark.parametrize(
    ("mode", "error"), [("frozen", StoreFrozen), ("backup", StoreFrozen), ("moved", StoreMoved)]
)
async def test_a_guarded_store_takes_no_writes_until_it_is_open_again(
    queue: SqliteStore,
    new_job: JobBuilder,
    backend: Backend,
    mode: str,
    error: type[StoreError],
) -> None:
    refused, stored = new_job(), new_job()
    backend.sql("UPDATE queue_guard SET mode = ?", mode)

    with pytest.raises(error):
        await insert(queue, refused)
    can_read = await queue.read(ListTypes())
    backend.sql("UPDATE queue_guard SET mode = 'open'")
    await insert(queue, stored)

    assert can_read
    assert await exist(queue, refused, stored) == [False, True]


def open_files(folder: Path) -> set[int]:
    """Which files of a folder this process has open, by inode."""
    opened = set()
    for descriptor in os.listdir("/dev/fd"):  # noqa: PTH208 - names, not paths
        try:
            opened.add(os.fstat(int(descriptor)).st_ino)
        except OSError:
            continue  # the one that listed the folder
    return opened & {each.stat().st_ino for each in folder.iterdir()}


def own_threads() -> set[threading.Thread]:
    """All but those of asyncio.to_thread, which are the loop's and stay."""
    return {each for each in threading.enumerate() if not each.name.startswith("asyncio_")}


async def test_nothing_is_left_after_closing(
    tmp_path: Path, clock: FakeClock, migrated_file: Path
) -> None:
    threads = own_threads()
    path = shutil.copy(migrated_file, tmp_path / "queue.db")
    store = SqliteStore(f"sqlite:///{path}", clock)

    await store.open()
    await store.write(ExtendLocks("nobody", 0))
    await asyncio.gather(*(store.read(ListTypes()) for _ in range(8)))
    while_open = (len(own_threads()), len(open_files(tmp_path)))
    await store.close()

    assert while_open >= (len(threads) + 2, 3)
    # Those of the driver end by themselves, a moment after their connections are closed.
    for thread in own_threads() - threads:
        thread.join(5)
    assert own_threads() == threads
    assert open_files(tmp_path) == set()
    assert sorted(os.listdir(tmp_path)) == ["queue.db", "queue.db.gate"]  # noqa: PTH208


async def test_nothing_is_left_after_opening_failed(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "queue.db"
    path.write_text("this is a letter to my mother, and no database at all" * 100)
    store = SqliteStore(f"sqlite:///{path}", clock)

    with pytest.raises(StoreError, match="not an SQLite database"):
        await store.open()

    assert open_files(tmp_path) == set()
    assert not [each for each in own_threads() if each.name == "edgeq-writer"]

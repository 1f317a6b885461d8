"""Notes and progress: written under the fence, read in pages."""

from __future__ import annotations

import pytest

from edgeq.core.jobs import ClaimedJob, LogEntry, LogLevel
from edgeq.errors import InvalidInput
from edgeq.ports.commands import Cycle, DeleteJob, Lock, Note, Progress, ReleaseJob
from edgeq.ports.queries import GetJobs, ListAttempts, ListLogs
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import JobBuilder, Register
from tests.store.conformance.acts import BOSS, LOCK_MS, RUN, claim_one, get


def note(job: ClaimedJob, message: str, at: int, level: LogLevel = LogLevel.INFO) -> Note:
    return Note(job.seq, job.fence, job.id, level, message, job.attempt, at)


async def write(store: Store, *notes: Note, progress: tuple[Progress, ...] = ()) -> frozenset[Lock]:
    cycle = Cycle(RUN, store.now() + LOCK_MS, notes=notes, progress=progress)
    return (await store.write(cycle)).lost


async def test_a_note_is_kept_whole(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    job = await claim_one(store, new_job())
    whole = Note(
        job.seq, job.fence, job.id, LogLevel.WARNING, "slow", 1, 123, "fetch", '{"n":1}', 45
    )

    await write(store, whole)

    (entry,) = (await store.read(ListLogs(job.id))).items
    assert entry == LogEntry(
        id=entry.id,
        job_id=job.id,
        level=LogLevel.WARNING,
        stage="fetch",
        message="slow",
        details='{"n":1}',
        duration_ms=45,
        attempt=1,
        run_id=RUN,
        created_at=123,
    )


async def test_pages_of_a_log_cover_it_once_oldest_first_also_while_it_grows(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    job, other = [await claim_one(store, new_job()) for _ in range(2)]
    for n in range(23):
        await write(store, note(job, f"{n}", clock.now()), note(other, "other", clock.now()))
    found: list[str] = []
    cursor = None

    while True:
        page = await store.read(ListLogs(job.id, 5, cursor))
        found += [entry.message for entry in page.items]
        if len(found) < 20:
            await write(store, note(job, f"{len(found) // 5 + 22}", clock.now()))
        cursor = page.next_cursor
        if cursor is None:
            break

    assert found == [f"{n}" for n in range(26)]


async def test_a_job_without_a_log_has_an_empty_page(store: Store) -> None:
    page = await store.read(ListLogs("nobody"))

    assert (page.items, page.next_cursor) == ((), None)


@pytest.mark.parametrize("cursor", ["x", "1.5", "9" * 30, "-" + "9" * 30])
async def test_a_cursor_that_no_log_gave_out_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(InvalidInput):
        await store.read(ListLogs("nobody", cursor=cursor))


async def test_progress_keeps_its_last_value_and_its_stage(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    job = await claim_one(store, new_job())

    await write(store, progress=(Progress(job.seq, job.fence, 10, "one"),))
    await write(store, progress=(Progress(job.seq, job.fence, 60, "two"),))

    after = await get(store, job.id)
    assert (after.progress, after.current_stage, after.fence) == (60, "two", job.fence)


async def test_notes_of_a_job_that_was_lost_are_dropped_and_those_of_others_kept(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    lost, kept = [await claim_one(store, new_job()) for _ in range(2)]
    await store.write(ReleaseJob(lost.id, BOSS))

    answer = await write(
        store,
        note(lost, "a", clock.now()),
        note(kept, "b", clock.now()),
        progress=(Progress(lost.seq, lost.fence, 5, None), Progress(kept.seq, kept.fence, 5, None)),
    )

    assert answer == {(lost.seq, lost.fence)}
    assert (await store.read(ListLogs(lost.id))).items == ()
    assert [entry.message for entry in (await store.read(ListLogs(kept.id))).items] == ["b"]
    assert [(await get(store, job.id)).progress for job in (lost, kept)] == [0, 5]


async def test_a_deleted_job_takes_its_log_and_attempts_with_it(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    job = await claim_one(store, new_job())
    await write(store, note(job, "a", clock.now()))
    await store.write(ReleaseJob(job.id, BOSS))

    await store.write(DeleteJob(job.id, BOSS))

    assert await store.read(GetJobs((job.id,))) == {}
    assert (await store.read(ListLogs(job.id))).items == ()
    assert await store.read(ListAttempts(job.id)) == ()

"""Batches: jobs that are counted together, and the job that comes when all have ended."""

from __future__ import annotations

from typing import Any

import pytest

from edgeq.core.jobs import JobStatus, NewJob, OnFailure
from edgeq.core.outcomes import Completed, NeedsReview
from edgeq.errors import InvalidInput, TypeDisabled
from edgeq.ports.commands import (
    ApproveJob,
    CancelJob,
    ChangeType,
    DeleteJob,
    Duplicate,
    InsertJobs,
    RetryJob,
)
from edgeq.ports.flow_commands import InsertBatch, NewBatch
from edgeq.ports.queries import Batch, GetBatch, ListBlockers
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import Backend, JobBuilder, Register
from tests.store.conformance.acts import (
    BOSS,
    BROKEN,
    FLAKY,
    LOCK_MS,
    claim,
    end,
    ended,
    get,
    insert,
    settle,
)

S = JobStatus
ID = "batch-1"


@pytest.fixture(autouse=True)
async def _types(store: Store, registered: Register) -> None:
    await registered(store, "noop", "callback")


def members(new_job: JobBuilder, count: int, **fields: Any) -> tuple[NewJob, ...]:
    return tuple(new_job(batch_id=ID, **fields) for _ in range(count))


async def begin(store: Store, *jobs: NewJob, callback: NewJob | None = None) -> Any:
    batch = NewBatch(ID, "import", "t", "c", store.now())
    return await store.write(InsertBatch(batch, jobs, callback))


async def look(store: Store) -> Batch:
    batch = await store.read(GetBatch(ID))
    assert batch is not None
    return batch


async def counts(store: Store) -> tuple[int, int, int, int, bool]:
    batch = await look(store)
    is_over = batch.ended_at is not None
    return batch.total, batch.completed, batch.failed, batch.cancelled, is_over


async def test_a_batch_counts_its_jobs_and_calls_back_once_all_have_ended(
    store: Store, new_job: JobBuilder, clock: FakeClock
) -> None:
    callback = new_job("callback")
    await begin(store, *members(new_job, 3), callback=callback)
    assert (await get(store, callback.id)).status is S.BLOCKED
    assert await store.read(ListBlockers(callback.id)) == (ID,)
    assert await look(store) == Batch(
        id=ID,
        name="import",
        tenant_id="t",
        correlation_id="c",
        total=3,
        completed=0,
        failed=0,
        cancelled=0,
        callback_job_id=callback.id,
        created_at=clock.now(),
        ended_at=None,
    )
    one, two, three = (await claim(store)).claimed
    await end(store, one, Completed("1"))
    await end(store, two, BROKEN)
    assert await counts(store) == (3, 1, 1, 0, False)
    assert (await look(store)).pending == 1
    assert (await get(store, callback.id)).status is S.BLOCKED

    clock.advance(1)
    await end(store, three, Completed("1"))

    assert await counts(store) == (3, 2, 1, 0, True)
    assert (await look(store)).ended_at == clock.now()
    assert [job.id for job in (await claim(store, "callback")).claimed] == [callback.id]


async def test_members_that_complete_in_bulk_are_counted_each(
    store: Store, new_job: JobBuilder
) -> None:
    callback = new_job("callback")
    await begin(store, *members(new_job, 10), callback=callback)
    claimed = (await claim(store)).claimed
    await settle(store, *(ended(job, Completed("1")) for job in claimed))
    assert await counts(store) == (10, 10, 0, 0, True)
    assert (await get(store, callback.id)).status is S.PENDING


async def test_every_way_to_end_is_counted_and_nothing_that_is_not_an_end(
    store: Store, new_job: JobBuilder, clock: FakeClock
) -> None:
    late = new_job(batch_id=ID, expires_at=clock.now() + 1000)
    cancelled, deleted, approved, retried, lost = members(new_job, 5)
    await begin(store, cancelled, deleted, approved, retried, lost, late)
    await store.write(CancelJob(cancelled.id, BOSS))
    await store.write(DeleteJob(deleted.id, BOSS))
    claimed = {job.id: job for job in (await claim(store, slots=3)).claimed}
    await end(store, claimed[approved.id], NeedsReview("look"))
    await end(store, claimed[retried.id], FLAKY)
    assert await counts(store) == (6, 0, 0, 2, False)
    await store.write(ApproveJob(approved.id, BOSS, "1"))
    clock.advance(LOCK_MS / 1000 + 1)
    for _ in range(4):
        for job in (await claim(store, wants="suspect")).claimed:
            if job.id == retried.id:
                await end(store, job, Completed("1"))
        clock.advance(LOCK_MS / 1000 + 1)
    assert (await get(store, lost.id)).status is S.FAILED
    assert (await get(store, late.id)).status is S.CANCELLED
    assert await counts(store) == (6, 2, 1, 3, True)


async def test_a_batch_without_jobs_ends_at_once(store: Store, new_job: JobBuilder) -> None:
    callback = new_job("callback")
    await begin(store, callback=callback)
    assert await counts(store) == (0, 0, 0, 0, True)
    assert (await get(store, callback.id)).status is S.PENDING


async def test_duplicates_belong_to_whoever_came_first_and_are_not_counted(
    store: Store, new_job: JobBuilder
) -> None:
    await insert(store, new_job(idempotency_key="k"))
    callback = new_job("callback")
    again = new_job(idempotency_key="k", batch_id=ID)
    twice = [new_job(idempotency_key="own", batch_id=ID) for _ in range(2)]
    answers = await begin(store, again, *twice, callback=callback)
    assert [type(answer) is Duplicate for answer in answers] == [True, False, True]
    assert (await look(store)).total == 1
    for job in (await claim(store)).claimed:
        await end(store, job, Completed("1"))
    assert await counts(store) == (1, 1, 0, 0, True)


async def test_a_batch_of_duplicates_only_has_ended(store: Store, new_job: JobBuilder) -> None:
    await insert(store, new_job(idempotency_key="k"))
    callback = new_job("callback")
    await begin(store, new_job(idempotency_key="k", batch_id=ID), callback=callback)
    assert await counts(store) == (0, 0, 0, 0, True)
    assert (await get(store, callback.id)).status is S.PENDING


async def test_a_failed_member_that_is_retried_is_counted_by_its_last_end(
    store: Store, new_job: JobBuilder
) -> None:
    one, two = members(new_job, 2)
    await begin(store, one, two)
    first, second = (await claim(store)).claimed
    await end(store, first, BROKEN)
    assert await counts(store) == (2, 0, 1, 0, False)
    await store.write(RetryJob(first.id, BOSS))
    assert await counts(store) == (2, 0, 0, 0, False)
    await end(store, second, Completed("1"))
    assert await counts(store) == (2, 1, 0, 0, False)
    (again,) = (await claim(store)).claimed
    await end(store, again, Completed("1"))
    assert await counts(store) == (2, 2, 0, 0, True)


async def test_a_retry_after_the_end_calls_back_no_second_time(
    store: Store, new_job: JobBuilder, clock: FakeClock
) -> None:
    callback = new_job("callback")
    await begin(store, *members(new_job, 1), callback=callback)
    (job,) = (await claim(store)).claimed
    await end(store, job, BROKEN)
    over_at = (await look(store)).ended_at
    (called,) = (await claim(store, "callback")).claimed
    await end(store, called, Completed("1"))
    clock.advance(5)
    await store.write(RetryJob(job.id, BOSS))
    (again,) = (await claim(store)).claimed
    await end(store, again, Completed("1"))
    assert await counts(store) == (1, 1, 0, 0, True)
    assert (await look(store)).ended_at == over_at
    assert (await get(store, callback.id)).status is S.COMPLETED


async def test_a_held_member_that_is_retried_was_not_counted(
    store: Store, new_job: JobBuilder
) -> None:
    await begin(store, *members(new_job, 1))
    (job,) = (await claim(store)).claimed
    await end(store, job, NeedsReview("look"))
    await store.write(RetryJob(job.id, BOSS))
    assert await counts(store) == (1, 0, 0, 0, False)


async def test_the_end_of_a_batch_is_a_success_for_its_callback_however_its_jobs_ended(
    store: Store, new_job: JobBuilder
) -> None:
    callback = new_job("callback", on_failure=OnFailure.FAIL)
    await begin(store, *members(new_job, 2), callback=callback)
    for job in (await claim(store)).claimed:
        await end(store, job, BROKEN)
    assert (await get(store, callback.id)).status is S.PENDING


async def test_members_may_wait_for_each_other(store: Store, new_job: JobBuilder) -> None:
    first = new_job(batch_id=ID)
    second = new_job(batch_id=ID, after=(first.id,))
    callback = new_job("callback")
    await begin(store, first, second, callback=callback)
    (job,) = (await claim(store)).claimed
    await end(store, job, BROKEN)
    assert await counts(store) == (2, 0, 2, 0, True)
    assert (await get(store, callback.id)).status is S.PENDING


async def test_a_batch_whose_members_fail_as_they_are_stored_has_ended(
    store: Store, new_job: JobBuilder
) -> None:
    """They are behind a job that has failed before."""
    await insert(store, first := new_job())
    await store.write(CancelJob(first.id, BOSS))
    callback = new_job("callback")
    await begin(store, *members(new_job, 2, after=(first.id,)), callback=callback)
    assert await counts(store) == (2, 0, 2, 0, True)
    assert (await get(store, callback.id)).status is S.PENDING


async def test_a_batch_is_stored_whole_or_not_at_all(
    store: Store, new_job: JobBuilder, backend: Backend
) -> None:
    nobody = new_job()
    with pytest.raises(InvalidInput):
        await begin(store, *members(new_job, 2), new_job(after=(nobody.id,), batch_id=ID))
    await store.write(ChangeType("callback", BOSS, {}, is_enabled=False))
    with pytest.raises(TypeDisabled):
        await begin(store, *members(new_job, 2), callback=new_job("callback"))
    assert backend.sql("SELECT count(*) FROM background_jobs") == [(0,)]
    assert await store.read(GetBatch(ID)) is None


async def test_a_callback_that_is_there_already_by_its_key_is_the_batchs_own(
    store: Store, new_job: JobBuilder
) -> None:
    """A key of the callback is a key like any other: it is never stored twice."""
    await insert(store, there := new_job("callback", idempotency_key="k"))
    callback = new_job("callback", idempotency_key="k")
    await begin(store, *members(new_job, 1), callback=callback)
    assert (await look(store)).callback_job_id == there.id


async def test_jobs_outside_of_a_batch_are_not_counted(store: Store, new_job: JobBuilder) -> None:
    await begin(store, *members(new_job, 1))
    await store.write(InsertJobs((new_job(),)))
    claimed = {job.batch_id: job for job in (await claim(store)).claimed}
    await end(store, claimed[None], Completed("1"))
    assert await counts(store) == (1, 0, 0, 0, False)

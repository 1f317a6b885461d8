"""Idempotency keys: one job for one key, until it fails, is cancelled, or its result is over."""

from __future__ import annotations

import pytest

from edgeq.core.job_types import TypePolicy
from edgeq.core.jobs import JobStatus
from edgeq.core.outcomes import Completed
from edgeq.errors import IdempotencyConflict, QueueFull
from edgeq.ports.commands import Duplicate, Inserted, InsertJobs
from edgeq.ports.queries import FindJob, GetJobs
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import JobBuilder, Register
from tests.store.conformance.acts import bring_to, claim_one, end, get, insert, position

HOLDING = [
    JobStatus.PENDING,
    JobStatus.PROCESSING,
    JobStatus.COMPLETED,
    JobStatus.REVIEW_NEEDED,
]


@pytest.mark.parametrize("status", HOLDING)
async def test_the_same_key_again_answers_with_the_job_as_it_is(
    store: Store, new_job: JobBuilder, registered: Register, status: JobStatus
) -> None:
    await registered(store, "noop")
    first = await bring_to(store, new_job(idempotency_key="k", input_data="1"), status)
    before = await position(store)
    again = new_job(idempotency_key="k", input_data="1")

    (answer,) = await store.write(InsertJobs((again,)))

    assert answer == Duplicate(first)
    assert await store.read(GetJobs((again.id,))) == {}
    assert await position(store) == before


async def test_a_duplicate_of_a_completed_job_brings_its_result(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    await end(store, await claim_one(store, new_job(idempotency_key="k")), Completed('{"n":42}'))

    (answer,) = await store.write(InsertJobs((new_job(idempotency_key="k"),)))

    assert isinstance(answer, Duplicate)
    assert answer.job.output == {"n": 42}


@pytest.mark.parametrize("status", HOLDING)
async def test_the_same_key_with_another_input_is_a_conflict(
    store: Store, new_job: JobBuilder, registered: Register, status: JobStatus
) -> None:
    await registered(store, "noop")
    first = await bring_to(store, new_job(idempotency_key="k", input_data="1"), status)

    with pytest.raises(IdempotencyConflict) as caught:
        await store.write(InsertJobs((new_job(idempotency_key="k", input_data="2"),)))

    assert caught.value.job_id == first.id
    assert await get(store, first.id) == first


async def test_a_pending_job_can_be_replaced_by_its_duplicate(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    (first,) = await insert(store, new_job(idempotency_key="k", input_data="1"))
    later = clock.now() + 5000
    again = new_job(
        idempotency_key="k",
        input_data="2",
        priority=20,
        scheduled_for=later,
        expires_at=later + 1,
        payload_version=2,
        replaces_duplicate=True,
    )

    (answer,) = await store.write(InsertJobs((again,)))

    job = await get(store, first)
    assert answer == Duplicate(job)
    assert (job.input, job.priority, job.scheduled_for) == (2, 20, later)
    assert (job.expires_at, job.payload_version) == (later + 1, 2)
    assert job.request_hash == again.request_hash


async def test_a_running_job_is_not_replaced(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    running = await bring_to(
        store, new_job(idempotency_key="k", input_data="1"), JobStatus.PROCESSING
    )
    same = new_job(idempotency_key="k", input_data="1", replaces_duplicate=True)
    other = new_job(idempotency_key="k", input_data="2", replaces_duplicate=True)

    answers = await store.write(InsertJobs((same,)))
    with pytest.raises(IdempotencyConflict):
        await store.write(InsertJobs((other,)))

    assert answers == (Duplicate(running),)
    assert await get(store, running.id) == running


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.CANCELLED])
async def test_failure_and_cancellation_free_the_key_at_once(
    store: Store, new_job: JobBuilder, registered: Register, status: JobStatus
) -> None:
    await registered(store, "noop")
    first = new_job(idempotency_key="k", input_data="1")
    await bring_to(store, first, status)
    again = new_job(idempotency_key="k", input_data="2")

    answers = await store.write(InsertJobs((again,)))

    holder = await store.read(FindJob(again.unique_key or ""))
    assert answers == (Inserted(again.id),)
    assert holder is not None
    assert holder.id == again.id
    assert (await get(store, first.id)).idempotency_key == "k"


async def test_a_key_is_free_again_when_the_time_of_the_result_is_over(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, TypePolicy(name="noop", result_ttl_ms=1000))
    first = await bring_to(store, new_job(idempotency_key="k"), JobStatus.COMPLETED)

    clock.advance(0.999)
    (early,) = await store.write(InsertJobs((new_job(idempotency_key="k"),)))
    clock.advance(0.001)
    (late,) = await store.write(InsertJobs((new_job(idempotency_key="k"),)))

    assert isinstance(early, Duplicate)
    assert early.job.id == first.id
    assert isinstance(late, Inserted)


async def test_a_key_whose_result_is_over_is_not_lost_to_a_refused_job(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, TypePolicy(name="noop", result_ttl_ms=1000, max_pending=1))
    first = new_job(idempotency_key="k")
    await bring_to(store, first, JobStatus.COMPLETED)
    await insert(store, new_job())
    clock.advance(2)

    with pytest.raises(QueueFull):
        await store.write(InsertJobs((new_job(idempotency_key="k"),)))

    holder = await store.read(FindJob(first.unique_key or ""))
    assert holder is not None
    assert holder.id == first.id


async def test_the_first_enqueue_fixes_the_time_of_the_result(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, TypePolicy(name="noop", result_ttl_ms=1000))
    await bring_to(store, new_job(idempotency_key="k", result_ttl_ms=5000), JobStatus.COMPLETED)
    clock.advance(4)

    (answer,) = await store.write(InsertJobs((new_job(idempotency_key="k", result_ttl_ms=1),)))

    assert isinstance(answer, Duplicate)


async def test_no_tenant_and_an_empty_tenant_share_their_keys(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    (first,) = await insert(store, new_job(idempotency_key="k", tenant_id=None))

    (answer,) = await store.write(InsertJobs((new_job(idempotency_key="k", tenant_id=""),)))

    assert isinstance(answer, Duplicate)
    assert answer.job.id == first


async def test_tenants_and_types_have_keys_of_their_own(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop", "other")
    jobs = (
        new_job(idempotency_key="k"),
        new_job(idempotency_key="k", tenant_id="a"),
        new_job(idempotency_key="k", tenant_id="b"),
        new_job("other", idempotency_key="k"),
    )

    answers = await store.write(InsertJobs(jobs))

    assert answers == tuple(Inserted(job.id) for job in jobs)


async def test_a_key_that_comes_twice_in_one_command_makes_one_job(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    first, second = (new_job(idempotency_key="k") for _ in range(2))

    answers = await store.write(InsertJobs((new_job(), first, new_job(), second)))

    assert [type(answer) for answer in answers] == [Inserted, Inserted, Inserted, Duplicate]
    assert isinstance(answers[3], Duplicate)
    assert answers[3].job.id == first.id


async def test_a_conflict_within_one_command_refuses_all_of_it(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    jobs = (
        new_job(),
        new_job(idempotency_key="k", input_data="1"),
        new_job(idempotency_key="k", input_data="2"),
    )

    with pytest.raises(IdempotencyConflict):
        await store.write(InsertJobs(jobs))

    assert await store.read(GetJobs(tuple(job.id for job in jobs))) == {}

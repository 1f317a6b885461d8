"""Adding jobs: what is stored, what is refused, all or none."""

from __future__ import annotations

import msgspec
import pytest

from edgeq.core.job_types import TypePolicy
from edgeq.core.jobs import JobStatus
from edgeq.errors import QueueFull, TypeDisabled, UnknownType
from edgeq.ports.commands import ChangeType, Inserted, InsertJobs
from edgeq.ports.queries import GetJobs
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import JobBuilder, Register
from tests.store.conformance.acts import BOSS, bring_to, claim, get, insert, position


async def test_an_inserted_job_has_everything_that_it_was_given(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    policy = TypePolicy(name="noop", category="mail", lane="fast", max_retries=7, timeout_ms=123)
    await registered(store, policy)
    new = new_job(
        scheduled_for=clock.now() + 5,
        priority=17,
        input_data='{"a":1}',
        reference_type="order",
        reference_id="o-1",
        tenant_id="t-1",
        correlation_id="c-1",
        parent_job_id="p-1",
        idempotency_key="k-1",
        payload_version=3,
        created_by="key-1",
        expires_at=clock.now() + 1000,
        result_ttl_ms=77,
    )

    answers = await store.write(InsertJobs((new,)))

    job = await get(store, new.id)
    assert answers == (Inserted(new.id),)
    given = msgspec.structs.asdict(new)
    hidden = {"max_retries", "timeout_ms", "unique_key", "replaces_duplicate", "result_ttl_ms"}
    hidden |= {"after"}
    assert {name: getattr(job, name) for name in given.keys() - hidden} == {
        name: given[name] for name in given.keys() - hidden
    }
    assert (job.status, job.category, job.lane) == (JobStatus.PENDING, "mail", "fast")
    assert (job.max_retries, job.timeout_ms) == (7, 123)
    assert (job.attempt, job.progress, job.fence, job.updated_at) == (1, 0, 0, clock.now())


async def test_a_jobs_own_limits_win_over_those_of_its_type(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, TypePolicy(name="noop", max_retries=7, timeout_ms=123))

    (job_id,) = await insert(store, new_job(max_retries=0, timeout_ms=9))

    job = await get(store, job_id)
    assert (job.max_retries, job.timeout_ms) == (0, 9)


async def test_an_absent_key_and_correlation_read_as_the_jobs_id(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")

    (job_id,) = await insert(store, new_job())

    job = await get(store, job_id)
    assert (job.idempotency_key, job.correlation_id) == (job_id, job_id)
    assert (job.stored_idempotency_key, job.stored_correlation_id) == (None, None)


async def test_a_type_that_nobody_registered_is_refused(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "resize")

    with pytest.raises(UnknownType, match="Did you mean 'resize'"):
        await insert(store, new_job("resise"))


async def test_a_disabled_type_takes_no_jobs_and_a_paused_one_does(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "off", "waiting")
    await store.write(ChangeType("off", BOSS, is_enabled=False))
    await store.write(ChangeType("waiting", BOSS, is_paused=True))

    with pytest.raises(TypeDisabled):
        await insert(store, new_job("off"))
    (accepted,) = await insert(store, new_job("waiting"))

    assert (await get(store, accepted)).status is JobStatus.PENDING


async def test_jobs_of_one_command_are_added_all_or_none(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    before = await position(store)
    jobs = (new_job(), new_job(idempotency_key="k"), new_job("nobody-knows"))

    with pytest.raises(UnknownType):
        await store.write(InsertJobs(jobs))

    assert await store.read(GetJobs(tuple(job.id for job in jobs))) == {}
    assert await position(store) == before


async def test_a_thousand_jobs_go_in_with_one_command(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    jobs = tuple(new_job() for _ in range(1000))

    answers = await store.write(InsertJobs(jobs))

    stored = await store.read(GetJobs(tuple(job.id for job in jobs)))
    assert answers == tuple(Inserted(job.id) for job in jobs)
    assert len(stored) == 1000


async def test_no_more_than_max_pending_jobs_of_a_type_wait(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, TypePolicy(name="noop", max_pending=2))
    await insert(store, new_job(), new_job())

    with pytest.raises(QueueFull):
        await insert(store, new_job())
    await claim(store, slots=1)
    await insert(store, new_job())

    with pytest.raises(QueueFull):
        await insert(store, new_job())


async def test_max_pending_holds_within_one_command(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, TypePolicy(name="noop", max_pending=2), "other")
    jobs = (new_job(), new_job("other"), new_job(), new_job())

    with pytest.raises(QueueFull):
        await store.write(InsertJobs(jobs))

    assert await store.read(GetJobs(tuple(job.id for job in jobs))) == {}


async def test_a_duplicate_is_answered_even_when_the_type_is_full(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, TypePolicy(name="noop", max_pending=1))
    first = await bring_to(store, new_job(idempotency_key="k"), JobStatus.PENDING)

    (answer,) = await store.write(InsertJobs((new_job(idempotency_key="k"),)))

    assert not isinstance(answer, Inserted)
    assert answer.job.id == first.id


async def test_ended_jobs_do_not_count_against_max_pending(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, TypePolicy(name="noop", max_pending=1))
    for status in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED):
        await bring_to(store, new_job(), status)

    await insert(store, new_job())

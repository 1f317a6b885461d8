"""Operators: what retrying, reviewing, failing, releasing, changing and deleting do in full."""

from __future__ import annotations

import msgspec
import pytest

from edgeq.core.job_types import TypePolicy
from edgeq.core.jobs import JobStatus
from edgeq.core.outcomes import Completed
from edgeq.errors import IllegalMove
from edgeq.ports.commands import (
    ApproveJob,
    CancelJob,
    DeleteJob,
    Duplicate,
    FailJob,
    InsertJobs,
    NewInput,
    RejectJob,
    ReleaseJob,
    RetryJob,
    UpdateJob,
)
from edgeq.ports.queries import FindJob, ListAttempts, ListLogs
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import Backend, JobBuilder, Register
from tests.store.conformance.acts import (
    BOSS,
    BROKEN,
    FLAKY,
    bring_to,
    claim,
    claim_one,
    end,
    ended,
    get,
    insert,
    settle,
)

S = JobStatus


async def test_a_retried_job_starts_from_its_first_attempt(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock, backend: Backend
) -> None:
    await registered(store, TypePolicy(name="noop", max_retries=1, retry_delay_ms=0))
    claimed = await claim_one(store, new_job(input_data="1", scheduled_for=clock.now() - 5))
    await end(store, claimed, FLAKY)
    (claimed,) = (await claim(store)).claimed
    await end(store, claimed, FLAKY)
    clock.advance(5)

    job = await store.write(RetryJob(claimed.id, BOSS, NewInput("2", "hash", 1)))

    assert job == await get(store, claimed.id)
    assert (job.status, job.scheduled_for, job.input) == (S.PENDING, clock.now(), 2)
    assert (job.retry_count, job.losses, job.interruptions, job.progress) == (0, 0, 0, 0)
    assert (job.error_class, job.error_message, job.completed_at) == (None, None, None)
    assert job.result_expires_at is None
    assert backend.sql("SELECT status FROM dead_letters") == [("retried",)]
    assert len((await claim(store)).claimed) == 1


async def test_a_job_that_fails_again_after_a_retry_gets_another_letter(
    store: Store, new_job: JobBuilder, registered: Register, backend: Backend
) -> None:
    await registered(store, "noop")
    job = await bring_to(store, new_job(), S.FAILED)
    await store.write(RetryJob(job.id, BOSS))
    (claimed,) = (await claim(store)).claimed

    await end(store, claimed, BROKEN)

    letters = backend.sql("SELECT status FROM dead_letters ORDER BY status")
    assert letters == [("pending_review",), ("retried",)]


async def test_a_retried_job_holds_its_key_again(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    job = await bring_to(store, new_job(idempotency_key="k"), S.FAILED)

    await store.write(RetryJob(job.id, BOSS))
    (answer,) = await store.write(InsertJobs((new_job(idempotency_key="k"),)))

    assert isinstance(answer, Duplicate)
    assert answer.job.id == job.id


@pytest.mark.parametrize("status", [S.FAILED, S.CANCELLED])
async def test_a_job_whose_key_another_holds_now_is_not_retried(
    store: Store, new_job: JobBuilder, registered: Register, status: JobStatus
) -> None:
    await registered(store, "noop")
    job = await bring_to(store, new_job(idempotency_key="k", tenant_id="t"), status)
    (other,) = await insert(store, new_job(idempotency_key="k", tenant_id="t"))

    with pytest.raises(IllegalMove, match=other):
        await store.write(RetryJob(job.id, BOSS))

    assert await get(store, job.id) == job


async def test_a_job_sent_back_from_review_keeps_its_key(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    new = new_job(idempotency_key="k")
    job = await bring_to(store, new, S.REVIEW_NEEDED)

    after = await store.write(RetryJob(job.id, BOSS))

    assert after.review_reason is None
    assert await store.read(FindJob(new.unique_key or "")) == after


async def test_a_cancelled_job_that_is_retried_is_no_longer_asked_to_stop(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    claimed = await claim_one(store, new_job())
    await store.write(CancelJob(claimed.id, BOSS))
    await end(store, claimed, FLAKY)

    await store.write(RetryJob(claimed.id, BOSS))
    (again,) = (await claim(store)).claimed

    assert (await end(store, again, FLAKY)).status is S.PENDING


@pytest.mark.parametrize(("given", "expected"), [(None, {"draft": 1}), ('{"n":2}', {"n": 2})])
async def test_approval_completes_with_the_draft_or_the_edited_output(
    store: Store,
    new_job: JobBuilder,
    registered: Register,
    clock: FakeClock,
    given: str | None,
    expected: dict[str, int],
) -> None:
    await registered(store, TypePolicy(name="noop", result_ttl_ms=5000))
    job = await bring_to(store, new_job(), S.REVIEW_NEEDED)
    clock.advance(60)

    after = await store.write(ApproveJob(job.id, BOSS, given, note="looks right"))

    (entry,) = (await store.read(ListLogs(job.id))).items
    assert (after.output, after.progress, after.review_reason) == (expected, 100, None)
    assert (after.completed_at, after.result_expires_at) == (clock.now(), clock.now() + 5000)
    assert entry.message == "approved: looks right"


async def test_rejection_fails_with_the_reviewers_reason_and_a_letter(
    store: Store, new_job: JobBuilder, registered: Register, backend: Backend
) -> None:
    await registered(store, "noop")
    job = await bring_to(store, new_job(idempotency_key="k"), S.REVIEW_NEEDED)

    after = await store.write(RejectJob(job.id, BOSS))

    assert (after.error_class, after.error_message) == ("rejected", "because")
    assert backend.sql("SELECT error_class FROM dead_letters") == [("rejected",)]
    assert await insert(store, new_job(idempotency_key="k", input_data="9"))


async def test_failing_a_running_job_takes_it_from_its_run(
    store: Store, new_job: JobBuilder, registered: Register, backend: Backend
) -> None:
    await registered(store, "noop")
    claimed = await claim_one(store, new_job())

    after = await store.write(FailJob(claimed.id, BOSS, retry=False, unit=0.5))
    late = await settle(store, ended(claimed, Completed()))

    assert (after.status, after.error_class, after.locked_by) == (S.FAILED, "operator", None)
    assert late.lost == {(claimed.seq, claimed.fence)}
    assert backend.sql("SELECT error_message FROM dead_letters") == [("because",)]


async def test_failing_with_a_retry_counts_the_attempt_and_waits(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, TypePolicy(name="noop", retry_delay_ms=1000))
    claimed = await claim_one(store, new_job())

    after = await store.write(FailJob(claimed.id, BOSS, retry=True, unit=0.5))

    assert (after.status, after.retry_count) == (S.PENDING, 1)
    assert after.scheduled_for == clock.now() + 1000


async def test_a_released_job_is_pending_again_with_nothing_counted(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    claimed = await claim_one(store, new_job())

    after = await store.write(ReleaseJob(claimed.id, BOSS))

    assert (after.retry_count, after.losses, after.interruptions) == (0, 0, 0)
    assert after.scheduled_for == claimed.scheduled_for
    assert [a.outcome for a in await store.read(ListAttempts(claimed.id))] == ["released"]


async def test_releasing_a_job_that_was_asked_to_stop_cancels_it(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    claimed = await claim_one(store, new_job())
    await store.write(CancelJob(claimed.id, BOSS))

    assert (await store.write(ReleaseJob(claimed.id, BOSS))).status is S.CANCELLED


async def test_an_update_changes_what_it_names_and_nothing_else(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    before = await bring_to(store, new_job(input_data="1"), S.PENDING)
    clock.advance(1)
    later = clock.now() + 5000

    await store.write(UpdateJob(before.id, BOSS, priority=3))
    new = NewInput("2", "hash", 1)
    await store.write(UpdateJob(before.id, BOSS, scheduled_for=later, input=new))

    after = await get(store, before.id)
    expected = msgspec.structs.replace(
        before,
        priority=3,
        scheduled_for=later,
        input_data="2",
        updated_at=clock.now(),
        fence=after.fence,
    )
    assert after == expected


async def test_a_letter_keeps_a_snapshot_of_the_job_that_was_deleted(
    store: Store, new_job: JobBuilder, registered: Register, backend: Backend
) -> None:
    await registered(store, "noop")
    job = await bring_to(store, new_job(input_data='{"a":1}'), S.FAILED)

    await store.write(DeleteJob(job.id, BOSS))

    ((snapshot,),) = backend.sql("SELECT snapshot FROM dead_letters")
    assert msgspec.json.decode(snapshot)["input_data"] == '{"a":1}'
    assert await store.read(ListAttempts(job.id)) == ()
    assert backend.sql("SELECT count(*) FROM background_job_attempts") == [(0,)]

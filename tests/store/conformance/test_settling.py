"""Settling: what each outcome makes of a running job, and what is written beside it."""

from __future__ import annotations

import pytest

from edgeq.core.backoff import RETRYABLE, ErrorClass
from edgeq.core.job_types import TypePolicy
from edgeq.core.jobs import Job, JobStatus
from edgeq.core.outcomes import (
    Completed,
    Failed,
    Interrupted,
    NeedsReview,
    NotStarted,
    Outcome,
    Snoozed,
    Stopped,
)
from edgeq.ports.commands import Applied, CancelJob
from edgeq.ports.queries import FindJob, ListAttempts
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import Backend, JobBuilder, Register
from tests.store.conformance.acts import (
    BOSS,
    BROKEN,
    FLAKY,
    claim,
    claim_one,
    end,
    ended,
    get,
    settle,
)

UNLOCKED = (None, None, None)


def lock_of(job: Job) -> tuple[object, ...]:
    return (job.locked_at, job.locked_by, job.lock_expires_at)


async def test_success_completes_the_job_with_its_output(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, TypePolicy(name="noop", result_ttl_ms=5000))
    claimed = await claim_one(store, new_job())
    clock.advance(2)

    outcome = Completed('{"n":1}')
    answer = await settle(store, ended(claimed, outcome))

    job = await get(store, claimed.id)
    lock = (claimed.seq, claimed.fence)
    assert answer.applied == (Applied(lock, outcome, JobStatus.COMPLETED),)
    assert answer.lost == frozenset()
    assert (job.status, job.output, job.progress) == (JobStatus.COMPLETED, {"n": 1}, 100)
    assert (job.completed_at, job.result_expires_at) == (clock.now(), clock.now() + 5000)
    assert (job.error_class, job.error_message, lock_of(job)) == (None, None, UNLOCKED)
    assert await store.read(ListAttempts(job.id)) == ()


async def test_a_failure_that_may_be_retried_waits_for_its_backoff(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, TypePolicy(name="noop", retry_delay_ms=1000, max_retries=2))
    claimed = await claim_one(store, new_job(idempotency_key="k"))

    job = await end(store, claimed, FLAKY)

    assert (job.status, job.retry_count, job.scheduled_for) == (
        JobStatus.PENDING,
        1,
        clock.now() + 1000,
    )
    assert (job.error_class, job.error_message) == ("transient", "try again")
    assert (job.completed_at, job.result_expires_at, lock_of(job)) == (None, None, UNLOCKED)
    assert job.fence > claimed.fence


async def test_a_job_runs_once_and_then_max_retries_times(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock, backend: Backend
) -> None:
    await registered(store, TypePolicy(name="noop", retry_delay_ms=1000, max_retries=2))
    claimed = await claim_one(store, new_job(idempotency_key="k"))
    moves = []

    while True:
        job = await end(store, claimed, FLAKY)
        moves.append((job.status, job.scheduled_for - clock.now()))
        if job.status is not JobStatus.PENDING:
            break
        clock.advance((job.scheduled_for - clock.now()) / 1000)
        (claimed,) = (await claim(store)).claimed

    attempts = await store.read(ListAttempts(job.id))
    assert moves[:2] == [(JobStatus.PENDING, 1000), (JobStatus.PENDING, 2000)]
    assert [(a.attempt, a.outcome) for a in attempts] == [
        (1, "retried"),
        (2, "retried"),
        (3, "failed"),
    ]
    assert (job.status, job.attempt) == (JobStatus.FAILED, 3)
    assert await store.read(FindJob(new_job(idempotency_key="k").unique_key or "")) is None
    letters = backend.sql("SELECT attempt_count, error_message FROM dead_letters")
    assert letters == [(3, "try again")]


@pytest.mark.parametrize("error_class", [each for each in ErrorClass if each not in RETRYABLE])
async def test_a_failure_that_no_retry_can_help_fails_at_once(
    store: Store, new_job: JobBuilder, registered: Register, error_class: ErrorClass
) -> None:
    await registered(store, "noop")
    claimed = await claim_one(store, new_job())

    job = await end(store, claimed, Failed(error_class, "no"))

    assert (job.status, job.error_class) == (JobStatus.FAILED, error_class)


async def test_a_failed_job_leaves_a_letter_and_keeps_its_error_for_its_time(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock, backend: Backend
) -> None:
    await registered(store, TypePolicy(name="noop", category="mail", result_ttl_ms=5000))
    claimed = await claim_one(
        store, new_job(idempotency_key="k", correlation_id="c", tenant_id="t")
    )
    clock.advance(1)

    job = await end(store, claimed, BROKEN)

    letters = backend.sql(
        "SELECT job_id, type, category, status, error_class, error_message, attempt_count"
        " FROM dead_letters"
    )
    origins = backend.sql(
        "SELECT idempotency_key, correlation_id, tenant_id, original_created_at, created_at"
        " FROM dead_letters"
    )
    assert letters == [
        (job.id, "noop", "mail", "pending_review", "non_retryable", "it is broken", 1)
    ]
    assert origins == [("k", "c", "t", job.created_at, clock.now())]
    assert (job.completed_at, job.result_expires_at) == (clock.now(), clock.now() + 5000)


async def test_letters_of_failures_that_differ_only_in_numbers_have_one_fingerprint(
    store: Store, new_job: JobBuilder, registered: Register, backend: Backend
) -> None:
    await registered(store, "noop")
    for message in ("row 17 is bad", "row 4 is bad", "no row"):
        claimed = await claim_one(store, new_job())
        await end(store, claimed, Failed(ErrorClass.NON_RETRYABLE, message))

    rows = backend.sql("SELECT fingerprint, count(*) FROM dead_letters GROUP BY 1 ORDER BY 2")

    assert [count for _, count in rows] == [1, 2]


async def test_review_keeps_the_draft_the_reason_and_the_key(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    new = new_job(idempotency_key="k")

    job = await end(store, await claim_one(store, new), NeedsReview("odd", '{"draft":1}'))

    assert (job.status, job.review_reason, job.output) == (
        JobStatus.REVIEW_NEEDED,
        "odd",
        {"draft": 1},
    )
    assert (job.completed_at, job.result_expires_at, lock_of(job)) == (None, None, UNLOCKED)
    assert await store.read(FindJob(new.unique_key or "")) == job


async def test_a_snoozed_job_comes_back_later_and_nothing_is_counted(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")

    job = await end(store, await claim_one(store, new_job()), Snoozed(7000))

    assert (job.status, job.scheduled_for) == (JobStatus.PENDING, clock.now() + 7000)
    assert (job.retry_count, job.interruptions, job.losses) == (0, 0, 0)
    assert await store.read(ListAttempts(job.id)) == ()


@pytest.mark.parametrize(
    ("outcome", "counted"), [(Interrupted(by_budget=True), 1), (Interrupted(by_budget=False), 0)]
)
async def test_an_interrupted_job_keeps_its_turn_and_only_budgets_count(
    store: Store, new_job: JobBuilder, registered: Register, outcome: Outcome, counted: int
) -> None:
    await registered(store, "noop")
    claimed = await claim_one(store, new_job())

    job = await end(store, claimed, outcome)

    assert (job.status, job.scheduled_for) == (JobStatus.PENDING, claimed.scheduled_for)
    assert (job.interruptions, job.retry_count, job.error_class) == (counted, 0, None)
    assert [a.outcome for a in await store.read(ListAttempts(job.id))] == ["interrupted"]


async def test_too_many_interruptions_by_budgets_fail_the_job(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, TypePolicy(name="noop", max_interruptions=2))
    claimed = await claim_one(store, new_job())
    for _ in range(2):
        await end(store, claimed, Interrupted(by_budget=True))
        (claimed,) = (await claim(store)).claimed

    job = await end(store, claimed, Interrupted(by_budget=True))

    assert (job.status, job.error_class) == (JobStatus.FAILED, "budget_exceeded")


async def test_a_job_that_never_started_goes_back_as_it_was(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    claimed = await claim_one(store, new_job())

    job = await end(store, claimed, NotStarted())

    assert (job.status, job.scheduled_for, lock_of(job)) == (
        JobStatus.PENDING,
        claimed.scheduled_for,
        UNLOCKED,
    )
    assert await store.read(ListAttempts(job.id)) == ()


async def test_a_handler_that_stopped_on_request_leaves_the_job_cancelled(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    claimed = await claim_one(store, new_job(idempotency_key="k"))
    await store.write(CancelJob(claimed.id, BOSS))

    job = await end(store, claimed, Stopped())

    assert (job.status, job.completed_at) == (JobStatus.CANCELLED, clock.now())
    assert await store.read(FindJob(new_job(idempotency_key="k").unique_key or "")) is None


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Completed(), JobStatus.COMPLETED),
        (NeedsReview("odd"), JobStatus.REVIEW_NEEDED),
        (FLAKY, JobStatus.CANCELLED),
        (Snoozed(5), JobStatus.CANCELLED),
        (Interrupted(by_budget=True), JobStatus.CANCELLED),
        (Interrupted(by_budget=False), JobStatus.CANCELLED),
        (NotStarted(), JobStatus.CANCELLED),
        (BROKEN, JobStatus.FAILED),
    ],
)
async def test_after_a_request_to_cancel_nothing_runs_again(
    store: Store, new_job: JobBuilder, registered: Register, outcome: Outcome, status: JobStatus
) -> None:
    await registered(store, "noop")
    claimed = await claim_one(store, new_job())
    assert await store.write(CancelJob(claimed.id, BOSS)) == "requested"

    job = await end(store, claimed, outcome)

    assert job.status is status


async def test_a_cycle_settles_many_jobs_each_in_its_own_way(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    jobs = [await claim_one(store, new_job()) for _ in range(4)]
    outcomes: list[Outcome] = [Completed("1"), FLAKY, Completed("2"), BROKEN]

    answer = await settle(store, *map(ended, jobs, outcomes))

    after = [await get(store, job.id) for job in jobs]
    assert [job.status for job in after] == ["completed", "pending", "completed", "failed"]
    assert {a.lock[0]: a.status for a in answer.applied} == {job.seq: job.status for job in after}

"""Taking back: jobs whose process died come back, are counted, and fail at the third loss."""

from __future__ import annotations

from edgeq.core.jobs import JobStatus
from edgeq.ports.commands import CancelJob, Claim, ClaimableType, Cycle, ExtendLocks
from edgeq.ports.queries import ListAttempts
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import Backend, JobBuilder, Register
from tests.store.conformance.acts import BOSS, LOCK_MS, claim, claim_one, get, insert


async def test_only_expired_locks_are_taken_back(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    dead = await claim_one(store, new_job(), run="dead")
    clock.advance(1)
    alive = await claim_one(store, new_job(), run="alive")

    clock.advance(59)
    answer = await claim(store, slots=0)

    lost, held = await get(store, dead.id), await get(store, alive.id)
    assert answer.reclaimed == 1
    assert (lost.status, lost.losses, lost.retry_count) == (JobStatus.PENDING, 1, 0)
    assert (lost.locked_by, lost.locked_at, lost.lock_expires_at) == (None, None, None)
    assert lost.fence > dead.fence
    assert (held.status, held.locked_by) == (JobStatus.PROCESSING, "alive")


async def test_a_loss_is_an_attempt_of_the_run_that_died(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    job = await claim_one(store, new_job(), run="dead")
    began = clock.now()
    clock.advance(60)

    await claim(store, run="finder", slots=0)

    (attempt,) = await store.read(ListAttempts(job.id))
    assert (attempt.attempt, attempt.outcome, attempt.run_id) == (1, "lost", "dead")
    assert (attempt.started_at, attempt.ended_at) == (began, clock.now())


async def test_at_most_fifty_jobs_are_taken_back_in_one_cycle_oldest_first(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    await insert(store, *(new_job() for _ in range(60)))
    await claim(store, slots=30, lock_ms=2)
    await claim(store, slots=30, lock_ms=1)
    clock.advance(1)

    taken = [(await claim(store, slots=0)).reclaimed for _ in range(3)]

    assert taken == [50, 10, 0]


async def test_the_third_loss_fails_the_job_and_leaves_a_letter(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock, backend: Backend
) -> None:
    await registered(store, "noop")
    (job_id,) = await insert(store, new_job(idempotency_key="k"))
    seen = []

    for _ in range(3):
        await claim(store, wants="suspect")
        clock.advance(60)
        await claim(store, slots=0)
        seen.append(await get(store, job_id))

    job = seen[-1]
    letters = backend.sql("SELECT error_class, status FROM dead_letters WHERE job_id = ?", job_id)
    assert [(job.status, job.losses) for job in seen] == [
        (JobStatus.PENDING, 1),
        (JobStatus.PENDING, 2),
        (JobStatus.FAILED, 3),
    ]
    assert (job.error_class, job.completed_at) == ("worker_lost", clock.now())
    assert letters == [("worker_lost", "pending_review")]
    assert len(await store.read(ListAttempts(job_id))) == 3
    assert await insert(store, new_job(idempotency_key="k", input_data="9"))


async def test_a_lost_job_whose_cancellation_was_asked_for_is_cancelled(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    job = await claim_one(store, new_job())
    await store.write(CancelJob(job.id, BOSS))
    clock.advance(60)

    await claim(store)

    assert (await get(store, job.id)).status is JobStatus.CANCELLED


async def test_a_job_that_waited_ahead_of_its_turn_is_not_blamed_for_the_first_loss(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    (job_id,) = await insert(store, new_job())
    short = ClaimableType("noop", 9, 1, ahead=True)
    await claim(store, short, slots=0, ahead=1)

    clock.advance(60)
    reclaimed = (await claim(store, slots=0)).reclaimed
    unblamed = await get(store, job_id)
    ahead_again = (await claim(store, short, slots=0, ahead=1)).claimed
    into_a_slot = (await claim(store, short)).claimed
    clock.advance(60)
    await claim(store, slots=0)

    assert (reclaimed, unblamed.status, unblamed.losses) == (1, JobStatus.PENDING, 0)
    assert ahead_again == ()
    assert [job.id for job in into_a_slot] == [job_id]
    assert (await get(store, job_id)).losses == 1


async def test_a_job_claimed_ahead_is_cancelled_by_its_loss_if_that_was_asked_for(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    (job_id,) = await insert(store, new_job())
    await claim(store, ClaimableType("noop", 9, 1, ahead=True), slots=0, ahead=1)
    await store.write(CancelJob(job_id, BOSS))
    clock.advance(60)

    await claim(store)

    assert (await get(store, job_id)).status is JobStatus.CANCELLED


async def test_locks_from_before_a_clock_stepped_back_are_shortened(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    job = await claim_one(store, new_job())
    clock.jump(-3600)

    await claim(store, slots=0)
    shortened = await get(store, job.id)
    clock.advance(62)
    reclaimed = (await claim(store, slots=0)).reclaimed

    assert shortened.status is JobStatus.PROCESSING
    assert shortened.lock_expires_at is not None
    assert shortened.lock_expires_at <= clock.now()
    assert reclaimed == 1


async def test_extending_keeps_a_lock_alive_and_tells_what_the_run_holds(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    mine = await claim_one(store, new_job(), run="mine")
    asked = await claim_one(store, new_job(), run="mine")
    await claim_one(store, new_job(), run="other")
    await store.write(CancelJob(asked.id, BOSS))
    clock.advance(59)

    held = await store.write(ExtendLocks("mine", clock.now() + LOCK_MS))
    clock.advance(59)
    answer = await claim(store, slots=0)

    assert held.fences == {mine.seq: mine.fence, asked.seq: asked.fence}
    assert held.cancel_requested == {asked.seq}
    assert held.is_enabled
    assert answer.reclaimed == 1
    assert (await get(store, mine.id)).status is JobStatus.PROCESSING


async def test_a_run_that_does_not_trust_its_clock_takes_nothing_back(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    job = await claim_one(store, new_job())
    clock.advance(120)
    wanted = Claim((ClaimableType("noop", 9, 1),), ())

    answer = await store.write(Cycle("run-2", clock.now(), claim=wanted, takes_back=False))

    assert answer.reclaimed == 0
    assert (await get(store, job.id)).status is JobStatus.PROCESSING

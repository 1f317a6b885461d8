"""Fencing: whoever lost a job changes nothing any more, and learns it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from edgeq.core.jobs import ClaimedJob, JobStatus, LogLevel
from edgeq.core.outcomes import (
    Completed,
    Interrupted,
    NeedsReview,
    NotStarted,
    Outcome,
    Snoozed,
    Stopped,
)
from edgeq.ports.commands import (
    CancelJob,
    Cycle,
    ExtendLocks,
    FailJob,
    Note,
    Progress,
    ReleaseJob,
    ReleaseRun,
    RetryJob,
    UpdateJob,
)
from edgeq.ports.queries import ListLogs
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import JobBuilder, Register
from tests.store.conformance.acts import (
    BOSS,
    BROKEN,
    FLAKY,
    LOCK_MS,
    claim,
    claim_one,
    end,
    ended,
    get,
    position,
    settle,
)

OLD, NEW = "old-run", "new-run"
OUTCOMES: list[Outcome] = [
    Completed("1"),
    FLAKY,
    BROKEN,
    NeedsReview("odd"),
    Snoozed(1),
    Interrupted(by_budget=True),
    NotStarted(),
    Stopped(),
]
Theft = Callable[[Store, FakeClock, str], Awaitable[None]]


async def taken_back(store: Store, clock: FakeClock, job_id: str) -> None:
    clock.advance(61)
    await claim(store, run=NEW, slots=0)


async def taken_back_and_claimed(store: Store, clock: FakeClock, job_id: str) -> None:
    clock.advance(61)
    await claim(store, run=NEW, wants="suspect")
    assert (await get(store, job_id)).locked_by == NEW


async def released_by_operator(store: Store, clock: FakeClock, job_id: str) -> None:
    await store.write(ReleaseJob(job_id, BOSS))


async def released_and_claimed(store: Store, clock: FakeClock, job_id: str) -> None:
    await store.write(ReleaseJob(job_id, BOSS))
    await claim(store, run=NEW)
    assert (await get(store, job_id)).locked_by == NEW


async def released_and_claimed_by_the_same_run(store: Store, clock: FakeClock, job_id: str) -> None:
    await store.write(ReleaseJob(job_id, BOSS))
    await claim(store, run=OLD)
    assert (await get(store, job_id)).locked_by == OLD


async def released_with_its_run(store: Store, clock: FakeClock, job_id: str) -> None:
    await store.write(ReleaseRun(OLD, by_budget=True))


async def failed_by_operator(store: Store, clock: FakeClock, job_id: str) -> None:
    await store.write(FailJob(job_id, BOSS, retry=False, unit=0.0))


async def failed_and_retried(store: Store, clock: FakeClock, job_id: str) -> None:
    await store.write(FailJob(job_id, BOSS, retry=False, unit=0.0))
    await store.write(RetryJob(job_id, BOSS))
    await claim(store, run=NEW)
    assert (await get(store, job_id)).locked_by == NEW


async def released_and_cancelled(store: Store, clock: FakeClock, job_id: str) -> None:
    await store.write(ReleaseJob(job_id, BOSS))
    assert await store.write(CancelJob(job_id, BOSS)) == "cancelled"


async def released_and_changed(store: Store, clock: FakeClock, job_id: str) -> None:
    await store.write(ReleaseJob(job_id, BOSS))
    await store.write(UpdateJob(job_id, BOSS, priority=3))


THEFTS: list[Theft] = [
    taken_back,
    taken_back_and_claimed,
    released_by_operator,
    released_and_claimed,
    released_and_claimed_by_the_same_run,
    released_with_its_run,
    failed_by_operator,
    failed_and_retried,
    released_and_cancelled,
    released_and_changed,
]


def note_of(job: ClaimedJob, at: int) -> Note:
    return Note(job.seq, job.fence, job.id, LogLevel.INFO, "still here", job.attempt, at)


@pytest.mark.parametrize("theft", THEFTS, ids=lambda theft: theft.__name__)
async def test_no_late_write_of_the_old_holder_changes_anything(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock, theft: Theft
) -> None:
    await registered(store, "noop")
    old = await claim_one(store, new_job(), run=OLD)
    await theft(store, clock, old.id)
    before, feed = await get(store, old.id), await position(store)
    until = clock.now() + LOCK_MS

    late = [
        Cycle(OLD, until, notes=(note_of(old, clock.now()),)),
        Cycle(OLD, until, progress=(Progress(old.seq, old.fence, 50, "late"),)),
        *(Cycle(OLD, until, settled=(ended(old, outcome),)) for outcome in OUTCOMES),
    ]
    answers = [await store.write(cycle) for cycle in late]

    assert [answer.lost for answer in answers] == [{(old.seq, old.fence)}] * len(late)
    assert [answer.applied for answer in answers] == [()] * len(late)
    assert await get(store, old.id) == before
    assert (await store.read(ListLogs(old.id))).items == ()
    assert await position(store) == feed


@pytest.mark.parametrize("theft", THEFTS, ids=lambda theft: theft.__name__)
async def test_the_fence_grows_whenever_a_job_changes_hands(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock, theft: Theft
) -> None:
    await registered(store, "noop")
    old = await claim_one(store, new_job(), run=OLD)

    await theft(store, clock, old.id)

    assert (await get(store, old.id)).fence > old.fence


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
async def test_a_second_outcome_of_the_same_attempt_is_refused(
    store: Store, new_job: JobBuilder, registered: Register, outcome: Outcome
) -> None:
    await registered(store, "noop")
    claimed = await claim_one(store, new_job())
    first = await end(store, claimed, Completed("1"))

    answer = await settle(store, ended(claimed, outcome))

    assert answer.lost == {(claimed.seq, claimed.fence)}
    assert await get(store, claimed.id) == first


async def test_a_late_outcome_is_accepted_while_nobody_has_taken_the_job(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    claimed = await claim_one(store, new_job())
    clock.advance(3600)

    answer = await settle(store, ended(claimed, Completed("1")))

    assert answer.lost == frozenset()
    assert (await get(store, claimed.id)).status is JobStatus.COMPLETED


async def test_a_lost_job_in_a_batch_does_not_spoil_the_outcomes_of_the_others(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    jobs = [await claim_one(store, new_job()) for _ in range(5)]
    await store.write(ReleaseJob(jobs[2].id, BOSS))

    answer = await settle(store, *(ended(job, Completed("1")) for job in jobs))

    states = [(await get(store, job.id)).status for job in jobs]
    assert states == ["completed", "completed", "pending", "completed", "completed"]
    assert answer.lost == {(jobs[2].seq, jobs[2].fence)}
    assert {applied.lock[0] for applied in answer.applied} == {
        job.seq for job in jobs if job is not jobs[2]
    }


async def test_the_outcomes_of_a_cycle_are_written_before_it_takes_back_and_claims(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    claimed = await claim_one(store, new_job())
    clock.advance(120)
    wanted = Cycle("run-1", clock.now(), settled=(ended(claimed, Completed()),))

    answer = await store.write(wanted)
    reclaimed = (await claim(store)).reclaimed

    assert (len(answer.applied), reclaimed) == (1, 0)


async def test_extending_does_not_bring_back_what_was_taken(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    old = await claim_one(store, new_job(), run=OLD)
    await store.write(ReleaseJob(old.id, BOSS))

    held = await store.write(ExtendLocks(OLD, clock.now() + LOCK_MS))

    assert held.fences == {}
    assert (await get(store, old.id)).lock_expires_at is None

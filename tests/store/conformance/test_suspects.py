"""Suspects: a job that was lost with its process is claimed alone, and only when asked for."""

from __future__ import annotations

from edgeq.core.jobs import Job, NewJob
from edgeq.core.outcomes import Interrupted
from edgeq.ports.commands import ClaimableType
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import JobBuilder, Register
from tests.store.conformance.acts import claim, claim_one, end, get, insert


async def lose(store: Store, clock: FakeClock, job: NewJob) -> Job:
    """Claim a job, let its process die, and have it taken back."""
    await claim_one(store, job)
    clock.advance(61)
    await claim(store, slots=0)
    return await get(store, job.id)


async def test_a_lost_job_is_left_out_of_ordinary_claims(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    suspect = await lose(store, clock, new_job(priority=20))
    (other,) = await insert(store, new_job())

    answer = await claim(store)

    assert suspect.losses == 1
    assert [job.id for job in answer.claimed] == [other]
    assert answer.suspect_is_due


async def test_a_suspect_is_claimed_alone(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    suspect = await lose(store, clock, new_job())
    await insert(store, *(new_job(priority=20) for _ in range(3)))

    answer = await claim(store, ClaimableType("noop", 9, 1, ahead=True), wants="suspect", ahead=5)

    assert [(job.id, job.losses) for job in answer.claimed] == [(suspect.id, 1)]
    assert not answer.suspect_is_due


async def test_suspects_are_claimed_one_at_a_time(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    await insert(store, *(new_job() for _ in range(3)))
    await claim(store)
    clock.advance(61)
    await claim(store, slots=0)

    answer = await claim(store, wants="suspect")

    assert len(answer.claimed) == 1
    assert answer.suspect_is_due


async def test_others_are_claimed_when_no_suspect_is_due_after_all(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    await insert(store, new_job(), new_job())

    answer = await claim(store, wants="suspect")

    assert len(answer.claimed) == 2


async def test_a_suspect_that_this_run_cannot_take_is_not_announced_to_it(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop", "other")
    await lose(store, clock, new_job())

    answer = await claim(store, "other")

    assert not answer.suspect_is_due


async def test_a_suspect_past_its_expiry_is_cancelled_and_not_announced(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    suspect = await lose(store, clock, new_job(expires_at=clock.now() + 62_000))
    clock.advance(2)

    answer = await claim(store, wants="suspect")

    assert (answer.claimed, answer.suspect_is_due) == ((), False)
    assert (await get(store, suspect.id)).status == "cancelled"


async def test_an_attempt_that_ended_in_good_order_clears_the_suspicion(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    suspect = await lose(store, clock, new_job())
    (claimed,) = (await claim(store, wants="suspect")).claimed

    await end(store, claimed, Interrupted(by_budget=False))

    assert (await get(store, suspect.id)).losses == 0
    assert [job.id for job in (await claim(store)).claimed] == [suspect.id]

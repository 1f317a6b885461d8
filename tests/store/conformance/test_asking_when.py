"""A claim that leaves slots free can ask when there may be more, without anybody saying so."""

from __future__ import annotations

import pytest

from edgeq.core.job_types import TypePolicy
from edgeq.core.lanes import ClaimStep
from edgeq.ports.commands import Claim, ClaimableType, Cycle, SetConfig
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import JobBuilder, Register
from tests.store.conformance.acts import BOSS, claim, insert


async def next_moment(store: Store, slots: int = 10, *types: str) -> int | None:
    answer = await claim(store, *(types or ("noop",)), slots=slots, asks_when=True)
    return answer.next_moment


async def test_an_empty_queue_has_no_next_moment(store: Store, registered: Register) -> None:
    await registered(store, "noop")

    assert await next_moment(store) is None


async def test_the_first_job_that_comes_due_is_told(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop", "other")
    for later, priority in ((5_000, 20), (3_000, 1), (4_000, 10)):
        await insert(store, new_job(scheduled_for=clock.now() + later, priority=priority))
    await insert(store, new_job("other", scheduled_for=clock.now() + 1_000))

    assert await next_moment(store) == clock.now() + 3_000
    assert await next_moment(store, 10, "noop", "other") == clock.now() + 1_000


@pytest.mark.parametrize(("slots", "in_ms"), [(2, [500]), (1, [])])
async def test_a_claim_that_leaves_slots_free_asks_and_a_full_one_does_not(
    store: Store,
    new_job: JobBuilder,
    registered: Register,
    clock: FakeClock,
    slots: int,
    in_ms: list[int],
) -> None:
    await registered(store, "noop")
    await insert(store, new_job(), new_job(scheduled_for=clock.now() + 500))

    answer = await claim(store, slots=slots, asks_when=True)

    assert len(answer.claimed) == 1
    told = [] if answer.next_moment is None else [answer.next_moment - clock.now()]
    assert told == in_ms


async def test_nobody_is_told_who_does_not_ask(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    await insert(store, new_job(scheduled_for=clock.now() + 500))

    assert (await claim(store)).next_moment is None


async def test_a_lock_that_expires_is_a_moment(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop", "other")
    await insert(store, new_job("other"))
    await claim(store, "other", run="dead", lock_ms=700)

    assert await next_moment(store) == clock.now() + 700


async def test_a_lock_that_has_expired_and_is_not_taken_back_is_looked_at_a_second_later(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    await insert(store, new_job())
    await claim(store, run="dead", lock_ms=100)
    clock.advance(1)
    wanted = Claim((ClaimableType("noop", 10, 1),), (ClaimStep(None, 5),), asks_when=True)

    answer = await store.write(Cycle("run", clock.now() + 60_000, claim=wanted, takes_back=False))

    assert (answer.claimed, answer.next_moment) == ((), clock.now() + 1_000)


async def test_what_cannot_be_claimed_is_no_reason_to_look(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, TypePolicy(name="noop", handler_name="noop", max_concurrent=1))
    await insert(store, new_job(), new_job())
    await claim(store, run="busy", lock_ms=50_000)

    assert await next_moment(store) == clock.now() + 50_000
    await store.write(SetConfig({"worker_enabled": False}, BOSS))
    assert await next_moment(store) is None

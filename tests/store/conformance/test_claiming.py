"""Claiming: the right jobs, in the right order, to one run each."""

from __future__ import annotations

import random

import pytest

from edgeq.core.job_types import TypePolicy
from edgeq.core.jobs import JobStatus
from edgeq.core.lanes import ClaimStep
from edgeq.ports.commands import ChangeType, ClaimableType, Cycle, SetConfig
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import JobBuilder, Register
from tests.store.conformance.acts import BOSS, LOCK_MS, claim, get, insert


async def test_a_claimed_job_is_locked_by_its_run_until_the_given_time(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, TypePolicy(name="noop", handler_name="do_it", lane="fast"))
    new = new_job(input_data='{"a":1}', priority=12, tenant_id="t", correlation_id="c")
    await insert(store, new)
    clock.advance(3)

    (claimed,) = (await claim(store, run="run-7")).claimed

    job = await get(store, new.id)
    assert (job.status, job.locked_by, job.locked_at) == (
        JobStatus.PROCESSING,
        "run-7",
        clock.now(),
    )
    assert (job.lock_expires_at, job.started_at) == (clock.now() + LOCK_MS, clock.now())
    assert (claimed.id, claimed.seq, claimed.fence) == (job.id, job.seq, job.fence)
    assert (claimed.type, claimed.handler_name, claimed.lane) == ("noop", "do_it", "fast")
    assert (claimed.input_data, claimed.priority, claimed.attempt) == ('{"a":1}', 12, 1)
    assert (claimed.tenant_id, claimed.correlation_id) == ("t", "c")
    assert claimed.idempotency_key == job.id
    assert (claimed.max_retries, claimed.timeout_ms) == (job.max_retries, job.timeout_ms)


async def test_jobs_come_by_priority_then_due_time_then_order_of_arrival(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "a", "b", "c")
    chance = random.Random(7)
    jobs = [
        new_job(
            chance.choice("abc"),
            priority=chance.randint(1, 20),
            scheduled_for=clock.now() - chance.randint(0, 3),
        )
        for _ in range(120)
    ]
    await insert(store, *jobs)
    expected = [
        job.id
        for _, job in sorted(
            enumerate(jobs), key=lambda each: (-each[1].priority, each[1].scheduled_for, each[0])
        )
    ]

    claimed = []
    while found := (await claim(store, "a", "b", "c", slots=7)).claimed:
        claimed += [job.id for job in found]

    assert claimed == expected


async def test_a_job_is_claimed_once_its_time_has_come_and_not_before(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    await insert(store, new_job(scheduled_for=clock.now() + 1000, priority=20))

    clock.advance(0.999)
    early = await claim(store)
    clock.advance(0.001)
    due = await claim(store)

    assert (len(early.claimed), len(due.claimed)) == (0, 1)


@pytest.mark.parametrize(
    "switch",
    [ChangeType("noop", BOSS, is_paused=True), ChangeType("noop", BOSS, is_enabled=False)],
)
async def test_a_paused_or_disabled_type_is_not_claimed_until_it_is_switched_on(
    store: Store, new_job: JobBuilder, registered: Register, switch: ChangeType
) -> None:
    await registered(store, "noop", "other")
    await insert(store, new_job(priority=20), new_job("other"))
    await store.write(switch)

    off = await claim(store, "noop", "other")
    await store.write(ChangeType("noop", BOSS, is_paused=False, is_enabled=True))
    on = await claim(store, "noop", "other")

    assert [job.type for job in off.claimed] == ["other"]
    assert [job.type for job in on.claimed] == ["noop"]


async def test_only_the_types_that_the_run_can_handle_are_claimed(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop", "other")
    await insert(store, new_job(), new_job("other", priority=20))

    claimed = (await claim(store, "noop", "nobody-knows")).claimed

    assert [job.type for job in claimed] == ["noop"]


async def test_an_input_newer_than_the_handler_stays_pending_and_blocks_nobody(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    newer, known = new_job(payload_version=3, priority=20), new_job(payload_version=2)
    await insert(store, newer, known)

    first = await claim(store, ClaimableType("noop", 10, version=2), slots=1)
    second = await claim(store, ClaimableType("noop", 10, version=3), slots=1)

    assert [job.id for job in first.claimed] == [known.id]
    assert [job.id for job in second.claimed] == [newer.id]


async def test_slots_of_a_lane_take_only_its_jobs_and_open_slots_take_any(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, TypePolicy(name="quick", lane="fast"), "slow")
    slow = [new_job("slow", priority=20) for _ in range(5)]
    quick = [new_job("quick", priority=1) for _ in range(5)]
    await insert(store, *slow, *quick)

    steps = (ClaimStep("fast", 2), ClaimStep(None, 3))
    claimed = (await claim(store, "quick", "slow", steps=steps)).claimed
    only_fast = (await claim(store, "quick", "slow", steps=(ClaimStep("fast", 10),))).claimed

    assert [job.id for job in claimed] == [
        *(job.id for job in quick[:2]),
        *(job.id for job in slow[:3]),
    ]
    assert [job.id for job in only_fast] == [job.id for job in quick[2:]]


async def test_a_lane_without_slots_of_its_own_uses_the_open_ones(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, TypePolicy(name="quick", lane="fast"))
    await insert(store, *(new_job("quick") for _ in range(5)))

    steps = (ClaimStep("fast", 1), ClaimStep(None, 2))
    claimed = (await claim(store, "quick", steps=steps)).claimed

    assert len({job.id for job in claimed}) == 3


async def test_no_more_of_a_type_are_claimed_than_the_run_has_room_for(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "long", "short")
    await insert(store, *(new_job("long", priority=20) for _ in range(5)))
    await insert(store, *(new_job("short") for _ in range(5)))

    types = (ClaimableType("long", 2, 1), ClaimableType("short", 100, 1))
    claimed = (await claim(store, *types, slots=6)).claimed

    assert [job.type for job in claimed] == ["long"] * 2 + ["short"] * 4


async def test_no_more_are_claimed_in_all_than_the_run_may_still_take(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    await insert(store, *(new_job() for _ in range(9)))
    short = ClaimableType("noop", 100, 1, ahead=True)

    first = await claim(store, short, slots=2, ahead=9, at_most=3)
    second = await claim(store, short, slots=9, at_most=1)

    assert [job.claimed_ahead for job in first.claimed] == [0, 0, 1]
    assert len(second.claimed) == 1


async def test_max_concurrent_is_exact_over_several_runs_and_priorities(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, TypePolicy(name="limited", max_concurrent=3), "free")
    jobs = [new_job("limited", priority=1 + n) for n in range(10)]
    await insert(store, *jobs, *(new_job("free") for _ in range(4)))

    first = await claim(store, "limited", run="run-1", slots=2)
    second = await claim(store, "limited", "free", run="run-2", slots=10)
    third = await claim(store, "limited", run="run-3", slots=10)

    assert [job.type for job in first.claimed] == ["limited"] * 2
    assert sorted(job.type for job in second.claimed) == ["free"] * 4 + ["limited"]
    assert third.claimed == ()


async def test_lowering_max_concurrent_below_what_runs_claims_nothing_more(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    await insert(store, *(new_job() for _ in range(9)))
    await claim(store, slots=5)
    await store.write(ChangeType("noop", BOSS, changes={"max_concurrent": 2}))

    assert (await claim(store)).claimed == ()


async def test_a_job_past_its_expiry_is_cancelled_instead_of_run(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    stale = new_job(expires_at=clock.now() + 1000, idempotency_key="k")
    fresh = new_job(expires_at=clock.now() + 1001)
    await insert(store, stale, fresh)
    clock.advance(1)

    claimed = (await claim(store)).claimed

    job = await get(store, stale.id)
    assert [each.id for each in claimed] == [fresh.id]
    assert (job.status, job.completed_at) == (JobStatus.CANCELLED, clock.now())
    assert await insert(store, new_job(idempotency_key="k", input_data="9"))


async def test_expired_jobs_do_not_take_the_turn_of_those_behind_them(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    stale = [new_job(priority=20, expires_at=clock.now() + 1) for _ in range(30)]
    urgent, ordinary = new_job(priority=20), new_job(priority=1)
    await insert(store, *stale, urgent, ordinary)
    clock.advance(1)

    claimed = (await claim(store, slots=1)).claimed

    assert [job.id for job in claimed] == [urgent.id]


async def test_claiming_ahead_takes_only_types_that_allow_it_and_marks_them(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "short", "long")
    await insert(store, *(new_job("short") for _ in range(6)))
    await insert(store, *(new_job("long", priority=20) for _ in range(6)))

    types = (ClaimableType("short", 100, 1, ahead=True), ClaimableType("long", 100, 1))
    claimed = (await claim(store, *types, slots=2, ahead=3)).claimed

    assert [(job.type, job.claimed_ahead) for job in claimed] == [
        ("long", 0),
        ("long", 0),
        ("short", 1),
        ("short", 1),
        ("short", 1),
    ]


async def test_nothing_is_claimed_or_taken_back_while_the_worker_is_switched_off(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    lost, waiting = new_job(), new_job()
    await insert(store, lost, waiting)
    await claim(store, slots=1)
    clock.advance(61)
    await store.write(SetConfig({"worker_enabled": False}, BOSS))

    answer = await claim(store)

    assert (answer.is_enabled, answer.claimed, answer.reclaimed) == (False, (), 0)
    assert (await get(store, lost.id)).status is JobStatus.PROCESSING


async def test_a_cycle_without_a_claim_takes_nothing(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    (job_id,) = await insert(store, new_job())

    answer = await store.write(Cycle("run-1", store.now() + LOCK_MS))

    assert answer.claimed == ()
    assert (await get(store, job_id)).status is JobStatus.PENDING

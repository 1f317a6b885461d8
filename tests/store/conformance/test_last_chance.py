"""Last chances: a job that was lost twice gets a process of its own, where one can be had."""

from __future__ import annotations

from edgeq.core.jobs import ClaimedJob, Job, JobStatus, NewJob
from edgeq.core.outcomes import Completed, Interrupted
from edgeq.ports.commands import CancelJob, LoseRun
from edgeq.ports.queries import ListAttempts
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import Backend, JobBuilder, Register
from tests.store.conformance.acts import BOSS, claim, claim_one, end, ended, get, insert, settle

CHILD = "child-run"


async def lost_twice(store: Store, clock: FakeClock, job: NewJob) -> Job:
    await insert(store, job)
    for _ in range(2):
        await claim(store, wants="suspect", slots=1)
        clock.advance(61)
        await claim(store, slots=0)
    after = await get(store, job.id)
    assert (after.status, after.losses) == (JobStatus.PENDING, 2)
    return after


async def isolated(store: Store) -> ClaimedJob:
    answer = await claim(store, run=CHILD, wants="last_chance", isolates_from=2, at_most=1)
    (job,) = answer.claimed
    return job


async def test_a_run_that_can_isolate_leaves_a_last_chance_to_a_process_of_its_own(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    job = await lost_twice(store, clock, new_job())
    (other,) = await insert(store, new_job())

    parent = await claim(store, wants="suspect", isolates_from=2)
    child = await claim(store, run=CHILD, wants="last_chance", isolates_from=2, at_most=1)

    assert [each.id for each in parent.claimed] == [other]
    assert (parent.suspect_is_due, parent.last_chance_is_due) == (False, True)
    assert [each.id for each in child.claimed] == [job.id]
    assert not child.last_chance_is_due


async def test_a_run_that_cannot_isolate_takes_it_like_any_suspect(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    job = await lost_twice(store, clock, new_job())

    told = await claim(store, slots=0)
    answer = await claim(store, wants="suspect")

    assert (told.suspect_is_due, told.last_chance_is_due) == (True, False)
    assert [each.id for each in answer.claimed] == [job.id]


async def test_a_process_for_a_last_chance_takes_nothing_else(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    await claim_one(store, new_job())
    clock.advance(61)
    await insert(store, new_job())

    answer = await claim(store, wants="last_chance", isolates_from=2)

    assert (answer.claimed, answer.reclaimed) == ((), 1)


async def test_a_run_whose_process_was_seen_to_die_has_lost_what_it_held(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    held = await claim_one(store, new_job(), run="dead")
    asked = await claim_one(store, new_job(), run="dead")
    other = await claim_one(store, new_job(), run="alive")
    await store.write(CancelJob(asked.id, BOSS))

    applied = await store.write(LoseRun("dead"))
    late = await settle(store, ended(held, Completed()), run="dead")

    after = await get(store, held.id)
    assert {each.job_id: each.after for each in applied} == {
        held.id: JobStatus.PENDING,
        asked.id: JobStatus.CANCELLED,
    }
    assert (after.losses, after.locked_by) == (1, None)
    assert late.lost == {(held.seq, held.fence)}
    assert [a.outcome for a in await store.read(ListAttempts(held.id))] == ["lost"]
    assert (await get(store, other.id)).locked_by == "alive"


async def test_a_job_that_ends_its_own_process_on_its_last_chance_fails(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock, backend: Backend
) -> None:
    await registered(store, "noop")
    await lost_twice(store, clock, new_job())
    job = await isolated(store)

    (applied,) = await store.write(LoseRun(CHILD))

    assert (applied.after, applied.error_class) == (JobStatus.FAILED, "worker_lost")
    assert backend.sql("SELECT job_id FROM dead_letters") == [(job.id,)]


async def test_a_job_whose_process_died_with_its_parent_is_hardly_to_blame(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    await lost_twice(store, clock, new_job())
    seen = []

    for _ in range(8):
        job = await isolated(store)
        clock.advance(61)
        await claim(store, slots=0)
        seen.append(await get(store, job.id))

    assert [job.losses for job in seen] == [3, 4, 5, 6, 7, 8, 9, 10]
    assert [job.status for job in seen] == ["pending"] * 7 + ["failed"]


async def test_isolation_ends_with_the_attempt(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    await lost_twice(store, clock, new_job())
    job = await isolated(store)
    await end(store, job, Interrupted(by_budget=False), run=CHILD)
    seen = []

    for _ in range(3):
        await claim(store, wants="suspect")
        clock.advance(61)
        await claim(store, slots=0)
        seen.append((await get(store, job.id)).status)

    assert seen == ["pending", "pending", "failed"]

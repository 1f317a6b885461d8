"""What runs: the jobs that are processing, by type."""

from __future__ import annotations

from edgeq.core.outcomes import Completed
from edgeq.ports.commands import Cycle
from edgeq.ports.queries import ListRunning, RunningJob
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import JobBuilder, Register
from tests.store.conformance.acts import LOCK_MS, RUN, claim_one, ended, insert


async def test_running_jobs_are_listed_with_their_locks_the_oldest_first(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop", "other")
    locked = []
    for type_name in ("other", "noop"):
        job = await claim_one(store, new_job(type_name))
        now = clock.now()
        locked.append(RunningJob(job.id, type_name, now, now + LOCK_MS))
        clock.advance(1)
    await insert(store, new_job())

    assert await store.read(ListRunning()) == tuple(locked)
    assert await store.read(ListRunning(frozenset({"noop"}))) == (locked[1],)
    assert await store.read(ListRunning(frozenset())) == ()


async def test_a_job_that_has_ended_does_not_run(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    job = await claim_one(store, new_job())
    await store.write(Cycle(RUN, store.now() + LOCK_MS, settled=(ended(job, Completed("1")),)))

    assert await store.read(ListRunning()) == ()

"""Stats: counts by type and state, what is due, and how long work takes."""

from __future__ import annotations

from edgeq.core.durations import Histogram
from edgeq.core.jobs import JobStatus
from edgeq.core.runs import RunReport
from edgeq.ports.commands import ChangeType, FinishRun
from edgeq.ports.queries import GetStats
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import Backend, JobBuilder, Register
from tests.store.conformance.acts import BOSS, bring_to, insert

REACHABLE = [status for status in JobStatus if status is not JobStatus.BLOCKED]


async def test_a_queue_without_jobs_counts_zero(store: Store, registered: Register) -> None:
    await registered(store, "noop")

    stats = await store.read(GetStats())

    (noop,) = stats.types
    assert noop.counts == dict.fromkeys(JobStatus, 0)
    assert (noop.capped, noop.oldest_due_at, stats.next_due_at) == (False, None, None)
    assert (noop.p50_ms, noop.p95_ms, noop.p99_ms) == (None, None, None)


async def test_jobs_are_counted_by_type_and_state(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop", "other")
    for times, status in enumerate(REACHABLE, start=1):
        for _ in range(times):
            await bring_to(store, new_job(priority=20), status)
    await insert(store, *(new_job("other") for _ in range(4)))

    stats = await store.read(GetStats())

    # Bringing a later job into its state claims the one that was left pending at first.
    by_type = {each.type: each.counts for each in stats.types}
    assert sum(by_type["noop"].values()) == sum(range(1, len(REACHABLE) + 1))
    assert [by_type["noop"][status] for status in REACHABLE[2:]] == [3, 4, 5, 6]
    assert by_type["other"] == {**dict.fromkeys(JobStatus, 0), JobStatus.PENDING: 4}


async def test_the_oldest_due_job_is_found_over_all_priorities(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop", "paused")
    oldest = clock.now() - 9000
    await insert(store, *(new_job(priority=p, scheduled_for=oldest + p) for p in (20, 10, 3)))
    await insert(store, new_job("paused", scheduled_for=oldest))
    await store.write(ChangeType("paused", BOSS, is_paused=True))

    stats = await store.read(GetStats())

    assert {each.type: each.oldest_due_at for each in stats.types} == {
        "noop": oldest + 3,
        "paused": oldest,
    }
    assert stats.next_due_at == oldest + 3


async def test_counts_stop_at_ten_thousand_and_say_so(
    store: Store, new_job: JobBuilder, registered: Register, backend: Backend
) -> None:
    await registered(store, "noop")
    await insert(store, *(new_job() for _ in range(10_000)))
    exact = (await store.read(GetStats())).types[0]
    report = RunReport(run_id="run-1", claimed=1)
    await insert(store, *(new_job() for _ in range(10)))

    above = (await store.read(GetStats())).types[0]
    left = await store.write(FinishRun("run-1", report, ("noop",)))

    assert exact.counts[JobStatus.PENDING] == above.counts[JobStatus.PENDING] == 10_000
    assert above.capped
    assert (left.remaining, left.capped) == (10_000, True)


async def test_quantiles_come_from_the_last_day(
    store: Store, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    took = Histogram.EMPTY
    for ms in [3] * 90 + [30] * 8 + [3000] * 2:
        took = took.plus(ms)
    report = RunReport(run_id="run-1", claimed=1)
    await store.write(FinishRun("run-1", report, ("noop",), durations={("noop", ""): took}))

    now = (await store.read(GetStats())).types[0]
    clock.advance(26 * 3600)
    later = (await store.read(GetStats())).types[0]

    assert (now.p50_ms, now.p95_ms, now.p99_ms) == (5, 40, 5120)
    assert (later.p50_ms, later.p95_ms, later.p99_ms) == (None, None, None)

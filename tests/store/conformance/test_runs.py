"""Runs: what one is told at its start, what is recorded at its end, and what it puts back."""

from __future__ import annotations

import pytest

from edgeq.core.durations import Histogram
from edgeq.core.jobs import JobStatus
from edgeq.core.runs import RunReport, Stop
from edgeq.ports.commands import (
    CancelJob,
    ChangeType,
    ClaimableType,
    FinishRun,
    ReleaseRun,
    StartRun,
)
from edgeq.ports.queries import ListAttempts, ListRuns
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import JobBuilder, Register
from tests.store.conformance.acts import BOSS, claim, claim_one, get, insert

HOUR_SECONDS = 3600


async def start(store: Store, run_id: str) -> None:
    await store.write(StartRun(run_id, "process", "box", '{"budget":25}'))


async def finish(
    store: Store,
    run_id: str = "run-1",
    *,
    claimed: int = 1,
    handled: tuple[str, ...] = ("noop",),
    deferred: tuple[str, ...] = (),
    stopped: Stop = Stop.EMPTY,
    durations: dict[tuple[str, str], Histogram] | None = None,
) -> RunReport:
    report = RunReport(run_id=run_id, claimed=claimed, completed=claimed, stopped=stopped)
    return await store.write(FinishRun(run_id, report, handled, deferred, durations or {}))


async def test_a_run_is_told_the_types_and_the_switch(store: Store, registered: Register) -> None:
    types = (await registered(store, "a", "b")).types

    told = await store.write(StartRun("run-1", "process", "box", "{}"))

    assert (told.is_enabled, told.types, dict(told.durations)) == (True, types, {})


async def test_a_run_is_on_record_from_its_start_to_its_report(
    store: Store, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    began = clock.now()
    await start(store, "run-1")
    (running,) = await store.read(ListRuns())
    clock.advance(5)

    report = await finish(store)

    (ended,) = await store.read(ListRuns())
    assert (running.started_at, running.ended_at, running.report) == (began, None, None)
    assert (ended.run_id, ended.kind, ended.worker_name) == ("run-1", "process", "box")
    assert (ended.ended_at, ended.last_seen_at) == (clock.now(), clock.now())
    assert ended.report is not None
    assert ended.report["claimed"] == report.claimed == 1


async def test_runs_that_had_nothing_to_do_share_one_row(
    store: Store, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    for n in range(5):
        clock.advance(60)
        await start(store, f"run-{n}")
        await finish(store, f"run-{n}", claimed=0)

    (idle,) = await store.read(ListRuns())

    assert (idle.kind, idle.ticks, idle.worker_name) == ("idle", 5, "box")
    assert (idle.last_seen_at, idle.ended_at) == (clock.now(), clock.now())


async def test_runs_are_listed_newest_first_and_at_most_as_many_as_asked(
    store: Store, registered: Register, clock: FakeClock
) -> None:
    for n in range(5):
        clock.advance(1)
        await start(store, f"run-{n}")

    runs = await store.read(ListRuns(limit=3))

    assert [run.run_id for run in runs] == ["run-4", "run-3", "run-2"]


async def test_a_report_tells_what_is_left_and_when_the_next_is_due(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop", "later", "paused")
    await insert(
        store,
        *(new_job(priority=n, scheduled_for=clock.now() - n) for n in (1, 10, 20)),
        new_job("later", scheduled_for=clock.now() + 5000),
        new_job("paused", scheduled_for=clock.now() - 999),
    )
    await store.write(ChangeType("paused", BOSS, is_paused=True))

    some_left = await finish(store, handled=("noop", "later", "paused"))
    await claim(store)
    none_left = await finish(store, "run-2")

    assert (some_left.remaining, some_left.capped) == (3, False)
    assert (some_left.next_due_at, some_left.unhandled_types) == (clock.now() - 20, ())
    assert (none_left.remaining, none_left.next_due_at) == (0, clock.now() + 5000)


async def test_suspects_are_among_what_is_left(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    job = await claim_one(store, new_job())
    clock.advance(61)
    await claim(store, slots=0)

    report = await finish(store)

    assert (report.remaining, report.next_due_at) == (1, job.scheduled_for)


async def test_an_empty_queue_has_no_next_time(store: Store, registered: Register) -> None:
    await registered(store, "noop")

    report = await finish(store)

    assert (report.remaining, report.next_due_at, report.unhandled_types) == (0, None, ())


async def test_due_jobs_that_nobody_here_handles_are_named(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop", "other", "idle", "later")
    later = new_job("later", scheduled_for=clock.now() + 1)
    await insert(store, new_job(), new_job("other"), later)

    report = await finish(store, handled=("noop",))

    assert report.unhandled_types == ("other",)


async def test_jobs_left_because_they_did_not_fit_are_deferred_and_blamed_on_the_budget(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop", "long")
    await insert(store, new_job(), new_job("long"), new_job("long"))

    report = await finish(store, handled=("noop", "long"), deferred=("long",))
    signalled = await finish(store, "run-2", deferred=("long",), stopped=Stop.SIGNAL)

    assert (report.deferred, report.stopped) == (2, Stop.BUDGET)
    assert (signalled.deferred, signalled.stopped) == (2, Stop.SIGNAL)


async def test_a_type_that_was_deferred_but_has_nothing_due_does_not_count(
    store: Store, registered: Register
) -> None:
    await registered(store, "noop", "long")

    report = await finish(store, deferred=("long",))

    assert (report.deferred, report.stopped) == (0, Stop.EMPTY)


async def test_durations_add_up_over_runs_and_are_forgotten_after_a_day(
    store: Store, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    quick, slow = Histogram.EMPTY.plus(1), Histogram.EMPTY.plus(5000)
    await finish(store, "run-1", durations={("noop", ""): quick})
    await finish(store, "run-2", durations={("noop", ""): slow, ("other", ""): slow})
    clock.advance(2 * HOUR_SECONDS)
    await finish(store, "run-3", durations={("noop", ""): quick})

    now = await store.write(StartRun("run-4", "process", "", "{}"))
    clock.advance(23 * HOUR_SECONDS)
    next_day = await store.write(StartRun("run-5", "process", "", "{}"))

    assert now.durations == {"noop": quick.merge(slow).merge(quick), "other": slow}
    assert next_day.durations == {"noop": quick}


@pytest.mark.parametrize(
    ("release", "counted"),
    [(ReleaseRun("mine", by_budget=True), 1), (ReleaseRun("mine", by_budget=False), 0)],
)
async def test_a_run_that_ends_puts_back_all_that_it_still_holds(
    store: Store, new_job: JobBuilder, registered: Register, release: ReleaseRun, counted: int
) -> None:
    await registered(store, "noop")
    await insert(store, *(new_job() for _ in range(5)))
    slots = await claim(store, run="mine", slots=2)
    short = ClaimableType("noop", 9, 1, ahead=True)
    ahead = await claim(store, short, run="mine", slots=0, ahead=2)
    other = await claim(store, run="other")

    released = await store.write(release)

    after = [await get(store, job.id) for job in (*slots.claimed, *ahead.claimed)]
    assert released == 4
    assert {job.status for job in after} == {JobStatus.PENDING}
    assert {job.locked_by for job in after} == {None}
    assert [job.interruptions for job in after] == [counted, counted, 0, 0]
    assert (await get(store, other.claimed[0].id)).locked_by == "other"
    outcomes = [[a.outcome for a in await store.read(ListAttempts(job.id))] for job in after]
    assert outcomes == [["interrupted"], ["interrupted"], [], []]


async def test_a_run_that_holds_nothing_puts_nothing_back(store: Store) -> None:
    assert await store.write(ReleaseRun("nobody", by_budget=True)) == 0


async def test_a_job_that_was_asked_to_stop_is_cancelled_when_its_run_ends(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    job = await claim_one(store, new_job(), run="mine")
    await store.write(CancelJob(job.id, BOSS))

    await store.write(ReleaseRun("mine", by_budget=True))

    assert (await get(store, job.id)).status is JobStatus.CANCELLED

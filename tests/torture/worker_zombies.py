"""Worker zombies: a worker stopped beyond its locks wakes, and nothing it writes is accepted."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random

from tests.torture import ledger
from tests.torture.checker import AFTER_ANYTHING, every_job_completed, violations
from tests.torture.finding import Finding
from tests.torture.ledger import Event
from tests.torture.processes import Child, Place, wait_until

# The last two end in their sleep: they bring an outcome, a log line and progress when they wake.
_TYPES = ("zombie", "zombie_in_thread", "late", "late_in_thread")
_WORK = {
    "zombie": {"seconds": 600.0, "rescue_seconds": 0.15},
    "late": {"seconds": 4.0, "rescue_seconds": 0.15},
}
_PATIENCE_SECONDS = 60.0
_LOCK_LIFE_SECONDS = 60.0
_OF_EACH = 2
_JOBS = _OF_EACH * len(_TYPES)


def worker_zombies(seed: int, folder: Path, *, zombies: int, waits_for_locks: bool) -> Finding:
    """One after the other is stopped, robbed and woken, beside a worker that lives."""
    chance = Random(seed)
    wrong: list[str] = []
    told: dict[str, int] = {"lost": 0, "refused": 0, "late_outcomes": 0}
    with Place(folder) as place:
        buried = [_bury(place, chance) for _ in range(zombies)]
        rescuer = place.start_worker()
        if waits_for_locks:
            wait_until(place.database.locks_have_expired, seconds=_LOCK_LIFE_SECONDS + 10)
        else:
            _set_locks_back(place, [zombie for zombie, _ in buried])
        for number, (zombie, jobs) in enumerate(buried):
            # Every other one wakes while its jobs are being done, the rest when they are.
            is_early = number % 2 == 0
            if not _wait_for_rescue(place, jobs, is_early=is_early):
                wrong.append(f"jobs of {zombie.name} were not rescued: {place.database.counts()}")
            wrong += _haunt(place, zombie, jobs, is_early=is_early)
        wrong += [] if _is_done(place) else [f"not done: {place.database.counts()}"]
        wrong += _end([rescuer, *(zombie for zombie, _ in buried)])
        for zombie, jobs in buried:
            wrong += _lost_all(place, zombie, jobs, told)
        evidence = place.evidence()
        wrong += violations(evidence, (*AFTER_ANYTHING, every_job_completed))
        figures = {"zombies": zombies, "jobs": zombies * _JOBS, **told}
    return Finding("worker_zombies", seed, figures, wrong)


def _bury(place: Place, chance: Random) -> tuple[Child, tuple[str, ...]]:
    """Stop a worker that runs its jobs, before the short ones among them have ended."""
    zombie = place.start_worker("--concurrency", str(_JOBS), "--fast-slots", "0")
    runs = place.database.runs_of
    if not wait_until(lambda: bool(runs(zombie.name)), seconds=_PATIENCE_SECONDS):
        raise RuntimeError(f"{zombie.name} did not start: {zombie.complaint()}")
    jobs: list[str] = []
    for kind in _TYPES:
        jobs += place.enqueue(kind, [_WORK[kind.removesuffix("_in_thread")]] * _OF_EACH)
    if not wait_until(lambda: _has_started(place, zombie, jobs), seconds=_PATIENCE_SECONDS):
        raise RuntimeError(f"{zombie.name} did not start its jobs: {zombie.complaint()}")
    time.sleep(chance.uniform(0, 0.3))
    zombie.stop_outside_a_commit(place.database)
    if len(place.database.held_by(runs(zombie.name))) != _JOBS:
        raise RuntimeError(f"{zombie.name} was stopped too late to have all its jobs")
    return zombie, tuple(jobs)


def _has_started(place: Place, child: Child, jobs: Iterable[str]) -> bool:
    entries = ledger.read(place.ledger).of(Event.START)
    return {entry.job_id for entry in entries if entry.pid == child.pid} >= set(jobs)


def _set_locks_back(place: Place, zombies: list[Child]) -> None:
    # Those that end in their sleep must have slept long enough.
    time.sleep(_WORK["late"]["seconds"])
    runs = set().union(*(place.database.runs_of(zombie.name) for zombie in zombies))
    with place.database.gate():
        place.database.expire_locks(runs)


def _wait_for_rescue(place: Place, jobs: tuple[str, ...], *, is_early: bool) -> bool:
    def is_time() -> bool:
        rows = place.database.jobs()
        if is_early:
            return all(rows[job_id].fence > 1 for job_id in jobs)
        return all(rows[job_id].status == "completed" for job_id in jobs)

    return wait_until(is_time, seconds=_PATIENCE_SECONDS)


def _haunt(place: Place, zombie: Child, jobs: tuple[str, ...], *, is_early: bool) -> list[str]:
    """Wake it, and see that its handlers learn what has happened and that nothing changes."""
    database = place.database
    before = database.traces_of(jobs)
    if not zombie.is_alive():
        return [f"{zombie.name} did not live to be woken"]
    zombie.wake()
    # All of them have come to their end, one way or the other, when none runs in it any more.
    learned = wait_until(lambda: _unaware(place, zombie, jobs) == 0, seconds=_PATIENCE_SECONDS)
    wrong = [] if learned else [f"{_unaware(place, zombie, jobs)} handlers were not told"]
    if not is_early and database.traces_of(jobs) != before:
        wrong.append(f"{zombie.name} changed jobs that were done")
    return wrong


def _unaware(place: Place, zombie: Child, jobs: tuple[str, ...]) -> int:
    """How many handlers of the first holder have neither ended nor learned that they are lost."""
    said = ledger.read(place.ledger)
    aware = {
        entry.job_id
        for entry in said.entries
        if entry.pid == zombie.pid and entry.fence == 1 and entry.event is not Event.START
    }
    return len(set(jobs) - aware)


def _is_done(place: Place) -> bool:
    return wait_until(place.database.is_drained, seconds=_PATIENCE_SECONDS)


def _end(workers: list[Child]) -> list[str]:
    for child in workers:
        child.signal(signal.SIGTERM)
    return [
        f"{child.name} ended with {child.exit_code}: {child.complaint()[-300:]}"
        for child in workers
        if not child.wait(10) or child.exit_code != 0
    ]


def _lost_all(
    place: Place, zombie: Child, jobs: tuple[str, ...], told: dict[str, int]
) -> list[str]:
    """The report says what was lost, and the results are those of whoever came second."""
    rows = place.database.jobs()
    wrong = [
        f"job {job_id} has the output {rows[job_id].output} of {zombie.name}"
        for job_id in jobs
        if rows[job_id].output is None or rows[job_id].output["fence"] == 1
    ]
    if zombie.report().get("lost_locks") != len(jobs):
        wrong.append(f"{zombie.name} lost {len(jobs)} jobs and reports {zombie.report()}")
    said = [e for e in ledger.read(place.ledger).entries if (e.pid, e.fence) == (zombie.pid, 1)]
    told["late_outcomes"] += sum(entry.event is Event.END for entry in said)
    for event in (Event.LOST, Event.REFUSED):
        heard = {entry.job_id for entry in said if entry.event is event}
        told[event.value] += len(heard)
        # Those that end in their sleep may be quicker than the news.
        never = [job_id for job_id in jobs if rows[job_id].type.startswith("zombie")]
        missing = len(set(never) - heard)
        if missing:
            wrong.append(f"{missing} handlers of {zombie.name} did not say {event.value!r}")
    return wrong

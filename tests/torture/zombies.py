"""Zombies: a process stopped until its locks expired wakes, changes nothing, and learns it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.torture import ledger
from tests.torture.checker import AFTER_ANYTHING, every_job_completed, violations
from tests.torture.finding import Finding
from tests.torture.ledger import Event
from tests.torture.processes import Child, Limits, Place, wait_until

_RESCUE = Limits(budget=5, grace=1)
_TYPES = ("zombie", "zombie_in_thread")
_WORK = {"seconds": 300.0, "rescue_seconds": 0.15}
_PATIENCE_SECONDS = 30.0
_LOCK_LIFE_SECONDS = 60.0


@dataclass(frozen=True)
class _Zombie:
    child: Child
    jobs: tuple[str, ...]


def woken_in_time(
    seed: int, folder: Path, *, zombies: int, jobs: int, waits_for_locks: bool
) -> Finding:
    """Their runs have time left, so their handlers are told.

    A lock lives a minute. Unless that is waited for, it is set back while the zombies sleep.
    """
    limits = Limits(budget=180, grace=5, concurrency=jobs, fast_slots=0)
    with Place(folder) as place:
        chance = Random(seed)
        buried = [_bury(place, chance, limits, jobs) for _ in range(zombies)]
        if not waits_for_locks:
            _set_locks_back(place, buried)
        wrong = _haunt(place, chance, buried)
        told = {event.value: _told(place, buried, event) for event in (Event.LOST, Event.REFUSED)}
        wrong += [
            f"{count} of {zombies * jobs} handlers said {event!r}"
            for event, count in told.items()
            if count != zombies * jobs
        ]
    return Finding("zombies_in_time", seed, {"zombies": zombies, "jobs": jobs, **told}, wrong)


def woken_too_late(seed: int, folder: Path, *, zombies: int, jobs: int) -> Finding:
    """Their runs are over when they wake: all they may do is leave, and say what they lost."""
    limits = Limits(budget=3, grace=1, concurrency=jobs, fast_slots=0)
    with Place(folder) as place:
        chance = Random(seed)
        buried = [_bury(place, chance, limits, jobs) for _ in range(zombies)]
        wrong = _haunt(place, chance, buried)
    return Finding("zombies_too_late", seed, {"zombies": zombies, "jobs": jobs}, wrong)


def _bury(place: Place, chance: Random, limits: Limits, jobs: int) -> _Zombie:
    """Stop a process that holds these jobs and runs them all."""
    ids = [place.enqueue(_TYPES[n % len(_TYPES)], [_WORK])[0] for n in range(jobs)]
    child = place.start(limits)

    def holds_all() -> bool:
        return {entry.job_id for entry in ledger.read(place.ledger).entries} >= set(ids)

    if not wait_until(holds_all, seconds=_PATIENCE_SECONDS):
        raise RuntimeError(f"{child.name} did not start its jobs: {child.complaint()}")
    time.sleep(chance.uniform(0, 0.3))
    child.stop_outside_a_commit(place.database)
    return _Zombie(child, tuple(ids))


def _set_locks_back(place: Place, buried: list[_Zombie]) -> None:
    runs = set().union(*(place.database.runs_of(zombie.child.name) for zombie in buried))
    with place.database.gate():
        place.database.expire_locks(runs)


def _haunt(place: Place, chance: Random, buried: list[_Zombie]) -> list[str]:
    """Half of them wake while others are at work on their jobs, half when all is done."""
    database = place.database
    wait_until(database.locks_have_expired, seconds=_LOCK_LIFE_SECONDS + 10)
    early = buried[: len(buried) // 2]
    late = buried[len(early) :]
    rescuer = place.start(_RESCUE)
    wait_until(lambda: place.has_started_work(rescuer), seconds=_PATIENCE_SECONDS)
    time.sleep(chance.uniform(0, 0.1))
    wrong = _wake(early)
    wrong += [] if _rescue(place, late) else [f"not rescued: {database.counts()}"]
    before = database.traces()
    wrong += _wake(late) + _end(late)
    if database.traces() != before:
        wrong.append("zombies that woke after their jobs were done have changed something")
    wrong += violations(place.evidence(), (*AFTER_ANYTHING, every_job_completed))
    return wrong + _lost_locks(buried) + _won(place, buried)


def _wake(zombies: list[_Zombie]) -> list[str]:
    dead = [zombie.child.name for zombie in zombies if not zombie.child.is_alive()]
    for zombie in zombies:
        zombie.child.wake()
    return [f"{name} did not live to be woken" for name in dead]


def _rescue(place: Place, asleep: list[_Zombie]) -> bool:
    """Let others finish everything; whether nobody but the sleepers is left in the end."""
    sleepers = [zombie.child for zombie in asleep]

    def is_over() -> bool:
        awake = [child for child in place.living() if child not in sleepers]
        if not awake and place.database.has_work():
            place.start(_RESCUE)
        return not awake and place.database.is_drained()

    return wait_until(is_over, seconds=_PATIENCE_SECONDS)


def _end(zombies: list[_Zombie]) -> list[str]:
    return [
        f"{zombie.child.name} woke and did not leave"
        for zombie in zombies
        if not zombie.child.wait(_PATIENCE_SECONDS)
    ]


def _lost_locks(zombies: list[_Zombie]) -> list[str]:
    """The run of a zombie ends well, and its report says what it lost."""
    wrong = []
    for child, jobs in ((zombie.child, zombie.jobs) for zombie in zombies):
        lost = child.report().get("lost_locks")
        if child.exit_code != 0 or lost != len(jobs):
            wrong.append(f"{child.name} ended with {child.exit_code}, reports {child.report()}")
    return wrong


def _won(place: Place, zombies: list[_Zombie]) -> list[str]:
    """A zombie may claim its job anew like anybody else, but not complete it as it was."""
    jobs = place.database.jobs()
    return [
        f"job {job_id} was completed under the fence that {zombie.child.name} had lost"
        for zombie in zombies
        for job_id in zombie.jobs
        if jobs[job_id].output and jobs[job_id].output["fence"] == 1
    ]


def _told(place: Place, zombies: list[_Zombie], event: Event) -> int:
    """How many handlers that were lost with their first lock have said this."""
    said = ledger.read(place.ledger).of(event)
    own = {(zombie.child.pid, job_id) for zombie in zombies for job_id in zombie.jobs}
    return len(own & {(entry.pid, entry.job_id) for entry in said})

"""Kill storm: processes die by kill -9 at random moments, and every job is done all the same."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.torture import ledger
from tests.torture.checker import AFTER_A_STORM, Evidence, violations
from tests.torture.finding import Finding
from tests.torture.ledger import Event, Ledger
from tests.torture.processes import Child, Limits, Place, wait_until

_LIMITS = Limits(budget=4, grace=1)
_TYPES = ("work", "work", "work", "work_in_thread", "quick")
# So often the victim is at work, so often it may just as well be starting or leaving.
_AT_WORK = 0.8
_WAVE_SECONDS = 30.0
_DRAIN_SECONDS = 60.0


def kill_storm(seed: int, folder: Path, *, jobs: int, kills: int, processes: int = 4) -> Finding:
    """One kill for each wave of jobs: Python takes longer to start than a wave to be done."""
    chance = Random(seed)
    with Place(folder) as place:
        began = time.monotonic()
        for kill in range(kills):
            _enqueue(place, chance, jobs * (kill + 1) // kills - jobs * kill // kills)
            place.refill(processes, _LIMITS)
            place.kill(_victim(place, chance, processes))
        last_kill = time.monotonic()
        is_drained = place.drain(processes, _LIMITS, seconds=_DRAIN_SECONDS)
        recovered = time.monotonic() - last_kill
        evidence = place.evidence()
        wrong = violations(evidence, AFTER_A_STORM) + _complaints(place)
        if not is_drained:
            wrong.append(f"not done {_DRAIN_SECONDS:g} s after it: {place.database.counts()}")
        figures = _figures(place, evidence) | {
            "storm_seconds": round(last_kill - began, 1),
            "recovered_seconds": round(recovered, 1),
        }
    return Finding("kill_storm", seed, figures, wrong)


def _enqueue(place: Place, chance: Random, jobs: int) -> None:
    types = Counter(chance.choice(_TYPES) for _ in range(jobs))
    for job_type, count in sorted(types.items()):
        place.enqueue(job_type, [{"seconds": chance.uniform(0.005, 0.020)} for _ in range(count)])


def _victim(place: Place, chance: Random, processes: int) -> Child:
    """Any process at a random moment, or one that is at work in a random moment of its work."""
    if chance.random() >= _AT_WORK:
        time.sleep(chance.uniform(0, 0.5))
        place.refill(1, _LIMITS)
        return chance.choice(place.living())
    seen = len(ledger.read(place.ledger).entries)
    working: list[Child] = []

    def somebody_works() -> bool:
        nonlocal working
        place.refill(processes, _LIMITS)
        fresh = Ledger(ledger.read(place.ledger).entries[seen:]).workers()
        working = [child for child in place.living() if child.pid in fresh]
        return bool(working)

    wait_until(somebody_works, seconds=_WAVE_SECONDS)
    time.sleep(chance.uniform(0, 0.06))
    place.refill(1, _LIMITS)
    return chance.choice([child for child in working if child.is_alive()] or place.living())


def _complaints(place: Place) -> list[str]:
    """A process that was left alone ends well and has nothing to say on stderr."""
    return [
        f"{child.name} ended with {child.exit_code}: {child.complaint()[-300:]}"
        for child in place.children
        if child.pid not in place.killed and (child.exit_code != 0 or child.complaint())
    ]


def _figures(place: Place, evidence: Evidence) -> dict[str, object]:
    losses = Counter(job.losses for job in evidence.jobs.values())
    starts = Counter(entry.job_id for entry in evidence.ledger.of(Event.START))
    return {
        "jobs": len(evidence.jobs),
        "kills": len(place.killed),
        "kills_at_work": len(place.killed & evidence.ledger.workers()),
        "processes": len(place.children),
        "executions": sum(starts.values()),
        "executions_at_most": max(starts.values(), default=0),
        "jobs_by_losses": {str(count): losses[count] for count in sorted(losses)},
        "torn_lines": evidence.ledger.torn,
    }

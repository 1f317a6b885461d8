"""Kill storm: processes die by kill -9 at random moments, and every job is done all the same."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.torture.checker import AFTER_A_STORM, Evidence, violations
from tests.torture.finding import Finding
from tests.torture.ledger import Event
from tests.torture.processes import Child, Limits, Place

# Few slots, so that the work outlasts the storm although each job is short.
_LIMITS = Limits(budget=3, grace=1, concurrency=2, fast_slots=0)
_TYPES = ("work", "work", "work", "work_in_thread", "quick")
_DRAIN_SECONDS = 60.0
_KILLS_PER_WAVE = 2
_AT_WORK = 0.8


def kill_storm(
    seed: int, folder: Path, *, jobs: int, kills: int, processes: int = 4, pause: float = 0.25
) -> Finding:
    """Kill one of the processes after random pauses, wherever it is, and replace it."""
    chance = Random(seed)
    with Place(folder) as place:
        began = time.monotonic()
        for kill in range(kills):
            if kill % _KILLS_PER_WAVE == 0:
                _enqueue(place, chance, jobs * min(_KILLS_PER_WAVE, kills - kill) // kills)
            place.refill(processes, _LIMITS)
            time.sleep(chance.uniform(0, 2 * pause))
            place.refill(1, _LIMITS)
            place.kill(_victim(place, chance))
        last_kill = time.monotonic()
        left = place.database.counts()["pending"]
        is_drained = place.drain(processes, _LIMITS, seconds=_DRAIN_SECONDS)
        recovered = time.monotonic() - last_kill
        evidence = place.evidence()
        wrong = violations(evidence, AFTER_A_STORM) + _complaints(place)
        if not is_drained:
            wrong.append(
                f"not done {_DRAIN_SECONDS:g} s after the storm: {place.database.counts()}"
            )
        figures = _figures(place, evidence) | {
            "left_after_storm": left,
            "storm_seconds": round(last_kill - began, 1),
            "recovered_seconds": round(recovered, 1),
        }
    return Finding("kill_storm", seed, figures, wrong)


def _victim(place: Place, chance: Random) -> Child:
    """Mostly one that has been at work: Python takes longer to start than these jobs to end."""
    living = place.living()
    working = [child for child in living if place.has_started_work(child)]
    return chance.choice(working if working and chance.random() < _AT_WORK else living)


def _enqueue(place: Place, chance: Random, jobs: int) -> None:
    """Mixed, so that several types wait at any moment; in parts, because types take turns."""
    types = Counter(chance.choice(_TYPES) for _ in range(jobs))
    for job_type, count in sorted(types.items()):
        place.enqueue(job_type, [{"seconds": chance.uniform(0.005, 0.020)} for _ in range(count)])


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

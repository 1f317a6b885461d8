"""Kill storm: processes die by kill -9 at random moments, and every job is done all the same."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.torture import ledger
from tests.torture.checker import AFTER_A_STORM, Evidence, violations
from tests.torture.finding import Finding
from tests.torture.ledger import Event
from tests.torture.processes import Child, Limits, Place, wait_until

_LIMITS = Limits(budget=3, grace=1)
_TYPES = ("work", "work", "work", "work_in_thread", "quick")
# A whole life on a busy machine; a storm whose processes do no work any more has found a bug.
_WAVE_SECONDS = 20.0
# So often a victim is taken wherever it is, be it still starting or already leaving.
_BLIND = 0.2


def kill_storm(seed: int, folder: Path, *, jobs: int, kills: int, processes: int = 4) -> Finding:
    """Jobs come in waves, one for each kill, so that there is work for every victim."""
    chance = Random(seed)
    with Place(folder) as place:
        began = time.monotonic()
        idle_waves = sum(
            not _strike(place, chance, jobs * wave // kills, jobs * (wave + 1) // kills, processes)
            for wave in range(kills)
        )
        last_kill = time.monotonic()
        is_drained = place.drain(processes, _LIMITS, seconds=60)
        recovered = time.monotonic() - last_kill
        evidence = place.evidence()
        wrong = violations(evidence, AFTER_A_STORM)
        if not is_drained:
            wrong.append(f"not drained 60 s after the last kill: {place.database.counts()}")
        wrong += _complaints(place)
        figures = _figures(place, evidence) | {
            "idle_waves": idle_waves,
            "storm_seconds": round(last_kill - began, 1),
            "recovered_seconds": round(recovered, 1),
        }
    return Finding("kill_storm", seed, figures, wrong)


def _strike(place: Place, chance: Random, first: int, after_last: int, processes: int) -> bool:
    """One wave and one kill; whether the victim was chosen among those at work."""
    inputs = [{"seconds": chance.uniform(0.005, 0.020)} for _ in range(first, after_last)]
    for job_type in set(_TYPES):
        mine = [each for each in inputs if chance.choice(_TYPES) == job_type]
        inputs = [each for each in inputs if each not in mine]
        place.enqueue(job_type, mine)
    place.enqueue(_TYPES[0], inputs)
    place.refill(processes, _LIMITS)
    is_blind = chance.random() < _BLIND
    seen = len(ledger.read(place.ledger).entries)
    at_work: list[Child] = []

    def somebody_works() -> bool:
        nonlocal at_work
        place.refill(processes, _LIMITS)
        fresh = {entry.pid for entry in ledger.read(place.ledger).entries[seen:]}
        at_work = [child for child in place.living() if child.pid in fresh]
        return bool(at_work)

    is_working = is_blind or wait_until(somebody_works, seconds=_WAVE_SECONDS)
    time.sleep(chance.uniform(0, 0.5 if is_blind else 0.06))
    among = [child for child in at_work if child.is_alive()] or place.living()
    if not among:
        place.refill(1, _LIMITS)
        among = place.living()
    place.kill(chance.choice(among))
    return is_working


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
        "kills_that_hit": len(place.killed & evidence.ledger.pids()),
        "processes": len(place.children),
        "executions": sum(starts.values()),
        "executions_at_most": max(starts.values(), default=0),
        "jobs_by_losses": {str(count): losses[count] for count in sorted(losses)},
        "torn_lines": evidence.ledger.torn,
    }

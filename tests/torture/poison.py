"""Poison: a job that kills its process fails after three losses, and the others finish."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from random import Random

from tests.torture.checker import (
    AFTER_ANYTHING,
    every_job_completed,
    nobody_innocent_failed,
    poison_failed_after_three_losses,
    violations,
)
from tests.torture.finding import Finding
from tests.torture.processes import Limits, Place

# In the second one a job on its last chance is given a process of its own.
_LIMITS = {"alone": Limits(budget=1.5, grace=0.5), "isolated": Limits(budget=4, grace=0.5)}
_DRAIN_SECONDS = 90.0
_WAYS = ("exit", "segfault")


def poison(seed: int, folder: Path, *, how: str, jobs: int, processes: int = 2) -> Finding:
    """One job for each way to die, somewhere in a queue of innocent ones of the same type."""
    chance = Random(seed)
    limits = _LIMITS[how]
    with Place(folder) as place:
        fates: list[str | None] = [*_WAYS, *[None] * jobs]
        chance.shuffle(fates)
        inputs = [{"seconds": chance.uniform(0.005, 0.020), "dies_by": fate} for fate in fates]
        ids = place.enqueue("brittle", inputs)
        is_drained = place.drain(processes, limits, seconds=_DRAIN_SECONDS)
        bad = frozenset(job_id for job_id, fate in zip(ids, fates, strict=True) if fate)
        evidence = dataclasses.replace(place.evidence(), poison=bad)
        wrong = violations(
            evidence,
            (
                *AFTER_ANYTHING,
                every_job_completed,
                nobody_innocent_failed,
                poison_failed_after_three_losses,
            ),
        )
        wrong += [] if is_drained else [f"not drained: {place.database.counts()}"]
        deaths = Counter(child.exit_code for child in place.children if child.exit_code)
        losses = Counter(job.losses for job in evidence.jobs.values() if job.id not in bad)
        figures = {
            "innocent": jobs,
            "poison": len(bad),
            "deaths_by_exit_code": {str(code): deaths[code] for code in sorted(deaths)},
            "innocent_by_losses": {str(count): losses[count] for count in sorted(losses)},
            "processes": len(place.children),
        }
    return Finding(f"poison_{how}", seed, figures, wrong)

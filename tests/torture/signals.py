"""Signals: asked to stop at any moment, a run puts everything back and is gone in time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.torture.budgets import KINDS
from tests.torture.checker import AFTER_ANYTHING, Evidence, violations
from tests.torture.finding import Finding
from tests.torture.processes import Child, Limits, Place, wait_until

_LIMITS = Limits(budget=60, grace=1)
_AFTER_GRACE_SECONDS = 1.0
_HANG_SECONDS = 20.0
_START_SECONDS = 30.0


def signals(seed: int, folder: Path, *, count: int) -> Finding:
    """SIGTERM while jobs run: every other time a second one follows, and ends it at once."""
    chance = Random(seed)
    took: dict[str, list[float]] = {"once": [], "twice": []}
    wrong: list[str] = []
    with Place(folder) as place:
        for number in range(count):
            _enqueue(place, chance)
            child = place.start(_LIMITS)
            is_at_work = wait_until(_works(place, child), seconds=_START_SECONDS)
            time.sleep(chance.uniform(0, 0.8))
            name = "twice" if number % 2 else "once"
            seconds, most = _ask(child, chance, name)
            took[name].append(round(seconds, 2))
            wrong += [f"{child.name} ({name}): {text}" for text in _left_over(place, child)]
            if not is_at_work or seconds > most:
                wrong.append(f"{child.name} ({name}) ended {seconds:.2f} s after the signal")
        wrong += violations(place.evidence(), (*AFTER_ANYTHING, _no_signal_was_counted))
        figures = {"signals": count, "took": took, "jobs": len(place.accepted)}
    return Finding("signals", seed, figures, wrong)


def _no_signal_was_counted(evidence: Evidence) -> list[str]:
    """Only a budget counts an interruption: a deploy is not the job's fault."""
    return [
        f"{job.type} {job.id} has {job.interruptions} interruptions"
        for job in evidence.jobs.values()
        if job.interruptions
    ]


def _enqueue(place: Place, chance: Random) -> None:
    """Short work that is going on at any moment, and something that does not stop."""
    place.enqueue("work", [{"seconds": chance.uniform(0.005, 0.1)} for _ in range(100)])
    place.enqueue(chance.choice(KINDS), [{"seconds": 60.0}], priority=chance.choice((1, 20)))


def _works(place: Place, child: Child) -> Callable[[], bool]:
    return lambda: place.has_started_work(child)


def _ask(child: Child, chance: Random, how: str) -> tuple[float, float]:
    """Send it; answers how long it took from the last signal, and how long it may."""
    most = _LIMITS.grace + _AFTER_GRACE_SECONDS
    child.signal(signal.SIGTERM)
    asked = time.monotonic()
    if how == "twice":
        child.wait(chance.uniform(0, 0.4))
        child.signal(signal.SIGTERM)
        asked = time.monotonic()
        most = _AFTER_GRACE_SECONDS
    child.wait(_HANG_SECONDS)
    return (child.ended or time.monotonic()) - asked, most


def _left_over(place: Place, child: Child) -> list[str]:
    held = place.database.held_by(place.database.runs_of(child.name))
    wrong = [f"job {job_id} is still processing" for job_id in held]
    if child.exit_code != 0:
        wrong.append(f"exit code {child.exit_code}: {child.complaint()[-300:]}")
    if child.report().get("stopped") != "signal":
        wrong.append(f"reports {child.report()}")
    return wrong

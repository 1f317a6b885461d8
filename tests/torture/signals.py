"""Signals: asked to stop at any moment, a run puts everything back and is gone in time."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
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
    """SIGTERM while jobs run; every other time a second one follows, and ends it at once."""
    chance = Random(seed)
    took: dict[str, list[float]] = {"once": [], "twice": []}
    wrong: list[str] = []
    with ExitStack() as stack:
        places = {kind: stack.enter_context(_prepared(folder / kind, kind)) for kind in KINDS}
        for number in range(count):
            kind = KINDS[number % len(KINDS)]
            how = "twice" if number % 2 else "once"
            seconds, found = _interrupt(places[kind], chance, how)
            took[how].append(round(seconds, 2))
            wrong += [f"{kind}, {how}: {text}" for text in found]
        for kind, place in places.items():
            found = violations(place.evidence(), (*AFTER_ANYTHING, no_signal_was_counted))
            wrong += [f"{kind}: {text}" for text in found]
    return Finding("signals", seed, {"signals": count, "took": took}, wrong)


def _prepared(folder: Path, kind: str) -> Place:
    """One job that does not stop, first in the queue."""
    place = Place(folder)
    place.enqueue(kind, [{"seconds": 60.0}], priority=20)
    return place


def _interrupt(place: Place, chance: Random, how: str) -> tuple[float, list[str]]:
    """One run that is asked to stop: how long it took, and what is wrong with that."""
    place.enqueue("work", [{"seconds": chance.uniform(0.005, 0.1)} for _ in range(50)])
    child = place.start(_LIMITS)
    if not wait_until(lambda: place.has_started_work(child), seconds=_START_SECONDS):
        return 0.0, [f"{child.name} did not come to work: {child.complaint()}"]
    time.sleep(chance.uniform(0, 0.8))
    seconds, most = _ask(child, chance, how)
    wrong = _left_over(place, child)
    if seconds > most:
        wrong.append(f"{child.name} ended {seconds:.2f} s after the signal")
    return seconds, wrong


def no_signal_was_counted(evidence: Evidence) -> list[str]:
    """Only a budget counts an interruption: a deploy is not the job's fault."""
    return [
        f"{job.type} {job.id} has {job.interruptions} interruptions"
        for job in evidence.jobs.values()
        if job.interruptions
    ]


def _ask(child: Child, chance: Random, how: str) -> tuple[float, float]:
    """Send it; answers how long it took from the last signal, and how long it may."""
    most = _LIMITS.grace + _AFTER_GRACE_SECONDS
    child.signal(signal.SIGTERM)
    asked = time.monotonic()
    if how == "twice":
        # Two that come at the same instant are one: the kernel keeps no count.
        child.wait(chance.uniform(0.05, 0.4))
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

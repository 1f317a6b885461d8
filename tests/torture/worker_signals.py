"""Worker signals: asked to stop at any moment of its life, a worker leaves nothing behind."""

from __future__ import annotations

import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.torture import ledger
from tests.torture.checker import AFTER_ANYTHING, Evidence, violations
from tests.torture.finding import Finding
from tests.torture.ledger import Event
from tests.torture.processes import Child, Place, wait_until
from tests.torture.signals import no_signal_was_counted

_GRACE_SECONDS = 1.0
_MOST_SECONDS = _GRACE_SECONDS + 1.0
_HANG_SECONDS = 20.0
_START_SECONDS = 30.0
_DRAIN_SECONDS = 120.0
_SHORT = ("work", "work_in_thread", "quick")
# They outlive every grace: cancelled, asked in vain, or left behind in their thread.
_LONG = ("sleeps", "ignores_cancellation", "blocks_thread")
_NOBODYS = "brittle"
# With short jobs alone, everything that runs can end within the grace.
_ONLY_SHORT = [text for kind in _SHORT for text in ("--types", kind)]
_MOMENTS = ("busy", "busy", "busy", "short", "short", "starting", "idle", "supervised")


@dataclass
class _Course:
    """What has happened so far."""

    took: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    codes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def worker_signals(seed: int, folder: Path, *, count: int) -> Finding:
    """SIGTERM while jobs run, while there are none, and while the worker is still starting."""
    chance = Random(seed)
    course = _Course()
    with Place(folder) as place:
        for kind in _LONG:
            place.enqueue(kind, [{"seconds": 60.0}], priority=20)
        moments = list(_MOMENTS)
        chance.shuffle(moments)
        for number in range(count):
            _interrupt(place, chance, moments[number % len(moments)], course)
        is_drained = _drain(place)
        evidence = place.evidence()
        wrong = course.wrong + violations(
            evidence, (*AFTER_ANYTHING, no_signal_was_counted, _short_ones_completed)
        )
        wrong += unexplained(evidence, place.database.attempts("interrupted"))
        wrong += [] if is_drained else [f"not drained: {place.database.counts()}"]
        figures = {
            "signals": count,
            "jobs": len(evidence.jobs),
            "executions": len(evidence.ledger.of(Event.START)),
            "interrupted": sum(place.database.attempts("interrupted").values()),
            "exit_codes": dict(course.codes),
            "seconds": {moment: _spread(took) for moment, took in sorted(course.took.items())},
        }
    return Finding("worker_signals", seed, figures, wrong)


def _interrupt(place: Place, chance: Random, moment: str, course: _Course) -> None:
    """One life of a worker, from its start to a signal and its end."""
    options: list[str] = []
    is_ready: Callable[[Child], bool] = place.has_started_work
    delay = chance.uniform(0, 0.8)
    match moment:
        case "idle":
            options, is_ready = ["--types", _NOBODYS], lambda child: _has_run(place, child)
        case "short":
            options = _ONLY_SHORT
        case "starting":
            is_ready, delay = lambda _: True, chance.uniform(0, 0.7)
        case "supervised":
            options, is_ready = ["--processes", "2"], lambda child: _children_work(place, child)
        case _:
            pass
    if moment != "idle":
        _enqueue(place, chance)
    child = place.start_worker(*options, grace=_GRACE_SECONDS)
    if not wait_until(lambda: is_ready(child), seconds=_START_SECONDS):
        course.wrong.append(f"{child.name} ({moment}) did not come to it: {child.complaint()}")
    time.sleep(delay)
    child.signal(signal.SIGTERM)
    asked = time.monotonic()
    child.wait(_HANG_SECONDS)
    seconds = (child.ended or time.monotonic()) - asked
    course.took[moment].append(round(seconds, 2))
    course.codes[str(child.exit_code)] += 1
    course.wrong += [f"{moment}, {text}" for text in _left_over(place, child, moment)]
    if seconds > _MOST_SECONDS:
        course.wrong.append(f"{child.name} ({moment}) ended {seconds:.2f} s after the signal")


def _enqueue(place: Place, chance: Random) -> None:
    for kind in _SHORT:
        seconds = [chance.uniform(0.005, 0.15) for _ in range(12)]
        place.enqueue(kind, [{"seconds": each} for each in seconds])


def _has_run(place: Place, child: Child) -> bool:
    return bool(place.database.runs_of(child.name))


def _children_work(place: Place, supervisor: Child) -> bool:
    return supervisor.pid in ledger.read(place.ledger).workers()


def _left_over(place: Place, child: Child, moment: str) -> list[str]:
    runs = place.database.runs_of(child.name)
    wrong = [f"job {job_id} is still processing" for job_id in place.database.held_by(runs)]
    unborn = moment == "starting" and not runs
    # Before Python is up, a signal ends a process as the kernel does, and nothing has begun.
    if child.exit_code != 0 and not (unborn and child.exit_code == -signal.SIGTERM):
        wrong.append(f"{child.name}, exit code {child.exit_code}: {child.complaint()[-300:]}")
    if child.complaint():
        wrong.append(f"{child.name} complains: {child.complaint()[-300:]}")
    if moment in ("busy", "short", "idle") and child.report().get("stopped") != "signal":
        wrong.append(f"{child.name} reports {child.report()}")
    return wrong


def _drain(place: Place) -> bool:
    """A last worker does what is left of the short ones, and is asked to stop, too."""
    worker = place.start_worker(*_ONLY_SHORT)

    def is_done() -> bool:
        jobs = place.database.jobs().values()
        return all(job.status == "completed" for job in jobs if job.type in _SHORT)

    is_drained = wait_until(is_done, seconds=_DRAIN_SECONDS)
    worker.signal(signal.SIGTERM)
    return worker.wait(_HANG_SECONDS) and is_drained


def _short_ones_completed(evidence: Evidence) -> list[str]:
    return [
        f"{job.type} {job.id} is {job.status}"
        for job in evidence.jobs.values()
        if job.type in _SHORT and job.status != "completed"
    ]


def unexplained(evidence: Evidence, interrupted: Counter[str]) -> list[str]:
    """Every execution was either the one that completed the job, or interrupted and put back."""
    wrong = []
    for job in evidence.jobs.values():
        starts = len(evidence.ledger.of(Event.START, job.id))
        explained = interrupted[job.id] + (job.status == "completed")
        if starts > explained or job.losses:
            wrong.append(
                f"{job.type} {job.id} ran {starts} times, {explained} of them explained,"
                f" {job.losses} losses"
            )
    return wrong


def _spread(took: list[float]) -> dict[str, float]:
    return {"times": len(took), "least": min(took), "most": max(took)}

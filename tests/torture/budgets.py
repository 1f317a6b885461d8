"""Budgets: a run ends in time whatever its handlers do, and puts back what it interrupts."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.torture.checker import AFTER_ANYTHING, violations
from tests.torture.finding import Finding
from tests.torture.processes import Limits, Place, wait_until

KINDS = ("sleeps", "spins", "ignores_cancellation", "spins_in_thread", "blocks_thread")
_LIMITS = Limits(budget=2, grace=1)
# Of the whole command: Python's start, the run, and its end.
_MOST_SECONDS = _LIMITS.budget + _LIMITS.grace + 1
_HANG_SECONDS = 30.0
_FOR_EVER = {"seconds": 60.0}


def budgets(seed: int, folder: Path, *, rounds: int, at_once: int, jobs: int = 6) -> Finding:
    """Every kind alone on its own database, and all kinds together on one."""
    cases = [(kind,) for kind in KINDS] + [KINDS]
    took: dict[str, float] = {}
    wrong: list[str] = []
    for first in range(0, len(cases), at_once):
        with ExitStack() as stack:
            places = {
                "+".join(kinds): stack.enter_context(_prepared(folder, kinds, jobs))
                for kinds in cases[first : first + at_once]
            }
            for number in range(1, rounds + 1):
                _run_all(places, took, wrong)
                for name, place in places.items():
                    wrong += [f"{name}: {text}" for text in _put_back(place, number)]
    figures = {"most_seconds": _MOST_SECONDS, "runs": rounds * len(cases), "took": took}
    return Finding("budgets", seed, figures, wrong)


def _prepared(folder: Path, kinds: tuple[str, ...], jobs: int) -> Place:
    place = Place(folder / "-".join(kinds))
    for kind in kinds:
        place.enqueue(kind, [_FOR_EVER] * (jobs // len(kinds)))
    return place


def _run_all(places: dict[str, Place], took: dict[str, float], wrong: list[str]) -> None:
    """One run in each place, all at the same time."""
    runs = {name: place.start(_LIMITS) for name, place in places.items()}
    wait_until(
        lambda: not any([run.is_alive() for run in runs.values()]),  # noqa: C419 - looks at each
        seconds=_HANG_SECONDS,
    )
    for name, run in runs.items():
        took[name] = max(took.get(name, 0.0), round(run.seconds, 2))
        if run.seconds > _MOST_SECONDS or run.exit_code != 0:
            wrong.append(f"{name} ended after {run.seconds:.2f} s with {run.exit_code}")
        report = run.report()
        if not report.get("interrupted") or report["interrupted"] != report["claimed"]:
            wrong.append(f"{name} reports {report}: {run.complaint()[-300:]}")


def _put_back(place: Place, rounds: int) -> list[str]:
    """Everything is pending as it was, with one interruption and one line of history for each
    run that had it."""
    wrong = violations(place.evidence(), AFTER_ANYTHING)
    history = place.database.attempts("interrupted")
    for job in place.database.jobs().values():
        was = (job.status, job.attempt, job.losses, job.error_class)
        if was != ("pending", 1, 0, None):
            wrong.append(f"{job.type} {job.id} is {was}")
        if job.interruptions != history[job.id] or job.interruptions > rounds:
            wrong.append(f"{job.type} {job.id}: {job.interruptions} of {history[job.id]} counted")
    if not history:
        wrong.append("nothing was interrupted")
    return wrong

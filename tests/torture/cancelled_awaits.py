"""Cancelled awaits: whatever call is cancelled wherever, it happened whole or not, and is over."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.torture.checker import AFTER_ANYTHING, violations
from tests.torture.finding import Finding
from tests.torture.processes import Place, wait_until
from tests.torture.worker_signals import unexplained

_SECONDS_EACH = 1.0
_START_SECONDS = 30.0
_END_SECONDS = 10.0


def cancelled_awaits(seed: int, folder: Path, *, count: int) -> Finding:
    """One process makes calls and cancels them, another one does some of its jobs."""
    with Place(folder) as place:
        worker = place.start_worker("--types", "work", "--types", "quick")
        wait_until(lambda: bool(place.database.runs_of(worker.name)), seconds=_START_SECONDS)
        program = ["tests.torture.cancelling", place.database.url]
        child = place.start_python([*program, str(seed), str(count)])
        has_ended = child.wait(_START_SECONDS + _SECONDS_EACH * count)
        deeds = child.report()
        wrong = [f"cancelled {text}" for text in deeds.pop("wrong", ())]
        if not has_ended or child.exit_code != 0 or child.complaint():
            wrong.append(f"{child.name} ended with {child.exit_code}: {child.complaint()[-800:]}")
        worker.signal(signal.SIGTERM)
        if not worker.wait(_END_SECONDS) or worker.exit_code != 0 or worker.complaint():
            wrong.append(f"{worker.name} ended with {worker.exit_code}: {worker.complaint()}")
        evidence = place.evidence()
        wrong += violations(evidence, AFTER_ANYTHING)
        wrong += unexplained(evidence, place.database.attempts("interrupted"))
        figures = {"calls": count, "jobs": len(evidence.jobs), **deeds}
    return Finding("cancelled_awaits", seed, figures, wrong)

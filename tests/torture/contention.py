"""Contention: many processes enqueue and process on one file; nobody is refused, nobody starves."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.torture.checker import AFTER_A_STORM, Evidence, violations
from tests.torture.finding import Finding
from tests.torture.processes import Child, Limits, Place, wait_until

_DRAIN = Limits(budget=5, grace=1)
_START_SECONDS = 60.0
# A process that is not scheduled for a while is slow, not wrong; one that hangs is.
_LATE_SECONDS = 30.0
_LEAST_SHARE = 0.3


def contention(seed: int, folder: Path, *, processes: int, seconds: float) -> Finding:
    """Start all, let them go at one moment, and compare what each of them got done."""
    with Place(folder) as place:
        clients = [_start(place, seconds) for _ in range(processes)]
        wait_until(lambda: all(_is_ready(client) for client in clients), seconds=_START_SECONDS)
        for client in clients:
            client.go()
        began = time.monotonic()
        has_ended = place.wait_for_all(seconds=seconds + _LATE_SECONDS)
        took = time.monotonic() - began
        deeds = [client.report() for client in clients]
        place.accepted += [job_id for each in deeds for job_id in each.get("accepted", ())]
        is_drained = place.drain(2, _DRAIN, seconds=60)
        evidence = place.evidence()
        wrong = violations(evidence, AFTER_A_STORM) + _refusals(clients) + _starved(deeds)
        wrong += [] if has_ended else ["not every process came to its end"]
        wrong += [] if is_drained else [f"not drained: {place.database.counts()}"]
        figures = _figures(deeds, evidence) | {"seconds": round(took, 1)}
    return Finding("contention", seed, figures, wrong)


def _start(place: Place, seconds: float) -> Child:
    return place.start_python(["tests.torture.client", place.database.url, f"{seconds:g}"])


def _is_ready(client: Child) -> bool:
    return not client.is_alive() or "ready" in client.said()


def _refusals(clients: list[Child]) -> list[str]:
    wrong = []
    for client in clients:
        errors = client.report().get("errors", {})
        wrong += [f"{client.name} saw {times} x {text}" for text, times in errors.items()]
        if client.exit_code != 0:
            wrong.append(
                f"{client.name} ended with {client.exit_code}: {client.complaint()[-300:]}"
            )
    return wrong


def _starved(deeds: list[dict[str, Any]]) -> list[str]:
    shares = _shares(deeds)
    if min(shares) >= _LEAST_SHARE:
        return []
    return [f"the slowest process got {min(shares):.0%} of the median"]


def _shares(deeds: list[dict[str, Any]]) -> list[float]:
    """What each process enqueued and completed, as a share of the median."""
    done = [len(each.get("accepted", ())) + each.get("completed", 0) for each in deeds]
    return [each / max(median(done), 1) for each in done]


def _figures(deeds: list[dict[str, Any]], evidence: Evidence) -> dict[str, object]:
    shares = _shares(deeds)
    return {
        "processes": len(deeds),
        "jobs": len(evidence.jobs),
        "runs": sum(each.get("runs", 0) for each in deeds),
        "slowest_share": round(min(shares), 2),
        "fastest_share": round(max(shares), 2),
        "slowest_enqueue_ms": max(each.get("slowest_ms", 0) for each in deeds),
    }

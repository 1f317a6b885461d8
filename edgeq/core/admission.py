"""Admission: whether work of a type still fits the time that a run has left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeq.core.durations import Histogram
from edgeq.core.runs import RunLimits

_ENOUGH_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Admitted:
    """It fits; as many as there are slots for."""


@dataclass(frozen=True, slots=True)
class AdmittedLong:
    """It fits no run whole, so it starts early in this one, at most `at_most` of its kind."""

    at_most: int


@dataclass(frozen=True, slots=True)
class Deferred:
    """It would not finish in this run; a later run starts it."""


Verdict = Admitted | AdmittedLong | Deferred


def seconds_needed(durations: Histogram, limits: RunLimits) -> float:
    """The 95th percentile, or half the budget while too little is known."""
    if durations.samples < _ENOUGH_SAMPLES:
        return limits.budget / 2
    p95 = durations.quantile(0.95)
    return limits.budget / 2 if p95 is None else p95 / 1000


def admit(
    durations: Histogram,
    limits: RunLimits,
    *,
    elapsed: float,
    is_first_claim: bool,
    long_running: int,
    open_slots: int,
) -> Verdict:
    """Decide for one type; `long_running` counts what was admitted as long and still runs."""
    needed = seconds_needed(durations, limits)
    is_unknown = durations.samples < _ENOUGH_SAMPLES
    if needed <= limits.seconds - elapsed or (is_unknown and is_first_claim):
        return Admitted()
    if needed <= limits.seconds and not is_first_claim:
        return Deferred()
    # The first claim of a run counts as early however long the process took to get there:
    # otherwise a small budget would never start such work at all.
    early = is_first_claim or elapsed <= limits.budget / 10
    room = max(1, open_slots // 2) - long_running
    return AdmittedLong(room) if early and room > 0 else Deferred()


def share(room: int, names: Sequence[str], turn: int) -> dict[str, int]:
    """Divide one room among several, as evenly as it goes; who comes first changes by turn."""
    if not names:
        return {}
    each, rest = divmod(room, len(names))
    return {name: each + ((place - turn) % len(names) < rest) for place, name in enumerate(names)}

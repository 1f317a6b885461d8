"""Slots over time: how long some were empty although a job was due that may have had them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

FAST = "fast"


@dataclass(frozen=True, slots=True)
class Stay:
    """A job of a lane that waited, or ran, from one moment to another."""

    lane: str
    since: float
    until: float
    is_running: bool = False


def idle_seconds(
    stays: Iterable[Stay], *, since: float, until: float, concurrency: int, fast_slots: int
) -> float:
    """Slot-seconds in which a slot was empty and a job waited that could have taken it."""
    moments: list[tuple[float, int, Stay]] = []
    for stay in stays:
        begins, ends = max(stay.since, since), min(stay.until, until)
        if begins < ends:
            moments += [(begins, 1, stay), (ends, -1, stay)]
    running: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    idle = 0.0
    last = since
    for moment, change, stay in sorted(moments, key=lambda each: each[0]):
        idle += (moment - last) * _idle_slots(running, waiting, concurrency, fast_slots)
        last = moment
        (running if stay.is_running else waiting)[stay.lane] += change
    return idle


def _idle_slots(
    running: Counter[str], waiting: Counter[str], concurrency: int, fast_slots: int
) -> int:
    """Fast jobs take their own slots first, and then those that are open to all."""
    fast = running[FAST]
    others = running.total() - fast
    free_fast = max(0, fast_slots - fast)
    free_open = max(0, concurrency - fast_slots - others - max(0, fast - fast_slots))
    in_fast = min(free_fast, waiting[FAST])
    return in_fast + min(free_open, waiting.total() - in_fast)

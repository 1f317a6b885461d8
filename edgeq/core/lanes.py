"""Slots and lanes: what a run may claim next, so that slow work cannot block quick work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgeq.core.durations import Histogram

AHEAD_AT_MOST = 100
AHEAD_MEDIAN_MS = 5
_ENOUGH_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class ClaimStep:
    """Claim up to `limit` jobs: of one lane, or of any when `lane` is None."""

    lane: str | None
    limit: int


def claim_steps(
    concurrency: int, reserved: Mapping[str, int], running: Mapping[str, int]
) -> tuple[ClaimStep, ...]:
    """What is free: each lane's reserved slots first, then those that take any lane.

    A job of a lane sits in its lane's reserved slots while there are some, so nothing has to
    remember which slot a job was given.
    """
    free: dict[str | None, int] = {
        lane: slots - running.get(lane, 0) for lane, slots in reserved.items()
    }
    in_open_slots = sum(max(0, n - reserved.get(lane, 0)) for lane, n in running.items())
    free[None] = open_slots(concurrency, reserved) - in_open_slots
    return tuple(ClaimStep(lane, slots) for lane, slots in free.items() if slots > 0)


def has_room(
    lane: str,
    concurrency: int,
    reserved: Mapping[str, int],
    running: Mapping[str, int],
    *,
    sparing: int = 0,
) -> bool:
    """Whether one more job of a lane may start, with `sparing` of the open slots left free."""
    if running.get(lane, 0) < reserved.get(lane, 0):
        return True
    # Asked for every job that starts, so the sum is written out.
    free = open_slots(concurrency, reserved)
    for other, count in running.items():
        free -= max(0, count - reserved.get(other, 0))
    return free > sparing


def open_slots(concurrency: int, reserved: Mapping[str, int]) -> int:
    """How many slots take any lane."""
    return concurrency - sum(reserved.values())


def claims_ahead(durations: Histogram, *, is_limited: bool) -> bool:
    """Whether jobs of a type are so short that they are worth claiming before their turn.

    A limited type is not: what waits in one process would hold a place that another could use.
    """
    if is_limited or durations.samples < _ENOUGH_SAMPLES:
        return False
    median = durations.quantile(0.5)
    return median is not None and median <= AHEAD_MEDIAN_MS

"""A run of `process_jobs`: what limits it, and what it reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from edgeq.core.job_types import FAST_LANE
from edgeq.errors import BadSetting


class Stop(StrEnum):
    """Why a run ended."""

    EMPTY = "empty"
    BUDGET = "budget"
    MAX_JOBS = "max_jobs"
    DISABLED = "disabled"
    SIGNAL = "signal"
    BUSY = "busy"


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long, how much and what a run may do; seconds.

    A resident run, the one of a worker, has no budget: only a signal ends it.
    """

    budget: float = 25.0
    grace: float = 5.0
    concurrency: int = 8
    fast_slots: int = 3
    lane_slots: Mapping[str, int] = {}
    types: frozenset[str] | None = None
    lanes: frozenset[str] | None = None
    max_jobs: int | None = None
    is_resident: bool = False

    def __post_init__(self) -> None:
        if not self.is_resident:
            _at_least("budget", self.budget, 0, whole=False)
        _at_least("grace", self.grace, 0, whole=False)
        _at_least("concurrency", self.concurrency, 1)
        _at_least("fast_slots", self.fast_slots, 0)
        for lane, slots in self.lane_slots.items():
            _at_least(f"lane_slots.{lane}", slots, 0)
        if self.max_jobs is not None:
            _at_least("max_jobs", self.max_jobs, 1)

    @property
    def seconds(self) -> float:
        """From the start of the run until what still runs is interrupted."""
        return self.budget + self.grace

    def reserved_slots(self) -> dict[str, int]:
        """Slots that only one lane may take; at least one slot stays open to every lane."""
        wanted = {FAST_LANE: self.fast_slots, **self.lane_slots}
        left = self.concurrency - 1
        reserved = {}
        for lane, slots in wanted.items():
            reserved[lane] = min(slots, left)
            left -= reserved[lane]
        return {lane: slots for lane, slots in reserved.items() if slots}


def _at_least(name: str, value: float, lowest: float, *, whole: bool = True) -> None:
    kinds = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not lowest <= value < math.inf:
        kind = "a whole number" if whole else "a number"
        raise BadSetting(f"{name} must be {kind} of at least {lowest}, got {value!r}.")


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did; the eight counts from completed to lost_locks add up to claimed."""

    run_id: str
    claimed: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    review: int = 0
    snoozed: int = 0
    interrupted: int = 0
    cancelled: int = 0
    lost_locks: int = 0
    reclaimed: int = 0
    fired: int = 0
    deferred: int = 0
    unhandled_types: tuple[str, ...] = ()
    remaining: int = 0
    capped: bool = False
    next_due_at: int | None = None
    stopped: Stop = Stop.EMPTY
    duration_ms: int = 0

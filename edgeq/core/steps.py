"""Steps: the parts of a job whose results are kept, and whether one still fits a run."""

from __future__ import annotations

import math
from enum import StrEnum

import msgspec

from edgeq.core.durations import Histogram
from edgeq.errors import StepRefused

# In the table of durations, beside the names of steps: what a claim starts before its first
# possible stop, and what a job took over all its runs.
WHOLE = ""
FIRST_PART = "*"
TOTAL = "="
# The name under which durable sleeps are kept, numbered as they come.
SLEEP = "sleep"

_LONGEST_NAME = 100
_ENOUGH_SAMPLES = 5


class StepKind(StrEnum):
    STEP = "step"
    SLEEP = "sleep"
    TRANSACTION = "transaction"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A finished step; `result` is JSON, of a sleep the time when it is over."""

    name: str
    key: str
    kind: StepKind
    result: str | None
    attempt: int
    run_id: str | None
    duration_ms: int
    created_at: int


StepId = tuple[str, str]


def step_id(job_id: str, name: object, key: object = None) -> StepId:
    """The name and key under which a result is kept; a key is a text or a whole number."""
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise StepRefused(
            job_id, f"{name!r}", f"a name has 1 to {_LONGEST_NAME} printable characters"
        )
    if name in (FIRST_PART, TOTAL, SLEEP):
        raise StepRefused(job_id, name, "this name is edgeq's own")
    if key is None:
        return name, ""
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise StepRefused(job_id, name, f"a key is a text or a whole number, got {key!r}")
    text = str(key)
    if not 0 < len(text) <= _LONGEST_NAME or not text.isprintable():
        raise StepRefused(job_id, name, f"a key has 1 to {_LONGEST_NAME} printable characters")
    return name, text


def step_seconds(durations: Histogram) -> float | None:
    """What a step takes, 95 times in a hundred; None while too little is known."""
    p95 = durations.quantile(0.95) if durations.samples >= _ENOUGH_SAMPLES else None
    return None if p95 is None else p95 / 1000


def step_fits(needed: float | None, *, budget: float, seconds_left: float) -> bool:
    """Whether a step would end in time; while too little is known it asks for half the budget.

    The first step of an attempt is not asked: without it the job would never get on.
    """
    return (budget / 2 if needed is None else needed) <= seconds_left or math.isinf(budget)


def runs_needed(total: Histogram, *, done_ms: int, budget: float) -> int | None:
    """In about how many more runs a job ends that has worked for so long; None: nobody knows."""
    typical = total.quantile(0.5) if total.samples else None
    if typical is None or budget <= 0:
        return None
    left = max(0.0, typical - done_ms)
    return max(1, -(-round(left) // max(1, round(budget * 1000))))

"""The state machine: which moves are legal, and what a job becomes after an outcome."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, assert_never

from edgeq.core.backoff import RETRYABLE, Backoff, ErrorClass, retry_delay_ms
from edgeq.core.jobs import JobStatus
from edgeq.core.outcomes import (
    Completed,
    Failed,
    Interrupted,
    NeedsReview,
    NotStarted,
    Outcome,
    Snoozed,
    Stopped,
)

S = JobStatus
LEGAL: dict[JobStatus, frozenset[JobStatus]] = {
    S.PENDING: frozenset({S.PROCESSING, S.CANCELLED, S.FAILED}),
    S.BLOCKED: frozenset({S.PENDING, S.CANCELLED, S.FAILED}),
    S.PROCESSING: frozenset({S.COMPLETED, S.FAILED, S.PENDING, S.REVIEW_NEEDED, S.CANCELLED}),
    S.REVIEW_NEEDED: frozenset({S.COMPLETED, S.FAILED, S.PENDING, S.CANCELLED}),
    S.COMPLETED: frozenset(),
    S.FAILED: frozenset({S.PENDING}),
    S.CANCELLED: frozenset({S.PENDING}),
}
LOSSES_UNTIL_FAILED = 3
ISOLATED_LOSSES_UNTIL_FAILED = 10


@dataclass(frozen=True, slots=True)
class Standing:
    """What has to be known of a running job to say what an outcome makes of it."""

    retry_count: int
    max_retries: int
    interruptions: int
    max_interruptions: int
    losses: int
    scheduled_for: int
    cancel_requested: bool
    backoff: Backoff


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a running job becomes: every field that an outcome decides, and nothing else."""

    status: JobStatus
    scheduled_for: int
    retry_count: int
    interruptions: int
    losses: int
    output: str | None = None
    error_class: ErrorClass | None = None
    error_message: str | None = None
    review_reason: str | None = None
    # What the attempts table says of it; None: it simply succeeded or never really began.
    attempt_outcome: str | None = None


def settle(outcome: Outcome, standing: Standing, *, now: int, unit: float) -> Settlement:
    """The one rule for what comes after an attempt; `unit` in [0, 1) spreads retries.

    An attempt that ended in good order and runs again clears `losses`: the job does not kill its
    process, so it need not run alone any longer.
    """
    settlement = _settle(outcome, standing, now=now, unit=unit)
    would_go_on = settlement.status is S.PENDING or isinstance(outcome, Interrupted)
    if would_go_on and standing.cancel_requested:
        # Cancelling a running job is a request: whatever would run it again ends it instead.
        return _moved(standing, S.CANCELLED, attempt_outcome="cancelled")
    return settlement


def _settle(outcome: Outcome, standing: Standing, *, now: int, unit: float) -> Settlement:
    match outcome:
        case Completed(output):
            return _moved(standing, S.COMPLETED, output=output)
        case NeedsReview(reason, output):
            return _moved(
                standing,
                S.REVIEW_NEEDED,
                output=output,
                review_reason=reason,
                attempt_outcome="review_needed",
            )
        case Stopped():
            return _moved(standing, S.CANCELLED, attempt_outcome="cancelled")
        case Failed():
            return _after_failure(outcome, standing, now=now, unit=unit)
        case Snoozed(delay_ms):
            return _moved(standing, S.PENDING, scheduled_for=now + delay_ms, losses=0)
        case Interrupted(by_budget):
            return _after_interruption(standing, by_budget=by_budget)
        case NotStarted():
            return _moved(standing, S.PENDING)
        case _:
            assert_never(outcome)


def lose(standing: Standing, *, was_isolated: bool = False) -> Settlement:
    """What becomes of a job whose lock expired because its process died.

    An isolated job that brings down its own process is reported by the parent. When parent and
    child are both gone, somebody else most likely ended them, and much more is needed to blame
    the job.
    """
    losses = standing.losses + 1
    if standing.cancel_requested:
        return _moved(standing, S.CANCELLED, losses=losses, attempt_outcome="lost")
    limit = ISOLATED_LOSSES_UNTIL_FAILED if was_isolated else LOSSES_UNTIL_FAILED
    if losses >= limit:
        return _moved(
            standing,
            S.FAILED,
            losses=losses,
            error_class=ErrorClass.WORKER_LOST,
            error_message=f"the process that ran it died {losses} times",
            attempt_outcome="lost",
        )
    return _moved(standing, S.PENDING, losses=losses, attempt_outcome="lost")


def _may_retry(error_class: ErrorClass, standing: Standing) -> bool:
    return error_class in RETRYABLE and standing.retry_count < standing.max_retries


def _after_failure(failure: Failed, standing: Standing, *, now: int, unit: float) -> Settlement:
    if not _may_retry(failure.error_class, standing):
        return _moved(
            standing,
            S.FAILED,
            error_class=failure.error_class,
            error_message=failure.message,
            attempt_outcome="failed",
        )
    failures = standing.retry_count + 1
    delay = failure.after_ms
    if delay is None:
        delay = retry_delay_ms(failure.error_class, standing.backoff, failures, unit)
    return _moved(
        standing,
        S.PENDING,
        scheduled_for=now + delay,
        retry_count=failures,
        losses=0,
        error_class=failure.error_class,
        error_message=failure.message,
        attempt_outcome="retried",
    )


def _after_interruption(standing: Standing, *, by_budget: bool) -> Settlement:
    interruptions = standing.interruptions + by_budget
    if interruptions > standing.max_interruptions:
        return _moved(
            standing,
            S.FAILED,
            interruptions=interruptions,
            error_class=ErrorClass.BUDGET_EXCEEDED,
            error_message=(
                f"interrupted {interruptions} times by the end of a run without finishing a step: "
                "give its runs more budget, or split it into steps"
            ),
            attempt_outcome="failed",
        )
    return _moved(
        standing,
        S.PENDING,
        interruptions=interruptions,
        losses=0,
        attempt_outcome="interrupted",
    )


def _moved(standing: Standing, status: JobStatus, **changes: Any) -> Settlement:
    unchanged = Settlement(
        status=status,
        scheduled_for=standing.scheduled_for,
        retry_count=standing.retry_count,
        interruptions=standing.interruptions,
        losses=standing.losses,
    )
    return replace(unchanged, **changes)

"""How long a failed job waits, by what made it fail."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from edgeq.errors import BadSetting


class ErrorClass(StrEnum):
    TRANSIENT = "transient"
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    WORKER_LOST = "worker_lost"
    NON_RETRYABLE = "non_retryable"
    BUDGET_EXCEEDED = "budget_exceeded"
    REJECTED = "rejected"
    DEPENDENCY_FAILED = "dependency_failed"
    OPERATOR = "operator"


RETRYABLE: Final = frozenset(
    {ErrorClass.TRANSIENT, ErrorClass.RATE_LIMITED, ErrorClass.TIMEOUT},
)

_OTHER_NAMES = {"retryable": ErrorClass.TRANSIENT}
_RATE_LIMITED_BASE_MS = 60_000
_JITTER = 0.2
# Far beyond every cap that makes sense, and far below what a float can hold.
_MOST_DOUBLINGS = 40


@dataclass(frozen=True, slots=True)
class Backoff:
    base_ms: int = 5000
    cap_ms: int = 300_000


def named(text: str) -> ErrorClass:
    """The error class of this name."""
    try:
        return _OTHER_NAMES.get(text) or ErrorClass(text)
    except ValueError:
        names = ", ".join([*ErrorClass, *_OTHER_NAMES])
        raise BadSetting(f"{text!r} is no error class. Use one of: {names}.") from None


def retry_delay_ms(error_class: ErrorClass, backoff: Backoff, failures: int, unit: float) -> int:
    """The wait after this many failures; `unit` in [0, 1) keeps jobs that failed together apart."""
    doubled = 1 << min(max(failures - 1, 0), _MOST_DOUBLINGS)
    match error_class:
        case ErrorClass.TRANSIENT | ErrorClass.TIMEOUT:
            jitter = 1 - _JITTER + 2 * _JITTER * unit
            return min(round(backoff.base_ms * doubled * jitter), backoff.cap_ms)
        case ErrorClass.RATE_LIMITED:
            # No jitter: the service said when it wants to be asked again, at the earliest.
            return min(_RATE_LIMITED_BASE_MS * doubled, backoff.cap_ms)
        case ErrorClass.WORKER_LOST:
            return 0
        case _:
            raise ValueError(f"{error_class} is never retried, so it has no delay")

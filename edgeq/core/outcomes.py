"""What an attempt at a job can come to, as values, and what a handler raises to say so."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from edgeq.core.backoff import ErrorClass


class Completed(msgspec.Struct, frozen=True, tag=True):
    """The handler returned; `output` is its encoded answer."""

    output: str | None = None
    note: str | None = None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The attempt failed; whether another follows is decided by class, policy and count."""

    error_class: ErrorClass
    message: str
    after_ms: int | None = None


class NeedsReview(msgspec.Struct, frozen=True, tag=True):
    """A person has to decide."""

    reason: str
    output: str | None = None


class Snoozed(msgspec.Struct, frozen=True, tag=True):
    """Not now; nothing is counted."""

    delay_ms: int


class Interrupted(msgspec.Struct, frozen=True, tag=True):
    """The run had to end first; `by_budget` counts, a deploy's signal does not."""

    by_budget: bool


class NotStarted(msgspec.Struct, frozen=True, tag=True):
    """It was claimed ahead and its turn never came."""


class Stopped(msgspec.Struct, frozen=True, tag=True):
    """The handler stopped because its cancellation was asked for."""


Outcome = Completed | Failed | NeedsReview | Snoozed | Interrupted | NotStarted | Stopped


Delay = float | timedelta  # seconds


class Skip:
    """Return it from a handler: there was nothing to do, and that is a success."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __repr__(self) -> str:
        return f"Skip({self.reason!r})"


class Signal(Exception):
    """What a handler raises to answer with something else than a value."""


class Review(Signal):
    """Raise it to hold the job until a person approves, edits, sends back or rejects it."""

    def __init__(self, reason: str, *, output: object = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.output = output


class Retry(Signal):
    """Raise it to try again later; `after` (seconds) overrides delay, jitter and cap."""

    def __init__(
        self, reason: str = "retry asked for", *, after: float | timedelta | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after


class RateLimited(Retry):
    """Raise it when the other side said "too many requests"."""

    def __init__(
        self, reason: str = "rate limited", *, after: float | timedelta | None = None
    ) -> None:
        super().__init__(reason, after=after)


class Fail(Signal):
    """Raise it when no further attempt can help."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Snooze(Signal):
    """Raise it to put the job back for some seconds without counting an attempt."""

    def __init__(self, seconds: Delay) -> None:
        super().__init__(f"snoozed for {seconds} s")
        self.seconds = seconds

"""The moments of a run: until when it claims and works, and when it has to look again."""

from __future__ import annotations

from collections.abc import Callable

from edgeq.core.runs import RunLimits
from edgeq.crew import UNWIND_SECONDS

LOCK_LIFE_MS = 60_000
_LOCK_MARGIN_MS = 1_000
_NOTE_SECONDS = 0.2
_POLL_SECONDS = 1.0
# A worker hears of new work at once; it looks by itself too, should it have missed something.
_SLOW_POLL_SECONDS = 10.0
_SHORT_SECONDS = 0.05


class Timetable:
    """All of it in the seconds of a clock that only goes forward; a worker's has no end."""

    def __init__(
        self,
        limits: RunLimits,
        *,
        began: float,
        elapsed: Callable[[], float],
        now: Callable[[], int],
    ) -> None:
        self._limits = limits
        self._elapsed = elapsed
        self._now = now
        self.began = began
        self.budget_ends = began + limits.budget
        self.interrupts_at = began + limits.seconds
        self.next_claim = 0.0
        self.notes_due: float | None = None

    def end_soon(self) -> None:
        """A signal came: what runs has the grace, and no more."""
        self.interrupts_at = min(self.interrupts_at, self._elapsed() + self._limits.grace)

    def lets_go_at(self) -> float:
        return self.interrupts_at + UNWIND_SECONDS

    def may_wait(self) -> bool:
        """Whether there is time left to try again what the database refused for now."""
        return self._elapsed() < self.interrupts_at

    def claimed(self, *, is_dry: bool, next_moment: int | None) -> None:
        """When to claim again, after a claim that brought all it asked for, or did not."""
        now = self._elapsed()
        if not is_dry:
            self.next_claim = now
        elif not self._limits.is_resident:
            self.next_claim = now + _POLL_SECONDS
        else:
            self.next_claim = now + _SLOW_POLL_SECONDS
            if next_moment is not None:
                due = now + max(0, next_moment - self._now()) / 1000 + 0.001
                self.next_claim = min(self.next_claim, due)

    def found_no_room(self) -> None:
        """Time alone may change that: a suspect that is waited for, a lane that is full."""
        self.next_claim = self._elapsed() + _POLL_SECONDS

    def claim_now(self) -> None:
        self.claim_by(self._elapsed())

    def claim_by(self, moment: float | None) -> None:
        """Claim then at the latest."""
        if moment is not None:
            self.next_claim = min(self.next_claim, moment)

    def note_was_added(self) -> bool:
        """Whether it is the first one since the last commit, so that somebody must be woken."""
        if self.notes_due is not None:
            return False
        self.notes_due = self._elapsed() + _NOTE_SECONDS
        return True

    def are_notes_due(self) -> bool:
        return self.notes_due is not None and self._elapsed() >= self.notes_due

    def lock_until(self) -> int:
        """Not beyond the run's own end: a run that died is soon known to be dead."""
        now = self._now()
        left = self.interrupts_at - self._elapsed()
        if left * 1000 >= LOCK_LIFE_MS:
            return now + LOCK_LIFE_MS
        return min(now + max(round(left * 1000), 0) + _LOCK_MARGIN_MS, now + LOCK_LIFE_MS)

    def seconds_to_next(self, *moments: float | None, may_claim: bool) -> float:
        """How long there is nothing to do by itself."""
        now = self._elapsed()
        times = [self.interrupts_at, self.lets_go_at(), self.budget_ends, self.notes_due, *moments]
        if may_claim:
            times.append(self.next_claim)
        ahead = [moment - now for moment in times if moment is not None and moment > now]
        return min(ahead, default=_SHORT_SECONDS)

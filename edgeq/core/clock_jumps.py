"""Wall clocks that move by themselves: noticed by comparing them with time that cannot."""

from __future__ import annotations

from dataclasses import dataclass

TOLERATED_MS = 2_000
WAIT_MS = 20_000


@dataclass(frozen=True, slots=True)
class ClockWatch:
    """The last look at both clocks, and until when locks are better left alone."""

    wall_ms: int
    elapsed: float
    suspicious_until: float = 0.0

    def look(self, wall_ms: int, elapsed: float) -> tuple[ClockWatch, int]:
        """The next watch, and by how much the wall clock jumped (0 if it did not).

        After a jump forward every lock seems expired. One heartbeat of patience lets live
        processes extend theirs.
        """
        expected = self.wall_ms + (elapsed - self.elapsed) * 1000
        jump = round(wall_ms - expected)
        if abs(jump) <= TOLERATED_MS:
            return ClockWatch(wall_ms, elapsed, self.suspicious_until), 0
        return ClockWatch(wall_ms, elapsed, elapsed + WAIT_MS / 1000), jump

    def trusts_locks(self, elapsed: float) -> bool:
        return elapsed >= self.suspicious_until

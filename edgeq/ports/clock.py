"""Time and chance, so that nothing else reads them from the machine."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """Wall time in Unix milliseconds: for what is stored."""
        ...

    def elapsed(self) -> float:
        """Seconds that only go forward, sleep of the machine included: for durations."""
        ...


class Chance(Protocol):
    def unit(self) -> float:
        """A number in [0, 1)."""
        ...

    def bits(self, count: int) -> int:
        """An integer of `count` random bits that nobody can guess."""
        ...

"""For tests: a queue on a temporary file, time that you move, events to wait for."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from edgeq.core.runs import RunReport
from edgeq.events import Event, Observer
from edgeq.ports.clock import Clock
from edgeq.queue import JobQueue
from edgeq.registry import HandlerSource
from edgeq.settings import Settings
from edgeq.wiring import Queue

E = TypeVar("E", bound=Event)
_START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
_PATIENCE_SECONDS = 10.0


class FakeClock:
    """Wall time that stands still until it is moved; durations still pass as they do."""

    def __init__(self, now_ms: int = _START_MS) -> None:
        self._now = now_ms
        self._moved = 0.0

    def now(self) -> int:
        return self._now

    def elapsed(self) -> float:
        return time.monotonic() + self._moved

    def advance(self, seconds: float) -> None:
        """Let time pass: for the wall and for durations alike."""
        self._now += round(seconds * 1000)
        self._moved += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock alone, as an operator or NTP would."""
        self._now += round(seconds * 1000)


class FakeChance:
    """Chance from a seed: the same test, the same numbers."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose

    def unit(self) -> float:
        return self._random.random()

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)


class RecordingObserver:
    """Keeps every event, and lets a test wait for one instead of sleeping."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    async def wait_for(self, kind: type[E], matches: Callable[[E], bool] = lambda _: True) -> E:
        """The first event of a kind that matches, already seen or still to come."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            for event in self.of(kind):
                if matches(event):
                    return event
            await asyncio.sleep(0.005)
        raise TimeoutError(f"no {kind.__name__} came within {_PATIENCE_SECONDS:g} s")


@asynccontextmanager
async def queue_for_test(
    handlers: HandlerSource = None,
    *,
    clock: Clock | None = None,
    observers: Sequence[Observer] = (),
    database: str | None = None,
    settings: Settings | None = None,
) -> AsyncIterator[Queue]:
    """A queue on a file of its own that is gone afterwards; time stands still by default."""
    with tempfile.TemporaryDirectory(prefix="edgeq-test-") as folder:
        async with Queue(
            database or f"sqlite:///{Path(folder) / 'test.db'}",
            handlers=handlers,
            clock=FakeClock() if clock is None else clock,
            chance=FakeChance(),
            observers=observers,
            settings=Settings(synchronous="normal") if settings is None else settings,
        ) as queue:
            yield queue


async def drain(
    queue: JobQueue, *, clock: FakeClock | None = None, budget: float = 10.0, runs: int = 100
) -> list[RunReport]:
    """Run until nothing is due; with a clock, also until nothing is planned for later."""
    reports = []
    for _ in range(runs):
        report = await queue.process_jobs(budget=budget)
        reports.append(report)
        if report.next_due_at is None:
            break
        if report.claimed == 0:
            if clock is None or report.next_due_at <= clock.now():
                break
            clock.advance((report.next_due_at - clock.now()) / 1000)
    return reports

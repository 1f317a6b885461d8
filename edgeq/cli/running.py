"""A run as a command: signals, the watchdog, a progress bar, and an end in time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import Any

import click

from edgeq.cli.invocation import Invocation, open_queue, set_up_logging
from edgeq.cli.isolation import (
    SHORT_GRACE_SECONDS,
    Isolation,
    end_with_parent,
    last_chance_of,
    shown_to_parent,
)
from edgeq.cli.report import show_report
from edgeq.core.jobs import JobStatus
from edgeq.core.runs import RunLimits, RunReport
from edgeq.crew import UNWIND_SECONDS
from edgeq.documents import report_document
from edgeq.run import Run
from edgeq.surroundings import LastChance
from edgeq.watchdog import Watchdog
from edgeq.wiring import Queue, SystemClock

# After the grace: a handler's last chance to unwind, and the writing of what came of it.
_LAST_SECONDS = UNWIND_SECONDS + 0.25
_BAR_SECONDS = 0.1
_BAR_WIDTH = 30

Show = Callable[[RunReport], None]


@dataclass(frozen=True)
class Command:
    """What a command asks for: the limits of its run, and what kind of process this is."""

    invocation: Invocation
    limits: dict[str, Any]
    began: float
    is_resident: bool = False
    last_chance: LastChance | None = None
    # Whether somebody holds the other end of stdin, and this has to end with them.
    has_parent: bool = False

    def patience(self) -> float | None:
        """Nobody waits for a database longer than the run would have lasted."""
        if self.is_resident:
            return None
        passed = SystemClock().elapsed() - self.began
        wanted = float(self.limits.get("budget", 25)) + float(self.limits.get("grace", 5))
        return max(0.5, wanted - passed)


def run_process(invocation: Invocation, given: dict[str, Any], *, began: float) -> None:
    """Run once and print the report; the process ends in time, whatever handlers do."""
    told = given.pop("last_chance", None)
    last_chance = None if told is None else last_chance_of(told)
    command = Command(
        invocation, given, began, last_chance=last_chance, has_parent=last_chance is not None
    )
    _run(command, shown_to_parent() if last_chance is not None else _shown(invocation))


def run_worker(
    invocation: Invocation, given: dict[str, Any], *, began: float, has_parent: bool
) -> None:
    """Work until a signal comes, then print the report."""
    command = Command(invocation, given, began, is_resident=True, has_parent=has_parent)
    _run(command, _shown(invocation))


def _run(command: Command, show: Show) -> None:
    set_up_logging(command.invocation.log_level)

    async def run() -> None:
        queue = open_queue(command.invocation, with_handlers=True, patience=command.patience())
        with ExitStack() as until_closed:
            await _run_open(queue, until_closed, command, show)

    asyncio.run(run())


async def _run_open(queue: Queue, until_closed: ExitStack, command: Command, show: Show) -> None:
    async with queue:
        limits = queue.limits(resident=command.is_resident, **command.limits)
        isolation = _isolation(command, limits)
        run = queue.new_run(
            limits,
            began=command.began,
            ends_process=True,
            isolate=isolation if command.last_chance is None else None,
            last_chance=command.last_chance,
        )
        ending = _Ending(run, command.began)
        watchdog = Watchdog(
            run,
            queue.store,
            seconds_left=ending.seconds_left,
            show=show,
            exit_code=ending.exit_code,
            loop=asyncio.get_running_loop() if command.is_resident else None,
        )
        if command.has_parent:
            end_with_parent(watchdog)
        until_closed.callback(watchdog.cancel)
        until_closed.enter_context(_signals(run, ending, watchdog, isolation, command))
        if command.is_resident:
            report = await run.process()
        else:
            async with _progress_bar(queue, run):
                report = await run.process()
        watchdog.report(report)
        if run.has_leftovers():
            # asyncio.run would wait for tasks that swallow their cancellation.
            await queue.close()
            os._exit(0)


def _isolation(command: Command, limits: RunLimits) -> Isolation:
    """A run's children end before its own grace begins; a worker's share it, less their report."""
    if not command.is_resident:
        return Isolation(command.invocation, command.limits, max_jobs=1)
    grace = max(SHORT_GRACE_SECONDS, limits.grace - SHORT_GRACE_SECONDS)
    return Isolation(command.invocation, command.limits, grace=grace)


def _shown(invocation: Invocation) -> Show:
    def show(report: RunReport) -> None:
        # Whoever was to read it may be gone; the jobs are done all the same.
        with suppress(OSError, ValueError):
            show_report(report_document(report), as_json=invocation.as_json)
            sys.stdout.flush()

    return show


class _Ending:
    """When the process has to be gone at the latest."""

    def __init__(self, run: Run, began: float) -> None:
        self._elapsed = SystemClock().elapsed
        self._grace = run.limits.grace
        self._at = began + run.limits.seconds + _LAST_SECONDS

    def seconds_left(self) -> float:
        return self._at - self._elapsed()

    def bring_forward(self) -> None:
        self._at = min(self._at, self._elapsed() + self._grace + _LAST_SECONDS)

    def exit_code(self) -> int:
        """A worker that nobody asked to stop was stuck: whoever started it has to do so again."""
        return 1 if self._at == inf else 0


@contextmanager
def _signals(
    run: Run, ending: _Ending, watchdog: Watchdog, isolation: Isolation, command: Command
) -> Iterator[None]:
    """The first signal asks, the second one ends.

    Not where there is a parent: who stops a service signals all of its processes, and the parent
    passes it on, so that one wish comes twice. A parent that is in a hurry closes our stdin.

    Plain handlers instead of the loop's own: they are also heard while a handler keeps the loop.
    """
    loop = asyncio.get_running_loop()
    heard = 0

    def hear(_signal: int, _frame: object) -> None:
        nonlocal heard
        if watchdog.has_reported:
            return
        heard += 1
        run.hear_signal()
        if heard > 1:
            if not command.has_parent:
                watchdog.end_now()
            return
        ending.bring_forward()
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(run.stop)
            loop.call_soon_threadsafe(isolation.stop)
        watchdog.look_again()

    before = {name: signal.signal(name, hear) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


@asynccontextmanager
async def _progress_bar(queue: Queue, run: Run) -> AsyncIterator[None]:
    """How much of what was due is done: on a terminal only, and on stderr."""
    if not sys.stderr.isatty():
        yield
        return
    stats = await queue.stats()
    total = sum(each.counts[JobStatus.PENDING] for each in stats.types)
    drawing = asyncio.create_task(_draw(lambda: run.tally.claimed, total))
    try:
        yield
    finally:
        drawing.cancel()
        with suppress(asyncio.CancelledError):
            await drawing
        click.echo("\r\x1b[K", nl=False, err=True)


async def _draw(done: Callable[[], int], total: int) -> None:
    while True:
        share = min(1.0, done() / total) if total else 0.0
        filled = round(share * _BAR_WIDTH)
        bar = "#" * filled + "-" * (_BAR_WIDTH - filled)
        click.echo(f"\r[{bar}] {done():,} of {total:,} jobs\x1b[K", nl=False, err=True)
        await asyncio.sleep(_BAR_SECONDS)

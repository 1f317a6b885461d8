"""A process of its own for jobs that were lost, so that its death says whose fault it was."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from edgeq.cli.again import edgeq_again
from edgeq.cli.invocation import Invocation
from edgeq.core.runs import RunReport
from edgeq.surroundings import ChildDied, ChildRefused, LastChance
from edgeq.watchdog import Watchdog

SHORT_GRACE_SECONDS = 0.5
# How `edgeq process` ends when it cannot reach its database, which is no job's doing.
_NO_DATABASE = 3


class Isolation:
    """Runs `edgeq process` once more, for suspects only, and answers with its report."""

    def __init__(
        self,
        invocation: Invocation,
        given: dict[str, Any],
        *,
        max_jobs: int | None = None,
        grace: float = SHORT_GRACE_SECONDS,
    ) -> None:
        self._invocation = invocation
        self._given = given
        self._max_jobs = max_jobs
        self._grace = grace
        self._is_stopping = False
        self._children: set[asyncio.subprocess.Process] = set()

    async def __call__(
        self, last_chance: LastChance, seconds: float
    ) -> RunReport | ChildDied | ChildRefused:
        child = await asyncio.create_subprocess_exec(
            *self._command(last_chance, seconds),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # A signal that the job sends to its own process group must not reach this one.
            start_new_session=True,
        )
        self._children.add(child)
        try:
            if self._is_stopping:
                with contextlib.suppress(ProcessLookupError):
                    child.send_signal(signal.SIGTERM)
            answer = await _answer(child)
        finally:
            self._children.discard(child)
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
        if child.returncode == _NO_DATABASE:
            return ChildRefused()
        return _report(answer) if child.returncode == 0 else ChildDied()

    def _command(self, last_chance: LastChance, seconds: float) -> list[str]:
        said = self._invocation
        command = edgeq_again("--db", said.db, "--log-level", said.log_level)
        if said.handlers is not None:
            command += ["--handlers", said.handlers]
        command += ["process", "--budget", f"{seconds:.3f}", "--grace", f"{self._grace:g}"]
        for option in ("types", "lanes"):
            for name in self._given.get(option, ()):
                command += [f"--{option}", name]
        if self._max_jobs is not None:
            command += ["--max-jobs", str(self._max_jobs)]
        told = f"{last_chance.run_id}:{last_chance.from_losses}"
        return [*command, "--concurrency", "1", "--last-chance", told]

    def stop(self) -> None:
        """Pass a signal on: the children put their jobs back and report."""
        self._is_stopping = True
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGTERM)


async def _answer(child: asyncio.subprocess.Process) -> bytes:
    """Wait for the end with the child's stdin open: that it is open tells it that we live."""
    assert child.stdout is not None  # noqa: S101 - asked for as a pipe
    answer = await child.stdout.read()
    await child.wait()
    return answer


def _report(answer: bytes) -> RunReport | ChildDied:
    """A child that ended well without a word was ended by its job."""
    try:
        return msgspec.json.decode(answer, type=RunReport)
    except msgspec.DecodeError:
        return ChildDied()


def shown_to_parent() -> Callable[[RunReport], None]:
    """In the child: keep standard output for the report; what handlers print goes to stderr."""
    report_to = os.dup(1)
    os.dup2(2, 1)

    def show(report: RunReport) -> None:
        with contextlib.suppress(OSError):
            os.write(report_to, msgspec.json.encode(report))

    return show


def last_chance_of(told: str) -> LastChance:
    """In the child: what `--last-chance` says."""
    run_id, _, losses = told.partition(":")
    return LastChance(run_id, int(losses))


def end_with_parent(watchdog: Watchdog) -> None:
    """In a child: when the parent is gone, put the jobs back and end too."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1):
                pass
        watchdog.end_now()

    threading.Thread(target=watch, name="edgeq-parent-watch", daemon=True).start()

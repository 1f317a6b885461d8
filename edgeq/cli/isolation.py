"""A process of its own for a job on its last chance, so that its death says whose fault it was."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading

import msgspec

from edgeq.cli.invocation import Invocation
from edgeq.core.runs import RunReport

_GRACE_SECONDS = 0.5


class Isolation:
    """Runs `edgeq process` once more, for one job only, and answers with its report."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._child: asyncio.subprocess.Process | None = None

    async def __call__(self, run_id: str, seconds: float) -> RunReport | None:
        child = await asyncio.create_subprocess_exec(
            *_command(self._invocation, run_id, seconds),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # A signal that the job sends to its own process group must not reach this one.
            start_new_session=True,
        )
        self._child = child
        try:
            answer = await _answer(child)
        finally:
            self._child = None
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
        return _report(answer) if child.returncode == 0 else None

    def stop(self) -> None:
        """Pass a signal on: the child puts its job back and reports."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(signal.SIGTERM)


async def _answer(child: asyncio.subprocess.Process) -> bytes:
    """Wait for the end with the child's stdin open: that it is open tells it that we live."""
    assert child.stdout is not None  # noqa: S101 - asked for as a pipe
    answer = await child.stdout.read()
    await child.wait()
    return answer


def _command(invocation: Invocation, run_id: str, seconds: float) -> list[str]:
    command = [sys.executable, "-m", "edgeq", "--json", "--db", invocation.db]
    command += ["--log-level", invocation.log_level]
    if invocation.handlers is not None:
        command += ["--handlers", invocation.handlers]
    limits = ["--budget", f"{seconds:.3f}", "--grace", str(_GRACE_SECONDS), "--concurrency", "1"]
    return [*command, "process", *limits, "--last-chance", run_id]


def _report(answer: bytes) -> RunReport:
    """The counts of the child's report; its times are written for people and are left out."""
    told = msgspec.json.decode(answer)
    known = {name: told[name] for name in RunReport.__struct_fields__ if name in told}
    return msgspec.convert({**known, "next_due_at": None}, RunReport)


def end_with_parent() -> None:
    """In the child: when the parent is gone, nobody could tell how this process ended."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1):
                pass
        os._exit(1)

    threading.Thread(target=watch, name="edgeq-parent-watch", daemon=True).start()

"""Several workers under one command: started, started again when they die, ended together."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import suppress
from typing import Any

from edgeq.cli.again import edgeq_again
from edgeq.cli.invocation import Invocation, ask, set_up_logging
from edgeq.wiring import Queue, SystemClock

# After the grace a worker has a second for its last words; then it is killed.
_KILL_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_WELL_SECONDS = 60.0
# How a command ends when starting it again would not help: bad options, or no database.
_HOPELESS = (2, 3)
_COULD_NOT_START = 1
_log = logging.getLogger("edgeq")


def supervise(invocation: Invocation, limits: dict[str, Any], processes: int) -> None:
    """Keep so many workers until a signal comes; ends with the code of one that cannot start."""
    set_up_logging(invocation.log_level)

    async def grace(queue: Queue) -> float:
        """As the workers will have it: it may be configured, and nobody is killed within it."""
        given = {name: limits[name] for name in ("grace",) if name in limits}
        return queue.limits(resident=True, **given).grace

    supervisor = _Supervisor(_command(invocation, limits), ask(invocation, grace))
    code = asyncio.run(supervisor.run(processes))
    if code:
        sys.exit(code)


def _command(invocation: Invocation, limits: dict[str, Any]) -> list[str]:
    command = edgeq_again("--db", invocation.db)
    command += ["--log-level", invocation.log_level]
    if invocation.handlers is not None:
        command += ["--handlers", invocation.handlers]
    if invocation.as_json:
        command.append("--json")
    command += ["worker", "--has-parent"]
    for name, value in limits.items():
        for each in value if isinstance(value, tuple) else (value,):
            command += [f"--{name.replace('_', '-')}", str(each)]
    return command


class _Supervisor:
    def __init__(self, command: list[str], grace: float) -> None:
        self._command = command
        self._grace = grace
        self._children: set[asyncio.subprocess.Process] = set()
        self._stopping = asyncio.Event()
        self._signals = 0
        self._code = 0

    async def run(self, processes: int) -> int:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._hear_signal)
        places = [asyncio.create_task(self._keep_one()) for _ in range(processes)]
        await self._stopping.wait()
        _, late = await asyncio.wait(places, timeout=self._grace + _KILL_SECONDS)
        self._pass_on(signal.SIGKILL)
        if late:
            await asyncio.wait(late)
        return self._code

    def _hear_signal(self) -> None:
        """The first one asks the workers to stop, the second one does not wait for their jobs,
        and a third one does not wait for anything."""
        self._signals += 1
        self._stopping.set()
        if self._signals == 1:
            self._pass_on(signal.SIGTERM)
        elif self._signals == 2:
            self._leave_alone()
        else:
            self._pass_on(signal.SIGKILL)

    def _leave_alone(self) -> None:
        """A worker whose stdin is closed has no parent: it puts its jobs back and ends."""
        for child in self._children:
            if child.stdin is not None:
                child.stdin.close()

    def _pass_on(self, number: int) -> None:
        for child in self._children:
            with suppress(ProcessLookupError):
                child.send_signal(number)

    async def _keep_one(self) -> None:
        """One place for a worker: it is filled again, after a pause, whenever it becomes free."""
        elapsed = SystemClock().elapsed
        pause = _FIRST_PAUSE_SECONDS
        has_lived = False
        while not self._stopping.is_set():
            began = elapsed()
            code = await self._live()
            if self._stopping.is_set():
                return
            lived_well = elapsed() - began >= _WELL_SECONDS
            has_lived = has_lived or lived_well
            if code in _HOPELESS and not has_lived:
                self._code = code
                self._stopping.set()
                self._pass_on(signal.SIGTERM)
                return
            if lived_well:
                pause = _FIRST_PAUSE_SECONDS
            _log.error("a worker ended with code %s and is started again in %g s", code, pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    async def _live(self) -> int:
        try:
            child = await asyncio.create_subprocess_exec(
                *self._command,
                # That it is open tells the worker that its parent lives.
                stdin=asyncio.subprocess.PIPE,
                # Ctrl-C at the terminal reaches this process alone, which passes it on once.
                start_new_session=True,
            )
        except OSError as failure:
            _log.error("a worker cannot be started: %s", failure)
            return _COULD_NOT_START
        self._children.add(child)
        try:
            if self._stopping.is_set():
                with suppress(ProcessLookupError):
                    child.send_signal(signal.SIGTERM)
            return await child.wait()
        finally:
            self._children.discard(child)

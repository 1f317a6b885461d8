"""One warm child as its parent sees it: started, spoken to, killed with all that it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys

from edgeq.processes.messages import (
    LENGTH_BYTES,
    FromChild,
    ToChild,
    body_length,
    frame,
    from_child,
)
from edgeq.threads import HandlerThreads

# The parent's own search path, before anything is imported: `-m` would look into the current
# folder first, where a user's queue.py would hide that of the standard library.
_BOOT = "import sys; sys.path[:] = sys.argv[3:]; from edgeq.processes.child import main; main()"
# How long a socket that somebody else holds open may have something left to say.
_LAST_WORDS_SECONDS = 0.1


class ProcessGone(Exception):
    """The child has ended, or says nothing more."""


class HandlerProcess:
    """A fresh interpreter in a session of its own; only this object reaps it.

    So its pid stays taken until then, and killing its group cannot hit anybody else. asyncio's own
    subprocesses are reaped by a thread of its own, before anybody hears of it.
    """

    def __init__(self, threads: HandlerThreads) -> None:
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                self._popen = _started(theirs.fileno())
        except BaseException:
            self._socket.close()
            raise
        self.exit = threads.run(self._await_exit)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._socket)
        self.exit.add_done_callback(self._hang_up)

    def _await_exit(self) -> None:
        """In a thread: wait without reaping, where the system can."""
        if not hasattr(os, "waitid"):
            self._popen.wait()
            return
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)

    def _hang_up(self, _: asyncio.Future[None]) -> None:
        """A process that the handler forked may hold the socket open after the child is dead."""
        if self._writer is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(_LAST_WORDS_SECONDS, self._writer.transport.abort)

    def post(self, message: ToChild) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame(message))

    async def receive(self) -> FromChild:
        """Its next message; ProcessGone when there will be none."""
        if self._reader is None:
            raise ProcessGone
        try:
            length = body_length(await self._reader.readexactly(LENGTH_BYTES))
            return from_child(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError) as gone:
            raise ProcessGone from gone

    def kill(self) -> None:
        """End it and whatever it has started, at once."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, signal.SIGKILL)

    def reap(self) -> int:
        """Give back all that it had; its exit code, or the negative number of a signal."""
        self.kill()
        if self._writer is not None:
            self._writer.close()
        else:
            self._socket.close()
        return self._popen.wait()


def _started(number: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-P", "-c", _BOOT, str(number), str(os.getpid()), *map(str, sys.path)],
        stdin=subprocess.DEVNULL,
        # What a handler prints must not get into a report on standard output.
        stdout=2,
        pass_fds=[number],
        start_new_session=True,
    )


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"ended by signal {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"

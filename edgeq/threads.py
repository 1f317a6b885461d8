"""Threads for `def` handlers: ours, so that one that cannot be stopped holds up nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

Work = Callable[[], Any]


class HandlerThreads:
    """Daemon threads, reused while they come back; one that does not is simply replaced.

    asyncio's own executor would wait for such a thread when the loop closes, and its size would
    let a few of them block every later handler.
    """

    def __init__(self) -> None:
        self._idle: list[_Seat] = []
        self._is_closed = False

    def run(self, work: Work) -> asyncio.Future[Any]:
        """Run it on a free thread; the future may be cancelled, the thread goes on alone."""
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        seat = self._idle.pop() if self._idle else _Seat(self._came_back)
        seat.inbox.put((work, loop, reply))
        return reply

    def _came_back(self, seat: _Seat) -> None:
        if self._is_closed:
            seat.inbox.put(None)
        else:
            self._idle.append(seat)

    def close(self) -> None:
        """End the threads: idle ones now, the others when they come back."""
        self._is_closed = True
        for seat in self._idle:
            seat.inbox.put(None)
        self._idle.clear()


class _Seat:
    """One thread and what it is given to do."""

    def __init__(self, came_back: Callable[[_Seat], None]) -> None:
        self.inbox: queue.SimpleQueue[
            tuple[Work, asyncio.AbstractEventLoop, asyncio.Future[Any]] | None
        ] = queue.SimpleQueue()
        self._came_back = came_back
        threading.Thread(target=self._live, name="edgeq-handler", daemon=True).start()

    def _live(self) -> None:
        while (item := self.inbox.get()) is not None:
            work, loop, reply = item
            result: Any = None
            failure: BaseException | None = None
            try:
                result = work()
            except BaseException as raised:
                failure = raised
            # The loop may have been closed long before a stubborn handler came back.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._answer, reply, result, failure)
            del item, work, result, failure

    def _answer(
        self, reply: asyncio.Future[Any], result: Any, failure: BaseException | None
    ) -> None:
        self._came_back(self)
        if reply.cancelled():
            return
        if failure is None:
            reply.set_result(result)
        elif isinstance(failure, StopIteration):
            # A future cannot carry it.
            reply.set_exception(RuntimeError("the handler raised StopIteration"))
        else:
            reply.set_exception(failure)

"""Blocking work beside an event loop, in threads that cannot keep the process from ending."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

Work = Callable[[], None]


async def in_thread(work: Work, if_abandoned: Work | None = None) -> None:
    """Wait for blocking work; if the caller is cancelled, it goes on, and is undone after."""
    call = _Call(work, if_abandoned)
    thread = threading.Thread(target=call.run, name="edgeq-open-close", daemon=True)
    thread.start()
    try:
        await call.reply
    except asyncio.CancelledError:
        call.abandon()
        raise
    except BaseException:
        thread.join()
        raise
    # It has answered, and only has to end: whoever counts threads afterwards finds none of ours.
    thread.join()


class _Call:
    def __init__(self, work: Work, if_abandoned: Work | None) -> None:
        self._work = work
        self._if_abandoned = if_abandoned
        self._loop = asyncio.get_running_loop()
        self.reply: asyncio.Future[None] = self._loop.create_future()

    def run(self) -> None:
        failure: BaseException | None = None
        try:
            self._work()
        except BaseException as raised:
            failure = raised
        try:
            self._loop.call_soon_threadsafe(self._resolve, failure)
        except RuntimeError:
            # The loop is gone, and with it whoever waited.
            self._undo(failure)

    def _resolve(self, failure: BaseException | None) -> None:
        if self.reply.cancelled():
            threading.Thread(target=self._undo, args=(failure,), daemon=True).start()
        elif failure is None:
            self.reply.set_result(None)
        else:
            self.reply.set_exception(failure)

    def abandon(self) -> None:
        """The caller was cancelled after the answer had come: nobody will use what was made."""
        if self.reply.done() and not self.reply.cancelled() and self.reply.exception() is None:
            threading.Thread(target=self._undo, args=(None,), daemon=True).start()

    def _undo(self, failure: BaseException | None) -> None:
        if failure is None and self._if_abandoned is not None:
            self._if_abandoned()

"""An event loop on a thread of its own, for callers that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from edgeq.errors import StoreClosed, WriterHeld

T = TypeVar("T")
STOPPING_SECONDS = 30.0


class PrivateLoop:
    """Runs coroutines for other threads; it never touches a loop that these may have."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_over = asyncio.Event()

    def start(self) -> None:
        self._loop = loop = asyncio.new_event_loop()
        self._is_over = asyncio.Event()
        # A daemon: a process that forgot to close must be able to end.
        self._thread = threading.Thread(
            target=self._live, args=(loop,), name="edgeq-loop", daemon=True
        )
        self._thread.start()

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        # The runner cancels what is left when it ends, and closes the loop.
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._until_over())

    async def _until_over(self) -> None:
        await self._is_over.wait()

    def stop(self) -> None:
        self._tell(self._is_over.set)
        if self._thread is not None:
            self._thread.join(STOPPING_SECONDS)

    def is_here(self) -> bool:
        """Whether the caller is on the loop's own thread."""
        return self._thread is not None and threading.get_ident() == self._thread.ident

    def refuse_here(self) -> None:
        """Raises WriterHeld on the loop's own thread, which would wait for itself."""
        if self.is_here():
            raise WriterHeld(
                "A SyncQueue was called on its own event loop, by a handler or an observer, and "
                "would wait for itself. Inside a handler, use its context."
            )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine. Interrupted by a signal, it is cancelled and waited for."""
        call = _Call(coroutine)
        try:
            self.refuse_here()
            self._tell(call.begin)
            call.ended.wait()
        except (StoreClosed, WriterHeld):
            coroutine.close()
            raise
        except BaseException:  # Ctrl-C, for one; a second one does not wait for the end
            self._tell(call.cancel)
            call.ended.wait()
            raise
        return call.answer()

    def _tell(self, callback: Callable[[], None]) -> None:
        try:
            if self._loop is None:
                raise StoreClosed("This queue is not open.")
            # It takes the caller's context along, by which a transaction knows its own calls.
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError as closed:
            raise StoreClosed("This queue is closed.") from closed


class _Call(Generic[T]):
    """A coroutine on its way to the loop and back."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None
        self.ended = threading.Event()

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._coroutine)
        self._task.add_done_callback(lambda _: self.ended.set())

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:  # interrupted before it was handed over
            self._coroutine.close()
            self.ended.set()

    def answer(self) -> T:
        assert self._task is not None  # noqa: S101 - it has ended
        try:
            return self._task.result()
        except asyncio.CancelledError:
            raise StoreClosed("This queue was closed while it was waited for.") from None

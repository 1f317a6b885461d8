"""A step of a `def` handler: its function runs in its own thread, and the loop keeps the result."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Coroutine
from typing import Any


def wait_for(step: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
    """In a thread: wait for what the loop does."""
    return _unboxed(asyncio.run_coroutine_threadsafe(_boxed(step), loop).result())


async def _boxed(step: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """Its value or its failure: a SystemExit that leaves a task ends the whole loop."""
    try:
        return await step, None
    except BaseException as failure:
        return None, failure


def _unboxed(box: tuple[Any, BaseException | None]) -> Any:
    value, failure = box
    if failure is not None:
        raise failure
    return value


class Baton:
    """Runs a step's function in the handler's own thread while the loop keeps its results."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Any]) -> None:
        self._loop = loop
        self._work = work
        self._turns: queue.SimpleQueue[asyncio.Future[Any] | None] = queue.SimpleQueue()

    async def hand_over(self) -> Any:
        """On the loop: let the thread run the function, and wait for it."""
        answer = self._loop.create_future()
        self._turns.put(answer)
        return await answer

    def carry(self, step: Coroutine[Any, Any, Any]) -> Any:
        """In the thread: wait for the step, and run its function when it is asked for."""
        future = asyncio.run_coroutine_threadsafe(_boxed(step), self._loop)
        future.add_done_callback(lambda _: self._turns.put(None))
        while (answer := self._turns.get()) is not None:
            value, failure = None, None
            try:
                value = self._work()
            except BaseException as raised:  # it is raised again where the step is awaited
                failure = raised
            self._loop.call_soon_threadsafe(_resolve, answer, value, failure)
        return _unboxed(future.result())


def _resolve(answer: asyncio.Future[Any], value: Any, failure: BaseException | None) -> None:
    if answer.cancelled():
        return
    if failure is None:
        answer.set_result(value)
    elif isinstance(failure, StopIteration):
        answer.set_exception(RuntimeError("the step raised StopIteration"))
    else:
        answer.set_exception(failure)

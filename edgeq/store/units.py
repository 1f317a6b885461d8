"""A unit of work for the writer: taken once, abandoned only before that, answered in the end."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from edgeq.ports.commands import Command

T = TypeVar("T")


class Unit(ABC, Generic[T]):
    """A command on its way to the writer. Whoever takes it first decides: writer or caller."""

    __slots__ = ("_taken", "answer", "command", "error")

    def __init__(self, command: Command[T]) -> None:
        self.command = command
        self.answer: T | None = None
        self.error: BaseException | None = None
        self._taken = threading.Lock()

    def take(self) -> bool:
        """True for the first caller only: the writer starts it, or its owner gives it up."""
        return self._taken.acquire(blocking=False)

    @abstractmethod
    def deliver(self) -> None:
        """Tell the owner that `answer` or `error` is there; called on the writer's thread."""


class _Reply(asyncio.Future[Any]):
    """A future that cannot be cancelled once its unit has begun.

    A cancelled task then goes on waiting for the unit's end, and is cancelled right after: what
    was started is never left behind half known. Some units are waited for even before.
    """

    unit: AwaitedUnit[Any]

    def cancel(self, msg: Any | None = None) -> bool:
        unit = self.unit
        is_over = not unit.command.outlives_its_caller and unit.take()
        return super().cancel(msg) if is_over else False


class AwaitedUnit(Unit[T]):
    """A unit whose owner awaits it on an event loop."""

    __slots__ = ("loop", "reply")

    def __init__(self, command: Command[T], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(command)
        self.loop = loop
        self.reply = _Reply(loop=loop)
        self.reply.unit = self

    def give_up(self, reason: Callable[[], BaseException]) -> None:
        """Answer with an error instead, unless it has begun; called on the loop."""
        if self.take():
            self.reply.set_exception(reason())

    def resolve(self) -> None:
        if self.error is not None:
            self.reply.set_exception(self.error)
        else:
            self.reply.set_result(self.answer)

    def deliver(self) -> None:
        deliver_all([self])


class BlockingUnit(Unit[T]):
    """A unit whose owner is a thread that waits for it."""

    __slots__ = ("_answered",)

    def __init__(self, command: Command[T]) -> None:
        super().__init__(command)
        self._answered = threading.Event()

    def deliver(self) -> None:
        self._answered.set()

    def wait(self, timeout: float, too_late: Callable[[], BaseException]) -> T:
        try:
            came = self._answered.wait(timeout)
        except BaseException:  # Ctrl-C, for one: what has not begun never happens
            if not self.take():
                self._answered.wait()
            raise
        if not came and self.take():
            raise too_late()
        self._answered.wait()
        if self.error is not None:
            raise self.error
        return self.answer  # type: ignore[return-value]


class OwnUnit(Unit[T]):
    """A unit of the writer's own chores, answered by a call on its thread."""

    __slots__ = ("_answered",)

    def __init__(self, command: Command[T], answered: Callable[[Unit[T]], None]) -> None:
        super().__init__(command)
        self._answered = answered

    def deliver(self) -> None:
        self._answered(self)


def deliver_all(units: Iterable[Unit[Any]]) -> None:
    """Answer all units, with one call into each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[AwaitedUnit[Any]]] = {}
    for unit in units:
        if isinstance(unit, AwaitedUnit):
            by_loop.setdefault(unit.loop, []).append(unit)
        else:
            unit.deliver()
    for loop, awaited in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, awaited)
        except RuntimeError:
            # The loop was closed under its own tasks: nobody is left to be told.
            continue


def _resolve(units: list[AwaitedUnit[Any]]) -> None:
    for unit in units:
        unit.resolve()

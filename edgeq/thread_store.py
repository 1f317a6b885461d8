"""A store for callers on threads: nothing of it ever makes a coroutine wait there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from edgeq.ports.commands import Command
from edgeq.ports.queries import Query
from edgeq.ports.store import Listener, LockWatch, Store
from edgeq.private_loop import PrivateLoop

T = TypeVar("T")


class ThreadStore:
    """Blocks a thread that calls it, and awaits on the loop it was given.

    So the coroutines of a queue on it run to their end in one step on any thread: writes go
    straight to the writer, without a detour over the loop, and reads ask the loop.
    """

    def __init__(self, store: Store, loop: PrivateLoop) -> None:
        self._store = store
        self._loop = loop

    def now(self) -> int:
        return self._store.now()

    async def open(self) -> None:
        await self._store.open()

    async def close(self) -> None:
        await self._store.close()

    async def write(self, command: Command[T]) -> T:
        if self._loop.is_here():
            return await self._store.write(command)
        return self._store.write_blocking(command)

    def write_blocking(self, command: Command[T], timeout: float | None = None) -> T:
        return self._store.write_blocking(command, timeout)

    async def write_within(self, connection: object, command: Command[T]) -> T:
        return self._store.write_within_blocking(connection, command)

    def write_within_blocking(self, connection: object, command: Command[T]) -> T:
        return self._store.write_within_blocking(connection, command)

    def take_last_words(self) -> None:
        self._store.take_last_words()

    async def read(self, query: Query[T]) -> T:
        if self._loop.is_here():
            return await self._store.read(query)
        return self._loop.run(self._store.read(query))

    def keep_locks(self, watch: LockWatch) -> Callable[[], None]:
        return self._store.keep_locks(watch)

    async def watch(self, listener: Listener) -> Callable[[], None]:
        return await self._store.watch(listener)

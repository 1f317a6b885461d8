"""The store: where jobs live. Anything that passes the conformance suite can be one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from edgeq.errors import StoreError
from edgeq.ports.commands import Command, Held
from edgeq.ports.queries import Changes, Query

T = TypeVar("T")

# Called on a thread of the store's own, so it must be quick. An error is told when watching has
# failed: it goes on by itself, except after StoreMoved.
Listener = Callable[[Changes | StoreError], None]


@dataclass(frozen=True, slots=True)
class LockWatch:
    """What a running run tells its store, so that its locks live as long as its work.

    `lock_until` is asked at every extension; `told` is called on the store's own thread with what
    the run still holds, or with None when extensions have failed for too long to trust the locks.
    """

    run_id: str
    lock_until: Callable[[], int]
    told: Callable[[Held | None], None]


class Store(Protocol):
    """Commands are atomic and durable when answered; queries are short and never block them."""

    def now(self) -> int:
        """The time that the store's rows are stamped with, Unix milliseconds."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def write(self, command: Command[T]) -> T:
        """Carry a command out. Cancelled before it began, it never happens; after, it does."""
        ...

    def write_blocking(self, command: Command[T], timeout: float | None = None) -> T:
        """The same for a thread without an event loop."""
        ...

    async def write_within(self, connection: object, command: Command[T]) -> T:
        """Carry a command out within the caller's own transaction on the same database.

        It is durable when that commits, and undone when that is rolled back. What is refused
        leaves nothing in it.
        """
        ...

    def write_within_blocking(self, connection: object, command: Command[T]) -> T:
        """The same for a connection that blocks, on the thread that uses it."""
        ...

    def take_last_words(self) -> None:
        """From here on carry out the writes of this thread alone; others are never answered.

        For a process that is about to end: nobody may claim what it has just put back.
        """
        ...

    async def read(self, query: Query[T]) -> T: ...

    def keep_locks(self, watch: LockWatch) -> Callable[[], None]:
        """Extend a run's locks until the returned function is called, event loop or not."""
        ...

    async def watch(self, listener: Listener) -> Callable[[], None]:
        """Tell of every change that is committed from now on, by any process, in order, until
        the returned function is called; a gap is told as a reset."""
        ...

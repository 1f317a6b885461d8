"""The gate: one writer at a time over all processes, in turn, by a lock on a file of its own."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from edgeq.errors import StoreBusy, StoreClosed, StoreReadOnly, StoreUnavailable

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

PATIENCE_SECONDS = 30.0


def gate_of(database: Path) -> Path:
    # SQLite follows symbolic links to the real file, and so does its gate: one file, one gate.
    real = database.resolve()
    return real.with_name(real.name + ".gate")


def held_by(database: Path, patience: float) -> str | None:
    """The pid of whoever keeps the gate shut for so long; None when it opens, or is not there.

    A look from outside: unlike a Gate, it makes no file and leaves no pid.
    """
    try:
        # Without blocking: whatever has this name, to open it must not keep anybody waiting.
        descriptor = os.open(gate_of(database), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        got_it = threading.Event()
        waiter = _Waiter(descriptor, got_it.set)
        if not got_it.wait(patience) and waiter.give_up():
            return _pid_in(descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
    return None


# A lock belongs to what was opened, and a forked child has the same thing open: it would keep the
# gate shut after its parent has died.
_open_here: set[int] = set()


def _let_go_in_child() -> None:
    for descriptor in _open_here:
        with suppress(OSError):
            os.close(descriptor)
    _open_here.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


class Gate:
    """A blocking flock beside the database.

    SQLite's own busy timeout sleeps in ever longer steps, so old waiters lose to new ones; flock
    wakes them in turn. It also keeps every commit and checkpoint apart from every other, which
    SQLite builds before 3.51.3 need to be safe. The kernel opens it when a process dies.
    """

    def __init__(self, database: Path) -> None:
        self.path = gate_of(database)
        self._descriptor = self._open()
        self._owner = os.getpid()

    def _open(self) -> int:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError as denied:
            raise StoreReadOnly(
                f"{self.path} cannot be written: edgeq needs write access to the folder of its "
                "database. Change the folder's owner or mode, or use another --db."
            ) from denied
        except OSError as failed:
            raise StoreUnavailable(f"{self.path} cannot be opened: {failed.strerror}.") from failed
        _open_here.add(descriptor)
        return descriptor

    def acquire(self) -> None:
        """Wait as long as it takes: for the writer's thread, whose callers have a deadline."""
        self._refuse_after_fork()
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self._sign()

    def _refuse_after_fork(self) -> None:
        if os.getpid() != self._owner:
            raise StoreClosed(
                f"This queue was opened by process {self._owner}, and this one was forked from it. "
                "Open one in each process."
            )

    def acquire_at_once(self) -> bool:
        """Go through if nobody is inside; False otherwise."""
        self._refuse_after_fork()
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._sign()
        return True

    def acquire_within(self, seconds: float) -> None:
        """Wait in turn, but not for ever; StoreBusy names who holds it."""
        if self.acquire_at_once():
            return
        got_it = threading.Event()
        waiter = _Waiter(self._descriptor, got_it.set)
        try:
            if got_it.wait(seconds) or not waiter.give_up():
                self._sign()
                return
        except BaseException:  # a signal's handler may raise anything here
            self._leave_waiter(waiter)
            raise
        self._go_on_elsewhere()
        raise self._busy(seconds)

    async def acquire_beside_loop(self, seconds: float) -> None:
        """The same for an event loop; cancelled, it lets go of what still comes."""
        if self.acquire_at_once():
            return
        # Imported on first use: an idle tick needs the gate, but no event loop.
        import asyncio

        loop = asyncio.get_running_loop()
        got_it = asyncio.Event()
        waiter = _Waiter(self._descriptor, lambda: _tell(loop, got_it.set))
        try:
            async with asyncio.timeout(seconds):
                await got_it.wait()
        except TimeoutError:
            if waiter.give_up():
                self._go_on_elsewhere()
                raise self._busy(seconds) from None
        except BaseException:
            self._leave_waiter(waiter)
            raise
        self._sign()

    def _leave_waiter(self, waiter: _Waiter) -> None:
        if waiter.give_up():
            self._go_on_elsewhere()
        else:
            self.release()

    def _go_on_elsewhere(self) -> None:
        """The abandoned waiter still stands in line, and opens this lock when its turn comes:
        a lock that was taken by the same descriptor would be opened with it."""
        _close(self._descriptor)
        self._descriptor = self._open()

    def _busy(self, seconds: float) -> StoreBusy:
        return StoreBusy(
            f"The database was held for more than {seconds:g} s by process {self.holder()}. "
            "If that process is stopped or hangs, end it."
        )

    def _sign(self) -> None:
        os.pwrite(self._descriptor, b"%-12d" % os.getpid(), 0)

    def release(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    @contextmanager
    def held(self, patience: float = PATIENCE_SECONDS) -> Iterator[None]:
        self.acquire_within(patience)
        try:
            yield
        finally:
            self.release()

    def holder(self) -> str:
        """The pid of whoever went through last; while others wait, that is who holds it."""
        return _pid_in(self._descriptor)

    def close(self) -> None:
        if os.getpid() == self._owner:
            _close(self._descriptor)


def _close(descriptor: int) -> None:
    _open_here.discard(descriptor)
    os.close(descriptor)


def _pid_in(descriptor: int) -> str:
    return os.pread(descriptor, 12, 0).decode("ascii", "replace").strip() or "unknown"


class _Waiter:
    """A thread that waits for the lock on behalf of somebody who may give up."""

    def __init__(self, descriptor: int, got_it: Callable[[], None]) -> None:
        # The same lock by another number: it stays valid if the owner closes its own.
        self._descriptor = os.dup(descriptor)
        _open_here.add(self._descriptor)
        self._got_it = got_it
        self._decided = threading.Lock()
        threading.Thread(target=self._live, name="edgeq-gate", daemon=True).start()

    def give_up(self) -> bool:
        """Whether it still waited: then the lock is let go as soon as it comes; else it is ours."""
        return self._decided.acquire(blocking=False)

    def _live(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        if self._decided.acquire(blocking=False):
            self._got_it()
        else:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        _close(self._descriptor)


def _tell(loop: AbstractEventLoop, callback: Callable[[], None]) -> None:
    # A loop that was closed in the meantime has nobody left who waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)

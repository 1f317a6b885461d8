"""The gate: one writer at a time over all processes, in turn, by a lock on a file of its own."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgeq.errors import StoreBusy, StoreReadOnly, StoreUnavailable

PATIENCE_SECONDS = 30.0


def gate_of(database: Path) -> Path:
    return database.with_name(database.name + ".gate")


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
        if not _Waiter(descriptor).wait(patience):
            return _pid_in(descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
    return None


class Gate:
    """A blocking flock beside the database.

    SQLite's own busy timeout sleeps in ever longer steps, so old waiters lose to new ones; flock
    wakes them in turn. It also keeps every commit and checkpoint apart from every other, which
    SQLite builds before 3.51.3 need to be safe. The kernel opens it when a process dies.
    """

    def __init__(self, database: Path) -> None:
        self.path = gate_of(database)
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError as denied:
            raise StoreReadOnly(
                f"{self.path} cannot be written: edgeq needs write access to the folder of its "
                "database. Change the folder's owner or mode, or use another --db."
            ) from denied
        except OSError as failed:
            raise StoreUnavailable(f"{self.path} cannot be opened: {failed.strerror}.") from failed

    def acquire(self) -> None:
        """Wait as long as it takes: for the writer's thread, whose callers have a deadline."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self._sign()

    def acquire_within(self, seconds: float) -> None:
        """Wait in turn, but not for ever; StoreBusy names who holds it."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # flock has no time limit, and asking again and again would lose to those who wait.
            waiter = _Waiter(self._descriptor)
            if not waiter.wait(seconds):
                raise StoreBusy(
                    f"The database was held for more than {seconds:g} s by process "
                    f"{self.holder()}. If that process is stopped or hangs, end it."
                ) from None
        self._sign()

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
        os.close(self._descriptor)


def _pid_in(descriptor: int) -> str:
    return os.pread(descriptor, 12, 0).decode("ascii", "replace").strip() or "unknown"


class _Waiter:
    """A thread that waits for the lock on behalf of somebody who may give up."""

    def __init__(self, descriptor: int) -> None:
        # The same lock by another number: it stays valid if the owner closes its own.
        self._descriptor = os.dup(descriptor)
        self._got_it = threading.Event()
        self._decided = threading.Lock()
        threading.Thread(target=self._live, name="edgeq-gate", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """True when the lock is ours; after False it is let go as soon as it comes."""
        if self._got_it.wait(seconds):
            return True
        return not self._decided.acquire(blocking=False)

    def _live(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        if not self._decided.acquire(blocking=False):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._got_it.set()
        os.close(self._descriptor)

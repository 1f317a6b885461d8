"""The gate: one writer at a time over all processes, in turn, by a lock on a file of its own."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgeq.errors import StoreReadOnly, StoreUnavailable


class Gate:
    """A blocking flock beside the database.

    SQLite's own busy timeout sleeps in ever longer steps, so old waiters lose to new ones; flock
    wakes them in turn. It also keeps every commit and checkpoint apart from every other, which
    SQLite builds before 3.51.3 need to be safe. The kernel opens it when a process dies.
    """

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(database.name + ".gate")
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
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        os.pwrite(self._descriptor, b"%-12d" % os.getpid(), 0)

    def release(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    @contextmanager
    def held(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def holder(self) -> str:
        """The pid of whoever went through last; while others wait, that is who holds it."""
        return os.pread(self._descriptor, 12, 0).decode("ascii", "replace").strip() or "unknown"

    def close(self) -> None:
        os.close(self._descriptor)

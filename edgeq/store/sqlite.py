"""The store on one SQLite file: a writing thread, reading connections, and the gate."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from edgeq.errors import StoreClosed
from edgeq.ports.clock import Clock
from edgeq.ports.commands import Command
from edgeq.ports.queries import Query
from edgeq.ports.store import Listener, LockWatch
from edgeq.store.beside_loop import in_thread
from edgeq.store.executors import EXECUTORS
from edgeq.store.gate import PATIENCE_SECONDS, Gate
from edgeq.store.migrate import bring_up_to_date
from edgeq.store.sqlite_file import MEMORY, connect, create_if_missing, path_of
from edgeq.store.sqlite_session import SqliteSession
from edgeq.store.writer import Writer

if TYPE_CHECKING:
    from edgeq.store.sqlite_readers import SqliteReaders
    from edgeq.store.watcher import Watcher

T = TypeVar("T")


class SqliteStore:
    """Jobs in one file. Any number of processes on one machine may have it open."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        durable: bool = True,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._clock = clock
        self._durable = durable
        self._patience = patience
        self._is_temporary = url == f"sqlite:///{MEMORY}"
        self.path = Path(MEMORY) if self._is_temporary else path_of(url)
        self._opened: _Opened | None = None

    def now(self) -> int:
        return self._clock.now()

    async def open(self) -> None:
        opened = self._new()
        # It is this store's only when it is open: one that was cancelled on the way closes
        # itself, and may not get in the way of the next.
        await in_thread(opened.open, if_abandoned=opened.close)
        self._keep(opened)

    def open_blocking(self) -> None:
        opened = self._new()
        opened.open()
        self._keep(opened)

    def _new(self) -> _Opened:
        path = None if self._is_temporary else self.path
        return _Opened(path, self._clock, durable=self._durable, patience=self._patience)

    def _keep(self, opened: _Opened) -> None:
        self.path = opened.path
        self._opened = opened

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            # Shielded: a cancelled close must not leave a thread with an open connection behind.
            await asyncio.shield(opened.close_beside_loop())

    def close_blocking(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    async def write(self, command: Command[T]) -> T:
        return await self._open().writer.write(command)

    def write_blocking(self, command: Command[T], timeout: float | None = None) -> T:
        return self._open().writer.write_blocking(command, timeout)

    def take_last_words(self) -> None:
        self._open().writer.take_last_words()

    async def read(self, query: Query[T]) -> T:
        return await self._open().readers.read(query)

    def keep_locks(self, watch: LockWatch) -> Callable[[], None]:
        return self._open().writer.watches.add(watch)

    async def watch(self, listener: Listener) -> Callable[[], None]:
        return await self._open().watch(listener)

    def _open(self) -> _Opened:
        if self._opened is None:
            raise StoreClosed("This queue is not open. Use `async with Queue(...) as queue:`.")
        return self._opened


class _Opened:
    """The file from one opening to its closing, with everything that is open for it."""

    def __init__(self, path: Path | None, clock: Clock, *, durable: bool, patience: float) -> None:
        self._temporary: Path | None = None
        if path is None:
            # A private folder instead of SQLite's own memory databases: those lock whole tables
            # between connections, so that nothing here would behave as it does on a file.
            self._temporary = Path(tempfile.mkdtemp(prefix="edgeq-"))
            path = self._temporary / "memory.db"
        self.path = path
        self._clock = clock
        self._durable = durable
        self._patience = patience
        self._gate: Gate | None = None
        self._readers: SqliteReaders | None = None
        self._watcher: Watcher | None = None
        self._watching = threading.Lock()
        self._is_closing = False
        self.writer = Writer(
            self._open_session,
            EXECUTORS,
            describe_holder=lambda: self._gate.holder() if self._gate else "unknown",
            elapsed=clock.elapsed,
            patience=patience,
        )

    def open(self) -> None:
        """Create or migrate the file if needed, and start the writing thread."""
        try:
            self.writer.open()
        except BaseException:
            self._remove_temporary()
            raise

    @property
    def readers(self) -> SqliteReaders:
        if self._readers is None:
            # Imported on first use: a run that only works never pays for the async engine.
            from edgeq.store.sqlite_readers import SqliteReaders

            self._readers = SqliteReaders(self.path, self._clock)
        return self._readers

    async def watch(self, listener: Listener) -> Callable[[], None]:
        if self._watcher is None:
            await in_thread(self._start_watcher)
        watcher = self._watcher
        if watcher is None:
            raise StoreClosed("This queue was closed.")
        return watcher.add(listener)

    def _start_watcher(self) -> None:
        # Imported on first use, as the readers are.
        from edgeq.store.watcher import Watcher

        with self._watching:
            # A caller that was cancelled is not here to be told, but its thread is.
            if self._watcher is None and not self._is_closing:
                self._watcher = Watcher(self.path, self._clock.now)

    async def close_beside_loop(self) -> None:
        if self._readers is not None:
            await self._readers.close()
        await in_thread(self.close)

    def close(self) -> None:
        with self._watching:
            self._is_closing = True
            if self._watcher is not None:
                self._watcher.close()
                self._watcher = None
        self.writer.close()
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _open_session(self) -> SqliteSession:
        create_if_missing(self.path)
        self._gate = gate = Gate(self.path)
        try:
            bring_up_to_date(self.path, gate, self._patience)
            connection: sqlite3.Connection = connect(self.path, durable=self._durable)
            return SqliteSession(connection, self.path, gate, self._clock.now)
        except BaseException:
            gate.close()
            raise

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
        self._temporary: Path | None = None
        self._is_temporary = url == f"sqlite:///{MEMORY}"
        self.path = Path(MEMORY) if self._is_temporary else path_of(url)
        self._gate: Gate | None = None
        self._readers: SqliteReaders | None = None
        self._writer: Writer | None = None
        self._watcher: Watcher | None = None
        self._starting_watcher = threading.Lock()

    def now(self) -> int:
        return self._clock.now()

    async def open(self) -> None:
        await in_thread(self.open_blocking, if_abandoned=self.close_blocking)

    def open_blocking(self) -> None:
        """Create or migrate the file if needed, and start the writing thread."""
        if self._is_temporary:
            # A private folder instead of SQLite's own memory databases: those lock whole tables
            # between connections, so that nothing here would behave as it does on a file.
            self._temporary = Path(tempfile.mkdtemp(prefix="edgeq-"))
            self.path = self._temporary / "memory.db"
        writer = Writer(
            self._open_session,
            EXECUTORS,
            describe_holder=lambda: self._gate.holder() if self._gate else "unknown",
            elapsed=self._clock.elapsed,
            patience=self._patience,
        )
        writer.open()
        self._writer = writer

    async def close(self) -> None:
        # Shielded: a cancelled close must not leave a thread with an open connection behind.
        await asyncio.shield(self._close())

    async def _close(self) -> None:
        writer = self._refuse_more()
        readers, self._readers = self._readers, None
        if readers is not None:
            await readers.close()
        await in_thread(lambda: self._close_threads(writer))

    def close_blocking(self) -> None:
        self._close_threads(self._refuse_more())

    def _refuse_more(self) -> Writer | None:
        """From here on nothing is begun: it would outlive what is being closed."""
        with self._starting_watcher:
            writer, self._writer = self._writer, None
        return writer

    def _close_threads(self, writer: Writer | None) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.close()
        if writer is not None:
            writer.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    async def write(self, command: Command[T]) -> T:
        return await self._open_writer().write(command)

    def write_blocking(self, command: Command[T], timeout: float | None = None) -> T:
        return self._open_writer().write_blocking(command, timeout)

    async def read(self, query: Query[T]) -> T:
        self._open_writer()
        if self._readers is None:
            # Imported on first use: a run that only works never pays for the async engine.
            from edgeq.store.sqlite_readers import SqliteReaders

            self._readers = SqliteReaders(self.path, self._clock)
        return await self._readers.read(query)

    def keep_locks(self, watch: LockWatch) -> Callable[[], None]:
        return self._open_writer().watches.add(watch)

    async def watch(self, listener: Listener) -> Callable[[], None]:
        self._open_writer()
        if self._watcher is None:
            await in_thread(self._start_watcher)
        watcher = self._watcher
        if watcher is None:
            raise StoreClosed("This queue was closed.")
        return watcher.add(listener)

    def _start_watcher(self) -> None:
        # Imported on first use, as the readers are.
        from edgeq.store.watcher import Watcher

        with self._starting_watcher:
            if self._watcher is None and self._writer is not None:
                self._watcher = Watcher(self.path, self._clock.now)

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

    def _open_writer(self) -> Writer:
        if self._writer is None:
            raise StoreClosed("This queue is not open. Use `async with Queue(...) as queue:`.")
        return self._writer

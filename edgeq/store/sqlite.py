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
from edgeq.store.gate import PATIENCE_SECONDS, Gate, gate_of
from edgeq.store.inside import refuse_inside
from edgeq.store.migrate import bring_up_to_date
from edgeq.store.sqlite_file import MEMORY, connect, create_if_missing, path_of
from edgeq.store.sqlite_session import SqliteSession
from edgeq.store.writer import Writer

if TYPE_CHECKING:
    from edgeq.store.sqlite_readers import SqliteReaders
    from edgeq.store.watcher import Watcher

T = TypeVar("T")
_JOIN = "Pass its connection or session to enqueue() as connection=, or end it first."
_OPEN_BEFORE = "Open the queue before it begins, when the program starts."


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
        self._gate_path = gate_of(self.path)
        self._readers: SqliteReaders | None = None
        self._writer: Writer | None = None
        self._watcher: Watcher | None = None
        self._starting_watcher = threading.Lock()

    def now(self) -> int:
        return self._clock.now()

    async def open(self) -> None:
        refuse_inside(self._gate_path, _OPEN_BEFORE)
        started: list[Writer] = []
        # It is this store's when it is open, and not before: an opening that was cancelled ends
        # by itself, and must not end the next one, which may have begun meanwhile.
        await in_thread(
            lambda: started.append(self._start()), if_abandoned=lambda: started[0].close()
        )
        self._writer = started[0]

    def open_blocking(self) -> None:
        self._writer = self._start()

    def _start(self) -> Writer:
        """Create or migrate the file if needed, and start the writing thread."""
        if self._is_temporary and self._temporary is None:
            # A private folder instead of SQLite's own memory databases: those lock whole tables
            # between connections, so that nothing here would behave as it does on a file.
            self._temporary = Path(tempfile.mkdtemp(prefix="edgeq-"))
            self.path = self._temporary / "memory.db"
            self._gate_path = gate_of(self.path)
        gates: list[Gate] = []
        writer = Writer(
            lambda: self._open_session(gates),
            EXECUTORS,
            describe_holder=lambda: gates[0].holder() if gates else "unknown",
            elapsed=self._clock.elapsed,
            patience=self._patience,
        )
        writer.open()
        return writer

    async def close(self) -> None:
        readers, self._readers = self._readers, None
        close_threads = self._hand_over_threads()
        # Shielded: a cancelled close must not leave a thread with an open connection behind.
        await asyncio.shield(_close(readers, close_threads))

    def close_blocking(self) -> None:
        self._hand_over_threads()()

    def _hand_over_threads(self) -> Callable[[], None]:
        """From here on nothing is begun, and whoever opens this again has threads of his own."""
        with self._starting_watcher:
            writer, self._writer = self._writer, None
            watcher, self._watcher = self._watcher, None
        temporary, self._temporary = self._temporary, None

        def close() -> None:
            if watcher is not None:
                watcher.close()
            if writer is not None:
                writer.close()
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)

        return close

    async def write(self, command: Command[T]) -> T:
        writer = self._open_writer()
        refuse_inside(self._gate_path, _JOIN)
        return await writer.write(command)

    def write_blocking(self, command: Command[T], timeout: float | None = None) -> T:
        writer = self._open_writer()
        refuse_inside(self._gate_path, _JOIN)
        return writer.write_blocking(command, timeout)

    async def write_within(self, connection: object, command: Command[T]) -> T:
        # Imported on first use: whoever has a connection of SQLAlchemy has paid for it already.
        from edgeq.store import joined

        self._open_writer()
        return await joined.write_within(connection, self._gate_path, command, self.now())

    def write_within_blocking(self, connection: object, command: Command[T]) -> T:
        from edgeq.store import joined

        self._open_writer()
        return joined.write_within_blocking(connection, self._gate_path, command, self.now())

    def take_last_words(self) -> None:
        self._open_writer().take_last_words()

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

    def _open_session(self, gates: list[Gate]) -> SqliteSession:
        create_if_missing(self.path)
        gate = Gate(self.path)
        gates.append(gate)
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


async def _close(readers: SqliteReaders | None, close_threads: Callable[[], None]) -> None:
    if readers is not None:
        await readers.close()
    await in_thread(close_threads)

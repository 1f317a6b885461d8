"""Reading connections: read only, without transactions, through SQLAlchemy's async engine."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.sql.expression import Executable

from edgeq.errors import StoreBusy, StoreUnavailable
from edgeq.ports.clock import Clock
from edgeq.ports.queries import Query
from edgeq.store.gate import Gate
from edgeq.store.prepared import IndexedByCompiler
from edgeq.store.reads import ANSWERS
from edgeq.store.session import Row
from edgeq.store.sqlite_file import READER_PRAGMAS, translated
from edgeq.store.sqlite_session import CLOSING_SECONDS

T = TypeVar("T")
_CONNECTIONS = 4
_LOOK_SECONDS = 0.005


class ConnectionReader:
    """Runs statements on a SQLAlchemy connection."""

    def __init__(self, connection: Connection, now: int) -> None:
        self._connection = connection
        self.now = now

    def rows(self, statement: Executable, **parameters: Any) -> list[Row]:
        return list(self._connection.execute(statement, parameters).fetchall())


class SqliteReaders:
    """A few connections that can read while the writer writes, and never hold it up."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._engine: AsyncEngine = create_async_engine(
            # Not even an empty file: a queue that was deleted must be missed, not made again.
            URL.create(
                "sqlite+aiosqlite",
                database=path.absolute().as_uri(),
                query={"mode": "rw", "uri": "true"},
            ),
            isolation_level="AUTOCOMMIT",
            pool_size=_CONNECTIONS,
            max_overflow=0,
            pool_timeout=30,
            hide_parameters=True,
        )
        self._engine.sync_engine.dialect.statement_compiler = IndexedByCompiler
        event.listen(self._engine.sync_engine, "connect", _prepare)
        self._reading: set[asyncio.Task[Any]] = set()

    async def read(self, query: Query[T]) -> T:
        """Reads are short, and go on when their caller is cancelled: a connection whose opening
        was cancelled would stay open until the garbage collector finds it."""
        reading = asyncio.get_running_loop().create_task(self._read(query))
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)
        return await asyncio.shield(reading)

    async def _read(self, query: Query[T]) -> T:
        answer = ANSWERS[type(query)]
        now = self._clock.now()
        try:
            async with self._engine.connect() as connection:
                return await connection.run_sync(
                    lambda sync: answer(ConnectionReader(sync, now), query)
                )
        except DBAPIError as error:
            if isinstance(error.orig, sqlite3.Error):
                raise translated(error.orig, self._path) from error
            raise StoreUnavailable(f"{self._path}: {error.orig}") from error

    async def close(self) -> None:
        """Through the gate: the last connection to a file checkpoints when it closes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                # They may be of other event loops, which could not be waited for together.
                while self._reading:  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_SECONDS)
        gate = Gate(self._path)
        try:
            await gate.acquire_beside_loop(CLOSING_SECONDS)
            await self._engine.dispose()
        except StoreBusy:
            await self._engine.dispose(close=False)
        finally:
            gate.close()


def _prepare(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in READER_PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()

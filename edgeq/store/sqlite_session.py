"""A writing session on one SQLite file: gate, transaction, guard row, change feed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from sqlalchemy.sql.expression import Executable

from edgeq.errors import NewerSchema, StoreBusy, StoreFrozen, StoreMoved
from edgeq.ports.queries import Change
from edgeq.store import system_sql, types_sql
from edgeq.store.gate import Gate, gate_of
from edgeq.store.inside import Stay, remember
from edgeq.store.lending import Lender
from edgeq.store.prepared import Parameters, PlainSqlite, Prepared
from edgeq.store.session import Row, TypeBook
from edgeq.store.sqlite_file import in_our_words, inode_of, refuse_replaced, translated
from edgeq.store.tables import GuardMode

T = TypeVar("T")
SCHEMA_VERSION = 2
FEED_KEPT_MS = 3_600_000
CLOSING_SECONDS = 5.0
_TRIM_EVERY = 64
_BUSY_TRIES = 50

_dialect = PlainSqlite()
_prepared: dict[int, tuple[Executable, Prepared]] = {}


def prepare(statement: Executable) -> Prepared:
    """The compiled form of a statement that lives as long as its module."""
    found = _prepared.get(id(statement))
    if found is None:
        found = _prepared[id(statement)] = (statement, Prepared(statement, _dialect))
    return found[1]


class SqliteSession:
    """The writer thread's connection. Every transaction goes through the gate."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, gate: Gate, now: Callable[[], int]
    ) -> None:
        self._connection = connection
        self._path = path
        self._gate = gate
        self._now = now
        self._inode = inode_of(path)
        self._view = SqliteTransaction(connection, path)
        self._data_version = self._read_data_version()
        self._commits = 0
        self._changed_before = 0
        self._holds_gate = False

    def begin(self) -> SqliteTransaction:
        self._gate.acquire()
        self._holds_gate = True
        try:
            refuse_replaced(self._path, self._inode)
            with in_our_words(self._path):
                self._begin_immediate()
            self._view.start(self._now())
            self._changed_before = self._connection.total_changes
        except BaseException:
            self.rollback()
            raise
        return self._view

    def commit(self) -> bool:
        view = self._view
        with in_our_words(self._path):
            view.write_feed()
            self._commits += 1
            if self._commits % _TRIM_EVERY == 0:
                view.change(system_sql.TRIM_FEED, before=view.now - FEED_KEPT_MS)
            has_changed = self._connection.total_changes != self._changed_before
            self._connection.execute("COMMIT")
        self._leave()
        return has_changed

    def rollback(self) -> None:
        self._view.forget()
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._leave()

    def look(self) -> SqliteTransaction:
        self._view.start(self._now())
        return self._view

    def has_changed(self) -> bool:
        version = self._read_data_version()
        changed = version != self._data_version
        self._data_version = version
        return changed

    def close(self) -> None:
        # The last connection to close checkpoints, and every checkpoint goes through the gate.
        try:
            with self._gate.held(CLOSING_SECONDS):
                self._connection.close()
        except StoreBusy:
            # Imported on first use: it hardly ever is.
            from edgeq.store.left_open import leave_open

            leave_open(self._connection)
        self._gate.close()

    def _leave(self) -> None:
        if self._holds_gate:
            self._holds_gate = False
            self._gate.release()

    def _begin_immediate(self) -> None:
        """Only programs that do not know the gate can be in the way, and they are waited for."""
        for tries_left in reversed(range(_BUSY_TRIES)):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not is_busy or tries_left == 0:
                    raise
            else:
                return

    def _read_data_version(self) -> int:
        with in_our_words(self._path):
            version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return version


class SqliteTransaction:
    """Runs statements on the driver's cursor, and remembers what changed for the feed."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._path = path
        self._changes: list[Change] = []
        self._lender: Lender | None = None
        self._types: TypeBook | None = None
        self._config: tuple[int, Mapping[str, object]] | None = None
        self._types_version = 0
        self._config_version = 0
        self.now = 0

    def start(self, now: int) -> None:
        self._changes.clear()
        self.now = now
        row = self.row(system_sql.READ_GUARD)
        if row is None:
            raise StoreMoved(f"{self._path} has lost its guard row: it is not an edgeq queue.")
        schema_version, mode, self._types_version, self._config_version = row
        if schema_version > SCHEMA_VERSION:
            raise NewerSchema(
                f"{self._path} was migrated by a newer edgeq while this one was running. "
                "Restart this process with the newer version."
            )
        if mode != GuardMode.OPEN:
            _refuse(self._path, GuardMode(mode))

    def forget(self) -> None:
        """After a rollback: what was read inside it may never have been."""
        self._changes.clear()
        self._types = self._config = None

    @property
    def types(self) -> TypeBook:
        if self._types is None or self._types.version != self._types_version:
            self._types = types_sql.read_types(self, self._types_version)
        return self._types

    @property
    def config(self) -> Mapping[str, object]:
        if self._config is None or self._config[0] != self._config_version:
            self._config = (self._config_version, system_sql.read_config(self))
        return self._config[1]

    def rows(self, statement: Executable, **parameters: Any) -> list[Row]:
        prepared = prepare(statement)
        try:
            return self._execute(prepared.sql, prepared.lay_out(parameters)).fetchall()
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def row(self, statement: Executable, **parameters: Any) -> Row | None:
        found = self.rows(statement, **parameters)
        return found[0] if found else None

    def change(self, statement: Executable, **parameters: Any) -> int:
        prepared = prepare(statement)
        try:
            return self._execute(prepared.sql, prepared.lay_out(parameters)).rowcount
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def change_many(self, statement: Executable, rows: Sequence[Parameters]) -> int:
        prepared = prepare(statement)
        try:
            laid_out = [prepared.lay_out(row) for row in rows]
            return self._connection.executemany(prepared.sql, laid_out).rowcount
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def tell(self, change: Change) -> None:
        self._changes.append(change)

    def types_changed(self) -> None:
        self.change(system_sql.COUNT_TYPES_VERSION)
        self._types_version += 1
        self._types = None

    def config_changed(self) -> None:
        self.change(system_sql.COUNT_CONFIG_VERSION)
        self._config_version += 1
        self._config = None

    def savepoint(self) -> SqliteSavepoint:
        return SqliteSavepoint(self._connection, self._changes)

    def lend(self, work: Callable[[Any], T]) -> T:
        if self._lender is None:
            self._lender = Lender(self._connection)
        # Whoever uses a queue on this file from inside would wait for itself, and is told.
        stay = Stay(gate_of(self._path))
        remember(stay)
        try:
            return self._lender.lend(work)
        finally:
            stay.is_over = True

    def write_feed(self) -> None:
        if self._changes:
            text = msgspec.json.encode(self._changes).decode()
            self.change(system_sql.WRITE_FEED, at=self.now, changes=text)
            self._changes.clear()


class SqliteSavepoint:
    """A part of a transaction; undoing it also takes its changes out of the feed."""

    def __init__(self, connection: sqlite3.Connection, changes: list[Change]) -> None:
        self._connection = connection
        self._changes = changes
        self._told_before = len(changes)
        connection.execute("SAVEPOINT unit")

    def keep(self) -> None:
        self._connection.execute("RELEASE unit")

    def undo(self) -> None:
        del self._changes[self._told_before :]
        self._connection.execute("ROLLBACK TO unit")
        self._connection.execute("RELEASE unit")


def _refuse(path: Path, mode: GuardMode) -> None:
    if mode is GuardMode.MOVED:
        raise StoreMoved(f"The queue in {path} has moved to another database. Use that one.")
    raise StoreFrozen(f"{path} takes no writes now (mode {mode}): an operator has stopped them.")

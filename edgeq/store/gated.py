"""A connection of an application to the queue's file: it can write only while it has the gate."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from edgeq.errors import StoreBusy
from edgeq.ports.commands import Command
from edgeq.store.executors import EXECUTORS
from edgeq.store.gate import PATIENCE_SECONDS, Gate
from edgeq.store.inside import Stay
from edgeq.store.left_open import leave_open
from edgeq.store.sqlite_file import create_if_missing, in_our_words, inode_of, refuse_replaced
from edgeq.store.sqlite_session import SqliteTransaction

T = TypeVar("T")


class GatedConnection(sqlite3.Connection):
    """Begins by `begin` alone; `query_only` keeps every other write out.

    It works at the level of the driver, where SQLAlchemy and aiosqlite end up whatever happens
    above: the gate opens after the COMMIT or ROLLBACK itself, on the thread that ran it.
    """

    def __init__(self, database: str, *, durable: bool, **given: Any) -> None:
        self.path = Path(database)
        self.gate = Gate(self.path)
        self._owner = os.getpid()
        self._stay: Stay | None = None
        self._has_begun = False
        self._announced_level: str | None = ""
        # The driver would begin transactions of its own otherwise, without the gate.
        given.update(isolation_level=None, check_same_thread=False)
        given.pop("autocommit", None)
        try:
            create_if_missing(self.path)
            super().__init__(database, **given)
        except BaseException:
            self.gate.close()
            raise
        self._is_open = True
        self._inode = inode_of(self.path)
        self._view = SqliteTransaction(self, self.path)
        for pragma in _pragmas(durable=durable):
            self.execute(f"PRAGMA {pragma}").fetchall()

    @property  # type: ignore[override]
    def isolation_level(self) -> str | None:
        """What SQLAlchemy has set: None stands for AUTOCOMMIT, in which nothing is begun."""
        return self._announced_level

    @isolation_level.setter
    def isolation_level(self, level: str | None) -> None:
        self._announced_level = level

    @property
    def is_autocommit(self) -> bool:
        return self._announced_level is None

    @property
    def is_inherited(self) -> bool:
        """Whether a fork has brought it here: its gate and its locks are still the parent's."""
        return self._owner != os.getpid()

    def enter(self) -> Stay:
        """The gate is ours from here on, and leaves with the transaction."""
        self._stay = Stay(self.gate.path)
        return self._stay

    def begin(self) -> None:
        """After `enter`: start the transaction that may write."""
        try:
            refuse_replaced(self.path, self._inode)
            self.execute("PRAGMA query_only = OFF")
            self.execute("BEGIN IMMEDIATE")
            self._has_begun = True
        except BaseException:
            self.rollback()
            raise

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(_GatedCursor if factory is None else factory)

    def refuse_ended(self) -> None:
        """Raises when SQLite has rolled the transaction back by itself, as for a full disk.

        What followed would be committed statement by statement, without what came before.
        """
        if self._has_begun and not self.in_transaction:
            raise sqlite3.OperationalError(
                "SQLite has rolled this transaction back after an error. Roll it back here too, "
                "and begin again."
            )

    def carry_out(self, command: Command[T], now: int) -> T:
        """A command within the open transaction: all of it, or nothing of it."""
        with in_our_words(self.path):
            self.refuse_ended()
        self._view.start(now)
        with self._part():
            answer: T = EXECUTORS[type(command)](self._view, command)
            self._view.write_feed()
        return answer

    @contextlib.contextmanager
    def _part(self) -> Iterator[None]:
        savepoint = self._view.savepoint()
        try:
            yield
        except BaseException:
            # A full disk, for one, has ended the whole transaction already.
            with contextlib.suppress(sqlite3.Error):
                savepoint.undo()
            raise
        savepoint.keep()

    def commit(self) -> None:
        try:
            super().commit()
        finally:
            # A commit that failed may have left its transaction open, and then its gate held.
            if not self.in_transaction:
                self._leave()

    def rollback(self) -> None:
        # A pool resets connections that have nothing to undo, also in a child.
        if self._stay is None or self.is_inherited:
            return
        try:
            super().rollback()
        finally:
            self._view.forget()
            if not self.in_transaction:
                self._leave()

    def close(self) -> None:
        """Through the gate, since the last connection of a file checkpoints when it closes.

        Nobody is kept waiting for that: if the gate is held, a thread closes in turn. It must not
        be waited for here, because the one who holds it may be the one who closes this.
        """
        if not self._is_open:
            return
        self._is_open = False
        if self.is_inherited:
            leave_open(self)
        elif self._stay is not None or self.gate.acquire_at_once():
            self._close_inside()
        elif sys.is_finalizing():  # threads can no longer be started
            leave_open(self)
        else:
            threading.Thread(target=self._close_in_turn, name="edgeq-close", daemon=True).start()

    def _close_in_turn(self) -> None:
        try:
            self.gate.acquire_within(PATIENCE_SECONDS)
        except StoreBusy:
            leave_open(self)
        else:
            self._close_inside()

    def _close_inside(self) -> None:
        try:
            super().close()
        finally:
            self._end_stay()
            self.gate.release()
            self.gate.close()

    def __del__(self) -> None:
        # Nothing is open if it could not even be made.
        if getattr(self, "_is_open", False):
            self.close()

    def _leave(self) -> None:
        if self._stay is not None:
            self._has_begun = False
            try:
                self.execute("PRAGMA query_only = ON")
            finally:
                self._end_stay()
                self.gate.release()

    def _end_stay(self) -> None:
        self._has_begun = False
        if self._stay is not None:
            self._stay.is_over = True
            self._stay = None


class _GatedCursor(sqlite3.Cursor):
    connection: GatedConnection

    def execute(self, sql: str, parameters: Any = ()) -> _GatedCursor:
        self.connection.refuse_ended()
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any) -> _GatedCursor:
        self.connection.refuse_ended()
        return super().executemany(sql, parameters)


def _pragmas(*, durable: bool) -> tuple[str, ...]:
    """As the writer has them where the file is concerned; the rest is the application's."""
    return (
        f"synchronous = {'FULL' if durable else 'NORMAL'}",
        "journal_size_limit = 67108864",
        # Behind the gate only a program that does not know it can be in the way.
        "busy_timeout = 5000",
        "query_only = ON",
    )

"""The watcher: one thread per process that learns of every commit to the file, whoever made it."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy.sql.expression import Executable

from edgeq.errors import StoreBusy, StoreError, StoreMoved, StoreUnavailable
from edgeq.ports.queries import Changes, GetChanges
from edgeq.ports.store import Listener
from edgeq.store.reads import get_changes
from edgeq.store.session import Row
from edgeq.store.sqlite_file import (
    connect_for_reading,
    in_our_words,
    inode_of,
    refuse_replaced,
)
from edgeq.store.sqlite_session import prepare

# A look costs ten microseconds. Requests come in bursts, and each waits for two looks.
_BUSY_SECONDS = 0.002
_IDLE_SECONDS = 0.005
_LOOKS_TO_IDLE = 250
_LOOKS_BETWEEN_STATS = 200
_MEND_SECONDS = 1.0
_COMMITS_AT_ONCE = 1000
_log = logging.getLogger("edgeq.store")


class Watcher:
    """Asks the file's data version on a connection of its own, and reads the change feed."""

    def __init__(self, path: Path, now: Callable[[], int]) -> None:
        self._path = path
        self._now = now
        self._listeners: tuple[Listener, ...] = ()
        self._changing = threading.Lock()
        self._ends = threading.Event()
        self._moved: StoreMoved | None = None
        self._inode = inode_of(path)
        self._connection = connect_for_reading(path)
        self._version = -1
        self._quiet_looks = 0
        try:
            self._position = self._newest()
        except BaseException:
            self._connection.close()
            raise
        self._thread = threading.Thread(target=self._live, name="edgeq-watcher", daemon=True)
        self._thread.start()

    def add(self, listener: Listener) -> Callable[[], None]:
        """Tell a listener, too; StoreMoved if there is nothing left to tell of."""

        # An object of its own: the same function may listen twice, and leave once.
        def tell(news: Changes | StoreError) -> None:
            listener(news)

        with self._changing:
            if self._moved is not None:
                raise StoreMoved(str(self._moved))
            self._listeners = (*self._listeners, tell)

        def remove() -> None:
            with self._changing:
                self._listeners = tuple(each for each in self._listeners if each is not tell)

        return remove

    def close(self) -> None:
        """End the thread. The writer's connection is still open: this one is never the last to
        close, so closing it checkpoints nothing and needs no gate."""
        self._ends.set()
        self._thread.join()

    def _live(self) -> None:
        looks = 0
        try:
            while not self._ends.wait(self._pause()):
                looks += 1
                try:
                    if looks % _LOOKS_BETWEEN_STATS == 0:
                        refuse_replaced(self._path, self._inode)
                    self._look()
                except Exception as failure:  # whatever it was, watching goes on
                    self._mend(failure)
        except StoreMoved as moved:
            with self._changing:
                self._moved = moved
            self._tell(moved)
        finally:
            self._connection.close()

    def _pause(self) -> float:
        if not self._listeners:
            return _IDLE_SECONDS * 4
        return _BUSY_SECONDS if self._quiet_looks < _LOOKS_TO_IDLE else _IDLE_SECONDS

    def _look(self) -> None:
        with in_our_words(self._path):
            version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            self._quiet_looks += 1
            return
        self._quiet_looks = 0
        while True:
            news = get_changes(
                _PlainReader(self._connection, self._path, self._now()),
                GetChanges(self._position, _COMMITS_AT_ONCE),
            )
            self._position = news.position
            if news.changes or news.reset:
                self._tell(news)
            if not news.changes:
                break
        self._version = version

    def _newest(self) -> int:
        reader = _PlainReader(self._connection, self._path, self._now())
        return get_changes(reader, GetChanges(0, 0)).position

    def _tell(self, news: Changes | StoreError) -> None:
        for listener in self._listeners:
            try:
                listener(news)
            except Exception:  # one listener's fault is not the others' loss
                _log.exception("a listener of the change feed failed")

    def _mend(self, failure: Exception) -> None:
        """Open a new connection instead of one that failed, however long that takes."""
        if isinstance(failure, StoreMoved):
            raise failure
        _log.warning("watching for changes failed and is tried again: %s", failure)
        if not isinstance(failure, StoreError):
            failure = StoreUnavailable(f"{self._path} cannot be watched ({failure}).")
        self._tell(failure)
        self._connection.close()
        while not self._ends.wait(_MEND_SECONDS):
            with contextlib.suppress(StoreUnavailable, StoreBusy, OSError):
                refuse_replaced(self._path, self._inode)
                self._connection = connect_for_reading(self._path)
                self._version = -1
                return


class _PlainReader:
    """Runs prepared statements on the watcher's own connection."""

    def __init__(self, connection: sqlite3.Connection, path: Path, now: int) -> None:
        self._connection = connection
        self._path = path
        self.now = now

    def rows(self, statement: Executable, **parameters: Any) -> list[Row]:
        prepared = prepare(statement)
        with in_our_words(self._path):
            return self._connection.execute(prepared.sql, prepared.lay_out(parameters)).fetchall()

"""Lending the writer's transaction to code of a handler: for a while, and not to be ended by it."""

from __future__ import annotations

import contextlib
import ctypes
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.pool import StaticPool

from edgeq.errors import TransactionFailed, WriterHeld

T = TypeVar("T")
LENT_SECONDS = 5.0
_NOT_YOURS = (
    "This transaction commits with the step that it belongs to. Do not commit it or roll it back: "
    "return to keep it, raise to undo it, begin_nested() for a part."
)
_STEPS_BETWEEN_LOOKS = 10_000
_TURNS = 100


class TookTooLong(BaseException):
    """Raised into code that keeps the transaction of all writers for too long."""


class Lender:
    """Dresses a driver's connection as one of SQLAlchemy, whose transaction is not the user's."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._is_lent = False
        self._engine: Engine | None = None

    def lend(self, work: Callable[[Connection], T], seconds: float | None = None) -> T:
        """Call it inside the open transaction; whatever it raises undoes the transaction."""
        seconds = LENT_SECONDS if seconds is None else seconds
        with self._dressed().connect() as connection:
            try:
                with _kept_open(self._connection), _stopped_after(seconds, self._connection):
                    self._is_lent = True
                    return work(connection)
            except TookTooLong:
                raise TransactionFailed(
                    TimeoutError(
                        f"it kept the transaction of all writers for more than {seconds:g} s and "
                        "was stopped; nothing of it was stored. Do slow work outside of it."
                    )
                ) from None
            except BaseException as failure:
                # Also what is no Exception, such as a checkpoint's: it is the handler's, and must
                # not end the thread of all writers.
                raise TransactionFailed(failure) from failure
            finally:
                self._is_lent = False

    def _dressed(self) -> Engine:
        if self._engine is None:
            engine = create_engine(
                f"{_NAME}://",
                creator=lambda: self._connection,
                poolclass=StaticPool,
                pool_reset_on_return=None,
                hide_parameters=True,
            )
            assert isinstance(engine.dialect, LentDialect)  # noqa: S101 - registered below
            engine.dialect.refuse_to_end = self._refuse_to_end
            self._engine = engine
        return self._engine

    def _refuse_to_end(self) -> None:
        if self._is_lent:
            raise WriterHeld(_NOT_YOURS)


class LentDialect(SQLiteDialect_pysqlite):
    """SQLite on a connection that is the writer's, and whose transaction goes on after the loan."""

    driver = "pysqlite"
    supports_statement_cache = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.refuse_to_end: Callable[[], None] = lambda: None
        self._is_set_up = False

    def on_connect(self) -> Callable[[Any], None]:
        set_up = super().on_connect()

        def set_up_once(connection: Any) -> None:
            if not self._is_set_up and set_up is not None:
                set_up(connection)
            self._is_set_up = True

        return set_up_once

    def do_commit(self, dbapi_connection: Any) -> None:  # noqa: ARG002
        self.refuse_to_end()

    def do_rollback(self, dbapi_connection: Any) -> None:  # noqa: ARG002
        self.refuse_to_end()

    # What stops the code may come in the midst of a call of SQLAlchemy, which then takes the
    # connection for broken; but it is as good as before.
    def do_close(self, dbapi_connection: Any) -> None:
        pass

    def do_terminate(self, dbapi_connection: Any) -> None:
        pass


_NAME = "edgeq_lent"
registry.register(_NAME, __name__, LentDialect.__name__)


@contextlib.contextmanager
def _kept_open(connection: sqlite3.Connection) -> Iterator[None]:
    """Let no statement of this block end the transaction, or be one outside of it."""

    was_refused = False

    def allow(action: int, *_: object) -> int:
        nonlocal was_refused
        if action == sqlite3.SQLITE_TRANSACTION or not connection.in_transaction:
            was_refused = True
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    connection.set_authorizer(allow)
    try:
        yield
    except Exception as failure:
        if was_refused:
            raise WriterHeld(_NOT_YOURS) from failure
        raise
    finally:
        connection.set_authorizer(None)
    if not connection.in_transaction:
        # Such as by INSERT OR ROLLBACK, whose error the code has swallowed.
        raise WriterHeld(_NOT_YOURS)


@contextlib.contextmanager
def _stopped_after(seconds: float, connection: sqlite3.Connection) -> Iterator[None]:
    """Stop the code of this block: a statement by its driver, Python by an exception."""
    deciding = threading.Lock()
    is_over = is_late = False
    thread = ctypes.c_ulong(threading.get_ident())

    def stop() -> None:
        nonlocal is_late
        with deciding:
            if not is_over:
                is_late = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(TookTooLong))

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    connection.set_progress_handler(lambda: is_late, _STEPS_BETWEEN_LOOKS)
    try:
        yield
        with deciding:
            is_over = True
    except BaseException:
        with deciding:
            is_over = True
        if is_late:
            raise TookTooLong from None
        raise
    finally:
        # What was sent and has not come yet must hit nobody else. It comes between two turns of a
        # loop. (Taking it back instead makes Python 3.11.2 turn for ever.)
        with contextlib.suppress(TookTooLong):
            for _ in range(_TURNS):
                pass
        timer.cancel()
        connection.set_progress_handler(None, 0)
    if is_late:
        raise TookTooLong

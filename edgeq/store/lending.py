"""Lending the writer's transaction to code of a handler: for a while, and not to be ended by it."""

from __future__ import annotations

import contextlib
import ctypes
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import StaticPool

from edgeq.errors import TransactionFailed, WriterHeld

T = TypeVar("T")
LENT_SECONDS = 5.0
_STEPS_BETWEEN_LOOKS = 10_000


class TookTooLong(BaseException):
    """Raised into code that keeps the transaction of all writers for too long."""


class Lender:
    """Dresses a driver's connection as one of SQLAlchemy, whose transaction is not the user's."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._is_lent = False
        self._engine: Engine | None = None

    def lend(self, work: Callable[[Connection], T], seconds: float = LENT_SECONDS) -> T:
        """Call it inside the open transaction; whatever it raises undoes the transaction."""
        with self._dressed().connect() as connection:
            try:
                with _stopped_after(seconds, self._connection):
                    self._is_lent = True
                    return work(connection)
            except TookTooLong:
                raise TransactionFailed(
                    TimeoutError(
                        f"it kept the transaction of all writers for more than {seconds:g} s and "
                        "was stopped; nothing of it was stored. Do slow work outside of it."
                    )
                ) from None
            except Exception as failure:
                raise TransactionFailed(failure) from failure
            finally:
                self._is_lent = False

    def _dressed(self) -> Engine:
        if self._engine is None:
            engine = create_engine(
                "sqlite://",
                creator=lambda: self._connection,
                poolclass=StaticPool,
                pool_reset_on_return=None,
                hide_parameters=True,
            )
            # The transaction began before the loan and goes on after it.
            engine.dialect.do_commit = self._end  # type: ignore[method-assign,assignment]
            engine.dialect.do_rollback = self._end  # type: ignore[method-assign,assignment]
            self._engine = engine
        return self._engine

    def _end(self, _connection: object) -> None:
        if self._is_lent:
            raise WriterHeld(
                "This transaction commits with the step that it belongs to. Do not commit it or "
                "roll it back: return to keep it, raise to undo it, begin_nested() for a part."
            )


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
        timer.cancel()
        connection.set_progress_handler(None, 0)
        # It may have been sent and not have come yet: nobody else must be hit by it.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, None)
    if is_late:
        raise TookTooLong

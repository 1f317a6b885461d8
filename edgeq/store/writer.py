"""The writer: one thread per process that groups all writes into shared commits."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from edgeq.errors import (
    EdgeqError,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    WriterHeld,
)
from edgeq.ports.commands import Command, InsertJobs
from edgeq.ports.flow_commands import RunInTransaction
from edgeq.store.gate import PATIENCE_SECONDS
from edgeq.store.lock_watches import LockWatches
from edgeq.store.session import Session, Transaction
from edgeq.store.units import AwaitedUnit, BlockingUnit, Unit, deliver_all

T = TypeVar("T")
Executor = Callable[[Transaction, Any], Any]

GROUP_AT_MOST = 500
CLOSING_SECONDS = 30.0
_GATE_SECONDS = 0.5
_log = logging.getLogger("edgeq.store")


class Writer:
    """Owns a session on its own thread; callers on any thread or loop hand it commands."""

    def __init__(
        self,
        open_session: Callable[[], Session],
        executors: Mapping[type[Command[Any]], Executor],
        *,
        describe_holder: Callable[[], str],
        elapsed: Callable[[], float],
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._patience = patience
        self._open_session = open_session
        self._executors = executors
        self._describe_holder = describe_holder
        self._waiting: queue.SimpleQueue[Unit[Any] | None] = queue.SimpleQueue()
        self._held_back: Unit[Any] | None = None
        self._state = threading.Lock()
        self._is_closed = True
        self._is_at_gate = False
        self._last_speaker: int | None = None
        self._thread: threading.Thread | None = None
        self.watches = LockWatches(self._waiting.put, elapsed)

    def open(self) -> None:
        """Start the thread and wait until its session is open, or raise what prevented it."""
        opened: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._live, args=(opened,), name="edgeq-writer", daemon=True
        )
        self._is_closed = False
        self._thread.start()
        failure = opened.get()
        if failure is not None:
            self._is_closed = True
            self._thread.join()
            raise failure

    def close(self) -> None:
        """Finish what was handed in, then end the thread."""
        with self._state:
            if self._is_closed:
                return
            self._is_closed = True
            # Behind the same lock as every put: nothing can follow it into the queue.
            self._waiting.put(None)
        thread = self._thread
        deadline = time.monotonic() + CLOSING_SECONDS
        while thread is not None and thread.is_alive() and time.monotonic() < deadline:
            was_at_gate = self._is_at_gate
            thread.join(_GATE_SECONDS)
            if was_at_gate and self._is_at_gate:
                # Somebody holds the database and everybody who waited has been told. The thread
                # ends with the process, or when it gets its turn.
                return

    async def write(self, command: Command[T]) -> T:
        loop = asyncio.get_running_loop()
        unit = AwaitedUnit(command, loop)
        self._hand_in(unit)
        timer = loop.call_later(self._patience, unit.give_up, self._busy)
        try:
            return await unit.reply  # type: ignore[no-any-return]
        finally:
            timer.cancel()

    def write_blocking(self, command: Command[T], timeout: float | None = None) -> T:
        unit = BlockingUnit(command)
        self._hand_in(unit)
        patience = self._patience if timeout is None else timeout
        return unit.wait(patience, lambda: self._busy(patience))

    def take_last_words(self) -> None:
        """Hear nobody but the calling thread; what was handed in before is still carried out."""
        with self._state:
            self._last_speaker = threading.get_ident()

    def _hand_in(self, unit: Unit[Any]) -> None:
        if threading.current_thread() is self._thread:
            raise WriterHeld(
                "The queue was called from inside its own transaction, which would wait for "
                "itself. Use the connection that was passed in, and the queue afterwards."
            )
        with self._state:
            if self._is_closed:
                raise StoreClosed("This queue is closed. Open it with `async with Queue(...)`.")
            # A refusal would only be heard by a program that is about to end, and in its way.
            if self._last_speaker in (None, threading.get_ident()):
                self._waiting.put(unit)

    def _busy(self, patience: float | None = None) -> StoreBusy:
        return StoreBusy(
            f"The database was held for more than {patience or self._patience:g} s by process "
            f"{self._describe_holder()}. If that process is stopped or hangs, end it; nothing of "
            "this call was stored."
        )

    def _live(self, opened: queue.SimpleQueue[BaseException | None]) -> None:
        try:
            session = self._open_session()
        except BaseException as failure:  # the opener's thread raises it
            opened.put(failure)
            return
        opened.put(None)
        try:
            self._serve(session)
        except BaseException as failure:
            _log.critical("the writer of this process has failed and takes no more", exc_info=True)
            self._refuse_everything(failure)
        finally:
            session.close()

    def _refuse_everything(self, failure: BaseException) -> None:
        """Nobody may wait for a thread that is gone."""
        with self._state:
            self._is_closed = True
            self._waiting.put(None)
        while (unit := self._next_unit(0)) is not None:
            if unit.take():
                unit.error = StoreUnavailable(f"The writer of this process has failed: {failure}")
                deliver_all([unit])

    def _serve(self, session: Session) -> None:
        while True:
            try:
                first = self._next_unit(self.watches.seconds_to_next())
            except queue.Empty:
                self.watches.tick(session)
                continue
            if first is None or self._commit_group(session, first):
                return
            # Under steady load the queue is never empty, and locks still have to be kept.
            if self.watches.is_due():
                self.watches.tick(session)

    def _next_unit(self, seconds: float) -> Unit[Any] | None:
        unit, self._held_back = self._held_back, None
        return self._waiting.get(timeout=seconds) if unit is None else unit

    def _commit_group(self, session: Session, first: Unit[Any]) -> bool:
        """Run one group; True when the end of the queue was in it."""
        self._is_at_gate = True
        try:
            transaction = session.begin()
        except (StoreError, OSError) as failure:
            return self._refuse_group(first, failure)
        finally:
            self._is_at_gate = False
        units, is_last = self._take_waiting(first)
        if not units:
            session.rollback()
            return is_last
        try:
            for unit in units:
                self._run(transaction, unit, alone=len(units) == 1)
            # A claim that found nothing is no news: a worker would answer it with another one.
            if session.commit():
                self.watches.something_was_written()
        except Exception as failure:  # whatever it was, the units must hear of it
            session.rollback()
            self._one_by_one(session, units, failure)
            self.watches.something_was_written()
        deliver_all(units)
        return is_last

    def _take_waiting(self, first: Unit[Any]) -> tuple[list[Unit[Any]], bool]:
        units = [first] if first.take() else []
        if _wants_to_be_alone(first) and units:
            return units, False
        while len(units) < GROUP_AT_MOST:
            try:
                unit = self._waiting.get_nowait()
            except queue.Empty:
                break
            if unit is None:
                return units, True
            if _wants_to_be_alone(unit):
                self._held_back = unit
                break
            if unit.take():
                units.append(unit)
        return units, False

    def _refuse_group(self, first: Unit[Any], failure: BaseException) -> bool:
        units, is_last = self._take_waiting(first)
        for unit in units:
            unit.error = failure
        deliver_all(units)
        return is_last

    def _run(self, transaction: Transaction, unit: Unit[Any], *, alone: bool) -> None:
        """Run a unit; its own refusal undoes only itself, a failing database the whole group."""
        command = unit.command
        savepoint = None if alone or _is_one_statement(command) else transaction.savepoint()
        try:
            unit.answer = self._executors[type(command)](transaction, command)
        except EdgeqError as refusal:
            if alone or isinstance(refusal, StoreError):
                raise
            unit.error = refusal
            if savepoint is not None:
                savepoint.undo()
        else:
            if savepoint is not None:
                savepoint.keep()

    def _one_by_one(self, session: Session, units: list[Unit[Any]], failure: Exception) -> None:
        """After a failed group: what one unit did wrong must not be felt by the others."""
        if len(units) == 1:
            units[0].answer, units[0].error = None, failure
            if not isinstance(failure, EdgeqError):
                _log.error("a write failed unexpectedly", exc_info=failure)
            return
        for unit in units:
            unit.answer = unit.error = None
            try:
                transaction = session.begin()
                self._run(transaction, unit, alone=True)
                session.commit()
            except Exception as own_failure:  # its owner hears of it
                session.rollback()
                unit.answer, unit.error = None, own_failure


def _wants_to_be_alone(unit: Unit[Any]) -> bool:
    """Code of a handler: nobody else's write may wait for it, or be undone with it."""
    return isinstance(unit.command, RunInTransaction)


def _is_one_statement(command: Command[Any]) -> bool:
    """A single insert undoes itself when it fails, and is the one command worth sparing."""
    return isinstance(command, InsertJobs) and len(command.jobs) == 1

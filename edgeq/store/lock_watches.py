"""Lock watches: the writer's thread keeps the locks of running runs, event loop or not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from edgeq.errors import StoreError
from edgeq.ports.commands import ExtendLocks, Held
from edgeq.ports.store import LockWatch
from edgeq.store.jobs_sql import held_by
from edgeq.store.session import Session
from edgeq.store.units import OwnUnit, Unit

LOOK_SECONDS = 1.0
EXTEND_MS = 20_000
TRUST_SECONDS = 40.0


@dataclass(slots=True)
class _Watched:
    watch: LockWatch
    extended_until: int
    trusted_at: float
    is_extending: bool = False
    is_failing: bool = False


class LockWatches:
    """Looks once a second, when something changed, at what runs hold; extends in good time."""

    def __init__(self, hand_in: Callable[[Unit[Held]], None], elapsed: Callable[[], float]) -> None:
        self._hand_in = hand_in
        self._elapsed = elapsed
        self._watched: dict[str, _Watched] = {}
        self._lock = threading.Lock()
        self._was_written = False
        self._next_look = 0.0

    def add(self, watch: LockWatch) -> Callable[[], None]:
        with self._lock:
            self._watched[watch.run_id] = _Watched(watch, watch.lock_until(), self._elapsed())

        def remove() -> None:
            with self._lock:
                self._watched.pop(watch.run_id, None)

        return remove

    def something_was_written(self) -> None:
        """Our own commits do not show in the data version that `has_changed` asks for."""
        self._was_written = True

    def is_due(self) -> bool:
        return bool(self._watched) and self._elapsed() >= self._next_look

    def seconds_to_next(self) -> float:
        """How long the writer may sleep: at most one look, so that it finds a new watch."""
        return max(0.0, self._next_look - self._elapsed()) if self._watched else LOOK_SECONDS

    def tick(self, session: Session) -> None:
        now = self._elapsed()
        self._next_look = now + LOOK_SECONDS
        with self._lock:
            watched = list(self._watched.values())
        if not watched:
            return
        try:
            self._tell_what_changed(session, watched)
        except StoreError:
            # A database that is frozen or gone fails the extensions too, which is what counts.
            self._was_written = True
        for each in watched:
            if each.is_failing and now - each.trusted_at > TRUST_SECONDS:
                each.watch.told(None)
            self._extend_in_good_time(each)

    def _tell_what_changed(self, session: Session, watched: list[_Watched]) -> None:
        if not (session.has_changed() or self._was_written):
            return
        for each in watched:
            each.watch.told(held_by(session.look(), each.watch.run_id))
        self._was_written = False

    def _extend_in_good_time(self, each: _Watched) -> None:
        until = each.watch.lock_until()
        # A clock that stepped back shortens the locks too: hence the distance, not the sign.
        if each.is_extending or abs(until - each.extended_until) < EXTEND_MS:
            return
        each.is_extending = True

        def answered(unit: Unit[Held]) -> None:
            each.is_extending = False
            each.is_failing = unit.answer is None
            if unit.answer is not None:
                each.extended_until = until
                each.trusted_at = self._elapsed()
                each.watch.told(unit.answer)

        self._hand_in(OwnUnit(ExtendLocks(each.watch.run_id, until), answered))

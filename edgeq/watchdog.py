"""The watchdog: ends the process of a run whose code cannot be stopped, jobs put back first."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

from edgeq.core.runs import RunReport
from edgeq.errors import EdgeqError
from edgeq.ports.store import Store
from edgeq.run import Run

# What the last writes may take. Without them locks expire by themselves, a second after the run.
_LAST_WORDS_SECONDS = 0.3
_TURN_SECONDS = 0.00005


class Watchdog:
    """A thread that sleeps until a moment that a healthy run never sees.

    A handler that spins keeps the event loop, but neither this thread nor the writer's.
    """

    def __init__(
        self,
        run: Run,
        store: Store,
        *,
        seconds_left: Callable[[], float],
        show: Callable[[RunReport], None],
    ) -> None:
        self._run = run
        self._store = store
        self._seconds_left = seconds_left
        self._show = show
        self._called = threading.Event()
        self._is_over = False
        self._is_urgent = False
        threading.Thread(target=self._watch, name="edgeq-watchdog", daemon=True).start()

    def look_again(self) -> None:
        """The moment has changed."""
        self._called.set()

    def end_now(self) -> None:
        """A second signal: do not wait for anything."""
        self._is_urgent = True
        self._called.set()

    def cancel(self) -> None:
        self._is_over = True
        self._called.set()

    def _watch(self) -> None:
        while not self._is_over:
            left = self._seconds_left()
            if self._is_urgent or left <= 0:
                self._end_process()
            self._called.wait(max(left, 0.0))
            self._called.clear()

    def _end_process(self) -> None:
        # Threads that spin take turns of 5 ms each, and every statement waits for its own turn.
        sys.setswitchinterval(_TURN_SECONDS)
        report = self._run.closing().report
        try:
            put_back = self._store.write_blocking(self._run.releasing(), _LAST_WORDS_SECONDS)
            closing = self._run.closing(put_back)
            report = self._store.write_blocking(closing, _LAST_WORDS_SECONDS)
        except EdgeqError:
            # The database did not answer in time; the locks of this run expire soon.
            pass
        finally:
            self._show(report)
            os._exit(0)

"""The watchdog: ends the process of a run whose code cannot be stopped, jobs put back first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable

from edgeq.core.runs import RunReport
from edgeq.errors import EdgeqError
from edgeq.ports.store import Store
from edgeq.run import Run

_log = logging.getLogger("edgeq")

# What the last writes may take. Without them locks expire by themselves, a second after the run.
_LAST_WORDS_SECONDS = 0.45
_TURN_SECONDS = 0.00005
# A worker has no end, but may get stuck at any time.
_LONGEST_NAP_SECONDS = 5.0
# How long its event loop may say nothing then.
_STUCK_SECONDS = 5.0
_LOOK_SECONDS = 0.05


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
        exit_code: Callable[[], int] = lambda: 0,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._run = run
        self._store = store
        self._seconds_left = seconds_left
        self._show = show
        self._exit_code = exit_code
        # Of a worker, which has no end: it may get stuck instead.
        self._loop = loop
        self._called = threading.Event()
        self._is_over = False
        self._is_urgent = False
        self.has_reported = False
        self._showing = threading.Lock()
        threading.Thread(target=self._watch, name="edgeq-watchdog", daemon=True).start()

    def look_again(self) -> None:
        """The moment has changed."""
        self._called.set()

    def end_now(self) -> None:
        """A second signal, or the end of a parent: do not wait for anything."""
        self._run.hear_signal()
        self._is_urgent = True
        self._called.set()

    def cancel(self) -> None:
        self._is_over = True
        self._called.set()

    def _watch(self) -> None:
        while not self._is_over:
            left = self._seconds_left()
            if self._is_urgent or left <= 0 or self._is_stuck():
                self._end_process()
            self._called.wait(min(max(left, 0.0), _LONGEST_NAP_SECONDS))
            self._called.clear()

    def _is_stuck(self) -> bool:
        """Whether a handler keeps the event loop beyond its timeout.

        It is asked to answer first: after a process was stopped, or the machine slept, all its
        deadlines have passed, and nobody is to blame.
        """
        if self._loop is None or self._run.stuck_since() is None:
            return False
        answered = threading.Event()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(answered.set)
        for _ in range(round(_STUCK_SECONDS / _LOOK_SECONDS)):
            if answered.wait(_LOOK_SECONDS) or self._is_over:
                return False
            if self._is_urgent or self._seconds_left() <= 0:
                return True
        return True

    def report(self, report: RunReport) -> None:
        """Show the run's report, unless one is out already: the first one counts."""
        with self._showing:
            if not self.has_reported:
                self.has_reported = True
                self._show(report)

    def _end_process(self) -> None:
        """Put the jobs back, report, and leave, whatever of it fails or takes too long."""
        try:
            # Threads that spin take turns of 5 ms each, and every statement waits for its own.
            sys.setswitchinterval(_TURN_SECONDS)
            self._run.claim_no_more()
            if self._run.stuck_since() is not None:
                _log.error(
                    "a handler keeps the event loop beyond its timeout: jobs are put back, and "
                    "this process ends. Blocking code belongs into a `def` handler."
                )
            if not self.has_reported:
                words = threading.Thread(target=self._say_last_words, daemon=True)
                words.start()
                words.join(_LAST_WORDS_SECONDS)
                self.report(self._run.closing().report)
        finally:
            os._exit(self._exit_code())

    def _say_last_words(self) -> None:
        # If the database does not answer in time, the locks of this run expire soon.
        with contextlib.suppress(EdgeqError):
            # The event loop may be well and about to claim: that would come after the release. A
            # claim that is on its way comes before it.
            self._store.take_last_words()
            put_back = self._store.write_blocking(self._run.releasing())
            self.report(self._store.write_blocking(self._run.closing(put_back)))

"""Signals that come before a run has begun: nothing is held yet, so the process simply ends."""

from __future__ import annotations

import os
import signal


def end_at_once() -> None:
    """Until the run takes over, a signal ends the process as well as it would end a run."""
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, _end)


def _end(_signal: int, _frame: object) -> None:
    # Not sys.exit: imports and migrations are in progress, and both survive a sudden end.
    os._exit(0)

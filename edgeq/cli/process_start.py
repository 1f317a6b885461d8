"""When this process began: a run's time counts from there, the start of Python included."""

from __future__ import annotations

import os
import time

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_FIELDS_BEFORE_START = 19  # of /proc/self/stat, behind the name in brackets
_LONGEST_START_SECONDS = 10.0


def process_began() -> float:
    """In the seconds of the clock that runs are timed by; where nobody tells, now."""
    now = time.clock_gettime(CLOCK)
    try:
        with open("/proc/self/stat", "rb") as told:  # noqa: PTH123 - an idle tick imports no more
            fields = told.read().rpartition(b")")[2].split()
        began = int(fields[_FIELDS_BEFORE_START]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return now
    # In a container with a clock of its own the two are not of the same time.
    return began if 0 <= now - began <= _LONGEST_START_SECONDS else now

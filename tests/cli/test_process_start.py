"""When a process began."""

from __future__ import annotations

import subprocess
import sys
import time

from edgeq.cli.process_start import CLOCK

PROGRAM = """
import time
from edgeq.cli.process_start import CLOCK, process_began
print(process_began(), time.clock_gettime(CLOCK))
"""
_TICK_SECONDS = 0.02


def test_a_process_began_before_its_first_line_and_after_it_was_started() -> None:
    started = time.clock_gettime(CLOCK)
    told = subprocess.run(
        [sys.executable, "-c", f"import time; time.sleep(0.1)\n{PROGRAM}"],
        capture_output=True,
        text=True,
        check=True,
    )
    began, now = map(float, told.stdout.split())
    assert started - _TICK_SECONDS <= began <= now - 0.1

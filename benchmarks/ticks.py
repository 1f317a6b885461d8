"""What an idle tick costs, and how much memory a draining process takes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

# The kernel's own high-water mark: getrusage would also count the parent, as it was at the fork.
_CHILD = """
import sys
from pathlib import Path
from benchmarks import engine
engine.drain(Path(sys.argv[1]), 20_000, 8)
status = Path("/proc/self/status").read_text().splitlines()
print(next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) // 1024)
"""


def _milliseconds(command: list[str], rounds: int) -> float:
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        took.append((time.perf_counter() - began) * 1000)
    return median(took)


def idle_tick(path: Path, rounds: int = 21) -> tuple[float, float]:
    """Milliseconds of an idle `edgeq process`, and of Python importing click and sqlite3."""
    edgeq = [str(Path(sys.executable).with_name("edgeq")), "--db", f"sqlite:///{path}"]
    tick = [*edgeq, "process", "--json"]
    first = json.loads(subprocess.run(tick, check=True, capture_output=True).stdout)
    assert first["claimed"] == 0, "the database of this benchmark must be idle"
    floor = [sys.executable, "-c", "import click, sqlite3"]
    return _milliseconds(tick, rounds), _milliseconds(floor, rounds)


def draining_megabytes(path: Path) -> int:
    """The largest resident size of a process that drains 20,000 of the jobs that are there."""
    ran = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path)], check=True, capture_output=True, text=True
    )
    return int(ran.stdout)

"""The ledger of steps: what their bodies say they did, each line on the disk before it goes on."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path

from tests.torture.ledger import LEDGER


class Said(StrEnum):
    """What a handler of steps can say; of a step, unless it says otherwise."""

    START = "start"  # the handler was called
    BEGIN = "begin"
    RAISED = "raised"
    END = "end"
    KEPT = "kept"  # ctx.step has returned what was just done
    WRONG = "wrong"  # ctx.step has returned something else than it should
    SLEEPS = "sleeps"  # ctx.sleep is asked to put the job back
    LEFT = "left"  # the handler was stopped, or has raised
    DONE = "done"  # the handler returns


@dataclass(frozen=True, slots=True)
class Line:
    """One line; `at` is in nanoseconds of a clock that all processes share.

    `root` is the process that the torture started: whatever that starts bears its name.
    """

    said: Said
    root: str
    pid: int
    job_id: str
    attempt: int
    fence: int
    at: int
    wall_ms: int
    place: int = -1
    remaining: float = 0.0

    @property
    def execution(self) -> tuple[str, int]:
        return self.job_id, self.fence


@dataclass(frozen=True)
class StepLedger:
    """All that was said, in the order in which it was written."""

    lines: tuple[Line, ...]

    @cached_property
    def by_job(self) -> dict[str, list[Line]]:
        found: defaultdict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            found[line.job_id].append(line)
        return found

    @cached_property
    def by_execution(self) -> dict[tuple[str, int], list[Line]]:
        found: defaultdict[tuple[str, int], list[Line]] = defaultdict(list)
        for line in self.lines:
            found[line.execution].append(line)
        return found

    def of(self, said: Said) -> list[Line]:
        return [line for line in self.lines if line.said is said]


def path_beside(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}.steps")


def read(ledger: Path, since: int = 0) -> StepLedger:
    """What was written beside a ledger, from a byte on; what a kill tore apart is left out."""
    path = path_beside(ledger)
    lines = []
    for text in path.read_bytes()[since:].splitlines() if path.exists() else ():
        try:
            fields = json.loads(text)
        except ValueError:
            continue
        lines.append(Line(**fields | {"said": Said(fields["said"])}))
    return StepLedger(tuple(lines))


def size(ledger: Path) -> int:
    path = path_beside(ledger)
    return path.stat().st_size if path.exists() else 0


def write(
    said: Said,
    *,
    job_id: str,
    attempt: int,
    fence: int,
    place: int = -1,
    remaining: float = 0.0,
    durably: bool = True,
) -> None:
    """Add a line with one write: lines of several processes do not mix."""
    line = Line(
        said,
        os.environ.get("EDGEQ_WORKER_NAME", ""),
        os.getpid(),
        job_id,
        attempt,
        fence,
        time.monotonic_ns(),
        time.time_ns() // 1_000_000,
        place,
        # JSON knows no infinity, which is what a worker's jobs have.
        min(remaining, 1e9),
    )
    # A newline on both sides: what a kill leaves of a line spoils no other.
    os.write(_descriptor(), b"\n%s\n" % json.dumps(asdict(line)).encode())
    if durably:
        os.fsync(_descriptor())


@cache
def _descriptor() -> int:
    path = path_beside(Path(os.environ[LEDGER]))
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

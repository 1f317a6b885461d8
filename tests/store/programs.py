"""Programs for tests that need real processes: `python -m tests.store.programs NAME ARGUMENTS`.

Each says "ready" once it has started, begins when it is sent a line, and ends with a line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgeq.core.lanes import ClaimStep
from edgeq.core.outcomes import Completed
from edgeq.core.runs import RunReport
from edgeq.ports.commands import (
    Claim,
    ClaimableType,
    Cycle,
    FinishRun,
    RegisterTypes,
    Settled,
)
from edgeq.store.gate import Gate
from edgeq.store.migrate import bring_up_to_date
from edgeq.store.sqlite import SqliteStore
from edgeq.store.sqlite_file import create_if_missing
from edgeq.wiring import SystemClock
from tests.store.conformance.acts import LOCK_MS, ended

ROOT = Path(__file__).parents[2]


class Program:
    """A running program of this module."""

    def __init__(self, name: str, path: Path, number: int = 0) -> None:
        command = [sys.executable, "-m", __name__, name, str(path), str(number)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        output, _ = self._process.communicate(timeout=50)
        assert self._process.returncode == 0
        return json.loads(output)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def program(name: str, path: Path) -> Iterator[Program]:
    """One program, ready to go; it is gone afterwards."""
    running = Program(name, path)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.end()


def run_together(count: int, name: str, path: Path) -> list[Any]:
    """Let several programs begin at the same moment; answers with what each has found."""
    running = [Program(name, path, number) for number in range(count)]
    try:
        for each in running:
            each.wait_until_ready()
        for each in running:
            each.go()
        return [each.answer() for each in running]
    finally:
        for each in running:
            each.end()


def _ready() -> None:
    print("ready", flush=True)  # noqa: T201 - how a program talks to its test
    sys.stdin.readline()


def migrate(path: Path, _number: int) -> bool:
    """Open a file that may be new, by hand, to learn who migrated it; then as a queue does."""
    _ready()
    create_if_missing(path)
    gate = Gate(path)
    has_migrated = bring_up_to_date(path, gate)
    gate.close()
    store = SqliteStore(f"sqlite:///{path}", SystemClock())
    store.open_blocking()
    store.write_blocking(RegisterTypes(()))
    store.close_blocking()
    return has_migrated


def hold_gate(path: Path, _number: int) -> None:
    """Go through the gate and stay there."""
    gate = Gate(path)
    gate.acquire()
    _ready()


def claim_all(path: Path, number: int) -> list[str]:
    """Claim and complete, a few at a time, until all is done; tell what was claimed."""
    store = SqliteStore(f"sqlite:///{path}", SystemClock(), durable=False)
    store.open_blocking()
    _ready()
    types = (ClaimableType("free", 100, 1), ClaimableType("limited", 100, 1))
    wanted = Claim(types, (ClaimStep(None, 3),))
    claimed: list[str] = []
    settled: tuple[Settled, ...] = ()
    left = 1
    while settled or left:
        until = store.now() + LOCK_MS
        answer = store.write_blocking(Cycle(f"run-{number}", until, settled=settled, claim=wanted))
        assert not answer.lost
        assert not answer.reclaimed
        claimed += [job.id for job in answer.claimed]
        settled = tuple(ended(job, Completed()) for job in answer.claimed)
        if not settled:
            # Nothing for this process: all is done, or the limit is used up by the others.
            left = store.write_blocking(FinishRun("idle", RunReport(run_id="idle"), ())).remaining
    store.close_blocking()
    return claimed


PROGRAMS: dict[str, Callable[[Path, int], object]] = {
    "migrate": migrate,
    "hold_gate": hold_gate,
    "claim_all": claim_all,
}


def main(name: str, path: str, number: str) -> None:
    print(json.dumps(PROGRAMS[name](Path(path), int(number))))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Real processes: started, killed, stopped and woken, each known by the object that started it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from edgeq import Queue
from tests.torture import ledger
from tests.torture.checker import Evidence
from tests.torture.database import Database

ROOT = Path(__file__).parents[2]
HANDLERS = Path(__file__).parent / "handlers"
_LOOK_SECONDS = 0.005


# What `edgeq` exits with after an error of its own; starting it again would only repeat it.
_ERRORS = (1, 2, 3)


class CommandFailed(Exception):
    """A process ended with an error: nothing that follows would prove anything."""

    def __init__(self, child: Child) -> None:
        super().__init__(f"{child.name} ended with {child.exit_code}: {child.complaint()[-500:]}")


def wait_until(condition: Callable[[], bool], *, seconds: float) -> bool:
    """Look until it holds; False when it did not in time."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= ends:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run, in seconds and slots."""

    budget: float
    grace: float
    concurrency: int = 8
    fast_slots: int = 3

    @property
    def lock_seconds(self) -> float:
        """How long the locks of a run last at most, counted from its start."""
        return self.budget + self.grace + 1

    def options(self) -> list[str]:
        return [
            *("--budget", f"{self.budget:g}"),
            *("--grace", f"{self.grace:g}"),
            *("--concurrency", f"{self.concurrency}"),
            *("--fast-slots", f"{self.fast_slots}"),
        ]


class Child:
    """A process of ours; signals go only to one that has not been waited for yet."""

    def __init__(self, name: str, command: Sequence[str], place: Place) -> None:
        self.name = name
        self._out = place.folder / f"{name}.out"
        self._err = place.folder / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.began = time.monotonic()
            self._process = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env=_environment(place.ledger, name),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
            )
        self.pid = self._process.pid
        self.ended: float | None = None

    def is_alive(self) -> bool:
        if self.ended is None and self._process.poll() is not None:
            self.ended = time.monotonic()
            if self._process.stdin is not None:
                self._process.stdin.close()
        return self.ended is None

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within this time."""
        return wait_until(lambda: not self.is_alive(), seconds=seconds)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()
        self.is_alive()

    def stop_outside_a_commit(self, database: Database) -> None:
        """Freeze it where it cannot be holding the writers' gate."""
        with database.gate():
            self.signal(signal.SIGSTOP)
            if not wait_until(self._is_stopped, seconds=5):
                raise RuntimeError(f"process {self.pid} did not stop")

    def _is_stopped(self) -> bool:
        stopped = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        return stopped is not None

    def wake(self) -> None:
        self.signal(signal.SIGCONT)

    def go(self) -> None:
        """Answer one line to a process that waits for it."""
        if self._process.stdin is not None:
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    @property
    def seconds(self) -> float:
        """How long it lived."""
        return (time.monotonic() if self.ended is None else self.ended) - self.began

    def said(self) -> str:
        return self._out.read_text()

    def complaint(self) -> str:
        return self._err.read_text().strip()

    def report(self) -> dict[str, Any]:
        """The last line it printed; empty when it did not come to that."""
        lines = self.said().splitlines()
        try:
            return dict(json.loads(lines[-1]))
        except (IndexError, ValueError):
            return {}


def _environment(ledger_path: Path, name: str) -> dict[str, str]:
    # A child that is killed would leave half a coverage file behind.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("COV")}
    return kept | {ledger.LEDGER: str(ledger_path), "EDGEQ_WORKER_NAME": name}


class Place:
    """A folder with a database, a ledger and what every process said; ends what it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ledger = folder / "ledger"
        self.children: list[Child] = []
        self.accepted: list[str] = []
        self.killed: set[int] = set()
        self._path = folder / "queue.db"
        self.enqueue("work", [])
        self.database = Database(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.living():
            child.kill()
        self.database.close()

    def enqueue(self, job_type: str, inputs: Iterable[dict[str, Any]], **options: Any) -> list[str]:
        """Store jobs through edgeq; what it accepted is remembered."""

        async def store() -> list[str]:
            async with Queue(f"sqlite:///{self._path}", handlers=HANDLERS) as queue:
                stored = await queue.enqueue_many(job_type, inputs, **options)
                return [each.job_id for each in stored]

        ids = asyncio.run(store())
        self.accepted += ids
        return ids

    def start(self, limits: Limits) -> Child:
        """Start `edgeq process`."""
        handlers = ["--handlers", str(HANDLERS)]
        return self.start_python(
            ["edgeq", "--db", self.database.url, *handlers, "process", "--json", *limits.options()]
        )

    def start_worker(self, *options: str, grace: float = 1.0) -> Child:
        """Start `edgeq worker`."""
        handlers = ["--handlers", str(HANDLERS)]
        worker = ["worker", "--json", "--grace", f"{grace:g}", *options]
        return self.start_python(["edgeq", "--db", self.database.url, *handlers, *worker])

    def start_python(self, module: Sequence[str]) -> Child:
        child = Child(f"child-{len(self.children)}", ["-m", *module], self)
        self.children.append(child)
        return child

    def living(self) -> list[Child]:
        return [child for child in self.children if child.is_alive()]

    def refill(self, count: int, limits: Limits) -> None:
        for child in self.children:
            if child.exit_code in _ERRORS:
                raise CommandFailed(child)
        while len(self.living()) < count:
            self.start(limits)

    def kill(self, child: Child) -> None:
        self.killed.add(child.pid)
        child.kill()

    def drain(self, count: int, limits: Limits, *, seconds: float) -> bool:
        """Keep processes running while there is work; False when it was not done in time."""

        def is_over() -> bool:
            if self.database.has_work():
                self.refill(count, limits)
            return self.database.is_drained()

        return wait_until(is_over, seconds=seconds) and self.wait_for_all(seconds=seconds)

    def wait_for_all(self, *, seconds: float) -> bool:
        return wait_until(lambda: not self.living(), seconds=seconds)

    def has_started_work(self, child: Child) -> bool:
        return ledger.mentions(self.ledger, child.pid)

    def evidence(self) -> Evidence:
        """Everything that can be known of what happened here."""
        return Evidence(
            accepted=tuple(self.accepted),
            jobs=self.database.jobs(),
            completions=self.database.events("completed"),
            letters=self.database.dead_letters(),
            ledger=ledger.read(self.ledger),
            killed=frozenset(self.killed | {c.name for c in self.children if c.pid in self.killed}),
            integrity=self.database.integrity(),
        )

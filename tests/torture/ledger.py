"""The ledger: what handlers say they did, in a file that edgeq knows nothing of."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path

LEDGER = "TORTURE_LEDGER"


class Event(StrEnum):
    """What a handler can say."""

    START = "start"
    END = "end"
    LOST = "lost"  # ctx.lost was true
    REFUSED = "refused"  # a late ctx.log or ctx.progress raised LockLost


@dataclass(frozen=True, slots=True)
class Entry:
    """One line; `at` is in nanoseconds of a clock that all processes share.

    The parent is told too, and the name that both have: edgeq gives a job on its last chance a
    process of its own, which dies with the process that started it, and may be an orphan by then.
    """

    event: Event
    pid: int
    parent: int
    job_id: str
    attempt: int
    fence: int
    losses: int
    at: int
    worker: str = ""


@dataclass(frozen=True)
class Ledger:
    """All that was said; a line that a kill tore apart is only counted."""

    entries: tuple[Entry, ...]
    torn: int = 0

    @cached_property
    def by_job(self) -> dict[str, list[Entry]]:
        found: defaultdict[str, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            found[entry.job_id].append(entry)
        return found

    def of(self, event: Event, job_id: str | None = None) -> list[Entry]:
        among: Iterable[Entry] = self.entries if job_id is None else self.by_job.get(job_id, ())
        return [entry for entry in among if entry.event is event]

    def workers(self) -> set[int]:
        """The processes that have started work, themselves or by a child."""
        return {pid for entry in self.of(Event.START) for pid in (entry.pid, entry.parent)}


def read(path: Path) -> Ledger:
    entries = []
    torn = 0
    for line in path.read_bytes().splitlines() if path.exists() else ():
        if not line:
            continue
        try:
            fields = json.loads(line)
        except ValueError:
            torn += 1
        else:
            entries.append(Entry(**fields | {"event": Event(fields["event"])}))
    return Ledger(tuple(entries), torn)


def mentions(path: Path, pid: int) -> bool:
    """Whether this process has written anything yet; cheap, because it is asked in loops."""
    return path.exists() and b'"pid": %d,' % pid in path.read_bytes()


def write(event: Event, *, job_id: str, attempt: int, fence: int, losses: int) -> None:
    """Add a line with one write: lines of several processes do not mix."""
    now = time.monotonic_ns()
    pids = os.getpid(), os.getppid()
    worker = os.environ.get("EDGEQ_WORKER_NAME", "")
    entry = Entry(event, *pids, job_id, attempt, fence, losses, now, worker)
    # A newline on both sides: what a kill leaves of a line spoils no other.
    os.write(_descriptor(), b"\n%s\n" % json.dumps(asdict(entry)).encode())


@cache
def _descriptor() -> int:
    return os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

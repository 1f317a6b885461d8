"""The queue's database as an outsider sees it: rows, the change feed, and the gate."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class JobRow:
    """What the checker has to know of a job."""

    id: str
    type: str
    status: str
    fence: int
    attempt: int
    losses: int
    interruptions: int
    error_class: str | None
    locked_by: str | None
    output_data: str | None

    @property
    def output(self) -> Any:
        return json.loads(self.output_data or "null")


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step as edgeq has kept it; `root` is the process whose run has kept it."""

    job_id: str
    name: str
    key: str
    kind: str
    result: str | None
    attempt: int
    created_at: int
    root: str | None


_JOBS = (
    "SELECT j.id, t.name, j.status, j.fence, j.retry_count + 1, j.losses, j.interruptions,"
    " j.error_class, j.locked_by, j.output_data"
    " FROM background_jobs j JOIN background_job_types t ON t.id = j.job_type_id"
)
_STEPS = (
    "SELECT s.job_id, s.name, s.key, s.kind, s.result, s.attempt, s.created_at, r.worker_name"
    " FROM background_job_steps s LEFT JOIN worker_runs r ON r.id = s.run_id ORDER BY s.seq"
)
# Whatever a job is and whatever is told of it: a zombie must not change a byte of it.
_TRACES = (
    "SELECT * FROM background_jobs ORDER BY seq",
    "SELECT * FROM background_job_attempts ORDER BY id",
    "SELECT * FROM background_job_logs ORDER BY id",
    "SELECT * FROM background_job_steps ORDER BY seq",
    "SELECT * FROM dead_letters ORDER BY id",
    "SELECT * FROM job_changes ORDER BY id",
)


class Database:
    """One connection for reading; whatever writes or may checkpoint goes through the gate."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        with self.gate():
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=5)
            self._connection.execute("PRAGMA wal_autocheckpoint = 0")

    def close(self) -> None:
        # The last connection to close checkpoints.
        with self.gate():
            self._connection.close()

    @contextmanager
    def gate(self) -> Iterator[None]:
        """While it is held, no process is inside a commit."""
        descriptor = os.open(f"{self.path}.gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def gate_is_free(self) -> bool:
        descriptor = os.open(f"{self.path}.gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            return True
        finally:
            os.close(descriptor)

    def correlated(self, correlation_id: str) -> int:
        """How many jobs were stored under this name."""
        query = "SELECT count(*) FROM background_jobs WHERE correlation_id = ?"
        return int(self.rows(query, correlation_id)[0][0])

    def jobs(self) -> dict[str, JobRow]:
        return {row[0]: JobRow(*row) for row in self.rows(_JOBS)}

    def steps(self) -> list[StepRow]:
        return [StepRow(*row) for row in self.rows(_STEPS)]

    def counts(self) -> Counter[str]:
        rows = self.rows("SELECT status, count(*) FROM background_jobs GROUP BY status")
        return Counter(dict(rows))

    def is_drained(self) -> bool:
        counts = self.counts()
        return not counts["pending"] and not counts["processing"]

    def has_work(self) -> bool:
        """Whether a run that started now would find something to do."""
        now = _now_ms()
        query = (
            "SELECT 1 FROM background_jobs WHERE (status = 'pending' AND scheduled_for <= ?)"
            " OR (status = 'processing' AND lock_expires_at <= ?) LIMIT 1"
        )
        return bool(self.rows(query, now, now))

    def events(self, event: str) -> Counter[str]:
        """How often the feed tells an event of each job."""
        told: Counter[str] = Counter()
        for (text,) in self.rows("SELECT changes FROM job_changes"):
            told.update(job_id for job_id, _, _, _, name, *_ in json.loads(text) if name == event)
        return told

    def attempts(self, outcome: str) -> Counter[str]:
        """How many rows of that outcome each job has in its history."""
        query = (
            "SELECT job_id, count(*) FROM background_job_attempts WHERE outcome = ? GROUP BY job_id"
        )
        return Counter(dict(self.rows(query, outcome)))

    def dead_letters(self) -> Counter[str]:
        return Counter(job_id for (job_id,) in self.rows("SELECT job_id FROM dead_letters"))

    def runs_of(self, worker_name: str) -> set[str]:
        found = self.rows("SELECT id FROM worker_runs WHERE worker_name = ?", worker_name)
        return {run_id for (run_id,) in found}

    def open_runs(self, worker_name: str) -> int:
        """How many runs of this name have no end."""
        query = "SELECT count(*) FROM worker_runs WHERE worker_name = ? AND ended_at IS NULL"
        return int(self.rows(query, worker_name)[0][0])

    def held_by(self, runs: set[str]) -> list[str]:
        """The jobs that these runs have locked."""
        found = self.rows("SELECT id, locked_by FROM background_jobs WHERE status = 'processing'")
        return [job_id for job_id, locked_by in found if locked_by in runs]

    def locks_have_expired(self) -> bool:
        query = "SELECT max(lock_expires_at) FROM background_jobs WHERE status = 'processing'"
        latest = self.rows(query)[0][0]
        return latest is None or latest <= _now_ms()

    def expire_locks(self, runs: set[str]) -> None:
        """As if the lock's life had passed; the caller holds the gate."""
        for run_id in runs:
            self._connection.execute(
                "UPDATE background_jobs SET lock_expires_at = ?"
                " WHERE status = 'processing' AND locked_by = ?",
                (_now_ms() - 1, run_id),
            )

    def traces(self) -> list[list[tuple[Any, ...]]]:
        return [self.rows(query) for query in _TRACES]

    def traces_of(self, job_ids: Iterable[str]) -> list[list[tuple[Any, ...]]]:
        """The same of some jobs, while others may change."""
        wanted = json.dumps(list(job_ids))
        among = "IN (SELECT value FROM json_each(?))"
        return [
            self.rows(f"SELECT * FROM background_jobs WHERE id {among} ORDER BY seq", wanted),  # noqa: S608
            *(
                self.rows(f"SELECT * FROM {table} WHERE job_id {among} ORDER BY id", wanted)  # noqa: S608
                for table in ("background_job_attempts", "background_job_logs", "dead_letters")
            ),
        ]

    def integrity(self) -> str:
        return ", ".join(text for (text,) in self.rows("PRAGMA integrity_check"))

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, parameters).fetchall()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

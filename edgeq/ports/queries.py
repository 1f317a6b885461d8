"""What a store can be asked to tell: each query is a short read with a typed answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from edgeq.core.durations import Histogram
from edgeq.core.job_types import JobType
from edgeq.core.jobs import Attempt, Job, JobStatus, LogEntry
from edgeq.core.steps import Step

Answer_co = TypeVar("Answer_co", covariant=True)

PAGE = 50
LARGEST_PAGE = 200
COUNTED_AT_MOST = 10_000


class Query(Generic[Answer_co]):
    """A question; the type parameter is the answer's type."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class GetJobs(Query[Mapping[str, Job]]):
    """The jobs with these ids, by id; those that are not there are left out."""

    job_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FindJob(Query[Job | None]):
    """The job that holds a unique key."""

    unique_key: str


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a list shows; what is None does not matter."""

    status: JobStatus | None = None
    type: str | None = None
    category: str | None = None
    lane: str | None = None
    tenant_id: str | None = None
    correlation_id: str | None = None
    parent_job_id: str | None = None
    batch_id: str | None = None
    idempotency_key: str | None = None
    reference_type: str | None = None
    reference_id: str | None = None
    created_after: int | None = None
    created_before: int | None = None
    error_class: str | None = None


@dataclass(frozen=True, slots=True)
class JobPage:
    items: tuple[Job, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class ListJobs(Query[JobPage]):
    """A page of jobs, newest first."""

    filter: JobFilter
    limit: int = PAGE
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class LogPage:
    items: tuple[LogEntry, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class ListLogs(Query[LogPage]):
    """A page of a job's log, oldest first."""

    job_id: str
    limit: int = PAGE
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class ListAttempts(Query[tuple[Attempt, ...]]):
    job_id: str


@dataclass(frozen=True, slots=True)
class ListSteps(Query[tuple[Step, ...]]):
    """The finished steps of a job, oldest first."""

    job_id: str


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that are counted together; `ended_at` is when the last of them ended."""

    id: str
    name: str | None
    tenant_id: str | None
    correlation_id: str | None
    total: int
    completed: int
    failed: int
    cancelled: int
    callback_job_id: str | None
    created_at: int
    ended_at: int | None

    @property
    def pending(self) -> int:
        return self.total - self.completed - self.failed - self.cancelled


@dataclass(frozen=True, slots=True)
class ListBlockers(Query[tuple[str, ...]]):
    """The jobs, or the batch, that a blocked job waits for."""

    job_id: str


@dataclass(frozen=True, slots=True)
class GetDurations(Query[Histogram]):
    """How long a part of a type took in the last day; `step` is as in the table."""

    type: str
    step: str


@dataclass(frozen=True, slots=True)
class GetBatch(Query[Batch | None]):
    batch_id: str


@dataclass(frozen=True, slots=True)
class ListTypes(Query[tuple[JobType, ...]]):
    pass


@dataclass(frozen=True, slots=True)
class GetConfig(Query[Mapping[str, object]]):
    pass


@dataclass(frozen=True, slots=True)
class RunRow:
    """A recorded run; `ended_at` is None while it runs, or when its process died."""

    run_id: str
    kind: str
    worker_name: str
    started_at: int
    last_seen_at: int
    ended_at: int | None
    ticks: int
    report: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class ListRuns(Query[tuple[RunRow, ...]]):
    limit: int = PAGE


@dataclass(frozen=True, slots=True)
class TypeStats:
    type: str
    counts: Mapping[JobStatus, int]
    capped: bool
    oldest_due_at: int | None
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None


@dataclass(frozen=True, slots=True)
class Stats:
    types: tuple[TypeStats, ...]
    next_due_at: int | None


@dataclass(frozen=True, slots=True)
class GetStats(Query[Stats]):
    """Counts by type and state, exact up to 10,000 each, and how long work takes."""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that is being worked on, or was when its process died."""

    id: str
    type: str
    locked_at: int
    lock_expires_at: int


@dataclass(frozen=True, slots=True)
class ListRunning(Query[tuple[RunningJob, ...]]):
    """The jobs that are processing, the oldest lock first, at most 10,000; None: of all types."""

    types: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class GetChanges(Query["Changes"]):
    """What changed after a position of the change feed."""

    after: int
    limit: int = 1000


class Change(msgspec.Struct, frozen=True, array_like=True):
    """One job that changed in one commit; stored as an array in this order."""

    job_id: str
    status: str
    type: str
    tenant_id: str | None
    event: str
    attempt: int
    progress: int


@dataclass(frozen=True, slots=True)
class Changes:
    """`reset`: the position is older than the feed keeps, so some changes cannot be told."""

    position: int
    changes: tuple[tuple[int, int, Change], ...]
    reset: bool = False

"""What is due: how much of it, since when, and when more will be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import bindparam, func, select

from edgeq.core.job_types import JobType
from edgeq.core.jobs import HIGHEST_PRIORITY, JobStatus
from edgeq.ports.queries import COUNTED_AT_MOST
from edgeq.store import jobs_sql
from edgeq.store.claim import NEXT_PRIORITY, pending
from edgeq.store.system_sql import Reader
from edgeq.store.tables import LOCKED, READY, SUSPECT, jobs

_INDEXES = (READY, SUSPECT)
_PATIENCE_MS = 1_000
_COUNT = {
    index: select(func.count()).select_from(
        pending([jobs.c.seq], index)
        .where(
            jobs.c.priority == bindparam("priority"),
            jobs.c.scheduled_for <= bindparam("now"),
        )
        .limit(bindparam("at_most"))
        .subquery()
    )
    for index in _INDEXES
}
_FIRST_AFTER = {
    index: pending([func.min(jobs.c.scheduled_for)], index).where(
        jobs.c.priority == bindparam("priority"), jobs.c.scheduled_for > bindparam("after")
    )
    for index in _INDEXES
}
_FIRST_EXPIRY = (
    select(func.min(jobs.c.lock_expires_at))
    .with_hint(jobs, f"INDEXED BY {LOCKED}", "sqlite")
    .where(jobs_sql.is_status(JobStatus.PROCESSING))
)


def count(reader: Reader, job_type: JobType) -> int:
    """Due jobs of a type, counted up to 10,000 and no further."""
    total = 0
    for index, priority in _priorities(reader, job_type):
        if total < COUNTED_AT_MOST:
            total += reader.rows(
                _COUNT[index],
                type_id=job_type.id,
                priority=priority,
                now=reader.now,
                at_most=COUNTED_AT_MOST - total,
            )[0][0]
    return total


def first(reader: Reader, types: Iterable[JobType], *, after: int = -1) -> int | None:
    """When the next pending job is due, or was; only later than `after`."""
    moments = (
        reader.rows(_FIRST_AFTER[index], type_id=job_type.id, priority=priority, after=after)[0][0]
        for job_type in types
        for index, priority in _priorities(reader, job_type)
    )
    return min((moment for moment in moments if moment is not None), default=None)


def next_moment(reader: Reader, types: Iterable[JobType]) -> int | None:
    """When there may be work without anybody saying so: a job comes due, or a lock expires."""
    expiry = reader.rows(_FIRST_EXPIRY)[0][0]
    if expiry is not None and expiry <= reader.now:
        # Not taken back although it could have been: too many at once, or a clock that jumped.
        expiry = reader.now + _PATIENCE_MS
    moments = (first(reader, types, after=reader.now), expiry)
    return min((moment for moment in moments if moment is not None), default=None)


def _priorities(reader: Reader, job_type: JobType) -> Iterator[tuple[str, int]]:
    """The priorities at which a type has pending jobs, by index, each found with one seek."""
    for index in _INDEXES:
        below = HIGHEST_PRIORITY + 1
        while True:
            rows = reader.rows(NEXT_PRIORITY[index], type_id=job_type.id, below=below)
            below = rows[0][0]
            if below is None:
                break
            yield index, below

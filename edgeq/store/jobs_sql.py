"""Job rows: how a job is read, and the statements that several use cases share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, bindparam, func, insert, literal_column, select, update
from sqlalchemy.sql.elements import ColumnElement

from edgeq.core.jobs import ClaimedJob, Job, JobStatus
from edgeq.errors import JobNotFound
from edgeq.ports.commands import Held, Moved
from edgeq.ports.queries import Change
from edgeq.store import system_sql
from edgeq.store.session import Row, Transaction
from edgeq.store.tables import LOCKED, attempts, job_types, jobs, logs


def is_status(status: JobStatus) -> ColumnElement[bool]:
    """The state as a literal: a partial index is only used where its condition is in the text."""
    return jobs.c.status == literal_column(f"'{status}'")


# A writer that lost its lock matches no row: another fence, or no longer processing.
STILL_OURS = (
    jobs.c.seq == bindparam("at_seq"),
    jobs.c.fence == bindparam("at_fence"),
    is_status(JobStatus.PROCESSING),
)

_COLUMNS: dict[str, ColumnElement[Any]] = {
    name: jobs.c[name]
    for name in Job.__struct_fields__
    if name in jobs.c and name not in {"max_retries", "timeout_ms"}
} | {
    "type": job_types.c.name,
    "category": job_types.c.category,
    "lane": job_types.c.lane,
    "max_retries": func.coalesce(jobs.c.max_retries, job_types.c.max_retries),
    "timeout_ms": func.coalesce(jobs.c.timeout_ms, job_types.c.timeout_ms),
    "stored_correlation_id": jobs.c.correlation_id,
    "stored_idempotency_key": jobs.c.idempotency_key,
}


def select_jobs() -> Select[Any]:
    """Whole jobs, in the order of `Job`'s fields."""
    return select(*(_COLUMNS[name] for name in Job.__struct_fields__)).join_from(jobs, job_types)


def job_from(row: Row) -> Job:
    fields = dict(zip(Job.__struct_fields__, row, strict=True))
    fields["status"] = JobStatus(fields["status"])
    return Job(**fields)


READ_JOB = select_jobs().where(jobs.c.id == bindparam("job_id"))
READ_BY_KEY = select_jobs().where(jobs.c.unique_key == bindparam("unique_key"))
READ_BY_SEQ = select_jobs().where(jobs.c.seq == bindparam("seq"))


def existing(tx: Transaction, job_id: str) -> Job:
    row = tx.row(READ_JOB, job_id=job_id)
    if row is None:
        raise JobNotFound(job_id)
    return job_from(row)


# Rare moves set few columns each, so their statements are made per set of columns and kept.
_guarded: dict[tuple[str, ...], Any] = {}


def move(tx: Transaction, job: Job, event: str, **values: Any) -> Job:
    """Change a job that was read in this transaction; every move raises its fence."""
    status: JobStatus = values.get("status", job.status)
    values["updated_at"] = tx.now
    columns = tuple(sorted(values))
    statement = _guarded.get(columns)
    if statement is None:
        statement = _guarded[columns] = (
            update(jobs)
            .where(jobs.c.seq == bindparam("at_seq"), jobs.c.fence == bindparam("at_fence"))
            .values({"fence": jobs.c.fence + 1, **{c: bindparam(c) for c in columns}})
        )
    tx.change(statement, at_seq=job.seq, at_fence=job.fence, **values)
    moved = tx.row(READ_BY_SEQ, seq=job.seq)
    assert moved is not None  # noqa: S101 - it was updated one line above
    after = job_from(moved)
    tell(tx, after, event, status)
    return after


def moved(
    job: Job | ClaimedJob,
    after: JobStatus,
    error_class: str | None = None,
    error_message: str | None = None,
) -> Moved:
    before = job.status if isinstance(job, Job) else JobStatus.PENDING
    return Moved(job.id, job.type, before, after, job.attempt, error_class, error_message)


UNLOCKED: dict[str, None] = {"locked_at": None, "locked_by": None, "lock_expires_at": None}


def tell(tx: Transaction, job: Job | ClaimedJob, event: str, status: JobStatus) -> None:
    progress = job.progress if isinstance(job, Job) else 0
    tx.tell(Change(job.id, status, job.type, job.tenant_id, event, job.attempt, progress))


ADD_LOG = insert(logs).values(
    {c: bindparam(c) for c in logs.c.keys() if c != "id"}  # noqa: SIM118 - columns, not a dict
)
ADD_ATTEMPT = insert(attempts).values(
    {c: bindparam(c) for c in attempts.c.keys() if c != "id"}  # noqa: SIM118
)


def add_log(
    tx: Transaction, job: Job, message: str, *, level: str = "info", details: str | None = None
) -> None:
    """What an operator did, in the job's own log."""
    tx.change(
        ADD_LOG,
        job_id=job.id,
        level=level,
        stage=None,
        message=message,
        details=details,
        duration_ms=None,
        attempt=job.attempt,
        run_id=None,
        created_at=tx.now,
    )


# Reads the small partial index of running jobs.
_HELD = (
    select(jobs.c.seq, jobs.c.fence, jobs.c.cancel_requested_at)
    .with_hint(jobs, f"INDEXED BY {LOCKED}", "sqlite")
    .where(is_status(JobStatus.PROCESSING), jobs.c.locked_by == bindparam("run_id"))
)


def held_by(tx: Transaction, run_id: str) -> Held:
    rows: Sequence[Row] = tx.rows(_HELD, run_id=run_id)
    return Held(
        fences={seq: fence for seq, fence, _ in rows},
        cancel_requested=frozenset(seq for seq, _, asked_at in rows if asked_at is not None),
        is_enabled=system_sql.is_enabled(tx.config),
    )

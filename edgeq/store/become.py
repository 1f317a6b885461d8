"""Making a job's row what a settlement says of it: columns, attempt and dead letter."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from sqlalchemy import bindparam, insert, select

from edgeq.core.jobs import Job, JobStatus
from edgeq.core.moves import Settlement
from edgeq.store import jobs_sql
from edgeq.store.session import Row, Transaction
from edgeq.store.tables import dead_letters, jobs

_READ_TTL = select(jobs.c.result_ttl_ms).where(jobs.c.seq == bindparam("seq"))
_ADD_LETTER = insert(dead_letters).values(
    {
        name: bindparam(name)
        for name in (
            "id",
            "job_id",
            "type",
            "category",
            "error_class",
            "error_message",
            "fingerprint",
            "attempt_count",
            "idempotency_key",
            "correlation_id",
            "tenant_id",
            "original_created_at",
            "created_at",
        )
    }
)
_EVENTS = {
    JobStatus.COMPLETED: "completed",
    JobStatus.FAILED: "failed",
    JobStatus.CANCELLED: "cancelled",
    JobStatus.REVIEW_NEEDED: "review",
    JobStatus.PENDING: "retrying",
}


def become(tx: Transaction, job: Job, settlement: Settlement, run_id: str | None) -> Job:
    """Make a job what its settlement says, with its attempt and, if it failed, its letter."""
    if settlement.attempt_outcome is not None:
        _add_attempt(tx, job, settlement, run_id)
    event = "stalled" if settlement.attempt_outcome == "lost" else _EVENTS[settlement.status]
    after = jobs_sql.move(tx, job, event, **_columns(tx, job, settlement), **jobs_sql.UNLOCKED)
    if settlement.status is JobStatus.FAILED:
        _write_letter(tx, after)
    return after


def _columns(tx: Transaction, job: Job, settlement: Settlement) -> dict[str, Any]:
    ended = settlement.status in {JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED}
    values: dict[str, Any] = {
        "status": settlement.status,
        "scheduled_for": settlement.scheduled_for,
        "retry_count": settlement.retry_count,
        "interruptions": settlement.interruptions,
        "losses": settlement.losses,
        "error_class": settlement.error_class,
        "error_message": settlement.error_message,
        "review_reason": settlement.review_reason,
        "completed_at": tx.now if ended else None,
        "claimed_ahead": 0,
        "is_isolated": 0,
    }
    if job.status is JobStatus.BLOCKED:
        values["blocked_by"] = 0
    if settlement.status in {JobStatus.COMPLETED, JobStatus.REVIEW_NEEDED}:
        values["output_data"] = settlement.output
    if settlement.status is JobStatus.COMPLETED:
        values["progress"] = 100
    if ended:
        values["result_expires_at"] = tx.now + _result_ttl(tx, job)
    if settlement.status in {JobStatus.FAILED, JobStatus.CANCELLED}:
        # A key is spent by success only: whoever comes again with it may try again.
        values["unique_key"] = None
    return values


def _result_ttl(tx: Transaction, job: Job) -> int:
    row: Row | None = tx.row(_READ_TTL, seq=job.seq)
    own = None if row is None else row[0]
    return own if own is not None else tx.types.by_name[job.type].policy.result_ttl_ms


def _add_attempt(tx: Transaction, job: Job, settlement: Settlement, run_id: str | None) -> None:
    tx.change(
        jobs_sql.ADD_ATTEMPT,
        job_id=job.id,
        attempt=job.attempt,
        outcome=settlement.attempt_outcome,
        error_class=settlement.error_class,
        error_message=settlement.error_message,
        run_id=run_id or job.locked_by,
        started_at=job.started_at,
        ended_at=tx.now,
    )


def _write_letter(tx: Transaction, job: Job) -> None:
    tx.change(
        _ADD_LETTER,
        # The fence makes it unique: a job that is retried and fails again gets another letter.
        id=f"dl_{job.id}_{job.fence}",
        job_id=job.id,
        type=job.type,
        category=job.category,
        error_class=job.error_class,
        error_message=job.error_message,
        fingerprint=_fingerprint(job),
        attempt_count=job.attempt,
        idempotency_key=job.stored_idempotency_key,
        correlation_id=job.stored_correlation_id,
        tenant_id=job.tenant_id,
        original_created_at=job.created_at,
        created_at=tx.now,
    )


def _fingerprint(job: Job) -> str:
    """The same for failures that differ only in numbers, ids and addresses."""
    shape = re.sub(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+", "#", job.error_message or "")
    return hashlib.sha256(f"{job.type}|{job.error_class}|{shape}".encode()).hexdigest()[:16]

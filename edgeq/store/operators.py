"""What people do to jobs: cancel, retry, approve, reject, fail, release, delete, update."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from sqlalchemy import bindparam, delete, literal_column, select, update

from edgeq.core.backoff import ErrorClass
from edgeq.core.ids import unique_key
from edgeq.core.jobs import ENDED, Job, JobStatus
from edgeq.core.moves import Settlement, settle
from edgeq.core.outcomes import Failed
from edgeq.errors import IllegalMove
from edgeq.ports.commands import (
    Actor,
    ApproveJob,
    CancelJob,
    DeleteJob,
    FailJob,
    NewInput,
    RejectJob,
    ReleaseJob,
    RetryJob,
    UpdateJob,
)
from edgeq.store import flows, jobs_sql
from edgeq.store import settle as settling
from edgeq.store.session import Transaction
from edgeq.store.steps import forget_steps
from edgeq.store.system_sql import record
from edgeq.store.tables import dead_letters, jobs

S = JobStatus
_DELETE = delete(jobs).where(jobs.c.seq == bindparam("at_seq"))
_LETTERS_RETRIED = (
    update(dead_letters)
    .where(
        dead_letters.c.job_id == bindparam("for_job"),
        dead_letters.c.status.in_(
            (literal_column("'pending_review'"), literal_column("'acknowledged'"))
        ),
    )
    .values(status="retried")
)
_KEEP_SNAPSHOT = (
    update(dead_letters)
    .where(dead_letters.c.job_id == bindparam("for_job"))
    .values(snapshot=bindparam("snapshot"))
)
_HAS_LETTER = (
    select(dead_letters.c.id).where(dead_letters.c.job_id == bindparam("for_job")).limit(1)
)


def cancel(tx: Transaction, command: CancelJob) -> str:
    if command.descendants:
        # The last first: who waits for a sister is to be cancelled, too, and not to fail with her.
        for child_id in reversed(_descendants(tx, command.job_id)):
            cancel(tx, CancelJob(child_id, command.actor))
    row = tx.row(jobs_sql.READ_JOB, job_id=command.job_id)
    if row is None:
        return "not_found"
    job = jobs_sql.job_from(row)
    if job.status in ENDED:
        return "ended"
    _audited(tx, command.actor, "job_cancel", job)
    if job.status is S.PROCESSING:
        # Only a request: the fence stays, so that the attempt can still end as it will.
        _mark_cancel(tx, job)
        return "requested"
    settling.apply(tx, job, _as(job, S.CANCELLED), None)
    return "cancelled"


_CHILDREN = select(jobs.c.id).where(jobs.c.parent_job_id == bindparam("parent"))
_DESCENDANTS_AT_MOST = 10_000


def _descendants(tx: Transaction, job_id: str) -> list[str]:
    """Children, their children and so on, each once."""
    found: list[str] = []
    generation = [job_id]
    known = {job_id}
    while generation and len(found) < _DESCENDANTS_AT_MOST:
        rows = (row for parent in generation for row in tx.rows(_CHILDREN, parent=parent))
        generation = [child for (child,) in rows if child not in known]
        known.update(generation)
        found += generation
    return found


_MARK = (
    update(jobs)
    .where(jobs.c.seq == bindparam("at_seq"), jobs.c.fence == bindparam("at_fence"))
    .values(cancel_requested_at=bindparam("now"), updated_at=bindparam("now"))
)


def _mark_cancel(tx: Transaction, job: Job) -> None:
    tx.change(_MARK, at_seq=job.seq, at_fence=job.fence, now=tx.now)
    jobs_sql.tell(tx, job, "cancelling", S.PROCESSING)


def retry(tx: Transaction, command: RetryJob) -> Job:
    """Send an ended or held job around again, from its first attempt."""
    job = _in(tx, command.job_id, "retried", S.FAILED, S.CANCELLED, S.REVIEW_NEEDED)
    values: dict[str, Any] = {"status": S.PENDING, "unique_key": _key_to_hold_again(tx, job)}
    if command.input is None:
        values |= flows.input_again(tx, job)
    else:
        values |= _input_columns(job, command.input)
    if command.fresh or command.from_step is not None:
        values["steps"] = forget_steps(tx, job, None if command.fresh else command.from_step)
    _audited(tx, command.actor, "job_retry", job)
    tx.change(_LETTERS_RETRIED, for_job=job.id)
    if job.batch_id is not None and job.status in ENDED:
        flows.count(tx, job.batch_id, Counter({job.status: -1}))
    return jobs_sql.move(
        tx,
        job,
        "queued",
        scheduled_for=tx.now,
        retry_count=0,
        losses=0,
        interruptions=0,
        progress=0,
        current_stage=None,
        error_class=None,
        error_message=None,
        review_reason=None,
        completed_at=None,
        result_expires_at=None,
        cancel_requested_at=None,
        expires_at=None,
        claimed_ahead=0,
        **values,
    )


def _key_to_hold_again(tx: Transaction, job: Job) -> str | None:
    if job.stored_idempotency_key is None:
        return None
    key = unique_key(job.tenant_id, job.type, job.stored_idempotency_key)
    row = tx.row(jobs_sql.READ_BY_KEY, unique_key=key)
    if row is not None:
        other = jobs_sql.job_from(row)
        if other.id != job.id:
            raise IllegalMove(
                job.id,
                job.status,
                "retried",
                f"Its idempotency key is held by job {other.id} now; cancel or delete that first.",
            )
    return key


def approve(tx: Transaction, command: ApproveJob) -> Job:
    job = _in(tx, command.job_id, "approved", S.REVIEW_NEEDED)
    output = job.output_data if command.output_data is None else command.output_data
    _audited(tx, command.actor, "job_approve", job)
    if command.note:
        jobs_sql.add_log(tx, job, f"approved: {command.note}")
    return settling.apply(tx, job, _as(job, S.COMPLETED, output=output), None)


def reject(tx: Transaction, command: RejectJob) -> Job:
    job = _in(tx, command.job_id, "rejected", S.REVIEW_NEEDED)
    _audited(tx, command.actor, "job_reject", job)
    reason = command.actor.reason or "rejected by a reviewer"
    return settling.apply(tx, job, _failed(job, ErrorClass.REJECTED, reason), None)


def fail(tx: Transaction, command: FailJob) -> Job:
    """End a job by hand; a running one loses its lock, and its handler learns it."""
    job = _in(tx, command.job_id, "failed", S.PENDING, S.PROCESSING, S.BLOCKED, S.REVIEW_NEEDED)
    _audited(tx, command.actor, "job_fail", job)
    reason = command.actor.reason or "failed by an operator"
    if not command.retry:
        return settling.apply(tx, job, _failed(job, ErrorClass.OPERATOR, reason), None)
    if job.status is not S.PROCESSING:
        raise IllegalMove(job.id, job.status, "failed with a retry", "Only a running job can be.")
    outcome = Failed(ErrorClass.TRANSIENT, reason)
    standing = settling.standing_of(tx, job)
    settlement = settle(outcome, standing, now=tx.now, unit=command.unit)
    return settling.apply(tx, job, settlement, None)


def release(tx: Transaction, command: ReleaseJob) -> Job:
    """Take the lock of a running job away and put it back; nothing is counted against it."""
    job = _in(tx, command.job_id, "released", S.PROCESSING)
    _audited(tx, command.actor, "job_release", job)
    status = S.CANCELLED if job.cancel_requested_at is not None else S.PENDING
    return settling.apply(tx, job, _as(job, status, attempt_outcome="released"), None)


def remove(tx: Transaction, command: DeleteJob) -> None:
    """Delete a job that is not running; a letter about it keeps what it needs."""
    job = jobs_sql.existing(tx, command.job_id)
    if job.status is S.PROCESSING:
        raise IllegalMove(job.id, job.status, "deleted", "Cancel or release it first.")
    if tx.row(_HAS_LETTER, for_job=job.id) is not None:
        tx.change(_KEEP_SNAPSHOT, for_job=job.id, snapshot=_snapshot(job))
    _audited(tx, command.actor, "job_delete", job)
    if job.status not in ENDED:
        # Whoever waits for it would wait for ever.
        flows.follow(tx, [flows.End(job.id, S.CANCELLED, job.batch_id)])
    tx.change(_DELETE, at_seq=job.seq)
    jobs_sql.tell(tx, job, "deleted", job.status)


def edit(tx: Transaction, command: UpdateJob) -> Job:
    job = _in(tx, command.job_id, "changed", S.PENDING, S.BLOCKED, S.REVIEW_NEEDED)
    wanted = {"priority": command.priority, "scheduled_for": command.scheduled_for}
    values = {name: value for name, value in wanted.items() if value is not None}
    values |= _input_columns(job, command.input)
    _audited(tx, command.actor, "job_update", job, details=sorted(values))
    return jobs_sql.move(tx, job, "queued", **values)


def _input_columns(job: Job, new: NewInput | None) -> dict[str, Any]:
    """Whoever comes with the key again has to bring the input that the job has now."""
    if new is None:
        return {}
    has_key = job.stored_idempotency_key is not None
    return {
        "input_data": new.data,
        "payload_version": new.payload_version,
        "request_hash": new.request_hash if has_key else None,
    }


def _in(tx: Transaction, job_id: str, wanted: str, *allowed: JobStatus) -> Job:
    job = jobs_sql.existing(tx, job_id)
    if job.status not in allowed:
        these = " or ".join(allowed)
        raise IllegalMove(job.id, job.status, wanted, f"Only a job that is {these} can be.")
    return job


def _audited(tx: Transaction, actor: Actor, action: str, job: Job, details: object = None) -> None:
    record(tx, actor, action, f"job:{job.id}", details=details)


def _as(job: Job, status: JobStatus, **changes: Any) -> Settlement:
    return Settlement(
        status=status,
        scheduled_for=job.scheduled_for,
        retry_count=job.retry_count,
        interruptions=job.interruptions,
        losses=job.losses,
        **changes,
    )


def _failed(job: Job, error_class: ErrorClass, message: str) -> Settlement:
    return _as(
        job,
        S.FAILED,
        error_class=error_class,
        error_message=message,
        attempt_outcome="failed",
    )


def _snapshot(job: Job) -> str:
    return msgspec.json.encode(job).decode()

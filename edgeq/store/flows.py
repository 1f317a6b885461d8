"""Jobs that wait for others: they go on, or end with them, in the commit of the last end."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import bindparam, delete, insert, literal_column, select, update

from edgeq.core.backoff import ErrorClass
from edgeq.core.jobs import ENDED, Job, JobStatus, NewJob, OnFailure
from edgeq.core.moves import Settlement
from edgeq.errors import IllegalMove, InvalidInput
from edgeq.ports.queries import Batch, GetBatch, ListBlockers
from edgeq.store import jobs_sql
from edgeq.store.become import become
from edgeq.store.flow_tables import batches, dependencies
from edgeq.store.session import Transaction
from edgeq.store.system_sql import Reader
from edgeq.store.tables import jobs

S = JobStatus


class End(NamedTuple):
    """A job, or a batch, that ended, and how."""

    id: str
    status: JobStatus
    batch_id: str | None = None


_STATUS = select(jobs.c.status).where(jobs.c.id == bindparam("job_id"))
_DEPEND = insert(dependencies).values(job_id=bindparam("job_id"), after_id=bindparam("after_id"))
_ANY_DEPENDENT = select(dependencies.c.job_id).limit(literal_column("1"))
_DEPENDENTS = select(dependencies.c.job_id).where(dependencies.c.after_id == bindparam("after"))
_FORGET_DEPENDENTS = delete(dependencies).where(dependencies.c.after_id == bindparam("for_after"))
_FORGET_OWN = delete(dependencies).where(dependencies.c.job_id == bindparam("for_job"))
_BLOCKERS = select(dependencies.c.after_id).where(dependencies.c.job_id == bindparam("job_id"))
_OUTPUT = select(jobs.c.output_data).where(jobs.c.id == bindparam("job_id"))
_COUNT_ENDS = (
    update(batches)
    .where(batches.c.id == bindparam("for_batch"))
    .values(
        completed=batches.c.completed + bindparam("more_completed"),
        failed=batches.c.failed + bindparam("more_failed"),
        cancelled=batches.c.cancelled + bindparam("more_cancelled"),
    )
)
_END_BATCH = (
    update(batches)
    .where(
        batches.c.id == bindparam("for_batch"),
        batches.c.ended_at.is_(None),
        batches.c.completed + batches.c.failed + batches.c.cancelled >= batches.c.total,
    )
    .values(ended_at=bindparam("now"))
)
_READ_BATCH = select(*(batches.c[name] for name in Batch.__struct_fields__)).where(
    batches.c.id == bindparam("batch_id")
)


def blockers(tx: Transaction, new: NewJob) -> tuple[list[str], End | None]:
    """What a new job has to wait for, and what has failed it already; unknown ids are refused."""
    waits_for: list[str] = []
    failed: End | None = None
    for place, after_id in enumerate(dict.fromkeys(new.after)):
        row = tx.row(_STATUS, job_id=after_id)
        if row is None:
            raise InvalidInput.at(f"after[{place}]", f"no job has the id {after_id!r}")
        status = S(row[0])
        if status not in ENDED:
            waits_for.append(after_id)
        elif status is not S.COMPLETED and new.on_failure is not OnFailure.RUN:
            failed = End(after_id, status)
    return waits_for, failed


def wait_for(tx: Transaction, job_id: str, after: Sequence[str]) -> None:
    tx.change_many(_DEPEND, [{"job_id": job_id, "after_id": each} for each in after])


def stop_waiting(tx: Transaction, job_id: str) -> None:
    tx.change(_FORGET_OWN, for_job=job_id)


def input_again(tx: Transaction, job: Job) -> dict[str, Any]:
    """What a retry changes of a job whose input is another's output: that one comes first."""
    row = None if job.input_from is None else tx.row(_STATUS, job_id=job.input_from)
    if job.input_from is None or row is None:
        return {}
    status = S(row[0])
    if status is S.COMPLETED:
        return {"input_data": output_of(tx, job.input_from)}
    if status not in ENDED:
        wait_for(tx, job.id, [job.input_from])
        return {"status": S.BLOCKED, "blocked_by": 1}
    if job.on_failure == OnFailure.RUN:
        return {}
    raise IllegalMove(
        job.id,
        job.status,
        "retried",
        f"Its input is the output of job {job.input_from}, which is {status}: retry that one "
        "first, or give this one an input.",
    )


def output_of(tx: Transaction, job_id: str) -> str | None:
    row = tx.row(_OUTPUT, job_id=job_id)
    return None if row is None else row[0]


def anybody_waits(tx: Transaction) -> bool:
    """Whether any job waits for another: in most queues none ever does."""
    return tx.row(_ANY_DEPENDENT) is not None


def follow(tx: Transaction, ends: Sequence[End]) -> None:
    """Jobs have ended: count them in their batches, and see to those that wait for them."""
    if not any(end.batch_id for end in ends) and not (ends and anybody_waits(tx)):
        return
    ended = deque(ends)
    while ended:
        end = ended.popleft()
        ended += _count_in_batch(tx, end)
        for (job_id,) in tx.rows(_DEPENDENTS, after=end.id):
            ended += _see_to(tx, jobs_sql.existing(tx, job_id), end)
        tx.change(_FORGET_DEPENDENTS, for_after=end.id)


def _see_to(tx: Transaction, job: Job, end: End) -> list[End]:
    """Let a waiting job go on, or end it; answers its end, if it is one."""
    if job.status is not S.BLOCKED:
        return []
    if end.status is S.COMPLETED or job.on_failure == OnFailure.RUN:
        _count_down(tx, job, end)
        return []
    return [fail_with(tx, job, end)]


def _count_down(tx: Transaction, job: Job, end: End) -> None:
    values: dict[str, Any] = {"blocked_by": job.blocked_by - 1}
    if job.input_from == end.id and end.status is S.COMPLETED:
        values["input_data"] = output_of(tx, end.id)
    if job.blocked_by <= 1:
        values |= {"status": S.PENDING, "scheduled_for": max(job.scheduled_for, tx.now)}
    jobs_sql.move(tx, job, "queued", **values)


def fail_with(tx: Transaction, job: Job, end: End) -> End:
    """End a job because one that it waited for did not complete."""
    stop_waiting(tx, job.id)
    after = become(tx, job, _failed_with(job, end), None)
    return End(after.id, after.status, after.batch_id)


def _failed_with(job: Job, end: End) -> Settlement:
    is_cancelled = job.on_failure == OnFailure.CANCEL
    return Settlement(
        status=S.CANCELLED if is_cancelled else S.FAILED,
        scheduled_for=job.scheduled_for,
        retry_count=job.retry_count,
        interruptions=job.interruptions,
        losses=job.losses,
        error_class=None if is_cancelled else ErrorClass.DEPENDENCY_FAILED,
        error_message=f"job {end.id}, which it waited for, is {end.status}",
        attempt_outcome=None if is_cancelled else "failed",
    )


def _count_in_batch(tx: Transaction, end: End) -> list[End]:
    if end.batch_id is None:
        return []
    count(tx, end.batch_id, Counter({end.status: 1}))
    is_over = tx.change(_END_BATCH, for_batch=end.batch_id, now=tx.now)
    return [End(end.batch_id, S.COMPLETED)] if is_over else []


def end_if_over(tx: Transaction, batch_id: str) -> None:
    """End a batch that begins with nothing left to wait for."""
    if tx.change(_END_BATCH, for_batch=batch_id, now=tx.now):
        follow(tx, [End(batch_id, S.COMPLETED)])


def count(tx: Transaction, batch_id: str, more: Counter[JobStatus]) -> None:
    """Count ends of a batch's jobs; less than none when one is sent around again."""
    tx.change(
        _COUNT_ENDS,
        for_batch=batch_id,
        more_completed=more[S.COMPLETED],
        more_failed=more[S.FAILED],
        more_cancelled=more[S.CANCELLED],
    )


def list_blockers(reader: Reader, query: ListBlockers) -> tuple[str, ...]:
    return tuple(after_id for (after_id,) in reader.rows(_BLOCKERS, job_id=query.job_id))


def get_batch(reader: Reader, query: GetBatch) -> Batch | None:
    rows = reader.rows(_READ_BATCH, batch_id=query.batch_id)
    return Batch(**dict(zip(Batch.__struct_fields__, rows[0], strict=True))) if rows else None

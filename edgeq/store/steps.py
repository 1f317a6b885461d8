"""Steps: results of finished parts of a job, kept by whoever holds its lock."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, delete, func, insert, literal_column, select, update

from edgeq.core.jobs import Job, JobStatus
from edgeq.core.steps import Step, StepKind
from edgeq.errors import InvalidInput, LockLost
from edgeq.ports.flow_commands import LookUpSteps, NewStep, RecordStep, RunInTransaction
from edgeq.ports.queries import Change, ListSteps
from edgeq.store.flow_tables import steps
from edgeq.store.jobs_sql import STILL_OURS
from edgeq.store.session import Transaction
from edgeq.store.system_sql import Reader
from edgeq.store.tables import jobs

# Progress was made, so the interruptions before it no longer count against the job.
_COUNT = (
    update(jobs)
    .where(*STILL_OURS)
    .values(
        steps=jobs.c.steps + literal_column("1"),
        interruptions=literal_column("0"),
        updated_at=bindparam("now"),
    )
)
_GIVEN = ("job_id", "name", "key", "kind", "result", "attempt", "run_id", "duration_ms")
_ADD = insert(steps).values(
    {**{name: bindparam(name) for name in _GIVEN}, "created_at": bindparam("now")}
)
# Statistics of a young queue, where one job has most of the steps, would speak for a scan.
_BY_JOB = "INDEXED BY steps_by_job"
_READ = (
    select(*(steps.c[name] for name in Step.__struct_fields__))
    .with_hint(steps, _BY_JOB, "sqlite")
    .where(steps.c.job_id == bindparam("job_id"))
    .order_by(steps.c.seq)
)
_FIRST_OF_NAME = (
    select(func.min(steps.c.seq))
    .with_hint(steps, _BY_JOB, "sqlite")
    .where(steps.c.job_id == bindparam("job_id"), steps.c.name == bindparam("name"))
)
_FORGET = delete(steps).where(
    steps.c.job_id == bindparam("for_job"), steps.c.seq >= bindparam("from_seq")
)
_COUNT_LEFT = (
    select(func.count())
    .select_from(steps)
    .with_hint(steps, _BY_JOB, "sqlite")
    .where(steps.c.job_id == bindparam("job_id"))
)


def record_step(tx: Transaction, command: RecordStep) -> None:
    _take_note(tx, command.step)
    _add(tx, command.step, command.step.result, command.step.duration_ms)


def run_in_transaction(tx: Transaction, command: RunInTransaction) -> str | None:
    """The fence first: a zombie's code must not even run."""
    step = command.step
    _take_note(tx, step)
    began = command.elapsed()
    result = tx.lend(command.work)
    _add(tx, step, result, round((command.elapsed() - began) * 1000))
    return result


def _take_note(tx: Transaction, step: NewStep) -> None:
    if not tx.change(_COUNT, at_seq=step.seq, at_fence=step.fence, now=tx.now):
        raise LockLost(step.job_id)
    tx.tell(
        Change(
            step.job_id,
            JobStatus.PROCESSING,
            step.type,
            step.tenant_id,
            "progress",
            step.attempt,
            step.progress,
        )
    )


def _add(tx: Transaction, step: NewStep, result: str | None, duration_ms: int) -> None:
    given: dict[str, Any] = {name: getattr(step, name) for name in _GIVEN}
    tx.change(_ADD, **given | {"result": result, "duration_ms": duration_ms, "now": tx.now})


def list_steps(reader: Reader, query: ListSteps | LookUpSteps) -> tuple[Step, ...]:
    rows = (
        dict(zip(Step.__struct_fields__, row, strict=True))
        for row in reader.rows(_READ, job_id=query.job_id)
    )
    return tuple(Step(**row | {"kind": StepKind(row["kind"])}) for row in rows)


def forget_steps(tx: Transaction, job: Job, from_step: str | None) -> int:
    """Forget the steps of a job from the first of a name on, or all; answers how many stay."""
    first = 0
    if from_step is not None:
        row = tx.row(_FIRST_OF_NAME, job_id=job.id, name=from_step)
        if row is None or row[0] is None:
            raise InvalidInput.at("from_step", f"job {job.id} has no finished step {from_step!r}")
        first = row[0]
    tx.change(_FORGET, for_job=job.id, from_seq=first)
    left = tx.row(_COUNT_LEFT, job_id=job.id)
    return 0 if left is None else left[0]

"""Recording how attempts ended: fenced, so that only the holder of the lock is heard."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, case, exists, insert, literal_column, null, select, update

from edgeq.core.backoff import ErrorClass
from edgeq.core.jobs import ENDED, Job, JobStatus
from edgeq.core.moves import Settlement, Standing, settle
from edgeq.core.outcomes import Completed, Failed, Outcome
from edgeq.core.redaction import safe_message
from edgeq.errors import EdgeqError, StoreError
from edgeq.ports.commands import Applied, Lock, Note, Progress, Settled
from edgeq.ports.queries import Change
from edgeq.store import flows, jobs_sql
from edgeq.store import insert as job_insert
from edgeq.store.become import become
from edgeq.store.session import Transaction
from edgeq.store.tables import jobs, logs

_COMPLETE = (
    update(jobs)
    .where(*jobs_sql.STILL_OURS)
    .values(
        status=literal_column("'completed'"),
        progress=literal_column("100"),
        output_data=bindparam("output"),
        error_class=null(),
        error_message=null(),
        completed_at=bindparam("now"),
        updated_at=bindparam("now"),
        result_expires_at=bindparam("now")
        + case(
            (jobs.c.result_ttl_ms.is_not(None), jobs.c.result_ttl_ms),
            else_=bindparam("result_ttl_ms"),
        ),
        claimed_ahead=literal_column("0"),
        locked_at=null(),
        locked_by=null(),
        lock_expires_at=null(),
    )
)
_READ_OURS = jobs_sql.select_jobs().where(*jobs_sql.STILL_OURS)
_PROGRESS = (
    update(jobs)
    .where(*jobs_sql.STILL_OURS)
    .values(
        progress=bindparam("percent"),
        current_stage=bindparam("stage"),
        updated_at=bindparam("now"),
    )
)
_LOG_COLUMNS = [name for name in logs.c.keys() if name != "id"]  # noqa: SIM118 - columns
_LOG = insert(logs).from_select(
    _LOG_COLUMNS,
    select(*(bindparam(name, type_=logs.c[name].type) for name in _LOG_COLUMNS)).where(
        exists().where(*jobs_sql.STILL_OURS)
    ),
)


def record_notes(
    tx: Transaction, run_id: str, notes: tuple[Note, ...], progress: tuple[Progress, ...]
) -> set[Lock]:
    """Write buffered log lines and progress; answers with the jobs that are no longer ours."""
    lost: set[Lock] = set()
    for note in notes:
        if not tx.change(_LOG, **_log_row(note, run_id)):
            lost.add((note.seq, note.fence))
    for step in progress:
        written = tx.change(
            _PROGRESS,
            at_seq=step.seq,
            at_fence=step.fence,
            percent=step.percent,
            stage=step.stage,
            now=tx.now,
        )
        if not written:
            lost.add((step.seq, step.fence))
            continue
        for row in tx.rows(jobs_sql.READ_BY_SEQ, seq=step.seq):
            jobs_sql.tell(tx, jobs_sql.job_from(row), "progress", JobStatus.PROCESSING)
    return lost


def _log_row(note: Note, run_id: str) -> dict[str, Any]:
    return {
        "job_id": note.job_id,
        "level": note.level,
        "stage": note.stage,
        "message": note.message,
        "details": note.details,
        "duration_ms": note.duration_ms,
        "attempt": note.attempt,
        "run_id": run_id,
        "created_at": note.at,
        "at_seq": note.seq,
        "at_fence": note.fence,
    }


def record_outcomes(
    tx: Transaction, run_id: str, settled: tuple[Settled, ...]
) -> tuple[list[Applied], set[Lock]]:
    """Settle what ended; answers what was applied, and which jobs were no longer ours."""
    plain = [s for s in settled if isinstance(s.outcome, Completed) and not s.children]
    applied, lost = _complete_all(tx, run_id, plain)
    for each in settled:
        if isinstance(each.outcome, Completed) and not each.children:
            continue
        one = _settle_one(tx, run_id, each)
        if one is None:
            lost.add(each.lock)
        else:
            applied.append(one)
    return applied, lost


def _complete_all(
    tx: Transaction, run_id: str, settled: list[Settled]
) -> tuple[list[Applied], set[Lock]]:
    """The common case, all in one go."""
    if not settled:
        return [], set()
    # One look at what the run holds is cheaper than a savepoint around the update, or than
    # asking row by row which of them it met.
    held = jobs_sql.held_by(tx, run_id).fences
    kept = [each for each in settled if held.get(each.seq) == each.fence]
    tx.change_many(_COMPLETE, [_completion(tx, each) for each in kept])
    for each in kept:
        tx.tell(_change(each, JobStatus.COMPLETED, "completed"))
    if any(each.batch_id for each in kept) or flows.anybody_waits(tx):
        flows.follow(tx, [flows.End(e.job_id, JobStatus.COMPLETED, e.batch_id) for e in kept])
    applied = [Applied(each.lock, each.outcome, JobStatus.COMPLETED) for each in kept]
    if len(kept) == len(settled):
        return applied, set()
    return applied, {each.lock for each in settled} - {each.lock for each in applied}


def _completion(tx: Transaction, each: Settled) -> dict[str, Any]:
    assert isinstance(each.outcome, Completed)  # noqa: S101 - the caller chose these
    policy = tx.types.by_name[each.type].policy
    return {
        "at_seq": each.seq,
        "at_fence": each.fence,
        "output": each.outcome.output,
        "now": tx.now,
        "result_ttl_ms": policy.result_ttl_ms,
    }


def _change(each: Settled, status: JobStatus, event: str) -> Change:
    return Change(each.job_id, status, each.type, each.tenant_id, event, each.attempt, 100)


def _settle_one(tx: Transaction, run_id: str, each: Settled) -> Applied | None:
    row = tx.row(_READ_OURS, at_seq=each.seq, at_fence=each.fence)
    if row is None:
        return None
    job = jobs_sql.job_from(row)
    outcome = _with_children(tx, each)
    settlement = settle(outcome, standing_of(tx, job), now=tx.now, unit=each.unit)
    apply(tx, job, settlement, run_id)
    return Applied(each.lock, outcome, settlement.status, settlement.error_class)


def _with_children(tx: Transaction, each: Settled) -> Outcome:
    """Store what a handler enqueued: it exists exactly when the handler's own success does.

    A child that is refused fails the attempt that wanted it, and nothing else of the cycle.
    """
    if not isinstance(each.outcome, Completed) or not each.children:
        return each.outcome
    savepoint = tx.savepoint()
    try:
        job_insert.add(tx, each.children)
    except StoreError:
        raise
    except EdgeqError as refusal:
        savepoint.undo()
        return Failed(ErrorClass.TRANSIENT, safe_message(f"a child was refused: {refusal}"))
    savepoint.keep()
    return each.outcome


def standing_of(tx: Transaction, job: Job) -> Standing:
    policy = tx.types.by_name[job.type].policy
    return Standing(
        retry_count=job.retry_count,
        max_retries=job.max_retries,
        interruptions=job.interruptions,
        max_interruptions=policy.max_interruptions,
        losses=job.losses,
        scheduled_for=job.scheduled_for,
        cancel_requested=job.cancel_requested_at is not None,
        backoff=policy.backoff,
    )


def apply(tx: Transaction, job: Job, settlement: Settlement, run_id: str | None) -> Job:
    """Make a job what its settlement says; if that is its end, others may go on."""
    if job.status is JobStatus.BLOCKED:
        flows.stop_waiting(tx, job.id)
    after = become(tx, job, settlement, run_id)
    if after.status in ENDED:
        flows.follow(tx, [flows.End(after.id, after.status, after.batch_id)])
    return after

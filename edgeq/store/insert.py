"""Adding jobs: types checked, keys answered, all or none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import Insert, bindparam, func, insert, null, select, update

from edgeq.core.job_types import JobType
from edgeq.core.jobs import Job, JobStatus, NewJob
from edgeq.errors import IdempotencyConflict, QueueFull, TypeDisabled
from edgeq.ports.commands import Duplicate, Inserted, InsertJobs
from edgeq.ports.flow_commands import InsertBatch
from edgeq.ports.queries import Change
from edgeq.store import flows, jobs_sql, types_sql
from edgeq.store.flow_tables import batches
from edgeq.store.session import Transaction
from edgeq.store.tables import LISTED, jobs

_NOT_COLUMNS = {"type", "replaces_duplicate", "after"}
_GIVEN = tuple(name for name in NewJob.__struct_fields__ if name not in _NOT_COLUMNS)
# What only a job that waits for others has. All others are spared it: it costs one in twenty.
_OF_THE_WAITING = ("on_failure", "input_from", "status", "blocked_by")


def _insert(names: Iterable[str]) -> Insert:
    values: dict[str, Any] = {name: bindparam(name) for name in (*names, "job_type_id")}
    return insert(jobs).values(values | {"updated_at": bindparam("created_at")})


_INSERT = _insert(name for name in _GIVEN if name not in _OF_THE_WAITING)
_INSERT_BEHIND = _insert(dict.fromkeys((*_GIVEN, *_OF_THE_WAITING)))
_BATCH_GIVEN = ("id", "name", "tenant_id", "correlation_id", "created_at")
_INSERT_BATCH = insert(batches).values(
    {name: bindparam(name) for name in (*_BATCH_GIVEN, "total", "callback_job_id")}
)
_SET_TOTAL = (
    update(batches).where(batches.c.id == bindparam("for_batch")).values(total=bindparam("added"))
)
_FREE_KEY = update(jobs).where(jobs.c.seq == bindparam("at_seq")).values(unique_key=null())
_COUNT_PENDING = select(func.count()).select_from(
    select(jobs.c.seq)
    .with_hint(jobs, f"INDEXED BY {LISTED}", "sqlite")
    .where(jobs.c.job_type_id == bindparam("type_id"), jobs_sql.is_status(JobStatus.PENDING))
    .limit(bindparam("at_most"))
    .subquery()
)


def insert_jobs(tx: Transaction, command: InsertJobs) -> tuple[Inserted | Duplicate, ...]:
    """Add jobs; a key in use answers with its job, also within one command."""
    return add(tx, command.jobs)


def insert_batch(tx: Transaction, command: InsertBatch) -> tuple[Inserted | Duplicate, ...]:
    """Add a batch with its jobs; a duplicate belongs to whoever came first, and is not counted."""
    batch, callback = command.batch, command.callback
    # It is there before its jobs, because some may end as they are stored, behind failed ones.
    tx.change(
        _INSERT_BATCH,
        **{name: getattr(batch, name) for name in _BATCH_GIVEN},
        total=len(command.jobs) + 1,
        callback_job_id=None if callback is None else _add_callback(tx, callback, batch.id),
    )
    answers = add(tx, command.jobs)
    added = sum(isinstance(answer, Inserted) for answer in answers)
    tx.change(_SET_TOTAL, for_batch=batch.id, added=added)
    flows.end_if_over(tx, batch.id)
    return answers


def _add_callback(tx: Transaction, callback: NewJob, batch_id: str) -> str:
    """Add the job that waits for a batch; answers its id, or that of the one with its key."""
    job_type = _accepting(tx, callback.type)
    duplicate = _answer_duplicate(tx, callback)
    if duplicate is not None:
        return duplicate.job.id
    _refuse_above_limit(tx, job_type)
    tx.change(_INSERT_BEHIND, **_row_behind(callback, job_type, 1))
    flows.wait_for(tx, callback.id, [batch_id])
    tx.tell(Change(callback.id, "blocked", callback.type, callback.tenant_id, "queued", 1, 0))
    return callback.id


def add(tx: Transaction, new_jobs: tuple[NewJob, ...]) -> tuple[Inserted | Duplicate, ...]:
    answers: list[Inserted | Duplicate] = []
    rows: list[dict[str, Any]] = []
    known_as: dict[str, str] = {}
    for new in new_jobs:
        job_type = _accepting(tx, new.type)
        if job_type.policy.max_pending is not None or new.unique_key is not None:
            # Both look at rows, so those that this command has gathered must be there first.
            _flush(tx, rows)
            duplicate = _answer_duplicate(tx, new)
            if duplicate is not None:
                known_as[new.id] = duplicate.job.id
                answers.append(duplicate)
                continue
            _refuse_above_limit(tx, job_type)
        if new.after:
            _flush(tx, rows)
            answers.append(_add_behind_others(tx, _renamed(new, known_as), job_type))
            continue
        rows.append(_row(new, job_type))
        tx.tell(Change(new.id, "pending", new.type, new.tenant_id, "queued", 1, 0))
        answers.append(Inserted(new.id))
    _flush(tx, rows)
    return tuple(answers)


def _row(new: NewJob, job_type: JobType) -> dict[str, Any]:
    row = msgspec.structs.asdict(new)
    row["job_type_id"] = job_type.id
    return row


def _row_behind(new: NewJob, job_type: JobType, blocked_by: int) -> dict[str, Any]:
    row = _row(new, job_type)
    row["status"] = "blocked" if blocked_by else "pending"
    row["blocked_by"] = blocked_by
    return row


def _renamed(new: NewJob, known_as: dict[str, str]) -> NewJob:
    """What is to follow a job that turned out to be there already follows that one."""
    if not known_as:
        return new
    return msgspec.structs.replace(
        new,
        after=tuple(known_as.get(each, each) for each in new.after),
        input_from=known_as.get(new.input_from or "", new.input_from),
    )


def _add_behind_others(tx: Transaction, new: NewJob, job_type: JobType) -> Inserted:
    """Add a job that waits for others, unless they have ended already."""
    waits_for, failed = flows.blockers(tx, new)
    row = _row_behind(new, job_type, len(waits_for))
    if new.input_from is not None and new.input_from not in waits_for:
        row["input_data"] = flows.output_of(tx, new.input_from)
    tx.change(_INSERT_BEHIND, **row)
    flows.wait_for(tx, new.id, waits_for)
    tx.tell(Change(new.id, row["status"], new.type, new.tenant_id, "queued", 1, 0))
    if failed is None:
        return Inserted(new.id, row["status"])
    end = flows.fail_with(tx, jobs_sql.existing(tx, new.id), failed)
    flows.follow(tx, [end])
    return Inserted(new.id, end.status.value)


def _flush(tx: Transaction, rows: list[dict[str, Any]]) -> None:
    if rows:
        tx.change_many(_INSERT, rows)
        rows.clear()


def _accepting(tx: Transaction, name: str) -> JobType:
    job_type = types_sql.known(tx, name)
    if not job_type.is_enabled:
        raise TypeDisabled(name)
    return job_type


def _answer_duplicate(tx: Transaction, new: NewJob) -> Duplicate | None:
    """The job that holds the key, unless its result is past its time: then the key is free."""
    if new.unique_key is None:
        return None
    row = tx.row(jobs_sql.READ_BY_KEY, unique_key=new.unique_key)
    if row is None:
        return None
    job = jobs_sql.job_from(row)
    if job.result_is_gone(tx.now):
        tx.change(_FREE_KEY, at_seq=job.seq)
        return None
    if new.replaces_duplicate and job.status is JobStatus.PENDING:
        return Duplicate(_replace(tx, job, new))
    if job.request_hash != new.request_hash:
        raise IdempotencyConflict(job.idempotency_key, job.id)
    return Duplicate(job)


def _replace(tx: Transaction, job: Job, new: NewJob) -> Job:
    return jobs_sql.move(
        tx,
        job,
        "queued",
        input_data=new.input_data,
        request_hash=new.request_hash,
        priority=new.priority,
        scheduled_for=new.scheduled_for,
        payload_version=new.payload_version,
        expires_at=new.expires_at,
    )


def _refuse_above_limit(tx: Transaction, job_type: JobType) -> None:
    limit = job_type.policy.max_pending
    if limit is None:
        return
    row = tx.row(_COUNT_PENDING, type_id=job_type.id, at_most=limit)
    if row is not None and row[0] >= limit:
        raise QueueFull(job_type.name, limit)

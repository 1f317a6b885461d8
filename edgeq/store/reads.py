"""Queries: short reads with keyset pages, each by an index."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from sqlalchemy import Select, bindparam, func, literal, select, union_all
from sqlalchemy.sql.elements import ColumnElement

from edgeq.core.ids import first_id_at, is_job_id
from edgeq.core.job_types import JobType
from edgeq.core.jobs import Attempt, Job, JobStatus, LogEntry, LogLevel
from edgeq.errors import InvalidInput
from edgeq.ports import queries as q
from edgeq.store import due, flows, jobs_sql, run_records, steps, system_sql, types_sql
from edgeq.store.session import Row
from edgeq.store.system_sql import Reader
from edgeq.store.tables import LISTED, LOCKED, attempts, changes, job_types, jobs, logs, runs

_LAST_ID = "~"  # sorts after every id
_LARGEST = 2**63 - 1
# SQLite joins at most 500 selects into one.
ARMS_AT_ONCE = 210
_READ_MANY = jobs_sql.select_jobs().where(jobs.c.id.in_(bindparam("ids", expanding=True)))
_LOG_FIELDS = LogEntry.__struct_fields__
_READ_LOGS = (
    select(*(logs.c[name] for name in _LOG_FIELDS))
    .where(logs.c.job_id == bindparam("job_id"), logs.c.id > bindparam("after"))
    .order_by(logs.c.id)
    .limit(bindparam("at_most"))
)
_READ_ATTEMPTS = (
    select(*(attempts.c[name] for name in Attempt.__struct_fields__))
    .where(attempts.c.job_id == bindparam("job_id"))
    .order_by(attempts.c.id)
)
_READ_RUNS = (
    select(
        runs.c.id,
        runs.c.kind,
        runs.c.worker_name,
        runs.c.started_at,
        runs.c.last_seen_at,
        runs.c.ended_at,
        runs.c.ticks,
        runs.c.report,
    )
    .order_by(runs.c.started_at.desc())
    .limit(bindparam("at_most"))
)
_COUNT = select(func.count()).select_from(
    select(jobs.c.id)
    .with_hint(jobs, f"INDEXED BY {LISTED}", "sqlite")
    .where(jobs.c.job_type_id == bindparam("type_id"), jobs.c.status == bindparam("status"))
    .limit(bindparam("at_most"))
    .subquery()
)
# The index holds nothing but running jobs, which are few.
_READ_RUNNING = (
    select(jobs.c.id, jobs.c.job_type_id, jobs.c.locked_at, jobs.c.lock_expires_at)
    .with_hint(jobs, f"INDEXED BY {LOCKED}", "sqlite")
    .where(
        jobs_sql.is_status(JobStatus.PROCESSING),
        jobs.c.job_type_id.in_(bindparam("type_ids", expanding=True)),
    )
    .order_by(jobs.c.lock_expires_at)
    .limit(bindparam("at_most"))
)
_READ_CHANGES = (
    select(changes.c.id, changes.c.at, changes.c.changes)
    .where(changes.c.id > bindparam("after"))
    .order_by(changes.c.id)
    .limit(bindparam("at_most"))
)
_FEED_ENDS = select(func.min(changes.c.id), func.max(changes.c.id))
_DECODE_CHANGES = msgspec.json.Decoder(tuple[q.Change, ...])


def get_jobs(reader: Reader, query: q.GetJobs) -> Mapping[str, Job]:
    found = {}
    for start in range(0, len(query.job_ids), 500):
        rows = reader.rows(_READ_MANY, ids=list(query.job_ids[start : start + 500]))
        found.update({job.id: job for job in map(jobs_sql.job_from, rows)})
    return found


def find_job(reader: Reader, query: q.FindJob) -> Job | None:
    rows = reader.rows(jobs_sql.READ_BY_KEY, unique_key=query.unique_key)
    return jobs_sql.job_from(rows[0]) if rows else None


def list_jobs(reader: Reader, query: q.ListJobs) -> q.JobPage:
    """A page, newest first: each arm is a seek on one index, and the arms are merged."""
    arms = _arms(reader, query.filter)
    if not arms:
        return q.JobPage((), None)
    rest = _rest(query.filter, _before(query))
    parts = [
        _newest(arms[start : start + ARMS_AT_ONCE], rest, query.limit + 1)
        for start in range(0, len(arms), ARMS_AT_ONCE)
    ]
    page: Any = parts[0]
    if len(parts) > 1:
        ids = {row[0] for part in parts for row in reader.rows(part)}
        page = sorted(ids, reverse=True)[: query.limit + 1]
    rows = reader.rows(jobs_sql.select_jobs().where(jobs.c.id.in_(page)).order_by(jobs.c.id.desc()))
    items = tuple(map(jobs_sql.job_from, rows[: query.limit]))
    return q.JobPage(items, items[-1].id if len(rows) > query.limit else None)


Arm = tuple[str | None, list[ColumnElement[bool]]]


def _newest(arms: list[Arm], rest: list[ColumnElement[bool]], limit: int) -> Select[tuple[str]]:
    """The newest ids of several arms, each of which has them in order."""
    each = [_arm(index, [*conditions, *rest], limit).subquery() for index, conditions in arms]
    merged = union_all(*(select(arm.c.id) for arm in each)).subquery()
    return select(merged.c.id).distinct().order_by(merged.c.id.desc()).limit(limit)


def _arm(
    index: str | None, conditions: list[ColumnElement[bool]], limit: int
) -> Select[tuple[str]]:
    arm: Select[tuple[str]] = select(jobs.c.id)
    if index is not None:
        arm = arm.with_hint(jobs, f"INDEXED BY {index}", "sqlite")
    return arm.where(*conditions).order_by(jobs.c.id.desc()).limit(limit)


def _arms(reader: Reader, wanted: q.JobFilter) -> list[Arm]:
    """The narrowest index that the filter allows, as one seek or several."""
    for index, column, value in (
        ("jobs_by_key", jobs.c.idempotency_key, wanted.idempotency_key),
        ("jobs_by_correlation", jobs.c.correlation_id, wanted.correlation_id),
    ):
        if value is not None:
            # An absent key or correlation reads as the job's own id.
            itself: Arm = (None, [jobs.c.id == value, column.is_(None)])
            return [(index, [column == value]), itself]
    for index, column, value in (
        ("jobs_by_parent", jobs.c.parent_job_id, wanted.parent_job_id),
        ("jobs_by_batch", jobs.c.batch_id, wanted.batch_id),
        ("jobs_by_reference_id", jobs.c.reference_id, wanted.reference_id),
        ("jobs_by_reference_type", jobs.c.reference_type, wanted.reference_type),
        ("jobs_by_error", jobs.c.error_class, wanted.error_class),
    ):
        if value is not None:
            return [(index, [column == value])]
    return _arms_by_type_and_state(reader, wanted)


def _arms_by_type_and_state(reader: Reader, wanted: q.JobFilter) -> list[Arm]:
    by_type = (wanted.type, wanted.category, wanted.lane) != (None, None, None)
    states = list(JobStatus) if wanted.status is None else [wanted.status]
    if wanted.tenant_id is not None:
        return [
            ("jobs_by_tenant", [jobs.c.tenant_id == wanted.tenant_id, jobs.c.status == state.value])
            for state in states
        ]
    if not by_type and wanted.status is None:
        return [(None, [])]
    types = [t for t in types_sql.read_all(reader) if _is_wanted(t, wanted)]
    return [
        (LISTED, [jobs.c.job_type_id == job_type.id, jobs.c.status == state.value])
        for job_type in types
        for state in states
    ]


def _is_wanted(job_type: JobType, wanted: q.JobFilter) -> bool:
    policy = job_type.policy
    return (
        wanted.type in (None, policy.name)
        and wanted.category in (None, policy.category)
        and wanted.lane in (None, policy.lane)
    )


def _rest(wanted: q.JobFilter, before: str) -> list[ColumnElement[bool]]:
    """Every condition, also those that an index has answered: they cost nothing twice."""
    conditions = [jobs.c.id < before]
    if wanted.created_after is not None:
        conditions.append(jobs.c.id >= first_id_at(wanted.created_after))
    for name in (
        "status",
        "tenant_id",
        "parent_job_id",
        "batch_id",
        "reference_type",
        "reference_id",
        "error_class",
    ):
        value = getattr(wanted, name)
        if value is not None:
            conditions.append(jobs.c[name] == literal(str(value)))
    for name in ("idempotency_key", "correlation_id"):
        value = getattr(wanted, name)
        if value is not None:
            conditions.append(func.coalesce(jobs.c[name], jobs.c.id) == value)
    if (wanted.type, wanted.category, wanted.lane) != (None, None, None):
        conditions.append(jobs.c.job_type_id.in_(_type_ids(wanted)))
    return conditions


def _type_ids(wanted: q.JobFilter) -> Select[tuple[str]]:
    ids: Select[tuple[str]] = select(job_types.c.id)
    for column, value in (
        (job_types.c.name, wanted.type),
        (job_types.c.category, wanted.category),
        (job_types.c.lane, wanted.lane),
    ):
        if value is not None:
            ids = ids.where(column == value)
    return ids


def _before(query: q.ListJobs) -> str:
    if query.cursor is not None and not is_job_id(query.cursor):
        raise InvalidInput.at("cursor", "is not one that a list has given out")
    bounds = [query.cursor] if query.cursor is not None else []
    if query.filter.created_before is not None:
        bounds.append(first_id_at(query.filter.created_before))
    return min(bounds, default=_LAST_ID)


def list_logs(reader: Reader, query: q.ListLogs) -> q.LogPage:
    try:
        after = int(query.cursor or 0)
        if not 0 <= after <= _LARGEST:
            raise ValueError
    except ValueError:
        raise InvalidInput.at("cursor", "is not one that a list has given out") from None
    rows = reader.rows(_READ_LOGS, job_id=query.job_id, after=after, at_most=query.limit + 1)
    items = tuple(_log_from(row) for row in rows[: query.limit])
    return q.LogPage(items, str(items[-1].id) if len(rows) > query.limit else None)


def _log_from(row: Any) -> LogEntry:
    fields = dict(zip(_LOG_FIELDS, row, strict=True))
    return LogEntry(**fields | {"level": LogLevel(fields["level"])})


def list_attempts(reader: Reader, query: q.ListAttempts) -> tuple[Attempt, ...]:
    names = Attempt.__struct_fields__
    rows = reader.rows(_READ_ATTEMPTS, job_id=query.job_id)
    return tuple(Attempt(**dict(zip(names, row, strict=True))) for row in rows)


def list_types(reader: Reader, _query: q.ListTypes) -> tuple[JobType, ...]:
    return types_sql.read_all(reader)


def get_config(reader: Reader, _query: q.GetConfig) -> Mapping[str, object]:
    return system_sql.read_config(reader)


def list_runs(reader: Reader, query: q.ListRuns) -> tuple[q.RunRow, ...]:
    return tuple(map(_run_from, reader.rows(_READ_RUNS, at_most=query.limit)))


def _run_from(row: Row) -> q.RunRow:
    run_id, kind, worker_name, started_at, last_seen_at, ended_at, ticks, report = row
    told = None if report is None else json.loads(report)
    return q.RunRow(run_id, kind, worker_name, started_at, last_seen_at, ended_at, ticks, told)


def get_stats(reader: Reader, _query: q.GetStats) -> q.Stats:
    types = types_sql.read_all(reader)
    took = run_records.read_durations(reader)
    return q.Stats(
        types=tuple(_stats_of(reader, each, took.get(each.name)) for each in types),
        next_due_at=due.first(reader, [t for t in types if t.is_claimable]),
    )


def _stats_of(reader: Reader, job_type: JobType, took: Any) -> q.TypeStats:
    counts = {
        state: reader.rows(
            _COUNT, type_id=job_type.id, status=state.value, at_most=q.COUNTED_AT_MOST
        )[0][0]
        for state in JobStatus
    }
    return q.TypeStats(
        type=job_type.name,
        counts=counts,
        capped=q.COUNTED_AT_MOST in counts.values(),
        oldest_due_at=due.first(reader, [job_type]),
        p50_ms=None if took is None else took.quantile(0.5),
        p95_ms=None if took is None else took.quantile(0.95),
        p99_ms=None if took is None else took.quantile(0.99),
    )


def list_running(reader: Reader, query: q.ListRunning) -> tuple[q.RunningJob, ...]:
    names = {
        each.id: each.name
        for each in types_sql.read_all(reader)
        if query.types is None or each.name in query.types
    }
    rows = reader.rows(_READ_RUNNING, type_ids=list(names), at_most=q.COUNTED_AT_MOST)
    return tuple(q.RunningJob(id_, names[type_id], *lock) for id_, type_id, *lock in rows)


def get_changes(reader: Reader, query: q.GetChanges) -> q.Changes:
    rows = reader.rows(_READ_CHANGES, after=query.after, at_most=query.limit)
    # Asked after the rows: what was trimmed in between is then a reset, and not a silent gap.
    oldest, newest = (end or 0 for end in reader.rows(_FEED_ENDS)[0])
    told = tuple(
        (position, at, change)
        for position, at, text in rows
        for change in _DECODE_CHANGES.decode(text)
    )
    is_beyond = query.after > newest
    position = rows[-1][0] if rows else newest if is_beyond or query.limit == 0 else query.after
    return q.Changes(position, told, reset=is_beyond or query.after < oldest - 1)


Answer = Callable[[Reader, Any], Any]
ANSWERS: dict[type[q.Query[Any]], Answer] = {
    q.GetJobs: get_jobs,
    q.FindJob: find_job,
    q.ListJobs: list_jobs,
    q.ListLogs: list_logs,
    q.ListAttempts: list_attempts,
    q.ListSteps: steps.list_steps,
    q.GetBatch: flows.get_batch,
    q.ListBlockers: flows.list_blockers,
    q.GetDurations: run_records.get_durations,
    q.ListTypes: list_types,
    q.GetConfig: get_config,
    q.ListRuns: list_runs,
    q.GetStats: get_stats,
    q.ListRunning: list_running,
    q.GetChanges: get_changes,
}

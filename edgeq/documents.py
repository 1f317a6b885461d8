"""Jobs, types, runs and counts as JSON documents: the same for the command line and the API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from edgeq.core.job_types import POLICY_FIELDS, JobType
from edgeq.core.jobs import Attempt, Job, LogEntry
from edgeq.core.runs import RunReport
from edgeq.core.steps import Step
from edgeq.core.times import format_time
from edgeq.ports.queries import Batch, RunningJob, RunRow, Stats, TypeStats

Document = dict[str, Any]


def page_document(items: Iterable[Document], next_cursor: str | None) -> Document:
    return {"items": list(items), "next_cursor": next_cursor}


def job_document(job: Job) -> Document:
    """A job as lists and actions show it; what takes further reads is in `job_details`."""
    return {
        "id": job.id,
        "type": job.type,
        "category": job.category,
        "status": job.status.value,
        "priority": job.priority,
        "progress": job.progress,
        "current_stage": job.current_stage,
        "input": job.input,
        "output": job.output,
        "error": error_document(job.error_class, job.error_message),
        "attempt": job.attempt,
        "retry_count": job.retry_count,
        "max_retries": job.max_retries,
        "interruptions": job.interruptions,
        "created_at": format_time(job.created_at),
        "scheduled_for": format_time(job.scheduled_for),
        "started_at": format_time(job.started_at),
        "completed_at": format_time(job.completed_at),
        "updated_at": format_time(job.updated_at),
        "tenant_id": job.tenant_id,
        "correlation_id": job.correlation_id,
        "reference_type": job.reference_type,
        "reference_id": job.reference_id,
        "parent_job_id": job.parent_job_id,
        "batch_id": job.batch_id,
        "idempotency_key": job.idempotency_key,
        "review_reason": job.review_reason,
        "waiting_for": None,
    }


def job_details(
    job: Job,
    attempts: Iterable[Attempt],
    logs: Iterable[LogEntry],
    *,
    steps: Iterable[Step] = (),
    waiting_for: Iterable[str] = (),
) -> Document:
    return job_document(job) | {
        "waiting_for": list(waiting_for) or None,
        "steps": [step_document(each) for each in steps],
        "attempts": [attempt_document(each) for each in attempts],
        "logs": [log_document(each) for each in logs],
    }


def result_document(job_id: str, status: str, **outcome: Any) -> Document:
    """How a job ended: `output=` of a completed one, `error=` of any other."""
    return {"job_id": job_id, "status": status, **outcome}


def error_document(error_class: str | None, message: str | None) -> Document | None:
    return None if error_class is None else {"class": error_class, "message": message}


def step_document(step: Step) -> Document:
    return {
        "name": step.name,
        "key": step.key or None,
        "kind": step.kind.value,
        "result": None if step.result is None else json.loads(step.result),
        "duration_ms": step.duration_ms,
        "attempt": step.attempt,
        "run_id": step.run_id,
        "created_at": format_time(step.created_at),
    }


def batch_document(batch: Batch) -> Document:
    return {
        "id": batch.id,
        "name": batch.name,
        "tenant_id": batch.tenant_id,
        "correlation_id": batch.correlation_id,
        "total": batch.total,
        "pending": batch.pending,
        "completed": batch.completed,
        "failed": batch.failed,
        "cancelled": batch.cancelled,
        "callback_job_id": batch.callback_job_id,
        "created_at": format_time(batch.created_at),
        "ended_at": format_time(batch.ended_at),
    }


def attempt_document(attempt: Attempt) -> Document:
    return {
        "attempt": attempt.attempt,
        "outcome": attempt.outcome,
        "error": error_document(attempt.error_class, attempt.error_message),
        "run_id": attempt.run_id,
        "started_at": format_time(attempt.started_at),
        "ended_at": format_time(attempt.ended_at),
    }


def log_document(entry: LogEntry) -> Document:
    return {
        "id": entry.id,
        "job_id": entry.job_id,
        "level": entry.level.value,
        "stage": entry.stage,
        "message": entry.message,
        "details": None if entry.details is None else json.loads(entry.details),
        "duration_ms": entry.duration_ms,
        "attempt": entry.attempt,
        "run_id": entry.run_id,
        "created_at": format_time(entry.created_at),
    }


def type_document(job_type: JobType) -> Document:
    policy = _plain(job_type.policy)
    schema = job_type.policy.input_schema
    return {
        "id": job_type.id,
        "name": job_type.name,
        **{name: policy[name] for name in POLICY_FIELDS},
        "input_schema": None if schema is None else json.loads(schema),
        "is_enabled": job_type.is_enabled,
        "is_paused": job_type.is_paused,
        "overrides": sorted(job_type.overrides),
        "created_at": format_time(job_type.created_at),
        "updated_at": format_time(job_type.updated_at),
    }


def report_document(report: RunReport) -> Document:
    return _with_readable_time(_plain(report))


def run_document(run: RunRow) -> Document:
    return {
        "run_id": run.run_id,
        "kind": run.kind,
        "worker_name": run.worker_name,
        "started_at": format_time(run.started_at),
        "last_seen_at": format_time(run.last_seen_at),
        "ended_at": format_time(run.ended_at),
        "ticks": run.ticks,
        "report": None if run.report is None else _with_readable_time(run.report),
    }


def running_document(job: RunningJob) -> Document:
    return {
        "id": job.id,
        "type": job.type,
        "locked_at": format_time(job.locked_at),
        "lock_expires_at": format_time(job.lock_expires_at),
    }


def stats_document(stats: Stats) -> Document:
    return {
        "types": [_type_stats_document(each) for each in stats.types],
        "next_due_at": format_time(stats.next_due_at),
    }


def _type_stats_document(stats: TypeStats) -> Document:
    return {
        "type": stats.type,
        "counts": {state.value: count for state, count in stats.counts.items()},
        "capped": stats.capped,
        "oldest_due_at": format_time(stats.oldest_due_at),
        "p50_ms": stats.p50_ms,
        "p95_ms": stats.p95_ms,
        "p99_ms": stats.p99_ms,
    }


def _plain(value: msgspec.Struct) -> Document:
    """As JSON has it: lists instead of tuples, texts instead of enumerations."""
    document: Document = msgspec.json.decode(msgspec.json.encode(value))
    return document


def _with_readable_time(report: Mapping[str, Any]) -> Document:
    due = report.get("next_due_at")
    return {**report, "next_due_at": format_time(due) if isinstance(due, int) else due}

"""How a job, its attempts and its log look to people."""

from __future__ import annotations

from edgeq.cli.output import age, moment, table
from edgeq.core.jobs import Attempt, Job, LogEntry
from edgeq.core.steps import Step
from edgeq.core.times import format_time, human_duration

JOB_COLUMNS = ("id", "type", "status", "priority", "attempt", "created", "due", "error")


def job_row(job: Job, now: int) -> tuple[object, ...]:
    attempt = f"{job.attempt}/{job.max_retries + 1}"
    due = age(job.scheduled_for, now) if job.status in ("pending", "blocked") else "-"
    created = age(job.created_at, now)
    return job.id, job.type, job.status, job.priority, attempt, created, due, job.error_class


def job_fields(job: Job, now: int) -> list[tuple[str, object]]:
    error = None if job.error_class is None else f"{job.error_class}: {job.error_message}"
    progress = (
        f"{job.progress} %"
        if job.current_stage is None
        else (f"{job.progress} % ({job.current_stage})")
    )
    about = None if job.reference_type is None else f"{job.reference_type}:{job.reference_id}"
    return [
        ("id", job.id),
        ("type", job.type),
        ("category", job.category),
        ("lane", job.lane),
        ("status", job.status),
        ("review", job.review_reason),
        ("error", error),
        ("progress", progress),
        ("attempt", f"{job.attempt} of {job.max_retries + 1}"),
        ("priority", job.priority),
        ("created", moment(job.created_at, now)),
        ("due", moment(job.scheduled_for, now)),
        ("started", moment(job.started_at, now)),
        ("completed", moment(job.completed_at, now)),
        ("key", job.stored_idempotency_key),
        ("tenant", job.tenant_id),
        ("correlation", job.stored_correlation_id),
        ("reference", about),
        ("parent", job.parent_job_id),
        ("batch", job.batch_id),
    ]


def attempts_table(attempts: tuple[Attempt, ...], now: int) -> str:
    rows = [
        (each.attempt, each.outcome, age(each.ended_at, now), each.error_class, each.error_message)
        for each in attempts
    ]
    return table(("attempt", "outcome", "ended", "class", "error"), rows)


def steps_table(steps: tuple[Step, ...], now: int) -> str:
    rows = [
        (
            step.name,
            step.key or "-",
            step.kind,
            step.attempt,
            human_duration(step.duration_ms),
            age(step.created_at, now),
        )
        for step in steps
    ]
    return table(("step", "key", "kind", "attempt", "took", "done"), rows)


def log_table(entries: tuple[LogEntry, ...]) -> str:
    rows = [
        (format_time(e.created_at), e.level, e.attempt, e.stage, e.message, e.details)
        for e in entries
    ]
    return table(("at", "level", "attempt", "stage", "message", "details"), rows)

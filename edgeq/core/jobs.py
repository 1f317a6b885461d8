"""A job and what is kept about it, as frozen values."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from edgeq.errors import StoreCorrupt


class JobStatus(StrEnum):
    """Where a job is in its life; docs/states.md draws the moves between them."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    REVIEW_NEEDED = "review_needed"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"


class OnFailure(StrEnum):
    """What a blocked job does when a job that it waits for fails or is cancelled."""

    FAIL = "fail"
    CANCEL = "cancel"
    RUN = "run"


ENDED = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED})

LOWEST_PRIORITY = 1
DEFAULT_PRIORITY = 10
HIGHEST_PRIORITY = 20


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job on its way into the store: already checked, encoded and named."""

    id: str
    type: str
    created_at: int
    scheduled_for: int
    priority: int = DEFAULT_PRIORITY
    input_data: str | None = None
    reference_type: str | None = None
    reference_id: str | None = None
    max_retries: int | None = None
    timeout_ms: int | None = None
    tenant_id: str | None = None
    correlation_id: str | None = None
    parent_job_id: str | None = None
    idempotency_key: str | None = None
    unique_key: str | None = None
    request_hash: str | None = None
    payload_version: int = 1
    created_by: str | None = None
    expires_at: int | None = None
    result_ttl_ms: int | None = None
    replaces_duplicate: bool = False
    batch_id: str | None = None
    # Jobs that have to be completed first, what to do if one is not, and whose output is its input.
    after: tuple[str, ...] = ()
    on_failure: OnFailure | None = None
    input_from: str | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A stored job, whole; times are Unix milliseconds."""

    seq: int
    id: str
    type: str
    category: str | None
    lane: str
    status: JobStatus
    priority: int
    progress: int
    current_stage: str | None
    input_data: str | None
    output_data: str | None
    error_class: str | None
    error_message: str | None
    reference_type: str | None
    reference_id: str | None
    locked_at: int | None
    locked_by: str | None
    lock_expires_at: int | None
    fence: int
    scheduled_for: int
    started_at: int | None
    completed_at: int | None
    retry_count: int
    losses: int
    interruptions: int
    max_retries: int
    timeout_ms: int
    created_at: int
    updated_at: int
    tenant_id: str | None
    stored_correlation_id: str | None
    parent_job_id: str | None
    batch_id: str | None
    blocked_by: int
    stored_idempotency_key: str | None
    request_hash: str | None
    payload_version: int
    created_by: str | None
    concurrency_key: str | None
    expires_at: int | None
    result_expires_at: int | None
    review_reason: str | None
    cancel_requested_at: int | None
    steps: int = 0
    on_failure: OnFailure | None = None
    input_from: str | None = None

    @property
    def attempt(self) -> int:
        return self.retry_count + 1

    # An absent key or correlation reads as the job's own id, so that every job can be traced
    # and deduplicated by one, without storing the same text twice.
    @property
    def idempotency_key(self) -> str:
        return self.stored_idempotency_key or self.id

    @property
    def correlation_id(self) -> str:
        return self.stored_correlation_id or self.id

    @property
    def input(self) -> Any:
        return self._decoded("input", self.input_data)

    @property
    def output(self) -> Any:
        return self._decoded("output", self.output_data)

    def _decoded(self, what: str, text: str | None) -> Any:
        try:
            return None if text is None else msgspec.json.decode(text)
        except msgspec.DecodeError as damaged:
            raise StoreCorrupt(
                f"The stored {what} of job {self.id} is not JSON ({damaged}): the database is "
                "damaged. Restore the last backup."
            ) from damaged

    def result_is_gone(self, now: int) -> bool:
        return self.result_expires_at is not None and self.result_expires_at <= now


class ClaimedJob(msgspec.Struct, frozen=True):
    """What a run gets to know of a job that it has just locked."""

    seq: int
    id: str
    type: str
    lane: str
    fence: int
    priority: int
    input_data: str | None
    retry_count: int
    max_retries: int
    timeout_ms: int
    interruptions: int
    losses: int
    payload_version: int
    scheduled_for: int
    created_at: int
    tenant_id: str | None
    correlation_id: str
    idempotency_key: str
    reference_type: str | None
    reference_id: str | None
    parent_job_id: str | None
    claimed_ahead: int
    handler_name: str
    # How many of its steps have results from before.
    steps: int = 0
    batch_id: str | None = None

    @property
    def attempt(self) -> int:
        return self.retry_count + 1


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a job's own log."""

    id: int
    job_id: str
    level: LogLevel
    stage: str | None
    message: str
    details: str | None
    duration_ms: int | None
    attempt: int
    run_id: str | None
    created_at: int


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that did not simply succeed."""

    attempt: int
    outcome: str
    error_class: str | None
    error_message: str | None
    run_id: str | None
    started_at: int | None
    ended_at: int

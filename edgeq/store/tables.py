"""The tables: the only spelling of table, column and index names."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TextClause,
    text,
)

from edgeq.core.jobs import JobStatus, LogLevel

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

# SQLite gives 64 bits to every INTEGER, and only an INTEGER primary key is the row's own id.
Whole = BigInteger().with_variant(Integer, "sqlite")


class GuardMode(StrEnum):
    """What writes the guard row lets through."""

    OPEN = "open"
    FROZEN = "frozen"
    MOVED = "moved"
    BACKUP = "backup"


def one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


def _between(column: str, low: int, high: int) -> CheckConstraint:
    return CheckConstraint(f"{column} BETWEEN {low} AND {high}", name=column)


def required(name: str, default: object = None) -> Column[int]:
    return Column(name, Whole, nullable=False, server_default=_default(default))


def _default(value: object) -> TextClause | None:
    return None if value is None else text(f"{value}")


job_types = Table(
    "background_job_types",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("description", Text),
    Column("category", Text),
    Column("handler_name", Text, nullable=False),
    Column("lane", Text, nullable=False, server_default=text("'general'")),
    required("max_retries", 3),
    required("retry_delay_ms", 5_000),
    required("retry_max_delay_ms", 300_000),
    required("timeout_ms", 300_000),
    Column("max_concurrent", Whole),
    Column("max_pending", Whole),
    Column("rate_limit_max", Whole),
    Column("rate_limit_window_ms", Whole),
    Column("breaker", Text),
    required("result_ttl_ms", 3_600_000),
    required("max_interruptions", 20),
    required("input_max_bytes", 65_536),
    required("output_max_bytes", 262_144),
    Column("input_schema", Text),
    Column("required_fields", Text),
    Column("allowed_fields", Text),
    Column("stages_config", Text),
    Column("cron_schedule", Text),
    Column("executor", Text, nullable=False, server_default=text("'async'")),
    Column("serializer", Text),
    required("version", 1),
    Column("keep_completed_ms", Whole),
    required("is_enabled", 1),
    required("is_paused", 0),
    Column("overrides", Text, nullable=False, server_default=text("'[]'")),
    required("created_at"),
    required("updated_at"),
    _between("is_enabled", 0, 1),
    _between("is_paused", 0, 1),
)

jobs = Table(
    "background_jobs",
    metadata,
    Column("seq", Whole, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("job_type_id", Text, ForeignKey("background_job_types.id"), nullable=False),
    Column("status", Text, nullable=False, server_default=text("'pending'")),
    required("priority", 10),
    required("progress", 0),
    Column("current_stage", Text),
    Column("input_data", Text),
    Column("input_blob", LargeBinary),
    Column("output_data", Text),
    Column("output_blob", LargeBinary),
    Column("error_class", Text),
    Column("error_message", Text),
    Column("reference_type", Text),
    Column("reference_id", Text),
    Column("locked_at", Whole),
    Column("locked_by", Text),
    Column("lock_expires_at", Whole),
    required("fence", 0),
    required("scheduled_for"),
    Column("started_at", Whole),
    Column("completed_at", Whole),
    required("retry_count", 0),
    required("losses", 0),
    required("interruptions", 0),
    # 0: not claimed ahead; 1: claimed ahead of its turn, not known to have started; 2: lost once
    # in that state, so it is only claimed into a slot, where a loss counts against it.
    required("claimed_ahead", 0),
    # 1: it runs in a process of its own, whose death its parent sees (core/suspects.py).
    required("is_isolated", 0),
    Column("max_retries", Whole),
    Column("timeout_ms", Whole),
    Column("tenant_id", Text),
    Column("correlation_id", Text),
    Column("parent_job_id", Text),
    Column("batch_id", Text),
    required("blocked_by", 0),
    Column("idempotency_key", Text),
    Column("unique_key", Text),
    Column("request_hash", Text),
    required("payload_version", 1),
    Column("created_by", Text),
    Column("concurrency_key", Text),
    Column("expires_at", Whole),
    Column("result_ttl_ms", Whole),
    Column("result_expires_at", Whole),
    Column("review_reason", Text),
    Column("cancel_requested_at", Whole),
    # How many steps have results; what a blocked job does when one of those before it fails; and
    # whose output becomes its input.
    required("steps", 0),
    Column("on_failure", Text),
    Column("input_from", Text),
    required("created_at"),
    required("updated_at"),
    one_of("status", JobStatus),
    _between("priority", 1, 20),
    _between("progress", 0, 100),
    _between("claimed_ahead", 0, 2),
    _between("is_isolated", 0, 1),
)

# Claims seek (type, priority) here, so that neither finished, future, paused, running nor
# suspect rows cost a claim anything.
READY = "jobs_ready"
Index(
    READY,
    jobs.c.job_type_id,
    jobs.c.priority,
    jobs.c.scheduled_for,
    jobs.c.seq,
    sqlite_where=text("status = 'pending' AND losses = 0"),
    postgresql_where=text("status = 'pending' AND losses = 0"),
)
# The few pending jobs that were lost with a process: they are claimed alone.
SUSPECT = "jobs_suspect"
Index(
    SUSPECT,
    jobs.c.job_type_id,
    jobs.c.priority,
    jobs.c.scheduled_for,
    jobs.c.seq,
    sqlite_where=text("status = 'pending' AND losses > 0"),
    postgresql_where=text("status = 'pending' AND losses > 0"),
)
LOCKED = "jobs_locked"
Index(
    LOCKED,
    jobs.c.lock_expires_at,
    sqlite_where=text("status = 'processing'"),
    postgresql_where=text("status = 'processing'"),
)
# Lists, counts and `max_concurrent`: every combination of type and state is a seek here. Lists
# go by id, which sorts by the time of creation, so a range of times is a range of ids.
LISTED = "jobs_listed"
Index(LISTED, jobs.c.job_type_id, jobs.c.status, jobs.c.id)


def _found_by(name: str, column: Column[str], *then: Column[str]) -> Index:
    """An index that costs nothing for jobs without the column, which most are."""
    present = text(f"{column.name} IS NOT NULL")
    return Index(name, column, *then, jobs.c.id, sqlite_where=present, postgresql_where=present)


_found_by("jobs_by_tenant", jobs.c.tenant_id, jobs.c.status)
_found_by("jobs_by_correlation", jobs.c.correlation_id)
_found_by("jobs_by_parent", jobs.c.parent_job_id)
_found_by("jobs_by_batch", jobs.c.batch_id)
_found_by("jobs_by_key", jobs.c.idempotency_key)
_found_by("jobs_by_reference_id", jobs.c.reference_id)
_found_by("jobs_by_reference_type", jobs.c.reference_type)
_found_by("jobs_by_error", jobs.c.error_class)
Index(
    "jobs_unique_key",
    jobs.c.unique_key,
    unique=True,
    sqlite_where=text("unique_key IS NOT NULL"),
    postgresql_where=text("unique_key IS NOT NULL"),
)

logs = Table(
    "background_job_logs",
    metadata,
    Column("id", Whole, primary_key=True),
    Column("job_id", Text, ForeignKey("background_jobs.id", ondelete="CASCADE"), nullable=False),
    Column("level", Text, nullable=False, server_default=text("'info'")),
    Column("stage", Text),
    Column("message", Text, nullable=False),
    Column("details", Text),
    Column("duration_ms", Whole),
    required("attempt", 1),
    Column("run_id", Text),
    required("created_at"),
    one_of("level", LogLevel),
)
Index("logs_by_job", logs.c.job_id, logs.c.id)

attempts = Table(
    "background_job_attempts",
    metadata,
    Column("id", Whole, primary_key=True),
    Column("job_id", Text, ForeignKey("background_jobs.id", ondelete="CASCADE"), nullable=False),
    required("attempt"),
    Column("outcome", Text, nullable=False),
    Column("error_class", Text),
    Column("error_message", Text),
    Column("run_id", Text),
    Column("started_at", Whole),
    required("ended_at"),
)
Index("attempts_by_job", attempts.c.job_id, attempts.c.id)

# No foreign key: a letter outlives its job and then keeps a snapshot of it.
dead_letters = Table(
    "dead_letters",
    metadata,
    Column("id", Text, primary_key=True),
    Column("job_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("category", Text),
    Column("status", Text, nullable=False, server_default=text("'pending_review'")),
    Column("error_class", Text, nullable=False),
    Column("error_message", Text),
    Column("fingerprint", Text, nullable=False),
    required("attempt_count"),
    Column("idempotency_key", Text),
    Column("correlation_id", Text),
    Column("tenant_id", Text),
    required("original_created_at"),
    required("created_at"),
    Column("acknowledged_by", Text),
    Column("acknowledged_at", Whole),
    Column("notes", Text),
    Column("snapshot", Text),
    CheckConstraint(
        "status IN ('pending_review', 'acknowledged', 'reprocessed', 'retried', 'discarded')",
        name="status",
    ),
)
Index("letters_by_status", dead_letters.c.status, dead_letters.c.created_at)
Index("letters_by_job", dead_letters.c.job_id)

# A position in the feed must never be given out twice. Trimming therefore spares the newest row,
# which is cheaper than SQLite's autoincrement: that writes one page more in every commit.
changes = Table(
    "job_changes",
    metadata,
    Column("id", Whole, primary_key=True),
    required("at"),
    Column("changes", Text, nullable=False),
)

guard = Table(
    "queue_guard",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_id", Text, nullable=False),
    required("epoch", 1),
    required("schema_version"),
    Column("mode", Text, nullable=False, server_default=text("'open'")),
    # Counted up by every change of a type or of the configuration, so that what a process
    # remembers of them is checked by the one read that starts each transaction.
    required("types_version", 1),
    required("config_version", 1),
    CheckConstraint("id = 1", name="one_row"),
    one_of("mode", GuardMode),
)

config = Table(
    "worker_config",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("description", Text),
    required("updated_at"),
)

runs = Table(
    "worker_runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("worker_name", Text, nullable=False),
    Column("limits", Text),
    required("started_at"),
    required("last_seen_at"),
    Column("ended_at", Whole),
    Column("stopped", Text),
    # How many idle ticks this row stands for: a cron line every minute must not add 1,440 rows
    # a day that all say "nothing to do".
    required("ticks", 1),
    required("put_back", 0),
    Column("report", Text),
)
Index("runs_by_start", runs.c.started_at)

durations = Table(
    "durations",
    metadata,
    Column("type", Text, primary_key=True),
    Column("step", Text, primary_key=True),
    Column("hour", Whole, primary_key=True),
    Column("buckets", Text, nullable=False),
)

audit = Table(
    "audit_events",
    metadata,
    Column("id", Whole, primary_key=True),
    required("at"),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("reason", Text),
    Column("details", Text),
)
Index("audit_by_subject", audit.c.subject, audit.c.id)

# What each handlers folder looked like when its types were last registered, so that an idle tick
# knows without importing them whether it has to be looked at again.
handler_sources = Table(
    "handler_sources",
    metadata,
    Column("source", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    required("updated_at"),
)

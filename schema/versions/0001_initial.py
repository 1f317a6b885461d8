"""The engine's tables: types, jobs, logs, attempts, letters, the feed and the guard."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# SQLite gives 64 bits to every INTEGER, and only an INTEGER primary key is the row's own id.
WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    create_queue_guard()
    create_background_job_types()
    create_background_jobs()
    create_background_job_logs()
    create_background_job_attempts()
    create_dead_letters()
    create_job_changes()
    create_worker_config()
    create_worker_runs()
    create_durations()
    create_audit_events()
    create_handler_sources()
    op.execute(
        sa.text(
            "INSERT INTO queue_guard (id, instance_id, schema_version) VALUES (1, :own, 1)"
        ).bindparams(own=context.config.attributes["instance_id"])
    )


def create_queue_guard() -> None:
    op.create_table(
        "queue_guard",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("epoch", WHOLE, server_default=sa.text("1"), nullable=False),
        sa.Column("schema_version", WHOLE, nullable=False),
        sa.Column("mode", sa.Text(), server_default=sa.text("'open'"), nullable=False),
        sa.Column("types_version", WHOLE, server_default=sa.text("1"), nullable=False),
        sa.Column("config_version", WHOLE, server_default=sa.text("1"), nullable=False),
        sa.CheckConstraint(
            "mode IN ('open', 'frozen', 'moved', 'backup')", name=op.f("ck_queue_guard_mode")
        ),
        sa.CheckConstraint("id = 1", name=op.f("ck_queue_guard_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_queue_guard")),
    )


def create_background_job_types() -> None:
    op.create_table(
        "background_job_types",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("category", sa.Text(), nullable=True),
        sa.Column("handler_name", sa.Text(), nullable=False),
        sa.Column("lane", sa.Text(), server_default=sa.text("'general'"), nullable=False),
        sa.Column("max_retries", WHOLE, server_default=sa.text("3"), nullable=False),
        sa.Column("retry_delay_ms", WHOLE, server_default=sa.text("5000"), nullable=False),
        sa.Column("retry_max_delay_ms", WHOLE, server_default=sa.text("300000"), nullable=False),
        sa.Column("timeout_ms", WHOLE, server_default=sa.text("300000"), nullable=False),
        sa.Column("max_concurrent", WHOLE, nullable=True),
        sa.Column("max_pending", WHOLE, nullable=True),
        sa.Column("rate_limit_max", WHOLE, nullable=True),
        sa.Column("rate_limit_window_ms", WHOLE, nullable=True),
        sa.Column("breaker", sa.Text(), nullable=True),
        sa.Column("result_ttl_ms", WHOLE, server_default=sa.text("3600000"), nullable=False),
        sa.Column("max_interruptions", WHOLE, server_default=sa.text("20"), nullable=False),
        sa.Column("input_max_bytes", WHOLE, server_default=sa.text("65536"), nullable=False),
        sa.Column("output_max_bytes", WHOLE, server_default=sa.text("262144"), nullable=False),
        sa.Column("input_schema", sa.Text(), nullable=True),
        sa.Column("required_fields", sa.Text(), nullable=True),
        sa.Column("allowed_fields", sa.Text(), nullable=True),
        sa.Column("stages_config", sa.Text(), nullable=True),
        sa.Column("cron_schedule", sa.Text(), nullable=True),
        sa.Column("executor", sa.Text(), server_default=sa.text("'async'"), nullable=False),
        sa.Column("serializer", sa.Text(), nullable=True),
        sa.Column("version", WHOLE, server_default=sa.text("1"), nullable=False),
        sa.Column("keep_completed_ms", WHOLE, nullable=True),
        sa.Column("is_enabled", WHOLE, server_default=sa.text("1"), nullable=False),
        sa.Column("is_paused", WHOLE, server_default=sa.text("0"), nullable=False),
        sa.Column("overrides", sa.Text(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("created_at", WHOLE, nullable=False),
        sa.Column("updated_at", WHOLE, nullable=False),
        sa.CheckConstraint(
            "is_enabled BETWEEN 0 AND 1", name=op.f("ck_background_job_types_is_enabled")
        ),
        sa.CheckConstraint(
            "is_paused BETWEEN 0 AND 1", name=op.f("ck_background_job_types_is_paused")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_background_job_types")),
        sa.UniqueConstraint("name", name=op.f("uq_background_job_types_name")),
    )


def create_background_jobs() -> None:
    op.create_table(
        "background_jobs",
        sa.Column("seq", WHOLE, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("job_type_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("priority", WHOLE, server_default=sa.text("10"), nullable=False),
        sa.Column("progress", WHOLE, server_default=sa.text("0"), nullable=False),
        sa.Column("current_stage", sa.Text(), nullable=True),
        sa.Column("input_data", sa.Text(), nullable=True),
        sa.Column("input_blob", sa.LargeBinary(), nullable=True),
        sa.Column("output_data", sa.Text(), nullable=True),
        sa.Column("output_blob", sa.LargeBinary(), nullable=True),
        sa.Column("error_class", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("reference_type", sa.Text(), nullable=True),
        sa.Column("reference_id", sa.Text(), nullable=True),
        sa.Column("locked_at", WHOLE, nullable=True),
        sa.Column("locked_by", sa.Text(), nullable=True),
        sa.Column("lock_expires_at", WHOLE, nullable=True),
        sa.Column("fence", WHOLE, server_default=sa.text("0"), nullable=False),
        sa.Column("scheduled_for", WHOLE, nullable=False),
        sa.Column("started_at", WHOLE, nullable=True),
        sa.Column("completed_at", WHOLE, nullable=True),
        sa.Column("retry_count", WHOLE, server_default=sa.text("0"), nullable=False),
        sa.Column("losses", WHOLE, server_default=sa.text("0"), nullable=False),
        sa.Column("interruptions", WHOLE, server_default=sa.text("0"), nullable=False),
        sa.Column("claimed_ahead", WHOLE, server_default=sa.text("0"), nullable=False),
        sa.Column("is_isolated", WHOLE, server_default=sa.text("0"), nullable=False),
        sa.Column("max_retries", WHOLE, nullable=True),
        sa.Column("timeout_ms", WHOLE, nullable=True),
        sa.Column("tenant_id", sa.Text(), nullable=True),
        sa.Column("correlation_id", sa.Text(), nullable=True),
        sa.Column("parent_job_id", sa.Text(), nullable=True),
        sa.Column("batch_id", sa.Text(), nullable=True),
        sa.Column("blocked_by", WHOLE, server_default=sa.text("0"), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("unique_key", sa.Text(), nullable=True),
        sa.Column("request_hash", sa.Text(), nullable=True),
        sa.Column("payload_version", WHOLE, server_default=sa.text("1"), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("concurrency_key", sa.Text(), nullable=True),
        sa.Column("expires_at", WHOLE, nullable=True),
        sa.Column("result_ttl_ms", WHOLE, nullable=True),
        sa.Column("result_expires_at", WHOLE, nullable=True),
        sa.Column("review_reason", sa.Text(), nullable=True),
        sa.Column("cancel_requested_at", WHOLE, nullable=True),
        sa.Column("created_at", WHOLE, nullable=False),
        sa.Column("updated_at", WHOLE, nullable=False),
        sa.CheckConstraint(
            "status IN ('pending', 'processing', 'completed', 'failed', 'review_needed', "
            "'cancelled', 'blocked')",
            name=op.f("ck_background_jobs_status"),
        ),
        sa.CheckConstraint(
            "claimed_ahead BETWEEN 0 AND 2", name=op.f("ck_background_jobs_claimed_ahead")
        ),
        sa.CheckConstraint(
            "is_isolated BETWEEN 0 AND 1", name=op.f("ck_background_jobs_is_isolated")
        ),
        sa.CheckConstraint("priority BETWEEN 1 AND 20", name=op.f("ck_background_jobs_priority")),
        sa.CheckConstraint("progress BETWEEN 0 AND 100", name=op.f("ck_background_jobs_progress")),
        sa.ForeignKeyConstraint(
            ["job_type_id"],
            ["background_job_types.id"],
            name=op.f("fk_background_jobs_job_type_id"),
        ),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_background_jobs")),
        sa.UniqueConstraint("id", name=op.f("uq_background_jobs_id")),
    )
    op.create_index(
        "jobs_by_batch",
        "background_jobs",
        ["batch_id", "id"],
        unique=False,
        sqlite_where=sa.text("batch_id IS NOT NULL"),
        postgresql_where=sa.text("batch_id IS NOT NULL"),
    )
    op.create_index(
        "jobs_by_correlation",
        "background_jobs",
        ["correlation_id", "id"],
        unique=False,
        sqlite_where=sa.text("correlation_id IS NOT NULL"),
        postgresql_where=sa.text("correlation_id IS NOT NULL"),
    )
    op.create_index(
        "jobs_by_error",
        "background_jobs",
        ["error_class", "id"],
        unique=False,
        sqlite_where=sa.text("error_class IS NOT NULL"),
        postgresql_where=sa.text("error_class IS NOT NULL"),
    )
    op.create_index(
        "jobs_by_key",
        "background_jobs",
        ["idempotency_key", "id"],
        unique=False,
        sqlite_where=sa.text("idempotency_key IS NOT NULL"),
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_index(
        "jobs_by_parent",
        "background_jobs",
        ["parent_job_id", "id"],
        unique=False,
        sqlite_where=sa.text("parent_job_id IS NOT NULL"),
        postgresql_where=sa.text("parent_job_id IS NOT NULL"),
    )
    op.create_index(
        "jobs_by_reference_id",
        "background_jobs",
        ["reference_id", "id"],
        unique=False,
        sqlite_where=sa.text("reference_id IS NOT NULL"),
        postgresql_where=sa.text("reference_id IS NOT NULL"),
    )
    op.create_index(
        "jobs_by_reference_type",
        "background_jobs",
        ["reference_type", "id"],
        unique=False,
        sqlite_where=sa.text("reference_type IS NOT NULL"),
        postgresql_where=sa.text("reference_type IS NOT NULL"),
    )
    op.create_index(
        "jobs_by_tenant",
        "background_jobs",
        ["tenant_id", "status", "id"],
        unique=False,
        sqlite_where=sa.text("tenant_id IS NOT NULL"),
        postgresql_where=sa.text("tenant_id IS NOT NULL"),
    )
    op.create_index("jobs_listed", "background_jobs", ["job_type_id", "status", "id"], unique=False)
    op.create_index(
        "jobs_locked",
        "background_jobs",
        ["lock_expires_at"],
        unique=False,
        sqlite_where=sa.text("status = 'processing'"),
        postgresql_where=sa.text("status = 'processing'"),
    )
    op.create_index(
        "jobs_ready",
        "background_jobs",
        ["job_type_id", "priority", "scheduled_for", "seq"],
        unique=False,
        sqlite_where=sa.text("status = 'pending' AND losses = 0"),
        postgresql_where=sa.text("status = 'pending' AND losses = 0"),
    )
    op.create_index(
        "jobs_suspect",
        "background_jobs",
        ["job_type_id", "priority", "scheduled_for", "seq"],
        unique=False,
        sqlite_where=sa.text("status = 'pending' AND losses > 0"),
        postgresql_where=sa.text("status = 'pending' AND losses > 0"),
    )
    op.create_index(
        "jobs_unique_key",
        "background_jobs",
        ["unique_key"],
        unique=True,
        sqlite_where=sa.text("unique_key IS NOT NULL"),
        postgresql_where=sa.text("unique_key IS NOT NULL"),
    )


def create_background_job_logs() -> None:
    op.create_table(
        "background_job_logs",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), server_default=sa.text("'info'"), nullable=False),
        sa.Column("stage", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=True),
        sa.Column("duration_ms", WHOLE, nullable=True),
        sa.Column("attempt", WHOLE, server_default=sa.text("1"), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("created_at", WHOLE, nullable=False),
        sa.CheckConstraint(
            "level IN ('debug', 'info', 'warning', 'error')",
            name=op.f("ck_background_job_logs_level"),
        ),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["background_jobs.id"],
            name=op.f("fk_background_job_logs_job_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_background_job_logs")),
    )
    op.create_index("logs_by_job", "background_job_logs", ["job_id", "id"], unique=False)


def create_background_job_attempts() -> None:
    op.create_table(
        "background_job_attempts",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("attempt", WHOLE, nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("error_class", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("started_at", WHOLE, nullable=True),
        sa.Column("ended_at", WHOLE, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["background_jobs.id"],
            name=op.f("fk_background_job_attempts_job_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_background_job_attempts")),
    )
    op.create_index("attempts_by_job", "background_job_attempts", ["job_id", "id"], unique=False)


def create_dead_letters() -> None:
    op.create_table(
        "dead_letters",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), server_default=sa.text("'pending_review'"), nullable=False),
        sa.Column("error_class", sa.Text(), nullable=False),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("attempt_count", WHOLE, nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("correlation_id", sa.Text(), nullable=True),
        sa.Column("tenant_id", sa.Text(), nullable=True),
        sa.Column("original_created_at", WHOLE, nullable=False),
        sa.Column("created_at", WHOLE, nullable=False),
        sa.Column("acknowledged_by", sa.Text(), nullable=True),
        sa.Column("acknowledged_at", WHOLE, nullable=True),
        sa.Column("notes", sa.Text(), nullable=True),
        sa.Column("snapshot", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "status IN ('pending_review', 'acknowledged', 'reprocessed', 'retried', 'discarded')",
            name=op.f("ck_dead_letters_status"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dead_letters")),
    )
    op.create_index("letters_by_job", "dead_letters", ["job_id"], unique=False)
    op.create_index("letters_by_status", "dead_letters", ["status", "created_at"], unique=False)


def create_job_changes() -> None:
    op.create_table(
        "job_changes",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("at", WHOLE, nullable=False),
        sa.Column("changes", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_changes")),
    )


def create_worker_config() -> None:
    op.create_table(
        "worker_config",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("updated_at", WHOLE, nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_worker_config")),
    )


def create_worker_runs() -> None:
    op.create_table(
        "worker_runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("worker_name", sa.Text(), nullable=False),
        sa.Column("limits", sa.Text(), nullable=True),
        sa.Column("started_at", WHOLE, nullable=False),
        sa.Column("last_seen_at", WHOLE, nullable=False),
        sa.Column("ended_at", WHOLE, nullable=True),
        sa.Column("stopped", sa.Text(), nullable=True),
        sa.Column("ticks", WHOLE, server_default=sa.text("1"), nullable=False),
        sa.Column("put_back", WHOLE, server_default=sa.text("0"), nullable=False),
        sa.Column("report", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_worker_runs")),
    )
    op.create_index("runs_by_start", "worker_runs", ["started_at"], unique=False)


def create_durations() -> None:
    op.create_table(
        "durations",
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("hour", WHOLE, nullable=False),
        sa.Column("buckets", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("type", "step", "hour", name=op.f("pk_durations")),
    )


def create_audit_events() -> None:
    op.create_table(
        "audit_events",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("at", WHOLE, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("details", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_events")),
    )
    op.create_index("audit_by_subject", "audit_events", ["subject", "id"], unique=False)


def create_handler_sources() -> None:
    op.create_table(
        "handler_sources",
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("updated_at", WHOLE, nullable=False),
        sa.PrimaryKeyConstraint("source", name=op.f("pk_handler_sources")),
    )

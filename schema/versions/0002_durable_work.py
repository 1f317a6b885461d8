"""Work beyond one run and one job: steps, dependencies, chains and batches."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    add_columns_of_jobs()
    create_background_job_steps()
    create_job_dependencies()
    create_job_batches()
    op.execute(sa.text("UPDATE queue_guard SET schema_version = 2"))


def add_columns_of_jobs() -> None:
    steps = sa.Column("steps", WHOLE, server_default=sa.text("0"), nullable=False)
    op.add_column("background_jobs", steps)
    op.add_column("background_jobs", sa.Column("on_failure", sa.Text(), nullable=True))
    op.add_column("background_jobs", sa.Column("input_from", sa.Text(), nullable=True))


def create_background_job_steps() -> None:
    op.create_table(
        "background_job_steps",
        sa.Column("seq", WHOLE, nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("kind", sa.Text(), server_default=sa.text("'step'"), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("attempt", WHOLE, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("duration_ms", WHOLE, nullable=False),
        sa.Column("created_at", WHOLE, nullable=False),
        sa.CheckConstraint(
            "kind IN ('step', 'sleep', 'transaction')", name=op.f("ck_background_job_steps_kind")
        ),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["background_jobs.id"],
            name=op.f("fk_background_job_steps_job_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_background_job_steps")),
    )
    op.create_index("steps_by_job", "background_job_steps", ["job_id", "name", "key"], unique=True)


def create_job_dependencies() -> None:
    op.create_table(
        "job_dependencies",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("after_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["background_jobs.id"],
            name=op.f("fk_job_dependencies_job_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job_id", "after_id", name=op.f("pk_job_dependencies")),
    )
    op.create_index("dependencies_by_after", "job_dependencies", ["after_id"])


def create_job_batches() -> None:
    op.create_table(
        "job_batches",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("tenant_id", sa.Text(), nullable=True),
        sa.Column("correlation_id", sa.Text(), nullable=True),
        sa.Column("total", WHOLE, nullable=False),
        sa.Column("completed", WHOLE, server_default=sa.text("0"), nullable=False),
        sa.Column("failed", WHOLE, server_default=sa.text("0"), nullable=False),
        sa.Column("cancelled", WHOLE, server_default=sa.text("0"), nullable=False),
        sa.Column("callback_job_id", sa.Text(), nullable=True),
        sa.Column("created_at", WHOLE, nullable=False),
        sa.Column("ended_at", WHOLE, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_batches")),
    )

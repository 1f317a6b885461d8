"""The tables of work beyond one run and one job: steps, dependencies and batches."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, Table, Text, text

from edgeq.core.steps import StepKind
from edgeq.store.tables import Whole, metadata, one_of, required

steps = Table(
    "background_job_steps",
    metadata,
    Column("seq", Whole, primary_key=True),
    Column("job_id", Text, ForeignKey("background_jobs.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=False),
    Column("key", Text, nullable=False, server_default=text("''")),
    Column("kind", Text, nullable=False, server_default=text("'step'")),
    Column("result", Text),
    required("attempt"),
    Column("run_id", Text),
    required("duration_ms"),
    required("created_at"),
    one_of("kind", StepKind),
)
Index("steps_by_job", steps.c.job_id, steps.c.name, steps.c.key, unique=True)

# No foreign key to what comes first: its row may be cleaned up long before this one.
dependencies = Table(
    "job_dependencies",
    metadata,
    Column("job_id", Text, ForeignKey("background_jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("after_id", Text, primary_key=True),
)
Index("dependencies_by_after", dependencies.c.after_id)

batches = Table(
    "job_batches",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text),
    Column("tenant_id", Text),
    Column("correlation_id", Text),
    required("total"),
    required("completed", 0),
    required("failed", 0),
    required("cancelled", 0),
    Column("callback_job_id", Text),
    required("created_at"),
    Column("ended_at", Whole),
)

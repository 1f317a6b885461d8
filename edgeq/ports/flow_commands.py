"""What a store can be asked to change for work beyond one run: each command is one atomic unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgeq.core.jobs import NewJob
from edgeq.core.steps import Step, StepKind
from edgeq.ports.commands import Command, Duplicate, Inserted


@dataclass(frozen=True, slots=True)
class NewStep:
    """A part of a job that is done, on behalf of the attempt that holds `fence`."""

    seq: int
    fence: int
    job_id: str
    type: str
    tenant_id: str | None
    attempt: int
    progress: int
    run_id: str
    name: str
    key: str
    kind: StepKind = StepKind.STEP
    result: str | None = None
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class RecordStep(Command[None]):
    """Keep a step's result; LockLost when the job is somebody else's.

    What is done is done: an interruption that comes while this waits for its turn must not make
    the next run do it again.
    """

    outlives_its_caller = True
    step: NewStep


@dataclass(frozen=True, slots=True)
class LookUpSteps(Command[tuple[Step, ...]]):
    """The steps that a job has finished.

    Asked of the writer, which a run has open already: its first reading connection would cost it
    more than a step.
    """

    job_id: str


@dataclass(frozen=True, slots=True)
class RunInTransaction(Command[str | None]):
    """Call `work` with a connection inside the transaction that records the step, alone.

    `work` answers with the step's encoded result; what it raises comes back as TransactionFailed.
    """

    step: NewStep
    work: Callable[[Any], str | None]
    elapsed: Callable[[], float]


@dataclass(frozen=True, slots=True)
class NewBatch:
    id: str
    name: str | None
    tenant_id: str | None
    correlation_id: str | None
    created_at: int


@dataclass(frozen=True, slots=True)
class InsertBatch(Command[tuple[Inserted | Duplicate, ...]]):
    """Add jobs that are counted together, and the job that comes when all have ended."""

    batch: NewBatch
    jobs: tuple[NewJob, ...]
    callback: NewJob | None = None

"""What a store can be asked to change for work beyond one run: each command is one atomic unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgeq.core.steps import StepKind
from edgeq.ports.commands import Command


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
    """Keep a step's result; LockLost when the job is somebody else's."""

    step: NewStep


@dataclass(frozen=True, slots=True)
class RunInTransaction(Command[str | None]):
    """Call `work` with a connection inside the transaction that records the step, alone.

    `work` answers with the step's encoded result; what it raises comes back as TransactionFailed.
    """

    step: NewStep
    work: Callable[[Any], str | None]
    elapsed: Callable[[], float]

"""What a store can be asked to change: each command is one atomic unit with a typed answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

import msgspec

from edgeq.core.durations import Histogram
from edgeq.core.job_types import JobType, TypePolicy
from edgeq.core.jobs import ClaimedJob, Job, JobStatus, LogLevel, NewJob
from edgeq.core.lanes import ClaimStep
from edgeq.core.outcomes import Outcome
from edgeq.core.runs import RunReport

Answer_co = TypeVar("Answer_co", covariant=True)


class Command(Generic[Answer_co]):
    """A change; the type parameter is what the store answers once it is durable."""

    __slots__ = ()
    # Whether it is carried out even if its caller is cancelled before its turn comes.
    outlives_its_caller: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Inserted:
    """A new job; one that waits for others is `blocked`, or has ended with one of them."""

    job_id: str
    status: str = "pending"


@dataclass(frozen=True, slots=True)
class Duplicate:
    job: Job


@dataclass(frozen=True, slots=True)
class InsertJobs(Command[tuple[Inserted | Duplicate, ...]]):
    """Add jobs, all or none; a key that is in use answers with the job that has it."""

    jobs: tuple[NewJob, ...]


# One claim of one job, as (seq, fence): a later claim of the same job has another fence.
# A plain tuple, because four of them are made for every job.
Lock = tuple[int, int]


class Settled(msgspec.Struct, frozen=True):
    """A running job that came to an end, named by the fence under which it was claimed."""

    seq: int
    job_id: str
    type: str
    tenant_id: str | None
    attempt: int
    fence: int
    outcome: Outcome
    unit: float
    children: tuple[NewJob, ...] = ()
    batch_id: str | None = None

    @property
    def lock(self) -> Lock:
        return (self.seq, self.fence)


@dataclass(frozen=True, slots=True)
class Note:
    """One line for a job's log, on behalf of the attempt that holds `fence`."""

    seq: int
    fence: int
    job_id: str
    level: LogLevel
    message: str
    attempt: int
    at: int
    stage: str | None = None
    details: str | None = None
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    seq: int
    fence: int
    percent: int
    stage: str | None


@dataclass(frozen=True, slots=True)
class ClaimableType:
    """A type that this run can work on now: how many more of it, and how new an input."""

    name: str
    at_most: int
    version: int
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """What a run would take: free slots by lane, types that fit, and how many ahead of turn."""

    types: tuple[ClaimableType, ...]
    steps: tuple[ClaimStep, ...]
    ahead: int = 0
    wants: str = "others"
    at_most: int | None = None
    # Jobs that this run has put back because their next step did not fit its time.
    sparing: frozenset[int] = frozenset()
    # From how many losses on this run gives a job a process of its own; None: it cannot.
    isolates_from: int | None = None
    # Whether to answer when there may be work again, should there be none now.
    asks_when: bool = False

    @property
    def wanted(self) -> int:
        """How many jobs it brings when there are enough."""
        free = sum(step.limit for step in self.steps)
        return free if self.at_most is None else min(free, self.at_most)


@dataclass(frozen=True, slots=True)
class Cycle(Command["CycleAnswer"]):
    """One turn of a run: record what ended, take back what was lost, claim what is next."""

    run_id: str
    lock_until: int
    settled: tuple[Settled, ...] = ()
    notes: tuple[Note, ...] = ()
    progress: tuple[Progress, ...] = ()
    claim: Claim | None = None
    takes_back: bool = True


class Applied(msgspec.Struct, frozen=True):
    """What became of a job, and by which outcome: a refused child turns success into failure."""

    lock: Lock
    outcome: Outcome
    status: JobStatus
    error_class: str | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """A job that a cycle moved though it was not this run's: taken back, or expired."""

    job_id: str
    type: str
    before: JobStatus
    after: JobStatus
    attempt: int
    error_class: str | None = None
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class CycleAnswer:
    applied: tuple[Applied, ...] = ()
    lost: frozenset[Lock] = frozenset()
    claimed: tuple[ClaimedJob, ...] = ()
    reclaimed: int = 0
    moved: tuple[Moved, ...] = ()
    is_enabled: bool = True
    suspect_is_due: bool = False
    last_chance_is_due: bool = False
    next_moment: int | None = None


@dataclass(frozen=True, slots=True)
class ExtendLocks(Command["Held"]):
    """Keep the locks of a run; answers with what it still holds."""

    run_id: str
    lock_until: int


@dataclass(frozen=True, slots=True)
class Held:
    """What a run still holds, by seq and fence, and what it is asked to stop."""

    fences: Mapping[int, int]
    cancel_requested: frozenset[int]
    is_enabled: bool


@dataclass(frozen=True, slots=True)
class StartRun(Command["RunStart"]):
    run_id: str
    kind: str
    worker_name: str
    limits: str


@dataclass(frozen=True, slots=True)
class RunStart:
    """What a run has to know before its first cycle."""

    is_enabled: bool
    types: tuple[JobType, ...]
    durations: Mapping[str, Histogram]
    config: Mapping[str, object]
    # By type and step.
    step_durations: Mapping[tuple[str, str], Histogram] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RefreshRun(Command[RunStart]):
    """Keep the durations of a resident run so far; answers with what it has to know now."""

    run_id: str
    durations: Mapping[tuple[str, str], Histogram]


@dataclass(frozen=True, slots=True)
class FinishRun(Command[RunReport]):
    """Record a run's report and durations; answers with the report, due counts filled in."""

    run_id: str
    report: RunReport
    handled: tuple[str, ...]
    deferred: tuple[str, ...] = ()
    durations: Mapping[tuple[str, str], Histogram] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReleaseRun(Command[int]):
    """Put back what a run still holds, but for what still runs and will not stop."""

    run_id: str
    by_budget: bool
    sparing: frozenset[int] = frozenset()
    # Jobs whose handlers were called; of what was claimed ahead, the others never began.
    begun: frozenset[int] = frozenset()
    # Jobs that ran beyond their timeout and could not be told: that is how they ended.
    overdue: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class LoseRun(Command[tuple[Moved, ...]]):
    """Take back what a run holds whose process was seen to die, as losses."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does it and why, for the audit."""

    name: str = "library"
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class CancelJob(Command[str]):
    """Answers `cancelled`, `requested`, `ended` or `not_found`.

    With `descendants`, its children and theirs are cancelled too, whatever became of itself.
    """

    job_id: str
    actor: Actor
    descendants: bool = False


@dataclass(frozen=True, slots=True)
class NewInput:
    """An input that takes the place of another, with all that was derived from it."""

    data: str
    request_hash: str
    payload_version: int


@dataclass(frozen=True, slots=True)
class RetryJob(Command[Job]):
    """Send a job around again. Its steps stay, but for those from `from_step` on, or all."""

    job_id: str
    actor: Actor
    input: NewInput | None = None
    from_step: str | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class ApproveJob(Command[Job]):
    """Complete a job under review, with its own output or an edited one."""

    job_id: str
    actor: Actor
    output_data: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class RejectJob(Command[Job]):
    job_id: str
    actor: Actor


@dataclass(frozen=True, slots=True)
class FailJob(Command[Job]):
    """An operator ends a job, or, with `retry`, sends it around once more."""

    job_id: str
    actor: Actor
    retry: bool
    unit: float


@dataclass(frozen=True, slots=True)
class ReleaseJob(Command[Job]):
    """Take the lock of a stuck job away."""

    job_id: str
    actor: Actor


@dataclass(frozen=True, slots=True)
class DeleteJob(Command[None]):
    job_id: str
    actor: Actor


@dataclass(frozen=True, slots=True)
class UpdateJob(Command[Job]):
    """Change a job that is not running."""

    job_id: str
    actor: Actor
    priority: int | None = None
    scheduled_for: int | None = None
    input: NewInput | None = None


@dataclass(frozen=True, slots=True)
class RegisterTypes(Command["Registered"]):
    """Bring the stored types in line with the code; the folder's look is remembered with it."""

    policies: tuple[TypePolicy, ...]
    source: str | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """How many types changed, and what is stored now."""

    changed: int
    types: tuple[JobType, ...]
    config: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class CreateType(Command[JobType]):
    policy: TypePolicy
    actor: Actor


@dataclass(frozen=True, slots=True)
class ChangeType(Command[JobType]):
    """An operator's change of policy fields (which become overrides) and switches."""

    name: str
    actor: Actor
    changes: Mapping[str, object] = field(default_factory=dict)
    unset: frozenset[str] = frozenset()
    is_enabled: bool | None = None
    is_paused: bool | None = None


@dataclass(frozen=True, slots=True)
class SetConfig(Command[Mapping[str, object]]):
    """Merge known keys into the worker's configuration; None removes one."""

    changes: Mapping[str, object]
    actor: Actor

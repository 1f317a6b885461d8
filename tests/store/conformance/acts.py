"""What a run does to a store, in one call each: insert, claim, settle, look."""

from __future__ import annotations

from typing import Any

from edgeq.core.backoff import ErrorClass
from edgeq.core.jobs import ClaimedJob, Job, JobStatus, NewJob
from edgeq.core.lanes import ClaimStep
from edgeq.core.outcomes import Completed, Failed, NeedsReview, Outcome
from edgeq.ports.commands import (
    Actor,
    CancelJob,
    Claim,
    ClaimableType,
    Cycle,
    CycleAnswer,
    InsertJobs,
    Settled,
)
from edgeq.ports.queries import GetChanges, GetJobs
from edgeq.ports.store import Store

RUN = "run-1"
LOCK_MS = 60_000
BOSS = Actor("boss", "because")
BROKEN = Failed(ErrorClass.NON_RETRYABLE, "it is broken")
FLAKY = Failed(ErrorClass.TRANSIENT, "try again")


async def insert(store: Store, *jobs: NewJob) -> tuple[str, ...]:
    await store.write(InsertJobs(jobs))
    return tuple(job.id for job in jobs)


async def claim(
    store: Store,
    *types: str | ClaimableType,
    run: str = RUN,
    slots: int = 10,
    steps: tuple[ClaimStep, ...] | None = None,
    lock_ms: int = LOCK_MS,
    **more: Any,
) -> CycleAnswer:
    """One cycle that only claims; a type given by name has no limit of its own."""
    able = tuple(ClaimableType(t, 1000, 1) if isinstance(t, str) else t for t in types)
    steps = (ClaimStep(None, slots),) if steps is None else steps
    wanted = Claim(able or (ClaimableType("noop", 1000, 1),), steps, **more)
    return await store.write(Cycle(run, store.now() + lock_ms, claim=wanted))


async def claim_one(store: Store, job: NewJob, run: str = RUN) -> ClaimedJob:
    """Insert a job and lock it, as a run would."""
    await insert(store, job)
    claimed = (await claim(store, job.type, run=run, slots=1000)).claimed
    return next(each for each in claimed if each.id == job.id)


def ended(
    job: ClaimedJob, outcome: Outcome, *, unit: float = 0.5, children: tuple[NewJob, ...] = ()
) -> Settled:
    return Settled(
        seq=job.seq,
        job_id=job.id,
        type=job.type,
        tenant_id=job.tenant_id,
        attempt=job.attempt,
        fence=job.fence,
        outcome=outcome,
        unit=unit,
        children=children,
        batch_id=job.batch_id,
    )


async def settle(store: Store, *settled: Settled, run: str = RUN) -> CycleAnswer:
    return await store.write(Cycle(run, store.now() + LOCK_MS, settled=settled))


async def end(store: Store, job: ClaimedJob, outcome: Outcome, run: str = RUN) -> Job:
    """Settle one claimed job; answers with what became of it."""
    await settle(store, ended(job, outcome), run=run)
    return await get(store, job.id)


async def get(store: Store, job_id: str) -> Job:
    return (await store.read(GetJobs((job_id,))))[job_id]


async def position(store: Store) -> int:
    """Where the change feed ends now."""
    return (await store.read(GetChanges(after=0, limit=1_000_000))).position


async def bring_to(store: Store, job: NewJob, status: JobStatus) -> Job:
    """Insert a job and take it into a state by the shortest legal way."""
    match status:
        case JobStatus.PENDING:
            await insert(store, job)
        case JobStatus.CANCELLED:
            await insert(store, job)
            await store.write(CancelJob(job.id, BOSS))
        case JobStatus.PROCESSING:
            await claim_one(store, job)
        case JobStatus.COMPLETED:
            await end(store, await claim_one(store, job), Completed('{"done":true}'))
        case JobStatus.FAILED:
            await end(store, await claim_one(store, job), BROKEN)
        case JobStatus.REVIEW_NEEDED:
            await end(store, await claim_one(store, job), NeedsReview("look", '{"draft":1}'))
        case JobStatus.BLOCKED:
            raise ValueError("nothing that the port can do blocks a job yet")
    return await get(store, job.id)

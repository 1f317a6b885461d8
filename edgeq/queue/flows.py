"""Work beyond one job: steps, chains of jobs, and batches that are counted together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from edgeq.core.jobs import Job, JobStatus, NewJob
from edgeq.core.runs import RunLimits
from edgeq.core.steps import TOTAL, Step, runs_needed
from edgeq.errors import BatchNotFound, InvalidInput
from edgeq.ports.flow_commands import InsertBatch, NewBatch
from edgeq.ports.queries import Batch, GetBatch, GetDurations, ListBlockers, ListSteps
from edgeq.producing import Enqueued
from edgeq.queue.enqueue import JobTypeName, answered, check_texts
from edgeq.queue.jobs import refuse_no_id
from edgeq.queue.type_directory import name_of
from edgeq.queue.waiting import Waiting

_JOBS_AT_MOST = 10_000


@dataclass(frozen=True)
class Link:
    """One job of a chain or a batch; without an input, a link gets the output before it."""

    job_type: JobTypeName
    input: Any = None
    options: dict[str, Any] = field(default_factory=dict)


def link(job_type: JobTypeName, input: Any = None, **options: Any) -> Link:
    """A job that is not enqueued yet, with the options of `enqueue`."""
    return Link(job_type, input, options)


class NewJobs:
    """What an `async with queue.batch()` gathers; stored when its block ends without an error."""

    def __init__(self, batch_id: str) -> None:
        self.id = batch_id
        self.links: list[Link] = []
        self.jobs: list[Enqueued] = []

    def add(self, job_type: JobTypeName, input: Any = None, **options: Any) -> None:
        self.links.append(Link(job_type, input, options))


class Flows(Waiting):
    """The methods about steps, chains and batches."""

    async def steps(self, job_id: str) -> tuple[Step, ...]:
        """The finished steps of a job, oldest first."""
        refuse_no_id(job_id)
        steps = await self._store.read(ListSteps(job_id))
        if not steps:
            await self._stored(job_id)
        return steps

    async def waiting_for(self, job_id: str) -> tuple[str, ...]:
        """The ids of the jobs that a blocked one waits for."""
        refuse_no_id(job_id)
        blockers = await self._store.read(ListBlockers(job_id))
        if not blockers:
            await self._stored(job_id)
        return blockers

    async def runs_left(self, job: Job) -> int | None:
        """In about how many more runs a job of steps ends; None when nobody can say."""
        if not job.steps or job.status not in (JobStatus.PENDING, JobStatus.PROCESSING):
            return None
        total = await self._store.read(GetDurations(job.type, TOTAL))
        done_ms = sum(step.duration_ms for step in await self.steps(job.id))
        budget = self._initial_config.get("process.budget", RunLimits().budget)
        return runs_needed(total, done_ms=done_ms, budget=float(str(budget)))

    async def chain(
        self, /, links: Iterable[Link | tuple[JobTypeName, Any]], **options: Any
    ) -> list[Enqueued]:
        """Enqueue jobs that run one after the other; the first runs now, the others are blocked.

        A link without an input gets the output of the one before it. `options` are those of
        `enqueue`, for all; `on_failure` says what a link does when the one before it fails.
        """
        made: list[NewJob] = []
        for each in map(_as_link, links):
            await self._types.freshen(name_of(each.job_type))
            made.append(self._prepare_link(each, options, made[-1] if made else None))
        if not made:
            raise InvalidInput.at("links", "a chain has at least one job")
        return await self._stored_as(tuple(made), None)

    def _prepare_link(self, each: Link, options: dict[str, Any], before: NewJob | None) -> NewJob:
        given = {**options, **each.options}
        if before is None:
            return self.prepare(each.job_type, each.input, **given)
        others = given.pop("after", ())
        after = [before.id, *([others] if isinstance(others, str) else others)]
        takes_output = each.input is None
        return self.prepare(
            each.job_type,
            each.input,
            **{"correlation_id": before.correlation_id or before.id, **given},
            after=after,
            input_from=before.id if takes_output else None,
        )

    @asynccontextmanager
    async def batch(
        self,
        name: str | None = None,
        *,
        callback: Link | tuple[JobTypeName, Any] | None = None,
        tenant_id: str | None = None,
        correlation_id: str | None = None,
    ) -> AsyncIterator[NewJobs]:
        """Gather jobs inside `async with`; all are stored at its end, or none.

        When all have ended, however they did, the callback runs: its job's reference is the batch.
        """
        check_texts(name=name, tenant_id=tenant_id, correlation_id=correlation_id)
        now = self._store.now()
        gathered = NewJobs(self._ids.next(now, self._chance.bits(74))[0])
        yield gathered
        if len(gathered.links) > _JOBS_AT_MOST:
            raise InvalidInput.at("jobs", f"a batch has at most {_JOBS_AT_MOST} jobs")
        about: dict[str, Any] = {
            "tenant_id": tenant_id,
            "correlation_id": correlation_id or gathered.id,
        }
        jobs = await self._prepare_links(gathered.links, about | {"batch_id": gathered.id})
        last = None
        if callback is not None:
            about |= {"reference_type": "batch", "reference_id": gathered.id}
            (last,) = await self._prepare_links([_as_link(callback)], about)
        batch = NewBatch(gathered.id, name, tenant_id, correlation_id, now)
        answers = await self._store.write(InsertBatch(batch, tuple(jobs), last))
        self._announce_stored(tuple(jobs), answers)
        gathered.jobs = [answered(each) for each in answers]

    async def _prepare_links(self, links: list[Link], about: dict[str, Any]) -> list[NewJob]:
        made = []
        for index, each in enumerate(links):
            await self._types.freshen(name_of(each.job_type))
            try:
                made.append(self.prepare(each.job_type, each.input, **{**about, **each.options}))
            except InvalidInput as wrong:
                raise InvalidInput(wrong.problems, index=index) from wrong
        return made

    async def get_batch(self, batch_id: str) -> Batch:
        """How far a batch is."""
        found = await self._store.read(GetBatch(batch_id))
        if found is None:
            raise BatchNotFound(batch_id)
        return found


def _as_link(each: Link | tuple[JobTypeName, Any]) -> Link:
    return each if isinstance(each, Link) else Link(*each)

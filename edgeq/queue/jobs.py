"""Looking at jobs, and what people do to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from edgeq.codec import encode_output
from edgeq.core import json_text
from edgeq.core.ids import is_job_id, request_hash, unique_key
from edgeq.core.jobs import Attempt, Job, JobStatus
from edgeq.core.redaction import safe_message
from edgeq.errors import InvalidInput, JobNotFound
from edgeq.events import JobMoved
from edgeq.ports.commands import (
    Actor,
    ApproveJob,
    CancelJob,
    DeleteJob,
    FailJob,
    NewInput,
    RejectJob,
    ReleaseJob,
    RetryJob,
    UpdateJob,
)
from edgeq.ports.queries import (
    LARGEST_PAGE,
    PAGE,
    FindJob,
    GetJobs,
    JobFilter,
    JobPage,
    ListAttempts,
    ListJobs,
    ListLogs,
    LogPage,
)
from edgeq.queue.enqueue import (
    Enqueueing,
    JobTypeName,
    Moment,
    check_priority,
    check_texts,
    moment,
)
from edgeq.queue.type_directory import name_of

_Move = RetryJob | ApproveJob | RejectJob | FailJob | ReleaseJob | UpdateJob


class Jobs(Enqueueing):
    """The methods about jobs that are there."""

    async def get(self, job_id: str) -> Job:
        return self._shown(await self._stored(job_id))

    async def _stored(self, job_id: str) -> Job:
        refuse_no_id(job_id)
        found = await self._store.read(GetJobs((job_id,)))
        if job_id not in found:
            raise JobNotFound(job_id)
        return found[job_id]

    async def get_many(self, job_ids: Iterable[str]) -> dict[str, Job]:
        """The jobs that are there, by id."""
        # What is not an id names no job, and need not be asked for.
        found = await self._store.read(GetJobs(tuple(filter(is_job_id, job_ids))))
        return {job_id: self._shown(job) for job_id, job in found.items()}

    async def find(
        self, job_type: JobTypeName, key: str, *, tenant_id: str | None = None
    ) -> Job | None:
        """The job that holds an idempotency key; None when the key is free."""
        wanted = unique_key(tenant_id, name_of(job_type), key)
        job = await self._store.read(FindJob(wanted))
        return None if job is None or job.result_is_gone(self._store.now()) else job

    async def list(
        self, /, *, limit: int = PAGE, cursor: str | None = None, **filters: Any
    ) -> JobPage:
        """A page of jobs, newest first; `next_cursor` of one page is the `cursor` of the next."""
        query = ListJobs(_filter(filters), page_size(limit), cursor)
        page = await self._store.read(query)
        return JobPage(tuple(map(self._shown, page.items)), page.next_cursor)

    async def logs(self, job_id: str, *, limit: int = PAGE, cursor: str | None = None) -> LogPage:
        """A page of a job's log, oldest first."""
        refuse_no_id(job_id)
        page = await self._store.read(ListLogs(job_id, page_size(limit), cursor))
        if not page.items:
            await self._stored(job_id)
        return page

    async def attempts(self, job_id: str) -> tuple[Attempt, ...]:
        """The attempts at a job that did not simply succeed, oldest first."""
        refuse_no_id(job_id)
        attempts = await self._store.read(ListAttempts(job_id))
        if not attempts:
            await self._stored(job_id)
        return attempts

    async def cancel(
        self,
        job_id: str,
        *,
        descendants: bool = False,
        reason: str | None = None,
        actor: str = "library",
    ) -> str:
        """`cancelled`, `requested` (it runs; it is asked to stop), `ended` or `not_found`.

        With `descendants`, its children and theirs are cancelled too.
        """
        if not is_job_id(job_id):
            return "not_found"
        answer = await self._store.write(CancelJob(job_id, _actor(actor, reason), descendants))
        if answer == "cancelled":
            job = await self.get(job_id)
            self._announce(JobMoved(job.id, job.type, None, "cancelled", job.attempt))
        return answer

    async def retry(
        self,
        job_id: str,
        *,
        input: Any = None,
        from_step: str | None = None,
        fresh: bool = False,
        reason: str | None = None,
        actor: str = "library",
    ) -> Job:
        """Run a failed, cancelled or reviewed job again from its first attempt.

        Its steps keep their results; `from_step` forgets that one and all after it, `fresh` all.
        """
        if fresh and from_step is not None:
            raise InvalidInput.at("from_step", "and fresh cannot both be given")
        new = None if input is None else await self._input_for(job_id, input)
        command = RetryJob(job_id, _actor(actor, reason), new, from_step, fresh)
        return await self._moved(command)

    async def approve(
        self,
        job_id: str,
        *,
        output: Any = None,
        note: str | None = None,
        actor: str = "library",
    ) -> Job:
        """Complete a job under review, with its own output or with an edited one."""
        text = None if output is None else await self._output_for(job_id, output)
        safe = None if note is None else safe_message(note)
        return await self._moved(ApproveJob(job_id, _actor(actor, None), text, safe))

    async def reject(self, job_id: str, *, reason: str, actor: str = "library") -> Job:
        """Fail a job under review."""
        return await self._moved(RejectJob(job_id, _actor(actor, reason)))

    async def fail(
        self, job_id: str, *, reason: str, retry: bool = False, actor: str = "library"
    ) -> Job:
        """End a job by hand; with `retry`, its running attempt counts as failed instead."""
        command = FailJob(job_id, _actor(actor, reason), retry, self._chance.unit())
        return await self._moved(command)

    async def release(
        self, job_id: str, *, reason: str | None = None, actor: str = "library"
    ) -> Job:
        """Take the lock of a stuck job away; it is pending again, with nothing counted."""
        return await self._moved(ReleaseJob(job_id, _actor(actor, reason)))

    async def delete(
        self, job_id: str, *, reason: str | None = None, actor: str = "library"
    ) -> None:
        """Delete a job that is not running, with its log."""
        refuse_no_id(job_id)
        await self._store.write(DeleteJob(job_id, _actor(actor, reason)))

    async def update(
        self,
        job_id: str,
        *,
        priority: int | None = None,
        scheduled_for: Moment | None = None,
        input: Any = None,
        reason: str | None = None,
        actor: str = "library",
    ) -> Job:
        """Change a job that is not running."""
        if priority is not None:
            check_priority(priority)
        due = None if scheduled_for is None else moment("scheduled_for", scheduled_for)
        new = None if input is None else await self._input_for(job_id, input)
        if priority is None and due is None and new is None:
            raise InvalidInput.at("$", "nothing to change: give priority, scheduled_for or input")
        return await self._moved(UpdateJob(job_id, _actor(actor, reason), priority, due, new))

    async def _moved(self, command: _Move) -> Job:
        refuse_no_id(command.job_id)
        job = await self._store.write(command)
        self._announce(JobMoved(job.id, job.type, None, job.status.value, job.attempt))
        return self._shown(job)

    async def _input_for(self, job_id: str, value: Any) -> NewInput:
        job = await self.get(job_id)
        await self._types.freshen(job.type)
        text, plain = self._encoded_input(job.type, value)
        version = self._types.get(job.type).policy.version
        return NewInput(text, request_hash(json_text.canonical(plain)), version)

    async def _output_for(self, job_id: str, value: Any) -> str:
        """An edited output has to fit what the handler would have returned."""
        job = await self.get(job_id)
        await self._types.freshen(job.type)
        known = self._types.get(job.type)
        if known.handler is None:
            text = msgspec.json.encode(value).decode()
        else:
            text = encode_output(known.handler.output, value)
            known.handler.output.typed(msgspec.json.decode(text))
        if len(text.encode()) > known.policy.output_max_bytes:
            raise InvalidInput.at(
                "output", f"is over output_max_bytes ({known.policy.output_max_bytes})"
            )
        return text

    def _shown(self, job: Job) -> Job:
        """A result or error past its time to live reads as gone, though the row is there."""
        if not job.result_is_gone(self._store.now()):
            return job
        return msgspec.structs.replace(job, output_data=None, error_message=None)


def refuse_no_id(job_id: object) -> None:
    """What is not an id names no job, and need not be asked for."""
    if not is_job_id(job_id):
        raise JobNotFound(str(job_id))


def _actor(name: str, reason: str | None) -> Actor:
    check_texts(actor=name)
    return Actor(name, None if reason is None else safe_message(str(reason)))


def _filter(filters: dict[str, Any]) -> JobFilter:
    unknown = [name for name in filters if name not in JobFilter.__slots__]
    if unknown:
        raise InvalidInput.at(
            unknown[0], f"is not a filter; these are: {', '.join(JobFilter.__slots__)}"
        )
    given = {name: value for name, value in filters.items() if value is not None}
    if "status" in given:
        try:
            given["status"] = JobStatus(given["status"])
        except ValueError:
            raise InvalidInput.at("status", f"must be one of {', '.join(JobStatus)}") from None
    for name, value in given.items():
        fault = json_text.text_fault(value) if isinstance(value, str) else None
        if fault is not None:
            raise InvalidInput.at(name, fault)
    for name in ("created_after", "created_before"):
        if name in given:
            given[name] = moment(name, given[name])
    return JobFilter(**given)


def page_size(limit: int) -> int:
    if limit not in range(1, LARGEST_PAGE + 1):
        raise InvalidInput.at("limit", f"must be from 1 to {LARGEST_PAGE}, got {limit}")
    return limit

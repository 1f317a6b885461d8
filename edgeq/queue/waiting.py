"""Waiting for what becomes of jobs: one of them, its result, or everything that happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from edgeq.core.feed import FeedReset, JobEvent
from edgeq.core.jobs import Job, JobStatus
from edgeq.errors import (
    InvalidInput,
    JobCancelled,
    JobFailed,
    ResultExpired,
    ResultNotReady,
    StoreClosed,
    WaitTimeout,
)
from edgeq.ports.queries import Change
from edgeq.queue.endings import Endings
from edgeq.queue.enqueue import JobTypeName
from edgeq.queue.event_stream import EventStream
from edgeq.queue.jobs import Jobs, refuse_no_id
from edgeq.queue.type_directory import name_of


class Waiting(Jobs):
    """The methods that wait. None of them asks the database again and again."""

    _endings: Endings | None = None

    async def close(self) -> None:
        endings, self._endings = self._endings, None
        try:
            if endings is not None:
                await endings.close()
        finally:
            await super().close()

    async def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """The job once it is completed, failed or cancelled; WaitTimeout after `timeout` seconds.

        A job under review has not ended.
        """
        refuse_no_id(job_id)
        endings = await self._watched_endings()
        ended = endings.expect(job_id)
        endings.look_at([job_id])
        return self._shown(await _within(ended, job_id, timeout))

    async def result(self, job_id: str, timeout: float | None = None) -> Any:
        """What the handler returned; raises what became of the job instead, if anything did.

        With a timeout in seconds, waits for the end first.
        """
        if timeout is None:
            return await self._result_of(await self._stored(job_id))
        return await self._result_of(await self.wait(job_id, timeout))

    async def enqueue_and_wait(
        self,
        /,
        job_type: JobTypeName,
        input: Any = None,
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> Any:
        """Enqueue a job and answer with what its handler returned.

        `timeout` is how long to wait, in seconds; the job is alive after a WaitTimeout. Other
        options are those of `enqueue`. A key whose job has completed answers at once.
        """
        await self._types.freshen(name_of(job_type))
        new = self.prepare(job_type, input, **options)
        endings = await self._watched_endings()
        # Before it is stored: a worker may be done with it before this hears that it is.
        ended = endings.expect(new.id)
        try:
            (enqueued,) = await self._stored_as((new,), None)
            if not enqueued.duplicate:
                return await self._result_of(await _within(ended, new.id, timeout))
        finally:
            ended.cancel()
        return await self._result_of(await self.wait(enqueued.job_id, timeout))

    async def events(
        self,
        *,
        after: int | None = None,
        job_id: str | None = None,
        types: Iterable[str] | None = None,
        tenant_id: str | None = None,
    ) -> AsyncIterator[JobEvent | FeedReset]:
        """Everything that happens to jobs from now on, by any process, in the order of commits.

        `after` is the `position` of the last event that was seen: what followed it comes first.
        The feed is kept for an hour; a position that is older gets a FeedReset.
        """
        if after is not None and (isinstance(after, bool) or not isinstance(after, int)):
            raise InvalidInput.at("after", f"must be the position of an event, got {after!r}")
        if after is not None and not 0 <= after < 2**63:
            raise InvalidInput.at("after", "is not the position of an event")
        names = None if types is None else frozenset(types)

        def wanted(change: Change) -> bool:
            return (
                (job_id is None or change.job_id == job_id)
                and (names is None or change.type in names)
                and (tenant_id is None or change.tenant_id == tenant_id)
            )

        stream = EventStream(self._store, after, wanted).events()
        try:
            async for event in stream:
                yield event
        finally:
            await stream.aclose()  # type: ignore[attr-defined]

    async def _result_of(self, job: Job) -> Any:
        if job.result_is_gone(self._store.now()):
            raise ResultExpired(job.id)
        match job.status:
            case JobStatus.COMPLETED:
                return job.output
            case JobStatus.FAILED:
                attempts = await self.attempts(job.id)
                raise JobFailed(job.id, job.error_class or "", job.error_message or "", attempts)
            case JobStatus.CANCELLED:
                raise JobCancelled(job.id)
            case _:
                raise ResultNotReady(job.id, job.status)

    async def _watched_endings(self) -> Endings:
        if self._endings is None:
            self._endings = Endings(self._store)
        endings = self._endings
        await endings.start()
        if endings is not self._endings:
            await endings.close()
            raise StoreClosed("This queue was closed.")
        return endings


async def _within(ended: asyncio.Future[Job], job_id: str, seconds: float | None) -> Job:
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float)):
        ended.cancel()
        raise InvalidInput.at("timeout", f"must be seconds, got {seconds!r}")
    try:
        async with asyncio.timeout(seconds):
            return await ended
    except TimeoutError:
        raise WaitTimeout(job_id, seconds or 0) from None
    finally:
        ended.cancel()

"""Waiting for what becomes of jobs: one of them, its result, or everything that happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import Any

from edgeq.core.feed import FeedReset, JobEvent, position_of
from edgeq.core.jobs import ENDED, Job, JobStatus
from edgeq.errors import (
    InvalidInput,
    JobCancelled,
    JobFailed,
    ResultExpired,
    ResultNotReady,
    StoreClosed,
    WaitTimeout,
)
from edgeq.ports.queries import Change, GetChanges
from edgeq.queue.endings import Endings
from edgeq.queue.enqueue import JobTypeName
from edgeq.queue.event_stream import EventStream
from edgeq.queue.jobs import Jobs, refuse_no_id
from edgeq.queue.type_directory import name_of

_LONGEST_SECONDS = 31_536_000.0


class Waiting(Jobs):
    """The methods that wait. None of them asks the database again and again."""

    _endings: Endings | None = None
    _streams: frozenset[EventStream] = frozenset()
    _is_closing = False

    async def open(self) -> None:
        await super().open()
        self._is_closing = False

    async def close(self) -> None:
        # First of all: who begins to wait from here on would be forgotten.
        self._is_closing = True
        endings, self._endings = self._endings, None
        streams, self._streams = self._streams, frozenset()
        for stream in streams:
            stream.end(StoreClosed("This queue was closed."))
        try:
            if endings is not None:
                await endings.close()
        finally:
            await super().close()

    async def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """The job once it is completed, failed or cancelled; WaitTimeout after `timeout` seconds.

        A job under review has not ended. A timeout of 0 looks once.
        """
        seconds = _checked(timeout)
        if seconds == 0:
            return await self._ended_by_now(job_id)
        refuse_no_id(job_id)
        endings = await self._watched_endings()
        return self._shown(await _within(endings.expect(job_id), job_id, seconds))

    async def _ended_by_now(self, job_id: str) -> Job:
        job = await self.get(job_id)
        if job.status not in ENDED:
            raise WaitTimeout(job_id, 0)
        return job

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
        seconds = _checked(timeout)
        if "connection" in options:
            raise InvalidInput.at(
                "connection", "nobody can wait for a job of a transaction that is still open"
            )
        await self._types.freshen(name_of(job_type))
        new = self.prepare(job_type, input, **options)
        endings = await self._watched_endings()
        # Before it is stored: a worker may be done with it before this hears that it is.
        ended = endings.expect(new.id, is_stored=False)
        try:
            (enqueued,) = await self._stored_as((new,), None)
            endings.stored(new.id)
            if not enqueued.duplicate:
                return await self._result_of(await _within(ended, new.id, seconds))
        finally:
            ended.cancel()
        return await self._result_of(await self.wait(enqueued.job_id, timeout))

    def events(
        self,
        *,
        after: int | None = None,
        job_id: str | None = None,
        types: Iterable[str] | None = None,
        tenant_id: str | None = None,
    ) -> AsyncIterator[JobEvent | FeedReset]:
        """Everything that happens to jobs, by any process, in the order of commits.

        `after` is the `position` of the last event that was seen: what followed it comes first.
        Without it, the events begin when the first one is asked for. The feed is kept for an
        hour; a position that is older gets a FeedReset.
        """
        _check_position(after)
        if isinstance(types, str):
            raise InvalidInput.at("types", f"must be names of job types, got {types!r}")
        names = None if types is None else frozenset(types)

        def wanted(change: Change) -> bool:
            return (
                (job_id is None or change.job_id == job_id)
                and (names is None or change.type in names)
                and (tenant_id is None or change.tenant_id == tenant_id)
            )

        return self._stream(after, wanted)

    async def _stream(
        self, after: int | None, wanted: Callable[[Change], bool]
    ) -> AsyncIterator[JobEvent | FeedReset]:
        stream = EventStream(self._store, after, wanted)
        self._streams |= {stream}
        try:
            async with aclosing(stream.events()) as events:
                async for event in events:
                    yield event
        finally:
            self._streams -= {stream}

    async def position(self) -> int:
        """Where the feed ends now: `events(after=...)` goes on from there."""
        newest = await self._store.read(GetChanges(0, limit=0))
        return position_of(newest.position + 1, 0)

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
        if self._is_closing:
            raise StoreClosed("This queue was closed.")
        if self._endings is not None and self._endings.is_of_another_loop():
            raise RuntimeError(
                "A queue belongs to one event loop at a time: open another one here."
            )
        if self._endings is not None and self._endings.has_outlived_its_loop():
            await self._endings.close()
            self._endings = None
        if self._endings is None:
            self._endings = Endings(self._store)
        endings = self._endings
        await endings.start()
        if endings is not self._endings:
            await endings.close()
            raise StoreClosed("This queue was closed.")
        return endings


def _check_position(after: object) -> None:
    if after is None:
        return
    if isinstance(after, bool) or not isinstance(after, int):
        raise InvalidInput.at("after", f"must be the position of an event, got {after!r}")
    if not 0 <= after < 2**63:
        raise InvalidInput.at("after", "is not the position of an event")


def _checked(timeout: object) -> float | None:
    """Seconds that a clock can count; whatever else there is, is refused before anything begins."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise InvalidInput.at("timeout", f"must be seconds, got {timeout!r}")
    if not timeout >= 0:
        raise InvalidInput.at("timeout", f"must not be below 0, got {timeout!r}")
    # What is longer than a year is as good as for ever, and fits every clock.
    return None if timeout > _LONGEST_SECONDS else float(timeout)


async def _within(ended: asyncio.Future[Job], job_id: str, seconds: float | None) -> Job:
    try:
        async with asyncio.timeout(seconds):
            return await ended
    except TimeoutError:
        raise WaitTimeout(job_id, seconds or 0) from None
    finally:
        ended.cancel()

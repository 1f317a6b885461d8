"""Who waits for the end of which job: thousands of callers, one watcher, few reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from edgeq.core.jobs import ENDED, Job
from edgeq.errors import JobNotFound, StoreBusy, StoreClosed, StoreError, StoreMoved
from edgeq.ports.queries import Changes, GetJobs
from edgeq.ports.store import Store

_READ_AT_ONCE = 200
# The watcher tells of every change. Should one be missed all the same, nobody waits for ever.
_LOOK_AT_ALL_SECONDS = 15.0
_BUSY_SECONDS = 0.5


class Endings:
    """Waiting callers by job. What may have ended is read in batches and answered."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, set[asyncio.Future[Job]]] = {}
        # Jobs that are being stored while somebody waits already: they cannot be missed yet.
        self._coming: set[str] = set()
        self._to_look_at: set[str] = set()
        self._kick = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looking: asyncio.Task[None] | None = None
        self._stop_watching: Callable[[], None] | None = None
        self._starting = asyncio.Lock()
        self._moved: StoreMoved | None = None

    async def start(self) -> None:
        """Watch from here on; whatever ends after this returned will be heard."""
        async with self._starting:
            if self._stop_watching is None:
                self._loop = asyncio.get_running_loop()
                self._stop_watching = await self._store.watch(self._hear)
                self._looking = self._loop.create_task(self._look_on())

    def expect(self, job_id: str, *, is_stored: bool = True) -> asyncio.Future[Job]:
        """A future of the ended job, which may have ended before.

        One that is not stored yet is only looked for once `stored` has been called.
        """
        future: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, set()).add(future)
        future.add_done_callback(lambda done: self._forget(job_id, done))
        if self._moved is not None:
            self._fail([job_id], self._moved)
        elif is_stored:
            self.look_at([job_id])
        else:
            self._coming.add(job_id)
        return future

    def stored(self, job_id: str) -> None:
        self._coming.discard(job_id)

    def look_at(self, job_ids: Iterable[str]) -> None:
        self._to_look_at.update(job_ids)
        self._kick.set()

    def is_of_another_loop(self) -> bool:
        """Whether it serves another event loop than this one, and that one is still alive."""
        there = self._loop
        return there not in (None, asyncio.get_running_loop()) and not there.is_closed()

    def has_outlived_its_loop(self) -> bool:
        return self._loop is not None and self._loop.is_closed()

    async def close(self) -> None:
        if self._stop_watching is not None:
            self._stop_watching()
            self._stop_watching = None
        if self._loop is not asyncio.get_running_loop():
            return  # whoever waited there has gone with it
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking
            self._looking = None
        self._fail(list(self._waiting), StoreClosed("This queue was closed while it was waiting."))

    def _forget(self, job_id: str, future: asyncio.Future[Job]) -> None:
        waiting = self._waiting.get(job_id)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._waiting[job_id]
                self._coming.discard(job_id)

    def _hear(self, news: Changes | StoreError) -> None:
        """On the watcher's thread: most changes are nobody's business here."""
        match news:
            case StoreMoved():
                self._on_loop(lambda: self._give_up(news))
            case StoreError():
                pass
            case Changes(reset=True):
                self._on_loop(lambda: self.look_at(self._waiting))
            case Changes():
                ended = [
                    change.job_id
                    for _, _, change in news.changes
                    if change.job_id in self._waiting
                    and (change.status in ENDED or change.event == "deleted")
                ]
                if ended:
                    self._on_loop(lambda: self.look_at(ended))

    def _on_loop(self, call: Callable[[], object]) -> None:
        assert self._loop is not None  # noqa: S101 - set before anything is heard
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def _give_up(self, moved: StoreMoved) -> None:
        """Nothing will be heard any more: neither by those who wait nor by those who come."""
        self._moved = moved
        self._fail(list(self._waiting), moved)

    async def _look_on(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_LOOK_AT_ALL_SECONDS):
                    await self._kick.wait()
            except TimeoutError:
                self._to_look_at.update(self._waiting)
            self._kick.clear()
            while self._to_look_at:
                batch = [self._to_look_at.pop() for _ in range(len(self._to_look_at))]
                wanted = [job_id for job_id in batch if job_id in self._waiting]
                for start in range(0, len(wanted), _READ_AT_ONCE):
                    await self._look(wanted[start : start + _READ_AT_ONCE])

    async def _look(self, job_ids: list[str]) -> None:
        try:
            found = await self._store.read(GetJobs(tuple(job_ids)))
        except StoreBusy:
            await asyncio.sleep(_BUSY_SECONDS)
            self._to_look_at.update(job_ids)
            return
        except Exception as failure:  # those who wait hear of it
            self._fail(job_ids, failure)
            return
        for job_id in job_ids:
            self._answer(job_id, found.get(job_id))

    def _answer(self, job_id: str, job: Job | None) -> None:
        if job is None and job_id not in self._coming:
            self._fail([job_id], JobNotFound(job_id))
        if job is not None and job.status in ENDED:
            for future in list(self._waiting.get(job_id, ())):
                if not future.done():
                    future.set_result(job)

    def _fail(self, job_ids: Iterable[str], failure: Exception) -> None:
        for job_id in job_ids:
            for future in list(self._waiting.get(job_id, ())):
                if not future.done():
                    future.set_exception(failure)

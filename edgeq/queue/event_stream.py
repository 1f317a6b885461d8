"""A stream of the change feed: what is past is read, what is new is told, nothing is left out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress

from edgeq.core.feed import FeedReset, JobEvent, commit_and_place, position_of
from edgeq.errors import StoreError, StoreMoved
from edgeq.ports.queries import Change, Changes, GetChanges
from edgeq.ports.store import Store

Wanted = Callable[[Change], bool]

# A reader that is further behind reads the feed again instead of being kept in memory.
_KEPT_AT_MOST = 10_000
_READ_AT_ONCE = 200
_LOOK_SECONDS = 15.0


class EventStream:
    """One reader of the feed, at its own pace, from its own position."""

    def __init__(self, store: Store, position: int | None, wanted: Wanted) -> None:
        self._store = store
        self._wanted = wanted
        self._position = position
        self._news: deque[JobEvent] = deque()
        # How far the watcher has told; all that was wanted of it is in the news.
        self._heard_to = 0
        self._is_behind = True
        self._failure: StoreError | None = None
        self._kick = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def events(self) -> AsyncGenerator[JobEvent | FeedReset, None]:
        stop_watching = await self._store.watch(self._hear)
        try:
            if self._position is None:
                newest = await self._store.read(GetChanges(0, limit=0))
                self._position = position_of(newest.position + 1, 0)
            while True:
                for event in await self._next(self._position):
                    yield event
        finally:
            stop_watching()

    def end(self, failure: StoreError) -> None:
        """Let the reader hear, on its own loop, why nothing more will come; on any thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take, failure)

    async def _next(self, position: int) -> Sequence[JobEvent | FeedReset]:
        """What follows a position: read by who is behind, and told otherwise."""
        if self._failure is not None:
            raise self._failure
        if self._is_behind:
            return await self._read_on(position)
        if self._kick.is_set():
            self._kick.clear()
            # What was told while the past was read may have been read already.
            events = [event for event in self._news if event.position > position]
            self._news.clear()
            # Also past what nobody wanted: otherwise a reader of rare events would one day be
            # found further behind than the feed reaches.
            self._position = max(position, self._heard_to)
            return events
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._kick.wait()
        except TimeoutError:
            # Watching tells of everything. Should it have missed something, reading does not.
            self._is_behind = True
        return ()

    async def _read_on(self, position: int) -> Sequence[JobEvent | FeedReset]:
        """Read what follows. What is told meanwhile is kept: it follows what is read."""
        self._news.clear()
        self._heard_to = 0
        self._is_behind = False
        commit, _ = commit_and_place(position)
        past = await self._store.read(GetChanges(max(commit - 1, 0), _READ_AT_ONCE))
        found: list[JobEvent | FeedReset] = []
        if past.reset:
            start = past.changes[0][0] if past.changes else past.position + 1
            position = position_of(start, 0)
            found.append(FeedReset(position))
        found += (e for e in _events(past, self._wanted) if e.position > position)
        if past.changes:
            position = max(position, position_of(past.position + 1, 0))
        self._position = position
        if len({commit for commit, _, _ in past.changes}) >= _READ_AT_ONCE:
            self._is_behind = True
        return found

    def _hear(self, news: Changes | StoreError) -> None:
        """On the watcher's thread."""
        if isinstance(news, StoreError) and not isinstance(news, StoreMoved):
            return
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take, news)

    def _take(self, news: Changes | StoreError) -> None:
        if isinstance(news, StoreError):
            self._failure = news
        elif news.reset or len(self._news) > _KEPT_AT_MOST:
            self._is_behind = True
            self._news.clear()
        elif not self._is_behind:
            self._news.extend(_events(news, self._wanted))
            self._heard_to = position_of(news.position + 1, 0)
        self._kick.set()


def _events(news: Changes, wanted: Wanted) -> list[JobEvent]:
    found = []
    last_commit, place = -1, 0
    for commit, at, change in news.changes:
        place = place + 1 if commit == last_commit else 1
        last_commit = commit
        if wanted(change):
            found.append(
                JobEvent(
                    position=position_of(commit, place),
                    event=f"job.{change.event}",
                    job_id=change.job_id,
                    type=change.type,
                    status=change.status,
                    attempt=change.attempt,
                    progress=change.progress,
                    at=at,
                    tenant_id=change.tenant_id,
                )
            )
    return found

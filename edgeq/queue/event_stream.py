"""A stream of the change feed: what is past is read, what is new is told, nothing is left out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
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
        self._is_behind = True
        self._failure: StoreError | None = None
        self._kick = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def events(self) -> AsyncIterator[JobEvent | FeedReset]:
        stop_watching = await self._store.watch(self._hear)
        try:
            if self._position is None:
                newest = await self._store.read(GetChanges(0, limit=0))
                self._position = position_of(newest.position + 1, 0)
            while True:
                if self._failure is not None:
                    raise self._failure
                if self._is_behind:
                    async for event in self._catch_up():
                        yield event
                while self._news and not self._is_behind:
                    event = self._news.popleft()
                    # What was told while the past was read may have been read already.
                    if event.position > self._position:
                        self._position = event.position
                        yield event
                await self._rest()
        finally:
            stop_watching()

    async def _catch_up(self) -> AsyncIterator[JobEvent | FeedReset]:
        """Read from the position to the end; from here on, news are kept again."""
        self._news.clear()
        self._is_behind = False
        while True:
            assert self._position is not None  # noqa: S101 - set before the first call
            commit, _ = commit_and_place(self._position)
            past = await self._store.read(GetChanges(max(commit - 1, 0), _READ_AT_ONCE))
            if past.reset:
                start = past.changes[0][0] if past.changes else past.position + 1
                self._position = position_of(start, 0)
                yield FeedReset(self._position)
            if not past.changes:
                return
            for event in _events(past, self._wanted):
                if event.position > self._position:
                    self._position = event.position
                    yield event
            # Also past what nobody wanted.
            self._position = max(self._position, position_of(past.position + 1, 0))

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
        self._kick.set()

    async def _rest(self) -> None:
        if self._news or self._is_behind or self._failure is not None:
            return
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._kick.wait()
        except TimeoutError:
            # Watching tells of everything. Should it have missed something, reading does not.
            self._is_behind = True
        self._kick.clear()


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

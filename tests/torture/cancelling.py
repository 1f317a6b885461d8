"""A process that cancels its own calls of the queue at random points, and looks what is left."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from math import exp, log
from pathlib import Path
from random import Random
from typing import Any

from edgeq import Queue
from edgeq.errors import StoreClosed
from tests.torture.database import Database

HANDLERS = Path(__file__).parent / "handlers"
_CALLS_AT_MOST = 20
_MOST_TURNS = 300
# So often a second cancellation follows while the first one is being heeded.
_TWICE = 0.2
_SHORTEST_SECONDS = 0.00002
_HANG_SECONDS = 15.0
_SETTLE_SECONDS = 3.0
_MANY = 50
_MORE_THAN_A_COMMIT = 2_500
# Another process does these; the runs that are cancelled here have types of their own.
_THEIRS = "work"
_OURS = ("brittle", "work_in_thread")

Call = Callable[[Queue, str], Awaitable[Any]]


@dataclass
class Deeds:
    """What became of the calls, by their names, and what is wrong."""

    cancelled: Counter[str] = field(default_factory=Counter)
    returned: Counter[str] = field(default_factory=Counter)
    absent: int = 0
    whole: int = 0
    slowest_to_settle_ms: int = 0
    wrong: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        return json.dumps(vars(self))


@dataclass(frozen=True)
class Possessions:
    """Threads and open files of this process, but for the threads that asyncio keeps."""

    threads: Counter[str]
    files: Counter[str]

    @classmethod
    def now(cls) -> Possessions:
        names = (thread.name for thread in threading.enumerate())
        return cls(Counter(n for n in names if not n.startswith("asyncio_")), _open_files())

    def missing_in(self, before: Possessions) -> list[str]:
        return [*(self.threads - before.threads), *(self.files - before.files)]


def _open_files() -> Counter[str]:
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names, not paths
        try:
            found[os.readlink(f"/proc/self/fd/{name}")] += 1  # noqa: PTH115
        except OSError:
            continue  # the one that listed the folder
    return +found


class Canceller:
    """Makes calls, cancels each of them, and holds what is left against what was there before."""

    def __init__(self, url: str, chance: Random) -> None:
        self._url = url
        self._chance = chance
        self._path = Path(url.removeprefix("sqlite:///"))
        self._name = os.environ["EDGEQ_WORKER_NAME"]
        self._number = 0
        self._size = 0
        self.deeds = Deeds()
        self._calls: dict[str, tuple[Call, float]] = {
            "enqueue": (self._enqueue, 0.01),
            "enqueue_many": (self._enqueue_many, 0.05),
            "enqueue_and_wait": (self._enqueue_and_wait, 0.05),
            "wait": (self._wait, 0.05),
            "get": (self._get, 0.01),
            "events": (self._events, 0.05),
            "process_jobs": (self._process_jobs, 0.3),
            "work": (self._work, 0.3),
            "open": (self._open, 0.2),
            "close": (self._close, 0.1),
        }

    async def cancel(self, count: int) -> None:
        asyncio.get_running_loop().set_exception_handler(self._hear_exception)
        await self._warm_up()
        while self._number < count:
            before = Possessions.now()
            async with Queue(self._url, handlers=HANDLERS) as queue:
                # Not longer than the queue: while one connection of a process is open, SQLite
                # keeps the descriptors of those that were closed.
                with closing(Database(self._path)) as self._database:
                    for _ in range(self._chance.randint(1, _CALLS_AT_MOST)):
                        await self._cancel_one(queue)
            await self._expect_nothing_but(before, "a queue was closed")

    async def _warm_up(self) -> None:
        """Whatever is imported and kept for good is there before anything is counted."""
        async with Queue(self._url, handlers=HANDLERS) as queue:
            await queue.enqueue(_OURS[0], {})
            await queue.process_jobs(budget=1, types=_OURS)
            stored = await queue.enqueue(_THEIRS, {})
            await queue.wait(stored.job_id, timeout=_HANG_SECONDS)

    async def _cancel_one(self, queue: Queue) -> None:
        self._number += 1
        name = self._chance.choice(list(self._calls))
        call, longest = self._calls[name]
        tag = f"call-{self._number}"
        # What the call needs is there before its time runs.
        ready = await self._prepared(name, queue)
        task = asyncio.ensure_future(call(ready, tag))
        await self._let_it_come_to(task, longest)
        task.cancel()
        if self._chance.random() < _TWICE and not await self._ends(task, self._spread(0.05)):
            task.cancel()
        if not await self._ends(task, _HANG_SECONDS):
            self._blame(name, "hangs after its cancellation")
            return
        self._look_at_the_end(name, task, tag)
        if ready is not queue:
            await self._leave(name, ready, is_open=name == "open" and not task.cancelled())
        await self._look_at_what_is_left(name)
        await self._go_on(name, queue)

    async def _let_it_come_to(self, task: asyncio.Future[Any], longest: float) -> None:
        """A random point: some turns of the event loop, or some time, mostly short ones."""
        if self._chance.random() < 0.5:
            for _ in range(round(exp(self._chance.uniform(0, log(_MOST_TURNS)))) - 1):
                if task.done():
                    return
                await asyncio.sleep(0)
        else:
            await asyncio.wait([task], timeout=self._spread(longest))

    def _spread(self, longest: float) -> float:
        return exp(self._chance.uniform(log(_SHORTEST_SECONDS), log(longest)))

    async def _ends(self, task: asyncio.Future[Any], seconds: float) -> bool:
        await asyncio.wait([task], timeout=seconds)
        return task.done()

    def _look_at_the_end(self, name: str, task: asyncio.Future[Any], tag: str) -> None:
        if task.cancelled():
            self.deeds.cancelled[name] += 1
        elif (failure := task.exception()) is not None:
            self._blame(name, f"raised {type(failure).__name__}: {failure}")
        else:
            self.deeds.returned[name] += 1
        if name.startswith("enqueue"):
            self._look_at_what_is_stored(name, tag, is_whole=not task.cancelled())

    def _look_at_what_is_stored(self, name: str, tag: str, *, is_whole: bool) -> None:
        """All of a commit of at most 1,000, or nothing of it."""
        size = self._size
        stored = self._database.correlated(tag)
        allowed = {size} if is_whole else {*range(0, size, 1_000), size}
        if stored not in allowed:
            self._blame(name, f"stored {stored} of {size}")
        self.deeds.whole += stored == size
        self.deeds.absent += stored == 0

    async def _look_at_what_is_left(self, name: str) -> None:
        held = self._database.held_by(self._database.runs_of(self._name))
        if held:
            self._blame(name, f"left {len(held)} jobs locked")
        if name in ("process_jobs", "work") and self._database.open_runs(self._name):
            self._blame(name, "left a run that looks alive")
        ends = time.monotonic() + _SETTLE_SECONDS
        while not self._database.gate_is_free():
            if time.monotonic() > ends:
                self._blame(name, "left the gate held")
                return
            await asyncio.sleep(0.001)

    async def _go_on(self, name: str, queue: Queue) -> None:
        try:
            async with asyncio.timeout(_HANG_SECONDS):
                await queue.enqueue("quick", {})
        except Exception as failure:  # noqa: BLE001 - every error is a finding
            self._blame(name, f"and then enqueue raised {type(failure).__name__}: {failure}")

    async def _expect_nothing_but(self, before: Possessions, when: str) -> None:
        began = time.monotonic()
        while left := Possessions.now().missing_in(before):
            if time.monotonic() - began > _SETTLE_SECONDS:
                self._blame(when, f"left {left}")
                return
            await asyncio.sleep(0.001)
        took = round((time.monotonic() - began) * 1000)
        self.deeds.slowest_to_settle_ms = max(self.deeds.slowest_to_settle_ms, took)

    def _blame(self, name: str, text: str) -> None:
        self.deeds.wrong.append(f"call {self._number}, {name}: {text}")

    def _hear_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._blame("event loop", f"{context.get('message')} {context.get('exception')!r}")

    async def _prepared(self, name: str, queue: Queue) -> Queue:
        """The queue that a call is made on: the open one, or one of its own."""
        self._size = 1
        if name in ("process_jobs", "work"):
            for kind in _OURS:
                seconds = [self._chance.uniform(0, 0.05) for _ in range(5)]
                await queue.enqueue_many(kind, [{"seconds": each} for each in seconds])
        if name == "enqueue_many":
            is_large = self._chance.random() < 0.1
            self._size = _MORE_THAN_A_COMMIT if is_large else _MANY
        if name not in ("open", "close"):
            return queue
        own = Queue(self._url, handlers=HANDLERS)
        if name == "close":
            await own.open()
            stored = await own.enqueue(_THEIRS, {})
            if self._chance.random() < 0.5:
                await own.wait(stored.job_id, timeout=_HANG_SECONDS)
        return own

    async def _leave(self, name: str, own: Queue, *, is_open: bool) -> None:
        """What was opened or closed by halves can be opened again at once, used, and closed."""
        try:
            async with asyncio.timeout(_HANG_SECONDS):
                if name == "close":
                    # It may have been cancelled before its first step.
                    await own.close()
                if self._chance.random() < 0.5:
                    if not is_open:
                        await own.open()
                    await own.enqueue("quick", {})
                await own.close()
        except StoreClosed as closed:
            self._blame(name, f"and then it could not be opened: {closed}")

    async def _enqueue(self, queue: Queue, tag: str) -> Any:
        return await queue.enqueue("quick", {}, correlation_id=tag)

    async def _enqueue_many(self, queue: Queue, tag: str) -> Any:
        inputs: list[dict[str, Any]] = [{}] * self._size
        return await queue.enqueue_many("quick", inputs, delay=3_600, correlation_id=tag)

    async def _enqueue_and_wait(self, queue: Queue, tag: str) -> Any:
        return await queue.enqueue_and_wait(
            _THEIRS, {"seconds": 0.005}, correlation_id=tag, timeout=_HANG_SECONDS
        )

    async def _wait(self, queue: Queue, _tag: str) -> Any:
        stored = await queue.enqueue(_THEIRS, {"seconds": 0.005})
        return await queue.wait(stored.job_id, timeout=_HANG_SECONDS)

    async def _get(self, queue: Queue, _tag: str) -> Any:
        return await queue.list(limit=20)

    async def _events(self, queue: Queue, _tag: str) -> Any:
        async for event in queue.events(after=0):
            if event.position < 0:
                return event
        return None

    async def _process_jobs(self, queue: Queue, _tag: str) -> Any:
        return await queue.process_jobs(budget=2, grace=1, types=_OURS)

    async def _work(self, queue: Queue, _tag: str) -> Any:
        return await queue.work(types=_OURS)

    async def _open(self, queue: Queue, _tag: str) -> Any:
        await queue.open()

    async def _close(self, queue: Queue, _tag: str) -> Any:
        await queue.close()


def main(url: str, seed: int, count: int) -> None:
    warnings.simplefilter("error")

    async def run() -> Deeds:
        canceller = Canceller(url, Random(seed))
        await canceller.cancel(count)
        return canceller.deeds

    print(asyncio.run(run()).to_json())


if __name__ == "__main__":
    main(sys.argv[1], *(int(text) for text in sys.argv[2:4]))

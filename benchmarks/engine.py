"""The same work by edgeq, through its public interface."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from edgeq import Context, Queue, handler

INPUT = {"n": 1, "to": "user@example.com"}


class Message(msgspec.Struct):
    n: int
    to: str


@handler("noop")
async def noop(ctx: Context, input: Message) -> None:
    """Does nothing, as fast as it can be called."""


def _timed(path: Path, work: Callable[[Queue], Awaitable[int]]) -> float:
    async def run() -> float:
        async with Queue(f"sqlite:///{path}", handlers=[noop]) as queue:
            began = time.perf_counter()
            count = await work(queue)
            return count / (time.perf_counter() - began)

    return asyncio.run(run())


def create(path: Path) -> None:
    async def run() -> None:
        async with Queue(f"sqlite:///{path}", handlers=[noop]):
            pass

    asyncio.run(run())


def enqueue_singly(path: Path, count: int) -> float:
    async def work(queue: Queue) -> int:
        for _ in range(count):
            await queue.enqueue(noop, INPUT)
        return count

    return _timed(path, work)


def enqueue_concurrently(path: Path, count: int, callers: int) -> float:
    async def work(queue: Queue) -> int:
        async def caller() -> None:
            for _ in range(count // callers):
                await queue.enqueue(noop, INPUT)

        await asyncio.gather(*(caller() for _ in range(callers)))
        return count

    return _timed(path, work)


def enqueue_many(path: Path, count: int, batch: int) -> float:
    async def work(queue: Queue) -> int:
        for _ in range(count // batch):
            await queue.enqueue_many(noop, [INPUT] * batch)
        return count

    return _timed(path, work)


def drain(path: Path, count: int, concurrency: int) -> float:
    async def work(queue: Queue) -> int:
        report = await queue.process_jobs(budget=600, concurrency=concurrency, max_jobs=count)
        return report.completed

    return _timed(path, work)

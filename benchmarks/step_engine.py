"""Jobs of steps by edgeq, through its public interface."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

from benchmarks.engine import INPUT, Message, noop
from edgeq import Context, Queue, handler

STEPS = 3


async def _trivial() -> int:
    return 1


@handler("in_steps")
async def in_steps(ctx: Context, input: Message) -> None:  # noqa: ARG001
    """Three steps that do nothing, each kept."""
    for number in range(STEPS):
        await ctx.step("part", _trivial, key=number)


def create(path: Path) -> None:
    async def run() -> None:
        async with Queue(f"sqlite:///{path}", handlers=[noop, in_steps]):
            pass

    asyncio.run(run())


def drain(path: Path, count: int, concurrency: int) -> float:
    """Jobs per second, from the first claim to the last completion."""

    async def run() -> float:
        async with Queue(f"sqlite:///{path}", handlers=[in_steps]) as queue:
            began = time.perf_counter()
            report = await queue.process_jobs(budget=600, concurrency=concurrency, max_jobs=count)
            return report.completed / (time.perf_counter() - began)

    return asyncio.run(run())


def step_and_enqueue(path: Path, count: int) -> tuple[float, float]:
    """The medians in ms of a step and of a single enqueue, made in turn in one process."""
    steps: list[float] = []
    enqueues: list[float] = []

    async def run() -> None:
        @handler("many_steps", timeout=600)
        async def many_steps(ctx: Context, input: Message) -> None:  # noqa: ARG001
            for number in range(count):
                began = time.perf_counter()
                await ctx.step("part", _trivial, key=number)
                between = time.perf_counter()
                await queue.enqueue(noop, INPUT)
                enqueues.append(time.perf_counter() - between)
                steps.append(between - began)

        async with Queue(f"sqlite:///{path}", handlers=[noop, many_steps]) as queue:
            await queue.enqueue(many_steps, INPUT, priority=20)
            await queue.process_jobs(budget=600, concurrency=1, max_jobs=1)

    asyncio.run(run())
    return median(steps) * 1000, median(enqueues) * 1000

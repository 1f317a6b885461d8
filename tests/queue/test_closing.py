"""Closing a queue that is in use."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edgeq import Context, Queue, handler
from edgeq.errors import InvalidInput, StoreClosed


@handler("echo")
async def echo(ctx: Context, input: dict[str, Any]) -> dict[str, Any]:
    return input


async def test_who_begins_to_wait_while_the_queue_closes_is_told_at_once(tmp_path: Path) -> None:
    queue = Queue(f"sqlite:///{tmp_path}/queue.db", handlers=[echo])
    async with queue:
        job = await queue.enqueue("echo", {})
        waiting = asyncio.create_task(queue.wait(job.job_id))
        await asyncio.sleep(0)
        closing = asyncio.create_task(queue.close())
        await asyncio.sleep(0)
        with pytest.raises(StoreClosed):
            await asyncio.wait_for(queue.wait(job.job_id), 5)
        with pytest.raises(StoreClosed):
            await asyncio.wait_for(waiting, 5)
        await closing


async def test_a_queue_that_was_opened_again_can_be_waited_on(tmp_path: Path) -> None:
    queue = Queue(f"sqlite:///{tmp_path}/queue.db", handlers=[echo])
    async with queue:
        pass
    async with queue:
        waiting = asyncio.create_task(queue.enqueue_and_wait("echo", {"n": 1}, timeout=5))
        while not (await queue.process_jobs(budget=1)).completed:
            pass
        assert await waiting == {"n": 1}


async def test_closing_ends_the_runs_of_the_queue_and_puts_their_jobs_back(tmp_path: Path) -> None:
    began = asyncio.Event()

    @handler("endless")
    async def endless(ctx: Context, input: dict[str, Any]) -> None:
        began.set()
        await asyncio.Event().wait()

    queue = Queue(f"sqlite:///{tmp_path}/queue.db", handlers=[endless])
    await queue.open()
    job = await queue.enqueue("endless", {})
    working = asyncio.create_task(queue.work())
    await began.wait()
    await queue.close()

    assert working.cancelled()
    async with queue:
        assert (await queue.get(job.job_id)).status == "pending"
        assert [run.ended_at is not None for run in await queue.runs()] == [True]


async def test_what_is_asked_of_events_is_checked_at_once(tmp_path: Path) -> None:
    async with Queue(f"sqlite:///{tmp_path}/queue.db", handlers=[echo]) as queue:
        with pytest.raises(InvalidInput):
            queue.events(after=-5)
        with pytest.raises(InvalidInput):
            queue.events(types="echo")


async def test_events_can_begin_at_a_position_that_was_asked_for_before(tmp_path: Path) -> None:
    async with Queue(f"sqlite:///{tmp_path}/queue.db", handlers=[echo]) as queue:
        await queue.enqueue("echo", {})
        here = await queue.position()
        job = await queue.enqueue("echo", {})
        async for event in queue.events(after=here):
            assert getattr(event, "job_id", None) == job.job_id
            break


async def test_nobody_can_wait_for_a_job_of_an_open_transaction(tmp_path: Path) -> None:
    async with Queue(f"sqlite:///{tmp_path}/queue.db", handlers=[echo]) as queue:
        with pytest.raises(InvalidInput, match="still open"):
            await queue.enqueue_and_wait("echo", {}, connection=object())
        assert (await queue.list()).items == ()

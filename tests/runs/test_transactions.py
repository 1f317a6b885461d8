"""ctx.transaction: what a handler writes to the queue's own database, exactly once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from edgeq import Context, Fail, Queue, SyncContext, SyncQueue, handler
from edgeq.errors import WriterHeld
from edgeq.store import lending
from edgeq.testing import queue_for_test


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@asynccontextmanager
async def shop(path: Path, *handlers: Any) -> AsyncIterator[Queue]:
    """A queue in the file of an application, which has a table of its own."""
    async with queue_for_test(list(handlers), database=f"sqlite:///{path}") as queue:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE orders (id TEXT, job_id TEXT)")
        yield queue


def orders(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [name for (name,) in connection.execute("SELECT id FROM orders ORDER BY rowid")]


def order(connection: Connection, name: str, job_id: str = "") -> dict[str, str]:
    connection.execute(text("INSERT INTO orders VALUES (:n, :j)"), {"n": name, "j": job_id})
    return {"order": name}


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_its_effect_happens_once_however_often_the_handler_runs(
    path: Path, kind: str
) -> None:
    @handler("buy", retry_delay=0)
    async def buy(ctx: Context, input: dict[str, Any]) -> Any:
        made = await ctx.transaction("order", order, input["name"], job_id=ctx.job.id)
        for n in range(2):
            await ctx.transaction("more", order, f"more {n}", key=n)
        if ctx.attempt < 3:
            raise RuntimeError("afterwards")
        return made

    @handler("buy", retry_delay=0)
    def thread_buy(ctx: SyncContext, input: dict[str, Any]) -> Any:
        made = ctx.transaction("order", order, input["name"], job_id=ctx.job.id)
        for n in range(2):
            ctx.transaction("more", order, f"more {n}", key=n)
        if ctx.attempt < 3:
            raise RuntimeError("afterwards")
        return made

    async with shop(path, buy if kind == "async" else thread_buy) as queue:
        job_id = (await queue.enqueue("buy", {"name": "a"})).job_id
        await queue.process_jobs(budget=10)
        job, steps = await queue.get(job_id), await queue.steps(job_id)
    assert (job.status, job.output, job.attempt) == ("completed", {"order": "a"}, 3)
    assert orders(path) == ["a", "more 0", "more 1"]
    assert [(step.name, step.key, step.kind) for step in steps] == [
        ("order", "", "transaction"),
        ("more", "0", "transaction"),
        ("more", "1", "transaction"),
    ]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_it_raises_undoes_it_and_reaches_the_handler_as_it_was(
    path: Path, kind: str
) -> None:
    seen: list[BaseException] = []

    class Declined(Exception):
        pass

    def fails(connection: Connection) -> None:
        order(connection, "a")
        raise Declined

    @handler("buy")
    async def buy(ctx: Context, input: dict[str, Any]) -> str:
        try:
            await ctx.transaction("order", fails)
        except Declined as declined:
            seen.append(declined)
        return "declined"

    @handler("buy")
    def thread_buy(ctx: SyncContext, input: dict[str, Any]) -> str:
        try:
            ctx.transaction("order", fails)
        except Declined as declined:
            seen.append(declined)
        return "declined"

    async with shop(path, buy if kind == "async" else thread_buy) as queue:
        job_id = (await queue.enqueue("buy", {})).job_id
        await queue.process_jobs(budget=10)
        assert (await queue.get(job_id)).output == "declined"
        assert await queue.steps(job_id) == ()
    assert len(seen) == 1
    assert orders(path) == []


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_failure_that_is_meant_for_the_queue_is_one_and_nothing_is_written(
    path: Path, kind: str
) -> None:
    def fails(connection: Connection) -> None:
        order(connection, "a")
        raise Fail("no credit")

    @handler("buy")
    async def buy(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.transaction("order", fails)

    @handler("buy")
    def thread_buy(ctx: SyncContext, input: dict[str, Any]) -> None:
        ctx.transaction("order", fails)

    async with shop(path, buy if kind == "async" else thread_buy) as queue:
        job_id = (await queue.enqueue("buy", {})).job_id
        await queue.process_jobs(budget=10)
        job = await queue.get(job_id)
    assert (job.status, job.error_message) == ("failed", "no credit")
    assert orders(path) == []


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_checkpoint_or_an_exit_inside_ends_the_attempt_and_not_the_writer(
    path: Path, kind: str
) -> None:
    @handler("buy", retry_delay=0, max_retries=0)
    async def buy(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.transaction("order", leave)

    @handler("buy", retry_delay=0, max_retries=0)
    def thread_buy(ctx: SyncContext, input: dict[str, Any]) -> None:
        ctx.transaction("order", leave)

    def leave(connection: Connection) -> None:
        order(connection, "a")
        raise SystemExit(1)

    async with shop(path, buy if kind == "async" else thread_buy) as queue:
        job_id = (await queue.enqueue("buy", {})).job_id
        report = await queue.process_jobs(budget=10)
        assert report.failed == 1
        assert (await queue.get(job_id)).status == "failed"
        await queue.enqueue("buy", {})
    assert orders(path) == []


@pytest.mark.parametrize("kind", ["same", "other", "sync"])
async def test_a_queue_on_the_same_file_cannot_be_used_inside_and_says_so(
    path: Path, kind: str
) -> None:
    seen: list[BaseException] = []
    database = f"sqlite:///{path}"

    async with shop(path, noop) as queue:

        def calls_back(connection: Connection) -> str:
            order(connection, "a")
            try:
                if kind == "sync":
                    with SyncQueue(database) as other:
                        other.enqueue("noop", {})
                else:
                    asyncio.run(enqueue_in(queue if kind == "same" else None, database))
            except BaseException as error:
                seen.append(error)
                raise
            return "never"

        @handler("buy", max_retries=0)
        async def buy(ctx: Context, input: dict[str, Any]) -> None:
            await ctx.transaction("order", calls_back)

        async with queue_for_test([buy, noop], database=database) as worker:
            job_id = (await worker.enqueue("buy", {})).job_id
            await worker.process_jobs(budget=10, types=["buy"])
            job = await worker.get(job_id)
    assert [type(error) for error in seen] == [WriterHeld]
    assert job.status == "failed"
    assert orders(path) == []


@handler("noop")
async def noop(ctx: Context, input: dict[str, Any]) -> None:
    pass


async def enqueue_in(queue: Queue | None, database: str) -> None:
    if queue is not None:
        await queue.enqueue("noop", {})
    else:
        async with Queue(database) as other:
            await other.enqueue("noop", {})


async def test_it_is_stopped_when_it_takes_too_long_and_the_job_is_retried(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lending, "LENT_SECONDS", 0.1)
    turns = []

    def slow(connection: Connection) -> str:
        order(connection, "a")
        turns.append(1)
        while len(turns) == 1:
            pass
        return "done"

    @handler("buy", retry_delay=0)
    async def buy(ctx: Context, input: dict[str, Any]) -> str:
        return await ctx.transaction("order", slow)

    async with shop(path, buy) as queue:
        job_id = (await queue.enqueue("buy", {})).job_id
        await queue.process_jobs(budget=10)
        job = await queue.get(job_id)
        (first,) = await queue.attempts(job_id)
    assert (job.status, job.output) == ("completed", "done")
    assert "TimeoutError" in (first.error_message or "")
    assert "outside of it" in (first.error_message or "")
    assert orders(path) == ["a"]


async def test_a_lost_job_writes_nothing(path: Path) -> None:
    """The lock is taken away between the handler's start and its transaction."""
    is_inside, may_go_on = asyncio.Event(), asyncio.Event()

    @handler("buy")
    async def buy(ctx: Context, input: dict[str, Any]) -> None:
        is_inside.set()
        await may_go_on.wait()
        await ctx.transaction("order", order, "a")

    async with shop(path, buy) as queue:
        job_id = (await queue.enqueue("buy", {})).job_id
        run = asyncio.create_task(queue.process_jobs(budget=10, max_jobs=1))
        await is_inside.wait()
        await queue.fail(job_id, reason="by hand")
        may_go_on.set()
        report = await run
    assert report.lost_locks == 1
    assert orders(path) == []


async def test_children_and_transactions_of_one_job_are_each_there_once(path: Path) -> None:
    @handler("buy", retry_delay=0)
    async def buy(ctx: Context, input: dict[str, Any]) -> None:
        await ctx.transaction("order", order, "a")
        child = await ctx.enqueue("noop", {})
        await ctx.enqueue("noop", {}, after=[child, ctx.job.id])
        if ctx.attempt == 1:
            raise RuntimeError("again")

    async with shop(path, buy, noop) as queue:
        await queue.enqueue("buy", {})
        report = await queue.process_jobs(budget=10)
        children = (await queue.list(type="noop")).items
    assert (report.completed, report.retried) == (3, 1)
    assert [job.status for job in children] == ["completed", "completed"]
    assert orders(path) == ["a"]

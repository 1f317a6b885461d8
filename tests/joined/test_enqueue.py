"""Jobs that are enqueued within the application's own transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import edgeq
from edgeq import Queue
from edgeq.errors import (
    BadSetting,
    IdempotencyConflict,
    InvalidInput,
    QueueFull,
    StoreFrozen,
    StoreUnavailable,
    WriterHeld,
)
from edgeq.events import JobMoved
from edgeq.store.gate import Gate
from edgeq.testing import RecordingObserver
from tests.joined.conftest import SETTINGS, note

INSERT = text("INSERT INTO orders VALUES (1)")


class Joined:
    """A transaction of an application, whichever of the four kinds it is."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def _call(self, name: str, *arguments: Any) -> Any:
        answer = getattr(self.connection, name)(*arguments)
        return await answer if isinstance(answer, Awaitable) else answer

    async def insert(self) -> None:
        await self._call("execute", INSERT)

    async def commit(self) -> None:
        await self._call("commit")

    async def rollback(self) -> None:
        await self._call("rollback")

    async def close(self) -> None:
        await self._call("close")


@pytest.fixture(
    params=["Connection", "Session", "scoped_session", "AsyncConnection", "AsyncSession"]
)
async def joined(
    request: pytest.FixtureRequest, engine: Engine, async_engine: AsyncEngine
) -> AsyncIterator[Joined]:
    makers: dict[str, Callable[[], Any]] = {
        "Connection": engine.connect,
        "Session": lambda: Session(engine),
        "scoped_session": lambda: scoped_session(sessionmaker(engine)),
        "AsyncConnection": async_engine.connect,
        "AsyncSession": lambda: AsyncSession(async_engine),
    }
    connection = makers[request.param]()
    if isinstance(connection, AsyncConnection):
        connection = await connection.start()
    joined = Joined(connection)
    yield joined
    await joined.close()


def _rows(file: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        return connection.execute(sql).fetchall()


async def test_a_job_is_there_with_the_commit_and_not_before(queue: Queue, joined: Joined) -> None:
    await joined.insert()
    enqueued = await queue.enqueue("note", {"a": 1}, connection=joined.connection)
    assert (await queue.list()).items == ()

    await joined.commit()
    assert (await queue.get(enqueued.job_id)).input == {"a": 1}


async def test_a_job_goes_with_the_rollback(queue: Queue, joined: Joined, file: Path) -> None:
    await joined.insert()
    await queue.enqueue("note", connection=joined.connection)
    await joined.rollback()

    assert (await queue.list()).items == ()
    assert _rows(file, "SELECT * FROM orders") == []
    assert _rows(file, "SELECT * FROM job_changes") == []


async def test_a_job_may_be_the_first_thing_of_its_transaction(
    queue: Queue, joined: Joined, other_process: Gate
) -> None:
    await queue.enqueue("note", connection=joined.connection)
    assert not other_process.acquire_at_once()
    await joined.commit()
    assert other_process.acquire_at_once()
    assert len((await queue.list()).items) == 1


async def test_many_jobs_are_one_transaction(queue: Queue, joined: Joined) -> None:
    inputs = [{"number": number} for number in range(1_500)]
    answers = await queue.enqueue_many("note", inputs, connection=joined.connection)
    assert (await queue.list()).items == ()
    await joined.commit()
    found = await queue.get_many([answers[0].job_id, answers[-1].job_id])
    assert [job.input["number"] for job in found.values()] == [0, 1_499]


async def test_the_change_feed_tells_of_it(queue: Queue, joined: Joined, file: Path) -> None:
    enqueued = await queue.enqueue("note", connection=joined.connection)
    await joined.commit()
    ((changes,),) = _rows(file, "SELECT changes FROM job_changes")
    assert enqueued.job_id in changes


async def test_a_key_answers_with_its_job(queue: Queue, joined: Joined) -> None:
    first = await queue.enqueue("note", idempotency_key="k", connection=joined.connection)
    second = await queue.enqueue("note", idempotency_key="k", connection=joined.connection)
    await joined.commit()
    third = await queue.enqueue("note", idempotency_key="k")
    assert {first.job_id} == {second.job_id, third.job_id}
    assert (first.duplicate, second.duplicate, third.duplicate) == (False, True, True)


async def test_a_conflict_leaves_the_transaction_usable_and_nothing_in_it(
    queue: Queue, joined: Joined, file: Path
) -> None:
    await queue.enqueue("note", {"a": 1}, idempotency_key="k")
    await joined.insert()
    with pytest.raises(IdempotencyConflict):
        await queue.enqueue("note", {"a": 2}, idempotency_key="k", connection=joined.connection)
    await joined.insert()
    await queue.enqueue("note", connection=joined.connection)
    await joined.commit()
    assert len((await queue.list()).items) == 2
    assert len(_rows(file, "SELECT * FROM orders")) == 2


async def test_a_full_queue_refuses_all_of_many(queue: Queue, joined: Joined, file: Path) -> None:
    await joined.insert()
    with pytest.raises(QueueFull):
        await queue.enqueue_many("rare", [{}, {}], connection=joined.connection)
    await joined.commit()
    assert (await queue.list()).items == ()
    assert len(_rows(file, "SELECT * FROM orders")) == 1


async def test_a_queue_that_is_full_in_the_end_refuses_all_of_very_many(
    queue: Queue, engine: Engine
) -> None:
    with engine.begin() as connection:
        with pytest.raises(QueueFull):
            await queue.enqueue_many("some", [{}] * 1_101, connection=connection)
        await queue.enqueue("note", connection=connection)
    assert [job.type for job in (await queue.list()).items] == ["note"]


async def test_what_is_refused_before_storing_begins_no_transaction(
    queue: Queue, joined: Joined, other_process: Gate
) -> None:
    with pytest.raises(InvalidInput):
        await queue.enqueue("note", {}, priority=99, connection=joined.connection)
    assert other_process.acquire_at_once()


async def test_a_savepoint_of_the_caller_takes_its_job_back(queue: Queue, engine: Engine) -> None:
    with engine.begin() as connection:
        kept = await queue.enqueue("note", connection=connection)
        with connection.begin_nested() as savepoint:
            await queue.enqueue("note", connection=connection)
            savepoint.rollback()
    assert [job.id for job in (await queue.list()).items] == [kept.job_id]


async def test_what_sqlite_has_rolled_back_by_itself_takes_no_job(
    queue: Queue, engine: Engine
) -> None:
    with engine.connect() as connection:
        connection.execute(INSERT)
        connection.exec_driver_sql("ROLLBACK")
        with pytest.raises(StoreUnavailable, match="begin again"):
            await queue.enqueue("note", connection=connection)
        connection.commit()
    assert (await queue.list()).items == ()


async def test_nothing_is_announced_of_a_job_that_may_never_be(file: Path, engine: Engine) -> None:
    observed = RecordingObserver()
    async with Queue(
        f"sqlite:///{file}", handlers=[note], observers=[observed], settings=SETTINGS
    ) as queue:
        with engine.connect() as connection:
            await queue.enqueue("note", connection=connection)
        assert observed.of(JobMoved) == []


async def test_a_frozen_queue_refuses_and_the_transaction_goes_on(
    queue: Queue, joined: Joined, file: Path
) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("UPDATE queue_guard SET mode = 'frozen'")
    await joined.insert()
    with pytest.raises(StoreFrozen):
        await queue.enqueue("note", connection=joined.connection)
    await joined.commit()
    assert len(_rows(file, "SELECT * FROM orders")) == 1


async def test_a_write_without_the_connection_is_refused_inside_a_transaction(
    queue: Queue, joined: Joined
) -> None:
    await joined.insert()
    with pytest.raises(WriterHeld, match="connection="):
        await queue.enqueue("note")
    with pytest.raises(WriterHeld, match="connection="):
        await asyncio.wait_for(queue.pause_type("note"), 5)
    await joined.commit()
    await queue.enqueue("note")


async def test_other_tasks_write_when_the_transaction_is_over(
    queue: Queue, async_engine: AsyncEngine
) -> None:
    begun = asyncio.Event()

    async def transact() -> None:
        async with async_engine.begin() as connection:
            begun.set()
            await asyncio.sleep(0.02)
            await queue.enqueue("note", connection=connection)

    transaction = asyncio.create_task(transact())
    await begun.wait()
    await queue.enqueue("note")
    await transaction
    assert len((await queue.list()).items) == 2


async def test_an_engine_that_was_not_attached_is_refused(queue: Queue, file: Path) -> None:
    plain = create_engine(f"sqlite:///{file}")
    with plain.connect() as connection:
        with pytest.raises(BadSetting, match=r"edgeq\.attach\(engine\)"):
            await queue.enqueue("note", connection=connection)
        assert not connection.in_transaction()
    plain.dispose()
    assert (await queue.list()).items == ()


async def test_a_connection_to_another_file_is_refused(queue: Queue, tmp_path: Path) -> None:
    other = edgeq.attach(create_engine(f"sqlite:///{tmp_path / 'other.db'}"), settings=SETTINGS)
    with other.connect() as connection:
        with pytest.raises(BadSetting, match=r"is on .*other\.db, and the queue is on .*app\.db"):
            await queue.enqueue("note", connection=connection)
        assert not connection.in_transaction()
    other.dispose()


async def test_a_link_to_the_file_is_the_file(
    queue: Queue, file: Path, other_process: Gate
) -> None:
    link = file.with_name("link.db")
    link.symlink_to(file)
    linked = edgeq.attach(create_engine(f"sqlite:///{link}"), settings=SETTINGS)
    with linked.begin() as connection:
        assert not other_process.acquire_at_once()
        enqueued = await queue.enqueue("note", connection=connection)
    assert (await queue.get(enqueued.job_id)).type == "note"
    linked.dispose()


async def test_an_autocommit_connection_is_refused(queue: Queue, engine: Engine) -> None:
    with (
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(BadSetting, match="AUTOCOMMIT"),
    ):
        await queue.enqueue("note", connection=connection)


async def test_what_is_no_connection_is_refused(queue: Queue, file: Path) -> None:
    with closing(sqlite3.connect(file)) as raw, pytest.raises(BadSetting, match="SQLAlchemy"):
        await queue.enqueue("note", connection=raw)


async def test_an_async_connection_that_is_not_started_is_refused(
    queue: Queue, async_engine: AsyncEngine
) -> None:
    with pytest.raises(BadSetting, match="async with"):
        await queue.enqueue("note", connection=async_engine.connect())


async def test_cancelled_at_any_moment_an_enqueue_leaves_a_transaction_that_can_be_rolled_back(
    queue: Queue, async_engine: AsyncEngine, other_process: Gate
) -> None:
    async def add() -> None:
        async with async_engine.begin() as connection:
            await connection.execute(INSERT)
            await queue.enqueue("note", connection=connection)

    for steps in range(0, 60, 2):
        task = asyncio.create_task(add())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.wait_for(other_process.acquire_beside_loop(5), 5)
        other_process.release()
    async with async_engine.connect() as connection:
        orders = await connection.scalar(text("SELECT count(*) FROM orders"))
        assert orders == await connection.scalar(text("SELECT count(*) FROM background_jobs"))

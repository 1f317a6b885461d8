"""What `edgeq.attach` makes of an application's engine."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, OperationalError, SAWarning
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import edgeq
from edgeq.errors import BadSetting, StoreBusy, StoreMoved, WriterHeld
from edgeq.settings import Settings
from edgeq.store.gate import Gate
from tests.joined.conftest import SETTINGS

INSERT = text("INSERT INTO orders VALUES (1)")
COUNT = text("SELECT count(*) FROM orders")


def is_free(gate: Gate) -> bool:
    if gate.acquire_at_once():
        gate.release()
        return True
    return False


async def _end_of_drivers() -> None:
    """aiosqlite answers also for connections that were torn down: the loop has to be there."""
    for thread in threading.enumerate():
        if "_connection_worker_thread" in thread.name:
            await asyncio.to_thread(thread.join, 5)


def test_a_transaction_holds_the_gate_until_it_is_committed(
    engine: Engine, other_process: Gate
) -> None:
    with engine.connect() as connection:
        connection.execute(COUNT)
        assert not is_free(other_process)
        connection.commit()
        assert is_free(other_process)


def test_the_gate_is_still_held_while_the_commit_happens(
    engine: Engine, other_process: Gate
) -> None:
    seen = []
    event.listen(engine, "commit", lambda _: seen.append(is_free(other_process)))
    with engine.begin() as connection:
        connection.execute(INSERT)
    assert (seen, is_free(other_process)) == ([False], True)


@pytest.mark.parametrize(
    "end",
    [
        lambda connection: connection.rollback(),
        lambda connection: connection.close(),
        lambda connection: connection.invalidate(),
        lambda connection: connection.detach(),
    ],
    ids=["rollback", "close", "invalidate", "detach and close"],
)
def test_the_gate_opens_however_a_transaction_ends(
    engine: Engine, other_process: Gate, end: Callable[[object], None]
) -> None:
    with engine.connect() as connection:
        connection.execute(INSERT)
        end(connection)
    assert is_free(other_process)
    with engine.connect() as connection:
        assert connection.scalar(COUNT) == 0


@pytest.mark.parametrize("reset", ["rollback", None])
def test_a_connection_that_was_forgotten_lets_go(
    file: Path, engine: Engine, other_process: Gate, reset: str | None
) -> None:
    careless = create_engine(f"sqlite:///{file}", pool_reset_on_return=reset)
    edgeq.attach(careless, settings=SETTINGS)
    connection = careless.connect()
    connection.execute(INSERT)
    assert not is_free(other_process)
    del connection
    gc.collect()
    assert is_free(other_process)
    careless.dispose()


async def test_an_async_connection_that_was_forgotten_lets_go(
    async_engine: AsyncEngine, other_process: Gate
) -> None:
    connection = await async_engine.connect()
    await connection.execute(INSERT)
    assert not is_free(other_process)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)
        del connection
        gc.collect()
    # The thread of the connection closes it, when it gets to it.
    await _end_of_drivers()
    assert is_free(other_process)


def test_a_failed_commit_lets_go_with_its_rollback(engine: Engine, other_process: Gate) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
        connection.exec_driver_sql(
            "CREATE TABLE child (of REFERENCES parent DEFERRABLE INITIALLY DEFERRED)"
        )
    event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA foreign_keys = ON"))
    engine.dispose()
    with pytest.raises(Exception, match="FOREIGN KEY"), engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO child VALUES (7)")
    assert is_free(other_process)


def test_what_sqlite_has_rolled_back_by_itself_does_not_go_on(
    engine: Engine, other_process: Gate
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE UNIQUE INDEX one_of_each ON orders (number)")
    with engine.connect() as connection:
        connection.execute(INSERT)
        with pytest.raises(IntegrityError):
            connection.exec_driver_sql("INSERT OR ROLLBACK INTO orders VALUES (1)")
        with pytest.raises(OperationalError, match="begin again"):
            connection.exec_driver_sql("INSERT INTO orders VALUES (2)")
        connection.commit()
        assert connection.scalar(COUNT) == 0
    assert is_free(other_process)


def test_outside_of_a_transaction_nothing_can_be_written(engine: Engine, file: Path) -> None:
    with (
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(OperationalError, match="readonly"),
    ):
        connection.execute(INSERT)
    raw = engine.raw_connection()
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        raw.cursor().execute("BEGIN IMMEDIATE")
    raw.close()
    with engine.begin() as connection:
        connection.execute(INSERT)


def test_autocommit_connections_read_without_waiting(engine: Engine, other_process: Gate) -> None:
    other_process.acquire()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        assert connection.scalar(COUNT) == 0


def test_the_driver_never_begins_by_itself(engine: Engine) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT"):
        pass
    # SQLAlchemy has just set the driver back to beginning implicitly.
    raw = engine.raw_connection()
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        raw.cursor().execute("INSERT INTO orders VALUES (1)")
    raw.close()


def test_a_second_transaction_of_the_same_thread_is_refused_at_once(engine: Engine) -> None:
    with engine.begin(), pytest.raises(WriterHeld, match="End it first"), engine.begin():
        pass
    with engine.begin() as connection:
        connection.execute(INSERT)


def test_a_second_transaction_of_another_thread_waits(engine: Engine) -> None:
    def add() -> None:
        with engine.begin() as connection:
            connection.execute(INSERT)

    with engine.begin() as connection:
        thread = threading.Thread(target=add)
        thread.start()
        connection.execute(INSERT)
    thread.join()
    with engine.connect() as connection:
        assert connection.scalar(COUNT) == 2


async def test_a_second_transaction_of_the_same_task_is_refused_at_once(
    async_engine: AsyncEngine,
) -> None:
    async with async_engine.begin():
        with pytest.raises(WriterHeld, match="End it first"):
            async with async_engine.begin():
                pass


async def test_transactions_of_other_tasks_wait_without_blocking_the_loop(
    async_engine: AsyncEngine,
) -> None:
    inside = 0
    most = 0

    async def add() -> None:
        nonlocal inside, most
        async with async_engine.begin() as connection:
            inside += 1
            most = max(most, inside)
            await connection.execute(INSERT)
            await asyncio.sleep(0.001)
            inside -= 1

    await asyncio.wait_for(asyncio.gather(*(add() for _ in range(10))), 10)
    assert most == 1
    async with async_engine.connect() as connection:
        assert await connection.scalar(COUNT) == 10


async def test_cancelled_while_it_waits_a_transaction_leaves_no_gate_held(
    async_engine: AsyncEngine, other_process: Gate
) -> None:
    async def begin() -> None:
        async with async_engine.begin():
            pass

    other_process.acquire()
    waiting = asyncio.create_task(begin())
    await asyncio.to_thread(_wait_for_a, "edgeq-gate")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 2)

    other_process.release()
    # Whoever closes in turn may have a waiter of its own.
    for name in ("edgeq-close", "edgeq-gate"):
        await asyncio.to_thread(_join_all, name)
    assert is_free(other_process)
    await asyncio.wait_for(begin(), 2)


async def test_cancelled_at_any_moment_a_transaction_leaves_no_gate_held(
    async_engine: AsyncEngine, other_process: Gate
) -> None:
    async def add() -> None:
        async with async_engine.begin() as connection:
            await connection.execute(INSERT)

    for steps in range(60):
        task = asyncio.create_task(add())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.wait_for(other_process.acquire_beside_loop(5), 5)
        other_process.release()

    await async_engine.dispose()
    await _end_of_drivers()


def test_a_gate_that_is_held_for_too_long_is_store_busy(file: Path, other_process: Gate) -> None:
    engine = edgeq.attach(create_engine(f"sqlite:///{file}"), settings=Settings(busy_timeout=0.05))
    other_process.acquire()
    with engine.connect() as connection:
        with pytest.raises(StoreBusy):
            connection.execute(text("SELECT 1"))
        other_process.release()
        connection.execute(text("SELECT 1"))
        assert not is_free(other_process)
    assert is_free(other_process)
    engine.dispose()


def test_an_engine_without_a_pool_closes_its_connections_inside_its_own_transaction(
    file: Path, engine: Engine
) -> None:
    poolless = edgeq.attach(
        create_engine(f"sqlite:///{file}", poolclass=NullPool), settings=SETTINGS
    )
    with engine.begin() as connection:
        # Closing waits for the gate, which this very thread holds: it must not wait for it.
        with poolless.connect().execution_options(isolation_level="AUTOCOMMIT") as reader:
            assert reader.scalar(COUNT) == 0
        connection.execute(INSERT)


def test_the_last_connection_closes_behind_the_gate(
    file: Path, engine: Engine, other_process: Gate
) -> None:
    with engine.begin() as connection:
        connection.execute(INSERT)
    log = file.with_name(file.name + "-wal")
    other_process.acquire()
    engine.dispose()
    assert log.exists(), "closed, and so checkpointed, while somebody else was inside"
    other_process.release()
    _join_all("edgeq-close")
    assert not log.exists()


def _threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name and thread.is_alive()]


def _wait_for_a(name: str) -> None:
    while not _threads(name):
        time.sleep(0.001)


def _join_all(name: str) -> None:
    for thread in _threads(name):
        thread.join(5)


def test_a_file_that_was_replaced_is_refused(file: Path, engine: Engine) -> None:
    with engine.connect():
        pass
    file.rename(file.with_name("elsewhere.db"))
    with pytest.raises(StoreMoved), engine.begin():
        pass


def test_attaching_twice_changes_nothing(engine: Engine, other_process: Gate) -> None:
    assert edgeq.attach(engine) is engine
    with engine.begin() as connection:
        connection.execute(INSERT)
    assert is_free(other_process)


def test_an_engine_with_open_connections_is_refused(file: Path) -> None:
    used = create_engine(f"sqlite:///{file}")
    used.connect().close()
    with pytest.raises(BadSetting, match="right after create_engine"):
        edgeq.attach(used)
    used.dispose()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:a.db?uri=true"])
def test_what_is_not_a_file_is_refused(url: str) -> None:
    engine = create_engine(make_url(url))
    with pytest.raises(BadSetting, match="on a file"):
        edgeq.attach(engine)
    engine.dispose()


def test_other_databases_are_refused() -> None:
    # No driver is needed as long as nothing connects.
    engine = create_engine("mysql+pymysql://host/app", module=sqlite3)
    with pytest.raises(BadSetting, match="mysql"):
        edgeq.attach(engine)


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="folder"):
        edgeq.attach(create_engine(f"sqlite:///{tmp_path}/missing/app.db"))


def test_a_connection_factory_of_the_applications_own_is_refused(file: Path) -> None:
    engine = create_engine(f"sqlite:///{file}", connect_args={"factory": sqlite3.Connection})
    edgeq.attach(engine)
    with pytest.raises(BadSetting, match="factory"):
        engine.connect()


def test_what_is_not_an_engine_is_refused() -> None:
    with pytest.raises(BadSetting, match="takes an Engine"):
        edgeq.attach("sqlite:///app.db")


def test_connections_made_by_a_function_of_its_own_are_refused(file: Path) -> None:
    engine = create_engine(f"sqlite:///{file}", creator=lambda: sqlite3.connect(file))
    edgeq.attach(engine)
    with pytest.raises(BadSetting, match="function of its own"):
        engine.connect()


async def test_an_async_engine_takes_the_same_way(
    async_engine: AsyncEngine, other_process: Gate
) -> None:
    async with async_engine.connect() as connection:
        await connection.execute(INSERT)
        assert not is_free(other_process)
        await connection.commit()
        assert is_free(other_process)
        assert await connection.scalar(COUNT) == 1
        await connection.rollback()
        assert is_free(other_process)
    assert edgeq.attach(async_engine) is async_engine
    memory = create_async_engine("sqlite+aiosqlite://")
    with pytest.raises(BadSetting, match="on a file"):
        edgeq.attach(memory)

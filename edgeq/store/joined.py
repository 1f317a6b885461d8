"""Carrying a command out within a transaction of the application."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from edgeq.errors import BadSetting
from edgeq.ports.commands import Command
from edgeq.store.attach import driver_connection_of, on_its_thread
from edgeq.store.gated import GatedConnection

T = TypeVar("T")


async def write_within(connection: object, gate: Path, command: Command[T], now: int) -> T:
    """For any of SQLAlchemy's connections and sessions, sync or async."""
    match connection:
        case AsyncSession() | async_scoped_session():
            return await _within_async(await connection.connection(), gate, command, now)
        case AsyncConnection():
            return await _within_async(connection, gate, command, now)
        case _:
            return write_within_blocking(connection, gate, command, now)


def write_within_blocking(connection: object, gate: Path, command: Command[T], now: int) -> T:
    """For a Connection or a Session, on the thread that uses it."""
    match connection:
        case Session() | scoped_session():
            joined = connection.connection()
        case Connection():
            joined = connection
        case AsyncSession() | async_scoped_session() | AsyncConnection():
            raise BadSetting(
                "An async connection belongs to an event loop. Use it with `await` and a Queue; "
                "a SyncQueue takes a Connection or a Session."
            )
        case _:
            raise BadSetting(
                f"connection= takes a Connection, Session, AsyncConnection or AsyncSession of "
                f"SQLAlchemy, got {type(connection).__name__}."
            )
    raw = _prepared(joined, gate)
    if not joined.in_transaction():
        joined.begin()
    return raw.carry_out(command, now)


async def _within_async(
    connection: AsyncConnection, gate: Path, command: Command[T], now: int
) -> T:
    joined = connection.sync_connection
    if joined is None:
        raise BadSetting("This AsyncConnection is not started: use it by `async with`.")
    raw = _prepared(joined, gate)
    if not joined.in_transaction():
        _ = await connection.begin()
    driver = joined.connection.driver_connection
    work = functools.partial(raw.carry_out, command, now)
    carried_out: asyncio.Future[T] = asyncio.ensure_future(on_its_thread(driver, work))
    try:
        return await asyncio.shield(carried_out)
    except asyncio.CancelledError:
        # It runs on the connection's thread: the caller's rollback has to come after it.
        await asyncio.wait([carried_out])
        raise


def _prepared(connection: Connection, gate: Path) -> GatedConnection:
    """The driver's connection, if a job may be added to its transaction."""
    raw = driver_connection_of(connection.connection.dbapi_connection)
    if not isinstance(raw, GatedConnection):
        raise BadSetting(
            "The engine of this connection is not prepared for the queue. Call "
            "edgeq.attach(engine) right after create_engine()."
        )
    if raw.gate.path != gate:
        raise BadSetting(
            f"This connection is on {raw.path}, and the queue is on {_file_of(gate)}: one "
            "transaction cannot span two files. Give both the same address."
        )
    if raw.is_autocommit:
        raise BadSetting(
            "This connection is in AUTOCOMMIT mode and has no transaction to join. Leave "
            'isolation_level="AUTOCOMMIT" out, or enqueue without connection=.'
        )
    return raw


def _file_of(gate: Path) -> Path:
    return gate.with_suffix("")

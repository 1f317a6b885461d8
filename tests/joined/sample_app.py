"""A shop in a few lines: an order and the job that ships it are one transaction."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from pathlib import Path
from typing import Any

from sqlalchemy import Column, MetaData, String, Table, create_engine, insert
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import edgeq
from edgeq import Context, Queue, SyncQueue, handler

metadata = MetaData()
orders = Table("orders", metadata, Column("id", String, primary_key=True))


@handler("ship")
async def ship(ctx: Context, input: dict[str, Any]) -> None:
    """Nobody runs it here."""


def sell(database: Path, how_many: int | None = None) -> None:
    engine = edgeq.attach(create_engine(f"sqlite:///{database}"))
    with SyncQueue(f"sqlite:///{database}", handlers=[ship]):
        metadata.create_all(engine)
        for _ in itertools.repeat(None) if how_many is None else range(how_many):
            order = uuid.uuid4().hex
            with Session(engine) as session, session.begin():
                session.execute(insert(orders).values(id=order))
                ship.with_options(connection=session).enqueue_blocking({"order": order})
        engine.dispose()


async def sell_async(database: Path, how_many: int | None = None) -> None:
    engine = edgeq.attach(create_async_engine(f"sqlite+aiosqlite:///{database}"))
    async with Queue(f"sqlite:///{database}", handlers=[ship]):
        async with engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
        for _ in itertools.repeat(None) if how_many is None else range(how_many):
            order = uuid.uuid4().hex
            async with AsyncSession(engine) as session, session.begin():
                await ship.with_options(connection=session).enqueue({"order": order})
                await session.execute(insert(orders).values(id=order))
        await engine.dispose()


def sell_in_a_loop(database: Path, how_many: int | None = None) -> None:
    asyncio.run(sell_async(database, how_many))

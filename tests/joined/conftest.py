"""A queue and an application's engines on one file."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import edgeq
from edgeq import Context, Queue, handler
from edgeq.settings import Settings
from edgeq.store.gate import Gate

SETTINGS = Settings(synchronous="normal", busy_timeout=5.0)


@handler("note")
async def note(ctx: Context, input: dict[str, Any]) -> None:
    """Does nothing."""


@handler("rare", max_pending=1)
async def rare(ctx: Context, input: dict[str, Any]) -> None:
    """May wait only once."""


@handler("some", max_pending=1_100)
async def some(ctx: Context, input: dict[str, Any]) -> None:
    """May wait more often than one commit has room for."""


@pytest.fixture
def file(tmp_path: Path, migrated_file: Path) -> Path:
    path = tmp_path / "app.db"
    shutil.copy(migrated_file, path)
    return path


@pytest.fixture
async def queue(file: Path) -> AsyncIterator[Queue]:
    async with Queue(f"sqlite:///{file}", handlers=[note, rare, some], settings=SETTINGS) as queue:
        yield queue


@pytest.fixture
def engine(file: Path) -> Iterator[Engine]:
    engine = edgeq.attach(create_engine(f"sqlite:///{file}"), settings=SETTINGS)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS orders (number INTEGER)"))
    yield engine
    engine.dispose()


@pytest.fixture
async def async_engine(file: Path, engine: Engine) -> AsyncIterator[AsyncEngine]:
    """Beside the other one, which has made the table."""
    attached = edgeq.attach(create_async_engine(f"sqlite+aiosqlite:///{file}"), settings=SETTINGS)
    yield attached
    await attached.dispose()


@pytest.fixture
def other_process(file: Path) -> Iterator[Gate]:
    """A gate as another process has it: what it holds, nobody here can pass."""
    gate = Gate(file)
    yield gate
    gate.close()

"""What all tests share: a clock that stands still, a store of its own for each, and builders."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import pytest

from edgeq.core.ids import request_hash, unique_key, uuid7
from edgeq.core.job_types import TypePolicy
from edgeq.core.jobs import NewJob
from edgeq.ports.clock import Clock
from edgeq.ports.commands import Registered, RegisterTypes
from edgeq.ports.store import Store
from edgeq.store.sqlite import SqliteStore
from edgeq.testing import FakeChance, FakeClock

_CHANCE = FakeChance()


class Backend(Protocol):
    """A database that a store can be on; beside the store, it can be asked and set in SQL."""

    def store(self, clock: Clock) -> Store: ...

    def sql(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]: ...


class SqliteBackend:
    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._path: Path = request.getfixturevalue("tmp_path") / "queue.db"
        # Migrating takes a hundred times as long as opening, and test_schema.py looks at it.
        shutil.copy(request.getfixturevalue("migrated_file"), self._path)

    def store(self, clock: Clock) -> Store:
        return SqliteStore(f"sqlite:///{self._path}", clock, durable=False)

    def sql(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            return connection.execute(statement, parameters).fetchall()


# The conformance suite runs on each of these.
BACKENDS: dict[str, Callable[[pytest.FixtureRequest], Backend]] = {"sqlite": SqliteBackend}


class JobBuilder(Protocol):
    def __call__(self, type: str = "noop", **fields: Any) -> NewJob: ...  # noqa: A002


class Register(Protocol):
    async def __call__(self, store: Store, *policies: TypePolicy | str) -> Registered: ...


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty queue, closed: to be copied."""
    store = SqliteStore(f"sqlite:///{tmp_path_factory.mktemp('migrated')}/queue.db", FakeClock())
    store.open_blocking()
    store.close_blocking()
    return store.path


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param](request)


@pytest.fixture
async def store(backend: Backend, clock: FakeClock) -> AsyncIterator[Store]:
    store = backend.store(clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def new_job(clock: FakeClock) -> JobBuilder:
    """Builds a job that is due now; a key brings its unique key and request hash with it."""

    def build(type: str = "noop", **fields: Any) -> NewJob:  # noqa: A002
        now = fields.setdefault("created_at", clock.now())
        fields.setdefault("id", uuid7(now, _CHANCE.bits(74)))
        fields.setdefault("scheduled_for", now)
        if key := fields.get("idempotency_key"):
            fields.setdefault("unique_key", unique_key(fields.get("tenant_id"), type, key))
            fields.setdefault("request_hash", request_hash(fields.get("input_data") or "null"))
        return NewJob(type=type, **fields)

    return build


@pytest.fixture
def registered() -> Register:
    """Registers types, given whole or by name."""

    async def register(store: Store, *policies: TypePolicy | str) -> Registered:
        whole = [TypePolicy(name=p, handler_name=p) if isinstance(p, str) else p for p in policies]
        return await store.write(RegisterTypes(tuple(whole)))

    return register


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In CI a test that was skipped was not run, and that is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    was_skipped = reporter is not None and reporter.stats.get("skipped")
    if os.environ.get("CI") == "true" and exitstatus == pytest.ExitCode.OK and was_skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED

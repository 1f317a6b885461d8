"""Preparing an application's own SQLAlchemy engine for the queue's file."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine, PoolProxiedConnection, QueuePool, event
from sqlalchemy.engine.interfaces import AdaptedConnection
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import await_

from edgeq.errors import BadSetting, StoreClosed
from edgeq.store.gate import PATIENCE_SECONDS
from edgeq.store.gated import GatedConnection
from edgeq.store.inside import refuse_inside, remember
from edgeq.store.sqlite_file import MEMORY

AnyEngine = TypeVar("AnyEngine")
_DRIVERS = ("pysqlite", "aiosqlite")


def attach(
    engine: AnyEngine, *, patience: float = PATIENCE_SECONDS, durable: bool = True
) -> AnyEngine:
    """Every connection of the engine is prepared, and every transaction goes through the gate."""
    sync = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
    if not isinstance(sync, Engine):
        raise BadSetting(
            f"edgeq.attach() takes an Engine or an AsyncEngine of SQLAlchemy, got {engine!r}."
        )
    _refuse_other_databases(sync)
    dialect = sync.dialect
    if isinstance(dialect.do_begin, _Begin):
        return engine
    _refuse_open_connections(sync)
    factory = functools.partial(GatedConnection, durable=durable)
    event.listen(sync, "do_connect", functools.partial(_connect_gated, factory))
    event.listen(sync, "connect", _refuse_unprepared)
    event.listen(sync, "checkin", _let_go)
    # Not by the "begin" event: SQLAlchemy takes a connection whose listener has raised for one
    # that is still beginning, and runs its next statements without a transaction.
    dialect.do_begin = _Begin(patience)  # type: ignore[method-assign]
    return engine


class _Begin:
    """What `do_begin` of an attached dialect is: the gate, then BEGIN IMMEDIATE."""

    def __init__(self, patience: float) -> None:
        self._patience = patience

    def __call__(self, dbapi_connection: PoolProxiedConnection) -> None:
        adapted: Any = dbapi_connection.dbapi_connection
        raw = driver_connection_of(adapted)
        if not isinstance(raw, GatedConnection):
            _refuse_unprepared(adapted)
        elif not raw.is_autocommit:
            _refuse_to_begin(raw)
            if isinstance(adapted, AdaptedConnection):
                self._begin_beside_loop(adapted, raw)
            else:
                raw.gate.acquire_within(self._patience)
                remember(raw.enter())
                raw.begin()

    def _begin_beside_loop(self, adapted: AdaptedConnection, raw: GatedConnection) -> None:
        # Whoever holds the gate may be another task of this loop, which must be able to go on.
        await_(raw.gate.acquire_beside_loop(self._patience))
        # From here on whatever ends the connection lets go: a cancelled task has it closed.
        remember(raw.enter())
        adapted.run_async(lambda driver: on_its_thread(driver, raw.begin))


def _refuse_to_begin(raw: GatedConnection) -> None:
    if raw.is_inherited:
        raise StoreClosed(
            "This connection was opened before a fork, by the parent process. Call "
            "engine.dispose(close=False) in the child before it uses the engine."
        )
    refuse_inside(
        raw.gate.path, "End it first, or use its connection for this too; SQLite has one writer."
    )


def driver_connection_of(adapted: Any) -> Any:
    """The driver's own connection below SQLAlchemy's, and below aiosqlite's."""
    if not isinstance(adapted, AdaptedConnection):
        return adapted
    return adapted.driver_connection._conn  # noqa: SLF001 - aiosqlite keeps it nowhere else


def on_its_thread(driver: Any, work: Any) -> Any:
    """Awaitable: a call on the thread of an aiosqlite connection, in one hop."""
    return driver._execute(work)  # noqa: SLF001 - its public methods run SQL only


def _connect_gated(
    factory: Any, _dialect: object, _record: object, _arguments: object, given: dict[str, Any]
) -> None:
    if given.get("factory") is not None:
        raise BadSetting(
            "This engine has a connection factory of its own (connect_args), and edgeq.attach() "
            "needs that place. Leave it out of create_engine()."
        )
    given["factory"] = factory


def _refuse_unprepared(adapted: Any, _record: object = None) -> None:
    if not isinstance(driver_connection_of(adapted), GatedConnection):
        raise BadSetting(
            "This engine makes its connections by a function of its own, so edgeq.attach() cannot "
            "prepare them. Make the engine by create_engine() with the address of the file."
        )


def _let_go(adapted: Any, _record: object) -> None:
    """A connection that goes back to its pool keeps nothing, whatever the pool resets."""
    if isinstance(adapted, GatedConnection):
        adapted.rollback()


def _refuse_other_databases(engine: Engine) -> None:
    url, dialect = engine.url, engine.dialect
    if dialect.name != "sqlite" or dialect.driver not in _DRIVERS:
        raise BadSetting(
            f"edgeq.attach() is for engines on the queue's SQLite file, sqlite:/// or "
            f"sqlite+aiosqlite:///; this one is {dialect.name}+{dialect.driver}."
        )
    name = url.database or MEMORY
    if name == MEMORY or name.startswith("file:") or "mode" in url.query:
        raise BadSetting(
            "edgeq.attach() needs an engine on a file, by its path: this one is in memory or "
            "names its file by a URI. Use sqlite:///app.db, the same file as the queue's."
        )
    if not Path(name).absolute().parent.is_dir():
        raise BadSetting(f"The folder of {name} does not exist. Make it before edgeq.attach().")


def _refuse_open_connections(engine: Engine) -> None:
    pool = engine.pool
    if isinstance(pool, QueuePool) and pool.checkedin() + pool.checkedout() > 0:
        raise BadSetting(
            "This engine has connections already, which edgeq.attach() did not prepare. Attach it "
            "right after create_engine(), before its first use."
        )

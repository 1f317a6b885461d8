"""The composition root: the only place that names concrete clocks, chance and stores."""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Sequence
from typing import TypeVar

from edgeq.errors import BadSetting
from edgeq.events import Observer
from edgeq.ports.clock import Chance, Clock
from edgeq.ports.store import Store
from edgeq.queue import JobQueue
from edgeq.registry import HandlerSource, load
from edgeq.settings import Settings, from_environment
from edgeq.store.sqlite import SqliteStore

AnyEngine = TypeVar("AnyEngine")


class SystemClock:
    """The machine's own clocks."""

    # CLOCK_BOOTTIME also counts while the machine sleeps; where there is none, the next best.
    _source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed(self) -> float:
        return time.clock_gettime(self._source)


class SystemChance:
    def unit(self) -> float:
        return random.random()  # noqa: S311 - it spreads retries, it guards nothing

    def bits(self, count: int) -> int:
        return secrets.randbits(count)


class Queue(JobQueue):
    """A job queue in one file.

    `database` is an address such as `sqlite:///edgeq.db`; `handlers` is a folder, a module or a
    list of handlers. A store of your own goes in as `store`.
    """

    def __init__(
        self,
        database: str | None = None,
        *,
        handlers: HandlerSource = None,
        store: Store | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
        observers: Sequence[Observer] = (),
        settings: Settings | None = None,
    ) -> None:
        settings = from_environment(os.environ) if settings is None else settings
        clock = SystemClock() if clock is None else clock
        super().__init__(
            open_store(database or settings.database_url, clock, settings)
            if store is None
            else store,
            load(handlers),
            clock=clock,
            chance=SystemChance() if chance is None else chance,
            observers=observers,
            secrets=settings.secrets,
            worker_name=settings.worker_name,
        )


def open_store(url: str, clock: Clock, settings: Settings) -> Store:
    """The store for an address; it is opened by whoever uses it."""
    if url.startswith(("postgresql://", "postgres://")):
        raise BadSetting("This edgeq has no PostgreSQL store yet. Use sqlite:///edgeq.db.")
    return SqliteStore(url, clock, durable=settings.is_durable, patience=settings.busy_timeout)


def attach(engine: AnyEngine, *, settings: Settings | None = None) -> AnyEngine:
    """Prepare an SQLAlchemy engine, sync or async, to share the queue's file.

    Call it right after `create_engine`. Every transaction of the engine is then a write
    transaction that waits its turn with the queue's own, and `enqueue(..., connection=...)`
    can join it. Answers with the same engine.
    """
    # Imported on first use: a queue works without it.
    from edgeq.store import attach as attaching

    settings = from_environment(os.environ) if settings is None else settings
    return attaching.attach(engine, patience=settings.busy_timeout, durable=settings.is_durable)

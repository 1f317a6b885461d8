"""What the methods of a queue stand on."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from edgeq.core.ids import IdSequence
from edgeq.events import Event, Observer, log_observer, moves_are_logged
from edgeq.ports.clock import Chance, Clock
from edgeq.ports.commands import RegisterTypes
from edgeq.ports.store import Store
from edgeq.queue.type_directory import TypeDirectory
from edgeq.registry import Registry


class Parts:
    """A store, handlers, time and chance, opened and closed together."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        clock: Clock,
        chance: Chance,
        observers: Sequence[Observer] = (),
        secrets: str = "refuse",
        worker_name: str = "",
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._chance = chance
        self._observers = (log_observer, *observers)
        self._worker_name = worker_name
        self._ids = IdSequence(threading.Lock())
        self._types = TypeDirectory(store, registry, clock.elapsed, secrets)
        self._initial_config: dict[str, object] = {}

    @property
    def store(self) -> Store:
        return self._store

    @property
    def registry(self) -> Registry:
        return self._registry

    async def open(self) -> None:
        """Open the database, create or migrate it if needed, and register the handlers."""
        policies = self._registry.policies()
        await self._store.open()
        try:
            registered = await self._store.write(
                RegisterTypes(policies, self._registry.source, self._registry.fingerprint)
            )
        except BaseException:
            await self._store.close()
            raise
        self._types.learn(registered.types)
        self._initial_config = dict(registered.config)

    async def close(self) -> None:
        await self._store.close()

    def _has_listeners(self) -> bool:
        """Whether an ordinary move would be noticed, beyond a log that is switched off."""
        return len(self._observers) > 1 or moves_are_logged()

    def _announce(self, event: Event) -> None:
        for observe in self._observers:
            observe(event)

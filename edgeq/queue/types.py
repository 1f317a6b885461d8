"""Job types, the worker's configuration, and how the queue is doing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from edgeq.core.config_keys import check_changes
from edgeq.core.job_types import OPERATOR_FIELDS, JobType, TypePolicy
from edgeq.core.json_text import located
from edgeq.errors import InvalidInput, UnknownType
from edgeq.ports.commands import Actor, ChangeType, CreateType, SetConfig
from edgeq.ports.queries import (
    PAGE,
    GetConfig,
    GetStats,
    ListRuns,
    ListTypes,
    RunRow,
    Stats,
)
from edgeq.queue.flows import Flows
from edgeq.queue.jobs import page_size


class Types(Flows):
    """The methods about types, configuration, runs and statistics."""

    async def types(self) -> tuple[JobType, ...]:
        return await self._store.read(ListTypes())

    async def type(self, name: str) -> JobType:
        found = {each.name: each for each in await self.types()}
        if name not in found:
            raise UnknownType(name, found)
        return found[name]

    async def create_type(self, /, name: str, *, actor: str = "library", **fields: Any) -> JobType:
        """Add a type by hand, before or without its handler."""
        try:
            policy = msgspec.convert({"name": name, "handler_name": name, **fields}, TypePolicy)
        except msgspec.ValidationError as wrong:
            raise InvalidInput.at(*located(str(wrong))) from wrong
        unknown = set(fields) - OPERATOR_FIELDS - {"handler_name"}
        if unknown:
            raise InvalidInput.at(sorted(unknown)[0], "is not a field of a job type")
        return self._learned(await self._store.write(CreateType(policy, Actor(actor))))

    async def change_type(
        self,
        /,
        name: str,
        *,
        unset: Iterable[str] = (),
        reason: str | None = None,
        actor: str = "library",
        **changes: Any,
    ) -> JobType:
        """Set fields of a type; they win over its handler's declaration until they are unset."""
        return await self._changed(name, actor, reason, changes=changes, unset=frozenset(unset))

    async def pause_type(
        self, name: str, *, reason: str | None = None, actor: str = "library"
    ) -> JobType:
        """Accept jobs of a type, but start none."""
        return await self._changed(name, actor, reason, is_paused=True)

    async def resume_type(
        self, name: str, *, reason: str | None = None, actor: str = "library"
    ) -> JobType:
        return await self._changed(name, actor, reason, is_paused=False)

    async def disable_type(
        self, name: str, *, reason: str | None = None, actor: str = "library"
    ) -> JobType:
        """Refuse new jobs of a type, and start none."""
        return await self._changed(name, actor, reason, is_enabled=False)

    async def enable_type(
        self, name: str, *, reason: str | None = None, actor: str = "library"
    ) -> JobType:
        return await self._changed(name, actor, reason, is_enabled=True)

    async def config(self) -> Mapping[str, object]:
        return await self._store.read(GetConfig())

    async def set_config(
        self, changes: Mapping[str, object], *, reason: str | None = None, actor: str = "library"
    ) -> Mapping[str, object]:
        """Merge keys into the worker's configuration; None removes one."""
        check_changes(changes)
        return await self._store.write(SetConfig(changes, Actor(actor, reason)))

    async def runs(self, *, limit: int = PAGE) -> tuple[RunRow, ...]:
        """The newest runs first; idle ticks share one row."""
        return await self._store.read(ListRuns(page_size(limit)))

    async def stats(self) -> Stats:
        """Counts by type and state, exact up to 10,000, and how long jobs take."""
        return await self._store.read(GetStats())

    async def _changed(self, name: str, actor: str, reason: str | None, **fields: Any) -> JobType:
        command = ChangeType(name, Actor(actor, reason), **fields)
        return self._learned(await self._store.write(command))

    def _learned(self, job_type: JobType) -> JobType:
        """What this queue has just changed, it must not remember otherwise."""
        self._types.forget()
        return job_type

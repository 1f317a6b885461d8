"""Waiting until nothing runs any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from edgeq.errors import BadSetting, UnknownType
from edgeq.ports.queries import ListRunning, RunningJob
from edgeq.queue.types import Types

LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class DrainLook:
    """What a drain saw: what runs, and whether nobody keeps workers from claiming more of it."""

    running: tuple[RunningJob, ...]
    claims_go_on: bool


class Draining(Types):
    """The method that waits for running work."""

    async def drain(
        self,
        types: Iterable[str] | None = None,
        timeout: float | None = None,
        *,
        told: Callable[[DrainLook], None] | None = None,
    ) -> tuple[RunningJob, ...]:
        """Wait until nothing of these types is processing, and answer with what still is.

        The answer is empty unless `timeout`, in seconds, has passed. Claims are not stopped by
        this: pause the types or set `worker_enabled` to false first.
        """
        if timeout is not None and not timeout >= 0:
            raise BadSetting(f"timeout must be seconds, at least 0, or None; got {timeout!r}.")
        wanted = await self._wanted(types)
        began, deadline = self._store.now(), self._deadline(timeout)
        while True:
            running = await self._store.read(ListRunning(wanted))
            if told is not None:
                told(DrainLook(running, await self._claims_go_on(running, began)))
            seconds_left = deadline - self._clock.elapsed()
            if not running or seconds_left <= 0:
                return running
            await self._until_something_changed(seconds_left)

    async def _wanted(self, types: Iterable[str] | None) -> frozenset[str] | None:
        if types is None:
            return None
        wanted = frozenset(types)
        known = {each.name for each in await self.types()}
        for name in sorted(wanted - known):
            raise UnknownType(name, known)
        return wanted

    def _deadline(self, timeout: float | None) -> float:
        return float("inf") if timeout is None else self._clock.elapsed() + timeout

    async def _claims_go_on(self, running: Iterable[RunningJob], began: int) -> bool:
        newly_claimed = {job.type for job in running if job.locked_at > began}
        if not newly_claimed or (await self.config()).get("worker_enabled") is False:
            return False
        claimable = {each.name for each in await self.types() if each.is_claimable}
        return bool(newly_claimed & claimable)

    async def _until_something_changed(self, at_most: float) -> None:
        """A look now and then is cheap, and the end of a drain is not urgent."""
        await asyncio.sleep(min(LOOK_SECONDS, at_most))

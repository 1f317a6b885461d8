"""The queue: everything that can be done with it, in one object."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Self

from edgeq.core.runs import RunLimits, RunReport
from edgeq.errors import BadSetting
from edgeq.queue.draining import Draining
from edgeq.run import Run
from edgeq.surroundings import Isolate, LastChance, Surroundings

_FROM_CONFIG = ("budget", "grace", "concurrency", "fast_slots", "lane_slots")


class JobQueue(Draining):
    """Use it as `async with`: it is open inside."""

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self._at_work: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def process_jobs(
        self,
        budget: float | None = None,
        grace: float | None = None,
        concurrency: int | None = None,
        fast_slots: int | None = None,
        types: Iterable[str] | None = None,
        lanes: Iterable[str] | None = None,
        max_jobs: int | None = None,
        lane_slots: Mapping[str, int] | None = None,
    ) -> RunReport:
        """Run what is due, under a time budget in seconds, and report.

        What is not given follows `process.*` of the worker's configuration, then the defaults.
        """
        limits = self.limits(
            budget=budget,
            grace=grace,
            concurrency=concurrency,
            fast_slots=fast_slots,
            types=types,
            lanes=lanes,
            max_jobs=max_jobs,
            lane_slots=lane_slots,
        )
        return await self._carry_out(self.new_run(limits))

    async def work(
        self,
        *,
        grace: float | None = None,
        concurrency: int | None = None,
        fast_slots: int | None = None,
        types: Iterable[str] | None = None,
        lanes: Iterable[str] | None = None,
        lane_slots: Mapping[str, int] | None = None,
    ) -> RunReport:
        """Be a worker: run jobs as soon as they are due, until this is cancelled.

        Cancelled, it interrupts what runs and puts it back; `edgeq worker` stops more gently.
        """
        limits = self.limits(
            resident=True,
            grace=grace,
            concurrency=concurrency,
            fast_slots=fast_slots,
            types=types,
            lanes=lanes,
            lane_slots=lane_slots,
        )
        return await self._carry_out(self.new_run(limits))

    async def _carry_out(self, run: Run) -> RunReport:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine of asyncio runs in one
        self._at_work.add(task)
        try:
            return await run.process()
        finally:
            self._at_work.discard(task)

    async def close(self) -> None:
        """End the runs of this queue, which put back what they hold, and close it."""
        others = self._at_work - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)
        await super().close()

    def limits(self, *, resident: bool = False, **given: Any) -> RunLimits:
        """The limits of a run: what is given, then what is configured, then the defaults.

        A resident one, a worker's, has no budget.
        """
        configured = {
            name: self._initial_config[f"process.{name}"]
            for name in _FROM_CONFIG
            if f"process.{name}" in self._initial_config
        }
        wanted: dict[str, Any] = configured | {
            name: value for name, value in given.items() if value is not None
        }
        for name in ("types", "lanes"):
            if name in wanted:
                wanted[name] = frozenset(wanted[name])
        unknown = wanted.get("types", frozenset()) - set(self._types.names())
        if unknown:
            raise BadSetting(
                f"No job type {sorted(unknown)[0]!r} is registered; these are: "
                f"{', '.join(sorted(self._types.names())) or 'none'}."
            )
        return RunLimits(**wanted | ({"is_resident": True, "budget": inf} if resident else {}))

    def new_run(
        self,
        limits: RunLimits,
        *,
        began: float | None = None,
        ends_process: bool = False,
        isolate: Isolate | None = None,
        last_chance: LastChance | None = None,
    ) -> Run:
        """A run that has not begun; commands use it to stop it by signals and to watch it."""
        around = Surroundings(
            store=self._store,
            registry=self._registry,
            clock=self._clock,
            chance=self._chance,
            announce=self._announce,
            has_listeners=self._has_listeners,
            prepare_child=self.prepare,
            new_id=lambda: self._ids.next(self._clock.now(), self._chance.bits(74))[0],
            worker_name=self._worker_name,
            isolate=isolate,
        )
        start = self._clock.elapsed() if began is None else began
        return Run(around, limits, began=start, ends_process=ends_process, last_chance=last_chance)

"""A run: one `process_jobs` or one life of a worker, from its record to its report."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

import msgspec

from edgeq.core.runs import RunLimits, RunReport, Stop
from edgeq.errors import StoreError
from edgeq.events import RunEnded, RunStarted
from edgeq.perseverance import to_the_end
from edgeq.ports.commands import FinishRun, ReleaseRun, RunStart, StartRun
from edgeq.processing import Shift
from edgeq.residence import ResidentShift
from edgeq.surroundings import LastChance, Surroundings
from edgeq.tally import RunTally

_CLOSING_SECONDS = 2.0


class Run:
    """One invocation of `process_jobs`, or one life of a worker; `tally` can be watched."""

    def __init__(
        self,
        around: Surroundings,
        limits: RunLimits,
        *,
        began: float,
        ends_process: bool = False,
        last_chance: LastChance | None = None,
    ) -> None:
        self.id = around.new_id() if last_chance is None else last_chance.run_id
        self._last_chance = last_chance
        self.limits = limits
        self.tally = RunTally()
        self._around = around
        self._began = began
        # A command ends its process after the run, and what does not stop ends with it.
        self._ends_process = ends_process
        self._is_asked_to_stop = False
        self._shift: Shift | None = None
        self._stopped: Stop | None = None
        self._handled: tuple[str, ...] = ()

    async def process(self) -> RunReport:
        """Do what is due, then record and report what was done."""
        start = await self._start()
        self._around.announce(RunStarted(self.id))
        handlers = self._around.registry.handlers
        self._handled = tuple(t.name for t in start.types if t.policy.handler_name in handlers)
        if start.is_enabled or self.limits.is_resident:
            await self._work_or_say_so(start)
        else:
            self._stopped = Stop.DISABLED
        return await self._finish()

    async def _start(self) -> RunStart:
        limits = msgspec.json.encode(self.limits).decode()
        start = StartRun(self.id, self._kind(), self._around.worker_name, limits)
        try:
            return await self._around.store.write(start)
        except asyncio.CancelledError:
            # It may be stored all the same, if that had begun.
            await to_the_end(self._close())
            raise

    async def _work_or_say_so(self, start: RunStart) -> None:
        try:
            await self._work(start)
        except BaseException:
            # Cancelled, or failed: its record must not look like that of a dead process.
            await to_the_end(self._close())
            raise

    async def _close(self) -> None:
        """A record without an end is a small harm: it is not worth a long wait."""
        self._is_asked_to_stop = True
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self._around.store.write(self.closing())

    async def _work(self, start: RunStart) -> None:
        lifespan = self._around.registry.lifespan
        async with AsyncExitStack() as stack:
            state = None if lifespan is None else await stack.enter_async_context(lifespan())
            make = ResidentShift if self.limits.is_resident else Shift
            self._shift = make(
                self.id,
                self._around,
                self.limits,
                start,
                self.tally,
                began=self._began,
                state=state,
                last_chance=self._last_chance,
            )
            if self._is_asked_to_stop:
                self._shift.stop()
            await self._shift.work()

    def _kind(self) -> str:
        if self._last_chance is not None:
            return "isolated"
        return "worker" if self.limits.is_resident else "process"

    def stop(self) -> None:
        """A signal came: claim no more, finish within the grace, put the rest back."""
        self.hear_signal()
        if self._shift is not None:
            self._shift.stop()

    def hear_signal(self) -> None:
        """Remember that one came, even if a handler keeps the event loop from acting on it."""
        self._is_asked_to_stop = True

    def claim_no_more(self) -> None:
        """The process is about to end, whatever the event loop is doing; on any thread."""
        if self._shift is not None and self._shift.stopped is None:
            is_signal = self._is_asked_to_stop or self.limits.is_resident
            self._shift.stopped = Stop.SIGNAL if is_signal else Stop.BUDGET

    async def _finish(self) -> RunReport:
        store = self._around.store
        put_back = None
        if self.has_leftovers() and self._ends_process:
            put_back = await store.write(self.releasing())
        report = await to_the_end(store.write(self.closing(put_back)))
        self._around.announce(RunEnded(self.id, report.stopped, report.claimed, report.duration_ms))
        return report

    def releasing(self) -> ReleaseRun:
        """Puts back what the run still holds, when its process is about to end."""
        # A worker has no budget: if nobody asked it to stop, one of its jobs got it stuck.
        by_budget = not self._is_asked_to_stop and not self.limits.is_resident
        if self._shift is None:
            return ReleaseRun(self.id, by_budget)
        begun, overdue = self._shift.begun(), self._shift.overdue()
        return ReleaseRun(self.id, by_budget, begun=begun, overdue=overdue)

    def closing(self, put_back: int | None = None) -> FinishRun:
        """The last word of the run; the watchdog says it when the event loop no longer can."""
        shift = self._shift
        took_ms = round((self._around.clock.elapsed() - self._began) * 1000)
        stopped = self._stopped or (shift.stopped if shift is not None else None)
        if stopped is None:
            stopped = Stop.SIGNAL if self._is_asked_to_stop else Stop.BUDGET
        return FinishRun(
            self.id,
            self.tally.report(
                self.id,
                stopped,
                took_ms,
                put_back=put_back,
                completed_unheard=0 if shift is None else shift.completed_unheard(),
            ),
            handled=self._handled,
            deferred=() if shift is None else tuple(shift.planner.deferred),
            durations=self.tally.durations(),
        )

    def stuck_since(self) -> float | None:
        """Since when a handler has kept the event loop beyond its timeout; for the watchdog."""
        return None if self._shift is None else self._shift.stuck_since()

    def has_leftovers(self) -> bool:
        """Whether code of handlers still runs that could not be stopped."""
        return self._shift is not None and self._shift.has_leftovers()

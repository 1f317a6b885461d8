"""Jobs that were lost with a process run in processes of their own, beside the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from edgeq.claim_plan import CHILD_START_SECONDS, ClaimPlanner
from edgeq.core.runs import RunReport
from edgeq.errors import StoreError
from edgeq.ports.commands import LoseRun
from edgeq.run_news import RunNews
from edgeq.surroundings import ChildDied, ChildRefused, Isolate, LastChance, Surroundings
from edgeq.tally import RunTally

# A child that found nothing would find nothing again at once.
_HOLD_OFF_SECONDS = 10.0
# By then a child has claimed, and whether another is needed can be told.
_NEXT_CHILD_SECONDS = 2.0
_LONGEST_SECONDS = 86_400.0


class IsolationWard:
    """Starts children for suspects, hears what became of them, and takes back from the dead."""

    def __init__(
        self,
        around: Surroundings,
        planner: ClaimPlanner,
        tally: RunTally,
        news: RunNews,
        *,
        at_most: int,
        budget_ends: float,
        left: Callable[[], None],
    ) -> None:
        self._around = around
        self._planner = planner
        self._tally = tally
        self._news = news
        self._at_most = at_most
        self._budget_ends = budget_ends
        self._left = left
        self._children: set[asyncio.Task[None]] = set()
        self._not_before = 0.0

    def __bool__(self) -> bool:
        return bool(self._children)

    def admit(self) -> None:
        """Start a child if a job waits for one and there is room and time."""
        now = self._around.clock.elapsed()
        isolate, from_losses = self._around.isolate, self._planner.isolates_from
        if isolate is None or from_losses is None:
            return
        if not self._planner.last_chance_is_due:
            # Nobody waits, so nothing of what the last child has seen is true of the next job.
            self._not_before = 0.0
            return
        if now < self._not_before:
            return
        seconds = min(self._budget_ends - now - CHILD_START_SECONDS, _LONGEST_SECONDS)
        if seconds < CHILD_START_SECONDS or len(self._children) >= self._at_most:
            return
        self._not_before = now + _NEXT_CHILD_SECONDS
        child = asyncio.get_running_loop().create_task(
            self._treat(isolate, LastChance(self._around.new_id(), from_losses), seconds)
        )
        self._children.add(child)
        child.add_done_callback(self._discharged)

    def next_admission(self) -> float | None:
        """When to look again whether a job waits that could not be admitted now."""
        is_full = len(self._children) >= self._at_most
        is_later = self._not_before > self._around.clock.elapsed()
        waits = self._planner.last_chance_is_due and self._planner.isolates_from is not None
        return self._not_before if waits and is_later and not is_full else None

    async def end(self) -> None:
        """The run was cancelled: no child may outlive it."""
        for child in self._children:
            child.cancel()
        if self._children:
            await asyncio.wait(self._children)

    def _discharged(self, child: asyncio.Task[None]) -> None:
        self._children.discard(child)
        if not child.cancelled() and child.exception() is not None:
            self._hold_off()
        self._left()

    async def _treat(self, isolate: Isolate, last_chance: LastChance, seconds: float) -> None:
        match await isolate(last_chance, seconds):
            case RunReport() as report:
                self._tally.add(report)
                if report.claimed == 0:
                    self._hold_off()
            case ChildDied():
                await self._take_back(last_chance.run_id)
            case ChildRefused():
                # Whatever it held comes back when its lock expires, and hardly counts.
                self._hold_off()

    async def _take_back(self, run_id: str) -> None:
        # If the database cannot be had, the lock of the dead child expires by itself.
        with suppress(StoreError):
            lost = await self._around.store.write(LoseRun(run_id))
            self._news.moved(lost)
            for each in lost:
                self._tally.lost_with_its_process(each.after)
            if lost:
                return
        self._hold_off()

    def _hold_off(self) -> None:
        self._not_before = self._around.clock.elapsed() + _HOLD_OFF_SECONDS

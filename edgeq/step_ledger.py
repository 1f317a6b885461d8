"""Keeping the steps of a run's attempts: in the store, under their fences, and timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgeq.core.durations import Histogram
from edgeq.core.jobs import ClaimedJob
from edgeq.core.runs import RunLimits
from edgeq.core.steps import Step, step_fits, step_seconds
from edgeq.ports.flow_commands import LookUpSteps, NewStep, RecordStep, RunInTransaction
from edgeq.surroundings import Surroundings
from edgeq.tally import RunTally


class RunLedger:
    """The ledger of one run."""

    def __init__(
        self,
        run_id: str,
        around: Surroundings,
        limits: RunLimits,
        tally: RunTally,
        known: Mapping[tuple[str, str], Histogram],
    ) -> None:
        self.run_id = run_id
        self.budget = limits.budget
        self._store = around.store
        self._tally = tally
        self._elapsed = around.clock.elapsed
        self._known = known

    def learn(self, durations: Mapping[tuple[str, str], Histogram]) -> None:
        self._known = durations

    def now(self) -> int:
        return self._store.now()

    async def load(self, job: ClaimedJob) -> tuple[Step, ...]:
        return await self._store.write(LookUpSteps(job.id))

    async def record(self, step: NewStep) -> None:
        await self._store.write(RecordStep(step))

    async def transact(self, step: NewStep, work: Callable[[Any], str]) -> str:
        answer = await self._store.write(RunInTransaction(step, work, self._elapsed))
        return answer if answer is not None else "null"

    def took(self, type_name: str, step: str, seconds: float) -> None:
        self._tally.took(type_name, seconds, step)

    def needed(self, type_name: str) -> dict[str, float]:
        return {
            step: seconds
            for name, step in self._known
            if name == type_name
            and (seconds := step_seconds(self._durations(name, step))) is not None
        }

    def fits(self, type_name: str, step: str, seconds_left: float) -> bool:
        seconds = step_seconds(self._durations(type_name, step))
        return step_fits(seconds, budget=self.budget, seconds_left=seconds_left)

    def _durations(self, type_name: str, step: str) -> Histogram:
        known = self._known.get((type_name, step), Histogram.EMPTY)
        return known.merge(self._tally.durations_of(type_name, step))

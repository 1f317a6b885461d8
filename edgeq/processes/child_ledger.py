"""Steps of an attempt in a warm child: the parent keeps them, under the fence that it holds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from edgeq.core.jobs import ClaimedJob
from edgeq.core.steps import Step, step_fits
from edgeq.errors import StepRefused
from edgeq.ports.flow_commands import NewStep
from edgeq.processes.messages import (
    Begin,
    Done,
    FromChild,
    KeepStep,
    Kept,
    LoadSteps,
    Prepared,
    Question,
    Took,
)
from edgeq.threads import HandlerThreads


class ChildLedger:
    """The ledger of one attempt, which asks the parent."""

    def __init__(
        self,
        begin: Begin,
        ask: Callable[[Question], Prepared | Done | Kept],
        send: Callable[[FromChild], None],
        threads: HandlerThreads,
        elapsed: Callable[[], float],
    ) -> None:
        self.run_id = begin.run_id
        self.budget = begin.budget
        self._begin = begin
        self._ask = ask
        self._send = send
        self._threads = threads
        self._elapsed = elapsed
        self._began = elapsed()

    def now(self) -> int:
        return self._begin.now + round((self._elapsed() - self._began) * 1000)

    async def load(self, job: ClaimedJob) -> tuple[Step, ...]:  # noqa: ARG002
        answer = await self._threads.run(partial(self._ask, LoadSteps()))
        return answer.steps if isinstance(answer, Done) else ()

    async def record(self, step: NewStep) -> None:
        await self._threads.run(partial(self._ask, KeepStep(step)))

    async def transact(self, step: NewStep, work: Callable[[Any], str]) -> str:  # noqa: ARG002
        raise StepRefused(
            step.job_id,
            step.name,
            "a handler in a process of its own cannot take part in a transaction of the writer. "
            "Give it another executor, or do this part in a job of its own",
        )

    def took(self, type_name: str, step: str, seconds: float) -> None:  # noqa: ARG002
        self._send(Took(step, seconds))

    def needed(self, type_name: str) -> dict[str, float]:  # noqa: ARG002
        return self._begin.needed

    def fits(self, type_name: str, step: str, seconds_left: float) -> bool:  # noqa: ARG002
        needed = self._begin.needed.get(step)
        return step_fits(needed, budget=self.budget, seconds_left=seconds_left)

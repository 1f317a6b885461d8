"""Where the steps of attempts are kept, and what is known of how long they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from edgeq.core.jobs import ClaimedJob
from edgeq.core.steps import Step
from edgeq.ports.flow_commands import NewStep


class StepLedger(Protocol):
    """What an attempt needs for its steps: the run's own, or the way to it from a child."""

    run_id: str
    # Seconds in which a run may start work.
    budget: float

    def needed(self, type_name: str) -> dict[str, float]:
        """Seconds that the known steps of a type take, 95 times in a hundred."""
        ...

    def now(self) -> int: ...

    async def load(self, job: ClaimedJob) -> tuple[Step, ...]:
        """What is done already."""
        ...

    async def record(self, step: NewStep) -> None:
        """Keep a step, durably; LockLost when the job is somebody else's."""
        ...

    async def transact(self, step: NewStep, work: Callable[[Any], str]) -> str:
        """Call `work` inside the transaction that keeps the step, and answer its result."""
        ...

    def took(self, type_name: str, step: str, seconds: float) -> None: ...

    def fits(self, type_name: str, step: str, seconds_left: float) -> bool: ...

"""What a run tells of itself, in the words of events."""

from __future__ import annotations

from edgeq.attempt import Attempt
from edgeq.core.jobs import ClaimedJob, JobStatus
from edgeq.core.outcomes import Failed
from edgeq.events import ClockJumped, JobMoved, LockWasLost
from edgeq.ports.commands import Applied, Moved, Settled
from edgeq.surroundings import Surroundings


class RunNews:
    """Announces moves when somebody listens; failures and surprises always."""

    def __init__(self, run_id: str, around: Surroundings) -> None:
        self._run_id = run_id
        self._announce = around.announce
        self._has_listeners = around.has_listeners
        self._elapsed = around.clock.elapsed

    def claimed(self, jobs: tuple[ClaimedJob, ...]) -> None:
        if jobs and self._has_listeners():
            for job in jobs:
                self._announce(
                    JobMoved(job.id, job.type, "pending", "processing", job.attempt, self._run_id)
                )

    def is_heard(self) -> bool:
        """Whether ordinary endings are worth telling; failures always are."""
        return self._has_listeners()

    def ended(self, settled: Settled, now: Applied, attempt: Attempt | None) -> None:
        took = None if attempt is None else round((self._elapsed() - attempt.started) * 1000)
        self._announce(
            JobMoved(
                settled.job_id,
                settled.type,
                "processing",
                now.status,
                settled.attempt,
                self._run_id,
                took,
                now.error_class,
                now.outcome.message if isinstance(now.outcome, Failed) else None,
            )
        )

    def moved(self, moves: tuple[Moved, ...]) -> None:
        """Jobs that were not this run's: taken back from the dead, or expired."""
        for move in moves:
            if move.after is JobStatus.FAILED or self._has_listeners():
                self._announce(
                    JobMoved(
                        move.job_id,
                        move.type,
                        move.before,
                        move.after,
                        move.attempt,
                        self._run_id,
                        error_class=move.error_class,
                        error=move.error_message,
                    )
                )

    def lost(self, job_id: str, type_name: str) -> None:
        self._announce(LockWasLost(job_id, type_name, self._run_id))

    def clock_jumped(self, by_ms: int) -> None:
        self._announce(ClockJumped(self._run_id, by_ms))

"""What a run has counted so far: the report in the making, readable from any thread."""

from __future__ import annotations

import msgspec

from edgeq.core.durations import Histogram, Tally
from edgeq.core.jobs import JobStatus
from edgeq.core.outcomes import Failed, Interrupted, NotStarted, Outcome, Snoozed
from edgeq.core.runs import RunReport, Stop
from edgeq.core.steps import WHOLE

_ENDED_AS = {
    JobStatus.COMPLETED: "completed",
    JobStatus.FAILED: "failed",
    JobStatus.CANCELLED: "cancelled",
    JobStatus.REVIEW_NEEDED: "review",
}


class RunTally:
    """Counts outcomes and durations."""

    def __init__(self) -> None:
        self.claimed = 0
        self.reclaimed = 0
        self.counts = dict.fromkeys(
            (
                "completed",
                "failed",
                "retried",
                "review",
                "snoozed",
                "interrupted",
                "cancelled",
                "lost_locks",
            ),
            0,
        )
        self._durations: dict[tuple[str, str], Tally] = {}

    def settled(self, outcome: Outcome, status: JobStatus) -> None:
        if status is JobStatus.PENDING:
            self._put_back(outcome)
        else:
            self.counts[_ENDED_AS[status]] += 1

    def _put_back(self, outcome: Outcome) -> None:
        match outcome:
            case NotStarted():
                # Claimed ahead and given back untouched: it never was this run's job.
                self.claimed -= 1
            case Failed():
                self.counts["retried"] += 1
            case Snoozed():
                self.counts["snoozed"] += 1
            case Interrupted():
                self.counts["interrupted"] += 1
            case _:
                raise AssertionError(f"{outcome!r} cannot leave a job pending")

    def add(self, report: RunReport) -> None:
        """What a run in another process did on behalf of this one."""
        self.claimed += report.claimed
        for name in self.counts:
            self.counts[name] += getattr(report, name)

    def lost_with_its_process(self, status: JobStatus) -> None:
        """A job ended its own process: it failed for good, or was to be cancelled anyway."""
        self.claimed += 1
        self.counts[_ENDED_AS.get(status, "lost_locks")] += 1

    def lost(self) -> None:
        self.counts["lost_locks"] += 1

    def took(self, type_name: str, seconds: float, step: str = WHOLE) -> None:
        tally = self._durations.get((type_name, step))
        if tally is None:
            tally = self._durations[type_name, step] = Tally()
        tally.add(seconds * 1000)

    def durations(self) -> dict[tuple[str, str], Histogram]:
        return {part: tally.freeze() for part, tally in list(self._durations.items())}

    def take_durations(self) -> dict[tuple[str, str], Histogram]:
        """The same, once: what is taken is about to be stored."""
        taken = self.durations()
        self._durations.clear()
        return taken

    def durations_of(self, type_name: str, step: str = WHOLE) -> Histogram:
        tally = self._durations.get((type_name, step))
        return Histogram.EMPTY if tally is None else tally.freeze()

    def report(
        self,
        run_id: str,
        stopped: Stop,
        duration_ms: int,
        *,
        put_back: int | None = None,
        completed_unheard: int = 0,
    ) -> RunReport:
        """What was counted. Jobs whose end nobody saw were interrupted by the end of the run;
        of those, `put_back` were still ours, if that is known, and the others were lost."""
        counts = dict(self.counts)
        unseen = self.claimed - sum(counts.values())
        interrupted = unseen if put_back is None else min(unseen, put_back)
        completed = min(unseen - interrupted, completed_unheard)
        counts["interrupted"] += interrupted
        counts["completed"] += completed
        counts["lost_locks"] += unseen - interrupted - completed
        empty = RunReport(
            run_id=run_id,
            claimed=self.claimed,
            reclaimed=self.reclaimed,
            stopped=stopped,
            duration_ms=duration_ms,
        )
        return msgspec.structs.replace(empty, **counts)

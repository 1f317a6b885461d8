"""An attempt at a job while it runs: what its context, its caller and its run share."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from edgeq.core.jobs import ClaimedJob, LogLevel, NewJob
from edgeq.core.json_text import encode
from edgeq.core.redaction import redact_details, safe_message
from edgeq.errors import LockLost
from edgeq.ports.commands import Note, Progress
from edgeq.ports.step_ledger import StepLedger
from edgeq.registry import AnyHandler

LOG_MESSAGE_CHARACTERS = 2000
LOG_DETAILS_CHARACTERS = 8192
STAGE_CHARACTERS = 100


class StopReason(StrEnum):
    """Why a running handler is asked to stop."""

    TIMEOUT = "timeout"
    BUDGET = "budget"
    SIGNAL = "signal"
    CANCEL = "cancel"
    LOST = "lost"
    SLEEP = "sleep"


class Stopping(BaseException):
    """Raised at a checkpoint. Not an Exception: a handler's own `except` must not eat it."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(f"stopped: {reason}")
        self.reason = reason


class Sleeping(Stopping):
    """Raised by a durable sleep: the job goes on after so many milliseconds, in some run."""

    def __init__(self, delay_ms: int) -> None:
        super().__init__(StopReason.SLEEP)
        self.delay_ms = delay_ms


class Journal:
    """What attempts of a run want written: gathered here, committed with the next cycle.

    It is only ever changed by single operations on a deque and a dict, so threads may use it too.
    """

    def __init__(self, wake: Callable[[], None], now: Callable[[], int]) -> None:
        self._wake = wake
        self.now = now
        self._notes: deque[Note] = deque()
        self._progress: dict[int, Progress] = {}

    def add(self, note: Note) -> None:
        self._notes.append(note)
        self._wake()

    def set_progress(self, progress: Progress) -> None:
        self._progress[progress.seq] = progress
        self._wake()

    def is_empty(self) -> bool:
        return not self._notes and not self._progress

    def take(self) -> tuple[tuple[Note, ...], tuple[Progress, ...]]:
        notes = [self._notes.popleft() for _ in range(len(self._notes))]
        progress = [self._progress.popitem()[1] for _ in range(len(self._progress))]
        return tuple(notes), tuple(progress)

    def put_back(self, notes: tuple[Note, ...], progress: tuple[Progress, ...]) -> None:
        """What could not be written is written with the next commit, unless there is newer."""
        self._notes.extendleft(reversed(notes))
        for each in progress:
            self._progress.setdefault(each.seq, each)


@dataclass(slots=True)
class Workplace:
    """What all attempts of a run share; a signal sets `stops_for` and an earlier end."""

    journal: Journal
    elapsed: Callable[[], float]
    budget_ends: float
    interrupts_at: float
    state: Any
    config: Mapping[str, object]
    prepare_child: Callable[..., NewJob]
    ledger: StepLedger
    stops_for: StopReason | None = None
    # Jobs whose next step did not fit the time that is left: a later run goes on with them.
    spared: set[int] = field(default_factory=set)


class Attempt:
    """One job in one process: mutable, and over exactly once."""

    __slots__ = (
        "cancel_requested",
        "children",
        "deadline",
        "handler",
        "is_long",
        "is_over",
        "job",
        "lost",
        "percent",
        "stage",
        "started",
        "stop",
        "task",
        "worked_before_ms",
        "workplace",
    )

    def __init__(
        self,
        job: ClaimedJob,
        handler: AnyHandler,
        workplace: Workplace,
        *,
        started: float,
        deadline: float,
        is_long: bool,
    ) -> None:
        self.job = job
        self.handler = handler
        self.workplace = workplace
        self.started = started
        self.deadline = deadline
        self.is_long = is_long
        self.is_over = False
        self.lost = False
        self.cancel_requested = False
        self.stop: StopReason | None = None
        self.stage: str | None = None
        self.percent = 0
        self.children: list[NewJob] = []
        # What its steps took in earlier attempts; None: it has asked for no step.
        self.worked_before_ms: int | None = None
        self.task: asyncio.Task[Any] | None = None

    def remaining(self) -> float:
        workplace = self.workplace
        return max(0.0, min(self.deadline, workplace.interrupts_at) - workplace.elapsed())

    def check(self) -> None:
        """Stop here if there is a reason to."""
        self.refuse_if_over()
        reason = self.stop or self.workplace.stops_for
        if reason is not None:
            raise Stopping(reason)
        if self.cancel_requested:
            raise Stopping(StopReason.CANCEL)
        if self.workplace.elapsed() >= self.workplace.budget_ends:
            raise Stopping(StopReason.BUDGET)

    def refuse_if_over(self) -> None:
        """Whoever still runs after its attempt was decided is a zombie, and learns it here."""
        if self.lost or self.is_over:
            raise LockLost(self.job.id)

    def note(
        self,
        message: str,
        *,
        level: LogLevel = LogLevel.INFO,
        stage: str | None = None,
        details: Mapping[str, object] | None = None,
        duration_ms: int | None = None,
    ) -> None:
        journal = self.workplace.journal
        journal.add(
            Note(
                seq=self.job.seq,
                fence=self.job.fence,
                job_id=self.job.id,
                level=level,
                message=safe_message(message, LOG_MESSAGE_CHARACTERS),
                attempt=self.job.attempt,
                at=journal.now(),
                stage=self.stage if stage is None else safe_message(stage, STAGE_CHARACTERS),
                details=_encoded(details),
                duration_ms=duration_ms,
            )
        )

    def show_progress(self, percent: int, stage: str | None) -> None:
        self.percent = percent
        self.stage = self.stage if stage is None else safe_message(stage, STAGE_CHARACTERS)
        progress = Progress(self.job.seq, self.job.fence, percent, self.stage)
        self.workplace.journal.set_progress(progress)


def _encoded(details: Mapping[str, object] | None) -> str | None:
    """Details as JSON; what is not JSON is kept as its text, because a log line must not fail."""
    if not details:
        return None
    try:
        text = encode(redact_details(dict(details)))
    except Exception:
        text = encode(redact_details({name: str(value) for name, value in details.items()}))
    if len(text) > LOG_DETAILS_CHARACTERS:
        return encode({"truncated": text[:LOG_DETAILS_CHARACTERS]})
    return text

"""The crew: the attempts that run in this process, started, timed out, interrupted, let go."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from functools import partial

from edgeq.attempt import Attempt, StopReason, Workplace
from edgeq.core.jobs import ClaimedJob
from edgeq.core.outcomes import Outcome
from edgeq.invoke import invoke, stopped_by
from edgeq.registry import AnyHandler
from edgeq.threads import HandlerThreads

# How long a handler that was told to stop may take before the run goes on without it.
UNWIND_SECONDS = 0.25

Ended = Callable[[Attempt, Outcome], None]


class Crew:
    """Runs attempts on the event loop and in threads; tells its run when one has ended."""

    def __init__(
        self,
        handlers: Mapping[str, AnyHandler],
        workplace: Workplace,
        ended: Ended,
    ) -> None:
        self._handlers = handlers
        self._workplace = workplace
        self._elapsed = workplace.elapsed
        self._ended = ended
        self._threads = HandlerThreads()
        self._loop = asyncio.get_running_loop()
        self._deadlines: list[tuple[float, int]] = []
        self.running: dict[int, Attempt] = {}
        self.by_lane: Counter[str] = Counter()
        self.ahead: deque[ClaimedJob] = deque()

    def start(self, job: ClaimedJob, *, is_long: bool = False) -> None:
        now = self._elapsed()
        deadline = now + job.timeout_ms / 1000
        attempt = Attempt(
            job,
            self._handlers[job.handler_name],
            self._workplace,
            started=now,
            deadline=deadline,
            is_long=is_long,
        )
        self.running[job.seq] = attempt
        self.by_lane[job.lane] += 1
        if deadline < self._workplace.interrupts_at:
            heapq.heappush(self._deadlines, (deadline, job.seq))
        attempt.task = task = self._loop.create_task(invoke(attempt, self._threads))
        task.add_done_callback(partial(self._task_done, attempt))

    def _task_done(self, attempt: Attempt, task: asyncio.Task[Outcome]) -> None:
        if task.cancelled():
            # Cancelled before its first step, or from outside the run: as if told to stop.
            outcome = stopped_by(attempt.stop or StopReason.SIGNAL)
        else:
            outcome = task.result()
        self._end(attempt, outcome)

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        if attempt.is_over:
            return
        attempt.is_over = True
        if self.running.pop(attempt.job.seq, None) is not None:
            self.by_lane[attempt.job.lane] -= 1
        self._ended(attempt, outcome)

    def next_deadline(self) -> float | None:
        """When the next attempt times out."""
        while self._deadlines and self._deadlines[0][1] not in self.running:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def stop_overdue(self) -> None:
        """Tell what has timed out to stop; let go of what was told and did not."""
        now = self._elapsed()
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            _, seq = heapq.heappop(self._deadlines)
            attempt = self.running[seq]
            if attempt.stop is StopReason.TIMEOUT:
                self._end(attempt, stopped_by(StopReason.TIMEOUT))
            else:
                self._tell(attempt, StopReason.TIMEOUT)
                heapq.heappush(self._deadlines, (now + UNWIND_SECONDS, seq))

    def interrupt_all(self, reason: StopReason) -> None:
        for attempt in list(self.running.values()):
            if attempt.stop is None:
                self._tell(attempt, reason)

    def _tell(self, attempt: Attempt, reason: StopReason) -> None:
        """Ask a handler to stop: a task is cancelled, a thread can only be asked."""
        attempt.stop = reason
        is_thread = not attempt.handler.is_async
        if attempt.task is not None and (not is_thread or reason is StopReason.TIMEOUT):
            attempt.task.cancel()

    def let_go_of_all(self) -> list[Attempt]:
        """Go on without what does not stop; it keeps running here, and nobody waits for it."""
        left = list(self.running.values())
        for attempt in left:
            self.running.pop(attempt.job.seq)
            self.by_lane[attempt.job.lane] -= 1
        return left

    def note_cancellations(self, seqs: frozenset[int]) -> None:
        """Somebody asked for these jobs to be cancelled; their handlers can see it."""
        for seq in seqs & self.running.keys():
            self.running[seq].cancel_requested = True

    def lose_all_but(self, fences: Mapping[int, int]) -> list[ClaimedJob]:
        """Compare with what the store says is ours; answers with what is not."""
        held = [*(attempt.job for attempt in self.running.values()), *self.ahead]
        return self.lose({job.seq for job in held if fences.get(job.seq) != job.fence})

    def lose(self, seqs: Collection[int]) -> list[ClaimedJob]:
        """Tell handlers that their jobs belong to somebody else, and forget those ahead."""
        if not seqs:
            return []
        running = [a for seq in seqs if (a := self.running.get(seq)) is not None and not a.lost]
        for attempt in running:
            attempt.lost = True
            self._tell(attempt, StopReason.LOST)
        waiting = [job for job in self.ahead if job.seq in seqs]
        self.ahead = deque(job for job in self.ahead if job.seq not in seqs)
        return [*(attempt.job for attempt in running), *waiting]

    def close(self) -> None:
        self._threads.close()

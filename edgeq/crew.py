"""The crew: the attempts that run in this process, started, timed out, interrupted, let go."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial

from edgeq.attempt import Attempt, StopReason, Workplace
from edgeq.core.backoff import ErrorClass
from edgeq.core.jobs import ClaimedJob
from edgeq.core.outcomes import Failed, NotStarted, Outcome
from edgeq.invoke import invoke, stopped_by
from edgeq.ports.commands import Lock
from edgeq.processes.pool import HandlerProcesses
from edgeq.registry import Registry
from edgeq.threads import HandlerThreads

# How long a handler that was told to stop may take before the run goes on without it.
UNWIND_SECONDS = 0.25

Ended = Callable[[Attempt, Outcome], None]


class Crew:
    """Runs attempts on the loop, in threads and in processes; tells its run when one has ended.

    An attempt is known by its lock: a job that was taken away from this run and claimed by it
    again is another attempt, and both may be running for a while.
    """

    def __init__(self, registry: Registry, workplace: Workplace, ended: Ended) -> None:
        self._handlers = registry.handlers
        self._on_error = registry.on_error
        self._workplace = workplace
        self._elapsed = workplace.elapsed
        self._ended = ended
        self._threads = HandlerThreads()
        self._processes = HandlerProcesses(registry.origin, workplace, self._threads)
        self._loop = asyncio.get_running_loop()
        self._deadlines: list[tuple[float, Lock]] = []
        self._ahead: list[tuple[int, int, Lock, ClaimedJob]] = []
        self._left: list[Attempt] = []
        self._to_launch: list[Attempt] = []
        self.running: dict[Lock, Attempt] = {}
        self.by_lane: Counter[str] = Counter()

    def take(self, job: ClaimedJob, *, is_long: bool = False) -> None:
        """Give a job its slot; its handler is called by the next `launch`."""
        now = self._elapsed()
        handler = self._handlers[job.handler_name]
        # That of a handler in a process is set when the process has called it.
        has_begun = handler.executor != "process"
        attempt = Attempt(
            job,
            handler,
            self._workplace,
            started=now,
            deadline=now + job.timeout_ms / 1000 if has_begun else math.inf,
            is_long=is_long,
        )
        self.running[(job.seq, job.fence)] = attempt
        self.by_lane[job.lane] += 1
        self._to_launch.append(attempt)

    def launch(self) -> None:
        """Call the handlers of what was taken; what was stopped meanwhile never begins."""
        attempts, self._to_launch = self._to_launch, []
        for attempt in attempts:
            if attempt.stop is not None:
                self._end(attempt, NotStarted())
                continue
            if attempt.handler.executor == "process":
                # It keeps to its deadline by itself, from when the handler is really called.
                work = self._processes.run(attempt)
            else:
                work = invoke(attempt, self._threads, self._on_error)
                if attempt.deadline < self._workplace.interrupts_at:
                    lock = (attempt.job.seq, attempt.job.fence)
                    heapq.heappush(self._deadlines, (attempt.deadline, lock))
            attempt.task = task = self._loop.create_task(work)
            task.add_done_callback(partial(self._task_done, attempt))

    def keep_for_later(self, job: ClaimedJob) -> None:
        """A job that was claimed ahead of its turn; the highest priority starts first."""
        place = (-job.priority, job.scheduled_for, (job.seq, job.fence), job)
        heapq.heappush(self._ahead, place)

    @property
    def ahead(self) -> int:
        return len(self._ahead)

    def take_ahead(self, has_room: Callable[[str], bool]) -> None:
        """Take what was claimed ahead while its lane has room; others may overtake the rest."""
        waiting = []
        while self._ahead:
            place = heapq.heappop(self._ahead)
            if has_room(place[-1].lane):
                self.take(place[-1])
            else:
                waiting.append(place)
                if len(waiting) > len(self.by_lane):
                    break
        for place in waiting:
            heapq.heappush(self._ahead, place)

    def give_back_ahead(self) -> list[ClaimedJob]:
        jobs = [job for *_, job in self._ahead]
        self._ahead.clear()
        return jobs

    def _task_done(self, attempt: Attempt, task: asyncio.Task[Outcome]) -> None:
        if task.cancelled() and attempt.stop is not None:
            outcome = stopped_by(attempt.stop)
        elif task.cancelled():
            outcome = Failed(ErrorClass.TRANSIENT, "the handler cancelled its own task")
        elif task.exception() is not None:
            outcome = Failed(ErrorClass.TRANSIENT, f"edgeq failed to run it: {task.exception()!r}")
        else:
            outcome = task.result()
        self._end(attempt, outcome)

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        if attempt.is_over:
            return
        attempt.is_over = True
        self._forget(attempt)
        self._ended(attempt, outcome)

    def _forget(self, attempt: Attempt) -> None:
        if self.running.pop((attempt.job.seq, attempt.job.fence), None) is not None:
            self.by_lane[attempt.job.lane] -= 1

    @property
    def spared(self) -> frozenset[int]:
        """Jobs that a later run goes on with."""
        return frozenset(self._workplace.spared)

    def next_deadline(self) -> float | None:
        """When the next attempt times out."""
        while self._deadlines and self._deadlines[0][1] not in self.running:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def first_deadline(self) -> float | None:
        """The first of those that this process keeps; asked by another thread, which must not
        tidy up."""
        ours = (a for a in list(self.running.values()) if a.handler.executor != "process")
        return min((each.deadline for each in ours), default=None)

    def overdue(self, now: float) -> frozenset[int]:
        """The jobs that have run beyond their timeout; asked by other threads too."""
        attempts = list(self.running.values())
        return frozenset(each.job.seq for each in attempts if each.task and each.deadline <= now)

    def stop_overdue(self) -> None:
        """Tell what has timed out to stop; let go of what was told and did not."""
        self._processes.pass_on_news()
        now = self._elapsed()
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            _, lock = heapq.heappop(self._deadlines)
            attempt = self.running[lock]
            if attempt.stop is StopReason.TIMEOUT:
                self._left.append(attempt)
                self._end(attempt, stopped_by(StopReason.TIMEOUT))
            else:
                self._tell(attempt, StopReason.TIMEOUT)
                heapq.heappush(self._deadlines, (now + UNWIND_SECONDS, lock))

    def interrupt_all(self, reason: StopReason) -> None:
        for attempt in list(self.running.values()):
            if attempt.stop is None:
                self._tell(attempt, reason)

    def _tell(self, attempt: Attempt, reason: StopReason) -> None:
        """Ask a handler to stop: a task is cancelled, a process killed, a thread only asked."""
        attempt.stop = reason
        is_thread = attempt.handler.executor == "thread"
        if attempt.task is not None and (not is_thread or reason is StopReason.TIMEOUT):
            attempt.task.cancel()

    def let_go_of_all(self) -> list[Attempt]:
        """Go on without what does not stop; it keeps running here, and nobody waits for it."""
        stubborn = list(self.running.values())
        for attempt in stubborn:
            self._forget(attempt)
        self._left += stubborn
        return stubborn

    def forget_the_gone(self) -> None:
        """Those that were let go of and have ended since."""
        self._left = [each for each in self._left if each.task is None or not each.task.done()]

    def has_left_some(self) -> bool:
        """Whether tasks still run that the crew has let go of."""
        return any(attempt.task is not None and not attempt.task.done() for attempt in self._left)

    def note_cancellations(self, seqs: frozenset[int]) -> None:
        """Somebody asked for these jobs to be cancelled; their handlers can see it."""
        for attempt in self.running.values():
            if attempt.job.seq in seqs:
                attempt.cancel_requested = True
        self._processes.pass_on_news()

    def lose_all_but(self, held: Collection[Lock]) -> tuple[list[ClaimedJob], list[ClaimedJob]]:
        """Compare with what the store says is ours, and lose the rest."""
        ours = [*self.running, *(lock for _, _, lock, _ in self._ahead)]
        return self.lose([lock for lock in ours if lock not in held])

    def lose(self, locks: Collection[Lock]) -> tuple[list[ClaimedJob], list[ClaimedJob]]:
        """Tell handlers that their jobs belong to somebody else, and forget those ahead.

        Answers with both: the first ones are still running, and end later.
        """
        running = [a for lock in locks if (a := self.running.get(lock)) is not None and not a.lost]
        for attempt in running:
            attempt.lost = True
            self._tell(attempt, StopReason.LOST)
        gone = [job for _, _, lock, job in self._ahead if lock in locks]
        if gone:
            self._ahead = [place for place in self._ahead if place[2] not in locks]
            heapq.heapify(self._ahead)
        return [attempt.job for attempt in running], gone

    async def close(self) -> None:
        """No process of a handler outlives this; threads end when they come back."""
        try:
            await self._processes.close()
        finally:
            self._threads.close()

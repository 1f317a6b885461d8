"""The cycle of a run: claim what fits, run it, record what came of it, until it is time to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from edgeq.attempt import Attempt, Journal, StopReason, Workplace
from edgeq.claim_plan import ClaimPlanner
from edgeq.core.clock_jumps import ClockWatch
from edgeq.core.jobs import ClaimedJob, JobStatus
from edgeq.core.outcomes import Completed, Interrupted, NotStarted, Outcome
from edgeq.core.runs import RunLimits, Stop
from edgeq.core.steps import TOTAL
from edgeq.core.suspects import LAST_CHANCE
from edgeq.crew import UNWIND_SECONDS, Crew
from edgeq.errors import StoreError
from edgeq.isolation_ward import IsolationWard
from edgeq.outbox import Ending, Outbox
from edgeq.ports.commands import (
    Claim,
    Cycle,
    CycleAnswer,
    Held,
    ReleaseRun,
    RunStart,
)
from edgeq.ports.store import LockWatch
from edgeq.run_news import RunNews
from edgeq.step_ledger import RunLedger
from edgeq.surroundings import LastChance, Surroundings
from edgeq.tally import RunTally
from edgeq.timetable import Timetable

_CLAIM_SECONDS = 0.05


class Shift:
    """The working part of a run, from its first claim to its last outcome."""

    # How many losses bring a job into a process of its own, and how many of those there may be.
    _isolates_from = LAST_CHANCE
    _children_at_most = 1

    def __init__(
        self,
        run_id: str,
        around: Surroundings,
        limits: RunLimits,
        start: RunStart,
        tally: RunTally,
        *,
        began: float,
        state: Any,
        last_chance: LastChance | None = None,
    ) -> None:
        self.id = run_id
        self._around = around
        self._store = around.store
        self._elapsed = around.clock.elapsed
        self._limits = limits
        self._tally = tally
        self.times = Timetable(limits, began=began, elapsed=self._elapsed, now=self._store.now)
        self._news = RunNews(run_id, around)
        self.stopped: Stop | None = None
        self._interrupts_for = StopReason.BUDGET
        self._was_interrupted = False
        self._is_dry = False
        self._slots_claimed_at = began
        self._is_done = False
        self._turned_at = began
        self._clocks = ClockWatch(around.clock.now(), self._elapsed())
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._journal = Journal(self._note_was_added, self._store.now)
        self._outbox = Outbox(self._store, self._journal, around.chance.unit)
        self.planner = ClaimPlanner(
            limits,
            around.registry.handlers,
            start,
            tally,
            isolates_from=None if around.isolate is None else self._isolates_from,
            last_chance=last_chance,
        )
        self._ward = IsolationWard(
            around,
            self.planner,
            tally,
            self._news,
            at_most=self._children_at_most,
            budget_ends=self.times.budget_ends,
            left=self._work_may_have_come,
        )
        self._ledger = RunLedger(run_id, self._store, limits, tally, self._elapsed)
        self._ledger.learn(start.step_durations)
        self._crew = self._assemble(state, start.config)
        self.left: list[Attempt] = []
        self._late: set[asyncio.Task[None]] = set()

    def _assemble(self, state: Any, config: Mapping[str, object]) -> Crew:
        workplace = Workplace(
            journal=self._journal,
            elapsed=self._elapsed,
            budget_ends=self.times.budget_ends,
            interrupts_at=self.times.interrupts_at,
            state=state,
            config=config,
            prepare_child=self._around.prepare_child,
            ledger=self._ledger,
        )
        self._workplace = workplace
        return Crew(self._around.registry, workplace, self._attempt_ended)

    async def work(self) -> None:
        """Cycle until nothing is due, the time is up, or somebody says stop."""
        async with AsyncExitStack() as until_done:
            until_done.push_async_callback(self._crew.close)
            until_done.callback(self._store.keep_locks(self._lock_watch()))
            await self._listen(until_done)
            try:
                await self._work()
            except BaseException:
                await self._put_all_back()
                raise
            finally:
                self._is_done = True

    def stop(self) -> None:
        """A signal: claim no more, finish within the grace, interrupt the rest uncounted."""
        if self.stopped is not Stop.SIGNAL:
            self.stopped = Stop.SIGNAL
            self._interrupts_for = StopReason.SIGNAL
            self.times.end_soon()
            self._workplace.interrupts_at = self.times.interrupts_at
            self._workplace.stops_for = StopReason.SIGNAL
        self._wake.set()

    async def _work(self) -> None:
        while True:
            self._look_at_the_time()
            cycle = self._next_cycle()
            if cycle is not None:
                await self._turn(cycle)
            if self.stopped is None:
                self._ward.admit()
            if self._is_finished():
                return
            if not self._outbox:
                self._crew.launch()
                await self._rest()

    def _look_at_the_time(self) -> None:
        self._turned_at = now = self._elapsed()
        self._clocks, jump = self._clocks.look(self._around.clock.now(), now)
        if jump:
            self._news.clock_jumped(jump)
        if self.stopped is None and now >= self.times.budget_ends:
            self.stopped = Stop.BUDGET
        if self.stopped is None and self.planner.has_spent_its_jobs():
            self.stopped = Stop.MAX_JOBS
        if not self._may_start(now):
            self._give_back_unstarted()
        self._crew.stop_overdue()
        if now >= self.times.interrupts_at and not self._was_interrupted:
            self._was_interrupted = True
            self._crew.interrupt_all(self._interrupts_for)
        if now >= self.times.lets_go_at():
            for attempt in self._crew.let_go_of_all():
                self.left.append(attempt)
                self._tally.took(attempt.job.type, now - attempt.started)

    def _may_start(self, now: float) -> bool:
        """Whether what is claimed already may still be started."""
        return self.stopped in (None, Stop.MAX_JOBS) and now < self.times.budget_ends

    def _give_back_unstarted(self) -> None:
        for job in self._crew.give_back_ahead():
            self._outbox.add(job, NotStarted(), None)

    def _next_cycle(self) -> Cycle | None:
        """What there is to write or to claim now; None when there is neither."""
        now = self._elapsed()
        times = self.times
        claim = None
        if self.stopped is None and (self._outbox or now >= times.next_claim):
            claim = self.planner.plan(
                self._crew,
                elapsed=now - times.began,
                now=self._store.now(),
                sparing=self._workplace.spared,
            )
            if claim is None:
                times.found_no_room()
        if claim is None and not self._outbox and not times.are_notes_due():
            return None
        times.notes_due = None
        takes_back = self._clocks.trusts_locks(now)
        return Cycle(self.id, times.lock_until(), claim=claim, takes_back=takes_back)

    async def _turn(self, cycle: Cycle) -> None:
        """One cycle: write what ended, claim what is next, and start it."""
        endings, answer = await self._send_while_launching(cycle)
        self._record(endings, answer)
        self._forsake(*self._crew.lose(answer.lost))
        self._news.moved(answer.moved)
        self._tally.reclaimed += answer.reclaimed
        self._tally.claimed += len(answer.claimed)
        self._heed_the_switch(is_enabled=answer.is_enabled)
        if cycle.claim is not None:
            self._heed(cycle.claim, answer)
        self._news.claimed(answer.claimed)
        for job in answer.claimed:
            if job.claimed_ahead == 1:
                self._crew.keep_for_later(job)
            else:
                self._crew.take(job, is_long=self.planner.is_long(job.type))
        self._fill_from_ahead()

    async def _send_while_launching(self, cycle: Cycle) -> tuple[list[Ending], CycleAnswer]:
        """Hand the cycle to the store first: it writes while handlers are called here."""
        sending = self._loop.create_task(self._outbox.send(cycle, self.times.may_wait))
        try:
            await asyncio.sleep(0)
            self._crew.launch()
            return await sending
        except BaseException:
            sending.cancel()
            await asyncio.wait([sending])
            raise

    def _heed(self, claim: Claim, answer: CycleAnswer) -> None:
        self.planner.heard(answer)
        if claim.steps:
            self._slots_claimed_at = self._elapsed()
        self._is_dry = len(answer.claimed) < claim.wanted()
        self.times.claimed(is_dry=self._is_dry, next_moment=answer.next_moment)

    def _heed_the_switch(self, *, is_enabled: bool) -> None:
        if not is_enabled and self.stopped is None:
            self.stopped = Stop.DISABLED

    def _fill_from_ahead(self) -> None:
        """Start what was claimed ahead, but let a claim have a slot every now and then.

        Otherwise a steady backlog of short jobs would keep out everything else, whatever its
        priority.
        """
        now = self._elapsed()
        if self._crew.ahead and self._may_start(now):
            will_claim = self.stopped is None and not self.planner.suspect_is_due
            is_time = now - self._slots_claimed_at > _CLAIM_SECONDS
            sparing = 1 if will_claim and is_time else 0
            self._crew.take_ahead(partial(self.planner.has_room, self._crew, sparing))

    def _attempt_ended(self, attempt: Attempt, outcome: Outcome) -> None:
        """Called by the crew, on the loop, once for each attempt."""
        if attempt.lost:
            self._tally.lost()
        else:
            self._outbox.add(attempt.job, outcome, attempt)
        if self._is_done:
            self._write_late(outcome)
        else:
            if attempt.task is not None:
                seconds = self._elapsed() - attempt.started
                self._tally.took(attempt.job.type, seconds)
                if attempt.worked_before_ms is not None and isinstance(outcome, Completed):
                    seconds += attempt.worked_before_ms / 1000
                    self._tally.took(attempt.job.type, seconds, TOTAL)
            self._fill_from_ahead()
            self._crew.launch()
        self._wake.set()

    def _record(self, endings: list[Ending], answer: CycleAnswer) -> None:
        applied = {each.lock: each for each in answer.applied}
        tells_all = self._news.is_heard()
        for settled, attempt in endings:
            now = applied.get(settled.lock)
            if now is not None:
                self._tally.settled(now.outcome, now.status)
                if tells_all or now.status is JobStatus.FAILED:
                    self._news.ended(settled, now, attempt)
            else:
                self._tally.lost()
                self._news.lost(settled.job_id, settled.type)

    def _is_finished(self) -> bool:
        if self._crew.running or self._crew.ahead or not self._outbox.is_empty() or self._ward:
            return False
        if self.stopped is None and self._has_nothing_to_do():
            self.stopped = Stop.EMPTY
        return self.stopped is not None

    def _has_nothing_to_do(self) -> bool:
        is_empty = self._is_dry or self.planner.nothing_fits
        return is_empty and not self.planner.suspect_is_due

    async def _rest(self) -> None:
        """Sleep until an attempt ends, something is due, or somebody calls."""
        seconds = self.times.seconds_to_next(
            self._crew.next_deadline(), may_claim=self.stopped is None
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _listen(self, until_done: AsyncExitStack) -> None:
        """A run looks by itself; it does not live long enough for more."""

    def _note_was_added(self) -> None:
        """A handler wrote something, on the loop or in a thread."""
        if self.times.note_was_added():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake.set)

    def _work_may_have_come(self) -> None:
        self.times.claim_now()
        self._wake.set()

    def _lock_watch(self) -> LockWatch:
        def told(held: Held | None) -> None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._hear, held)

        return LockWatch(self.id, self.times.lock_until, told)

    def _hear(self, held: Held | None) -> None:
        """What the store says this run still holds; a change may also mean new work."""
        if held is not None:
            self._crew.note_cancellations(held.cancel_requested)
        ours = {} if held is None else held.fences
        self._forsake(*self._crew.lose_all_but(set(ours.items())))
        if held is not None:
            self._heed_the_switch(is_enabled=held.is_enabled)
        self._work_may_have_come()

    def _forsake(self, running: list[ClaimedJob], ahead: list[ClaimedJob]) -> None:
        """Tell of jobs that are somebody else's now; those that run are counted at their end."""
        for job in (*running, *ahead):
            self._news.lost(job.id, job.type)
        for _ in ahead:
            self._tally.lost()

    async def _put_all_back(self) -> None:
        """The run itself failed or was cancelled: nothing that it holds may be lost."""
        self.stopped = Stop.SIGNAL
        self._crew.interrupt_all(StopReason.SIGNAL)
        self._crew.launch()
        await self._ward.end()
        tasks = [a.task for a in self._crew.running.values() if a.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=UNWIND_SECONDS)
        self._give_back_unstarted()
        with suppress(StoreError):
            await self._outbox.send(Cycle(self.id, self.times.lock_until()), lambda: False)
            # Also what a cancelled cycle had claimed, whose answer nobody heard.
            still_running = frozenset(attempt.job.seq for attempt in self._crew.running.values())
            await self._store.write(ReleaseRun(self.id, by_budget=False, sparing=still_running))

    def stuck_since(self) -> float | None:
        """The first deadline that passed without a turn of the event loop; on any thread."""
        deadlines = [each.deadline for each in list(self._crew.running.values())]
        first = min(deadlines, default=None)
        is_stuck = first is not None and self._turned_at < first <= self._elapsed()
        return first if is_stuck else None

    def has_leftovers(self) -> bool:
        return bool(self.left) or self._crew.has_left_some()

    def begun(self) -> frozenset[int]:
        """The jobs whose handlers were called and have not ended; asked by the watchdog too."""
        attempts = [*list(self._crew.running.values()), *self.left]
        return frozenset(each.job.seq for each in attempts if each.task is not None)

    def overdue(self) -> frozenset[int]:
        """The jobs that have run beyond their timeout; asked by the watchdog too."""
        now = self._elapsed()
        attempts = list(self._crew.running.values())
        return frozenset(each.job.seq for each in attempts if each.task and each.deadline <= now)

    def completed_unheard(self) -> int:
        """Successes that were sent and whose answer has not come."""
        return self._outbox.completed_in_flight()

    def _write_late(self, outcome: Outcome) -> None:
        """A handler that was left behind came to an end after all: its fence decides."""
        if isinstance(outcome, Interrupted):
            return

        async def write() -> None:
            with suppress(StoreError):
                await self._outbox.send(Cycle(self.id, self.times.lock_until()), lambda: False)

        task = self._loop.create_task(write())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

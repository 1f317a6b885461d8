"""The warm children of a run: started when they are needed, used again, gone at its end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from edgeq.addresses import Address
from edgeq.attempt import Attempt, StopReason, Workplace
from edgeq.core import json_text
from edgeq.core.backoff import ErrorClass
from edgeq.core.outcomes import Failed, Outcome
from edgeq.core.redaction import safe_message
from edgeq.errors import LockLost
from edgeq.invoke import stopped_by
from edgeq.processes.messages import (
    Began,
    Begin,
    BrokenFrame,
    Close,
    Done,
    Ended,
    Enqueue,
    FromChild,
    KeepStep,
    Kept,
    LoadSteps,
    News,
    Noted,
    NotReady,
    Prepared,
    Progressed,
    Ready,
    Refused,
    Setup,
    Spared,
    Took,
    refusal,
)
from edgeq.processes.process import HandlerProcess, ProcessGone, how_it_ended
from edgeq.threads import HandlerThreads

# From the start of an interpreter, or from the offer of a job, until a handler is called.
READY_SECONDS = 30.0
# For lifespans to be left at the end of a run; less when its time is over.
_CLOSE_SECONDS = 2.0
_SHORTEST_CLOSE_SECONDS = 0.1
# What is killed is gone at once, unless the kernel is busy with it, and we do not wait for that.
_DEATH_SECONDS = 1.0


class _NeverBegan(Exception):
    """No handler was called, and the text says why."""


class HandlerProcesses:
    """Runs attempts in children; each child runs one at a time."""

    def __init__(
        self,
        origin: str | tuple[Address, ...],
        workplace: Workplace,
        threads: HandlerThreads,
    ) -> None:
        self._origin = origin
        self._workplace = workplace
        self._threads = threads
        self._alive: set[HandlerProcess] = set()
        self._idle: list[HandlerProcess] = []
        self._told: dict[HandlerProcess, tuple[Attempt, _Facts]] = {}

    async def run(self, attempt: Attempt) -> Outcome:
        """What the attempt came to, in a child that is as good as new."""
        try:
            process = await self._begin(attempt)
        except _NeverBegan as why:
            return _died(str(why))
        try:
            async with asyncio.timeout(attempt.job.timeout_ms / 1000):
                outcome = await self._listen(process, attempt)
        except TimeoutError:
            attempt.stop = StopReason.TIMEOUT
            await self._end(process)
            return stopped_by(StopReason.TIMEOUT)
        except BrokenFrame:
            await self._end(process)
            return _died("sent what is no message")
        except ProcessGone:
            return _died(how_it_ended(await self._end(process)))
        except BaseException:
            await self._end(process)
            raise
        del self._told[process]
        self._idle.append(process)
        return outcome

    async def _begin(self, attempt: Attempt) -> HandlerProcess:
        """A child that has called the handler; one that died while it was idle is replaced."""
        while True:
            is_warm = bool(self._idle)
            process = self._idle.pop() if is_warm else self._start()
            try:
                async with asyncio.timeout(READY_SECONDS):
                    await self._offer(process, attempt, is_warm=is_warm)
                return process
            except TimeoutError:
                await self._end(process)
                raise _NeverBegan(f"was not ready after {READY_SECONDS:g} s") from None
            except (ProcessGone, BrokenFrame):
                how = how_it_ended(await self._end(process))
                if not is_warm:
                    raise _NeverBegan(f"{how} before it called the handler") from None
            except BaseException:
                await self._end(process)
                raise

    def _start(self) -> HandlerProcess:
        try:
            process = HandlerProcess(self._threads)
        except OSError as refused:
            raise _NeverBegan(f"could not be started: {refused}") from refused
        self._alive.add(process)
        return process

    async def _offer(self, process: HandlerProcess, attempt: Attempt, *, is_warm: bool) -> None:
        workplace = self._workplace
        if not is_warm:
            await process.connect()
            process.post(Setup(self._origin))
            await _until(Ready, process)
        now, facts = workplace.elapsed(), _facts(attempt)
        self._told[process] = (attempt, facts)
        ledger = workplace.ledger
        process.post(
            Begin(
                job=attempt.job,
                run_id=ledger.run_id,
                now=ledger.now(),
                budget_ends_in=workplace.budget_ends - now,
                budget=ledger.budget,
                needed=ledger.needed(attempt.job.type),
                config=dict(workplace.config),
                news=_news(facts, now),
            )
        )
        await _until(Began, process)
        attempt.deadline = workplace.elapsed() + attempt.job.timeout_ms / 1000

    async def _listen(self, process: HandlerProcess, attempt: Attempt) -> Outcome:
        while True:
            match await process.receive():
                case Ended(outcome, worked_before_ms):
                    attempt.worked_before_ms = worked_before_ms
                    return outcome
                case LoadSteps() | KeepStep() as question:
                    process.post(await _kept(attempt, question))
                case Noted() | Progressed() | Took() | Spared() as told:
                    self._write_down(attempt, told)
                case Enqueue() as wanted:
                    process.post(_enqueued(attempt, wanted))
                case Ready() | NotReady() | Began():
                    raise BrokenFrame

    def _write_down(self, attempt: Attempt, told: Noted | Progressed | Took | Spared) -> None:
        """Put it into the run's journal, unless a thread of an earlier handler says it."""
        journal, lock = self._workplace.journal, (attempt.job.seq, attempt.job.fence)
        match told:
            case Noted(note) if (note.seq, note.fence) == lock:
                journal.add(replace(note, at=journal.now()))
            case Progressed(progress) if (progress.seq, progress.fence) == lock:
                journal.set_progress(progress)
            case Took(step, seconds):
                attempt.workplace.ledger.took(attempt.job.type, step, seconds)
            case Spared():
                attempt.workplace.spared.add(attempt.job.seq)
            case _:
                pass

    def pass_on_news(self) -> None:
        """Tell children what has changed: a cancellation, a signal, an earlier end."""
        now = self._workplace.elapsed()
        for process, (attempt, known) in self._told.items():
            facts = _facts(attempt)
            if facts != known:
                self._told[process] = (attempt, facts)
                process.post(_news(facts, now))

    async def _end(self, process: HandlerProcess) -> int:
        """Kill and reap it; if that is cancelled, `close` does the rest."""
        self._told.pop(process, None)
        process.kill()
        await asyncio.wait([process.exit])
        self._alive.discard(process)
        return process.reap()

    async def close(self) -> None:
        """Let idle children leave their lifespan, and end whatever is not gone in time."""
        left = self._workplace.interrupts_at - self._workplace.elapsed()
        for process in self._idle:
            process.post(Close())
        for process in self._alive.difference(self._idle):
            process.kill()
        self._idle.clear()
        exits = [process.exit for process in self._alive]
        if not exits:
            return
        try:
            await asyncio.wait(
                exits, timeout=max(_SHORTEST_CLOSE_SECONDS, min(left, _CLOSE_SECONDS))
            )
        finally:
            for process in self._alive:
                process.kill()
            await asyncio.wait(exits, timeout=_DEATH_SECONDS)
            for process in self._alive:
                if process.exit.done():
                    process.reap()
            self._alive.clear()


def _died(how: str) -> Failed:
    return Failed(ErrorClass.TRANSIENT, safe_message(f"the handler's process {how}"))


_Facts = tuple[float, bool, StopReason | None]


def _facts(attempt: Attempt) -> _Facts:
    workplace = attempt.workplace
    return workplace.interrupts_at, attempt.cancel_requested, workplace.stops_for


def _news(facts: _Facts, now: float) -> News:
    interrupts_at, cancel_requested, stops_for = facts
    return News(interrupts_at - now, cancel_requested, stops_for)


async def _until(wanted: type[FromChild], process: HandlerProcess) -> None:
    """Skip what a thread of an earlier handler still has to say."""
    while not isinstance(message := await process.receive(), wanted):
        if isinstance(message, NotReady):
            raise _NeverBegan(f"is not ready: {message.reason}")


async def _kept(attempt: Attempt, question: LoadSteps | KeepStep) -> Done | Kept | Refused:
    """Look steps up, or keep one, if it is this attempt that says so."""
    ledger, job = attempt.workplace.ledger, attempt.job
    try:
        match question:
            case LoadSteps():
                return Done(await ledger.load(job))
            case KeepStep(step):
                if (step.seq, step.fence) != (job.seq, job.fence):
                    raise LockLost(step.job_id)
                await ledger.record(step)
                return Kept()
    except Exception as refused:
        return refusal(refused)


def _enqueued(attempt: Attempt, wanted: Enqueue) -> Prepared | Refused:
    """Prepare a child job here, where the types are known; it is stored with the outcome."""
    try:
        if (wanted.seq, wanted.fence) != (attempt.job.seq, attempt.job.fence):
            raise LockLost(attempt.job.id)
        value = json_text.decode(wanted.input)
        job = attempt.workplace.prepare_child(wanted.job_type, value, **wanted.options)
    except Exception as refused:
        return refusal(refused)
    attempt.children.append(job)
    return Prepared(job)

"""The steps of one attempt: what is done already is not done again, what is done is kept."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

from edgeq.attempt import Attempt, Sleeping, Stopping, StopReason
from edgeq.codec import Codec, encode_output
from edgeq.core.redaction import safe_message
from edgeq.core.steps import FIRST_PART, SLEEP, Step, StepId, StepKind, step_id
from edgeq.errors import EdgeqError, InvalidInput, StepRefused, TransactionFailed
from edgeq.ports.flow_commands import NewStep

Produce = Callable[[], Awaitable[Any]]


class StepBook:
    """What an attempt knows of its steps; made when the handler asks for the first one."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._ledger = attempt.workplace.ledger
        self._done: dict[StepId, Step] | None = None
        self._asked_for: set[StepId] = set()
        self._sleeps = 0
        self._has_worked = False

    async def step(self, name: str, key: object, function: Callable[..., Any], do: Produce) -> Any:
        """The kept result, or that of doing it now."""
        where = self._next(step_id(self._attempt.job.id, name, key))
        codec = _codec_of(function)
        done = (await self._steps()).get(where)
        if done is not None:
            return self._read(where, codec, done.result)
        began = self._begin(where)
        try:
            text, value = self._encoded(where, codec, await do())
        except BaseException:
            self._took(where, began)
            raise
        took = self._took(where, began)
        await self._record(where, StepKind.STEP, text, round(took * 1000))
        return value

    async def transaction(
        self, name: str, key: object, function: Callable[..., Any], do: Callable[[Any], Any]
    ) -> Any:
        """The same for what happens inside the commit that keeps it."""
        where = self._next(step_id(self._attempt.job.id, name, key))
        codec = _codec_of(function)
        done = (await self._steps()).get(where)
        if done is not None:
            return self._read(where, codec, done.result)
        began = self._begin(where)
        step = self._new(where, StepKind.TRANSACTION)
        try:
            text = await self._ledger.transact(
                step, lambda connection: self._encoded(where, codec, do(connection))[0]
            )
        except TransactionFailed as failed:
            raise failed.cause from failed
        finally:
            self._took(where, began)
        self._has_worked = True
        return codec.read(text)

    async def sleep(self, seconds: float) -> None:
        """Go on if the time has come; else put the job back until then."""
        self._sleeps += 1
        where = self._next((SLEEP, str(self._sleeps)))
        done = (await self._steps()).get(where)
        now = self._ledger.now()
        if done is None:
            until = now + round(max(0.0, seconds) * 1000)
            await self._record(where, StepKind.SLEEP, str(until), 0)
        else:
            until = int(done.result or 0)
        if until > now:
            raise Sleeping(until - now)

    async def _steps(self) -> dict[StepId, Step]:
        if self._done is None:
            job = self._attempt.job
            steps = await self._ledger.load(job) if job.steps else ()
            self._done = {(step.name, step.key): step for step in steps}
            self._attempt.worked_before_ms = sum(step.duration_ms for step in steps)
        return self._done

    def _next(self, where: StepId) -> StepId:
        self._attempt.check()
        if where in self._asked_for:
            raise StepRefused(
                self._attempt.job.id,
                where[0],
                "it was asked for before: in a loop, give each a key",
            )
        self._asked_for.add(where)
        return where

    def _begin(self, where: StepId) -> float:
        """Stop before a step that would not end in time, unless nothing was done yet."""
        attempt = self._attempt
        # What the run has left: a timeout is the job's own matter, and counts when it is reached.
        left = attempt.workplace.interrupts_at - attempt.workplace.elapsed()
        if self._has_worked and not self._ledger.fits(attempt.job.type, where[0], left):
            attempt.workplace.spared.add(attempt.job.seq)
            raise Stopping(StopReason.BUDGET)
        attempt.stage = where[0]
        return attempt.workplace.elapsed()

    def _took(self, where: StepId, began: float) -> float:
        """Count it, finished or cut short: it takes at least as long."""
        now = self._attempt.workplace.elapsed()
        job = self._attempt.job
        self._ledger.took(job.type, where[0], now - began)
        if not self._has_worked:
            self._ledger.took(job.type, FIRST_PART, now - self._attempt.started)
        return now - began

    def _read(self, where: StepId, codec: Codec, result: str | None) -> Any:
        try:
            return codec.read(result or "null")
        except InvalidInput as wrong:
            raise StepRefused(
                self._attempt.job.id,
                where[0],
                f"its kept result is not what its function returns by now: {wrong} "
                "Retry the job from this step on",
            ) from wrong

    def _encoded(self, where: StepId, codec: Codec, value: Any) -> tuple[str, Any]:
        """A result as it is kept, and as it is read again: what cannot be must not be kept."""
        attempt = self._attempt
        try:
            text = encode_output(codec, value)
            again = codec.read(text)
        except InvalidInput as wrong:
            raise StepRefused(attempt.job.id, where[0], f"its result: {wrong}") from wrong
        limit = attempt.handler.policy.output_max_bytes
        size = len(text.encode())
        if size > limit:
            raise StepRefused(
                attempt.job.id,
                where[0],
                f"its result has {size} bytes, more than output_max_bytes ({limit}): store it "
                "elsewhere and return where",
            )
        return text, again

    async def _record(self, where: StepId, kind: StepKind, result: str, duration_ms: int) -> None:
        await self._ledger.record(self._new(where, kind, result, duration_ms))
        self._has_worked = True

    def _new(
        self, where: StepId, kind: StepKind, result: str | None = None, duration_ms: int = 0
    ) -> NewStep:
        attempt, job = self._attempt, self._attempt.job
        return NewStep(
            seq=job.seq,
            fence=job.fence,
            job_id=job.id,
            type=job.type,
            tenant_id=job.tenant_id,
            attempt=job.attempt,
            progress=attempt.percent,
            run_id=self._ledger.run_id,
            name=where[0],
            key=where[1],
            kind=kind,
            result=result,
            duration_ms=duration_ms,
        )


def _codec_of(function: Callable[..., Any]) -> Codec:
    """How a result is read again: as the function says it returns, if it says so readably."""
    named = inspect.unwrap(function)
    while isinstance(named, functools.partial):
        named = inspect.unwrap(named.func)
    named = getattr(named, "__func__", named)
    return _codec(named) if inspect.isfunction(named) else _ANYTHING


@functools.lru_cache(maxsize=1024)
def _codec(named: Callable[..., Any]) -> Codec:
    try:
        return Codec(get_type_hints(named).get("return", Any), safe_message(repr(named)))
    except (EdgeqError, NameError, TypeError, AttributeError):
        return _ANYTHING


_ANYTHING = Codec(Any, "a step")

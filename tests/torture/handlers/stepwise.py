"""Handlers whose input describes their steps, and who say what every step did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from edgeq import Context, SyncContext, handler
from tests.torture import step_ledger
from tests.torture.step_ledger import Said
from tests.torture.step_plans import Plan

_SOON = 0.05


class _Telling:
    """One execution of a plan's handler; remembers which steps it has run itself."""

    def __init__(self, ctx: Context | SyncContext, plan: Plan) -> None:
        self._ctx = ctx
        self._plan = plan
        self._expected = plan.results()
        self._ran: set[int] = set()

    def say(self, said: Said, place: int = -1) -> None:
        ctx = self._ctx
        step_ledger.write(
            said,
            job_id=ctx.job.id,
            attempt=ctx.attempt,
            fence=ctx.job.fence,
            place=place,
            remaining=ctx.remaining if said is Said.START else 0.0,
        )

    @contextmanager
    def told(self) -> Iterator[None]:
        self.say(Said.START)
        try:
            yield
        except BaseException:
            self.say(Said.LEFT)
            raise
        self.say(Said.DONE)

    def begin(self, place: int) -> None:
        self._ran.add(place)
        self.say(Said.BEGIN, place)

    def end(self, place: int, before: Any) -> Any:
        if self._ctx.attempt < self._plan.attempt_of(place):
            self.say(Said.RAISED, place)
            raise RuntimeError(f"part {place} fails as planned")
        self.say(Said.END, place)
        return self._plan.value(place, before)

    def returned(self, place: int, value: Any) -> Any:
        if value != self._expected[place]:
            self.say(Said.WRONG, place)
        if place in self._ran:
            self.say(Said.KEPT, place)
        return value


async def _body(telling: _Telling, place: int, seconds: float, before: Any) -> Any:
    telling.begin(place)
    await asyncio.sleep(seconds)
    return telling.end(place, before)


def _def_body(telling: _Telling, place: int, seconds: float, before: Any) -> Any:
    telling.begin(place)
    time.sleep(seconds)
    return telling.end(place, before)


@handler("stepwise", max_retries=40, retry_delay=_SOON, retry_max_delay=_SOON)
async def stepwise(ctx: Context, input: Plan) -> Any:
    telling = _Telling(ctx, input)
    before: Any = None
    with telling.told():
        for place, part in enumerate(input.parts):
            if part.kind == "sleep":
                telling.say(Said.SLEEPS, place)
                await ctx.sleep(part.seconds)
                continue
            body = _body if part.kind == "step" else _def_body
            before = telling.returned(
                place,
                await ctx.step(part.name, body, telling, place, part.seconds, before, key=part.key),
            )
    return before


def _in_its_own_thread(ctx: SyncContext, plan: Plan) -> Any:
    telling = _Telling(ctx, plan)
    before: Any = None
    with telling.told():
        for place, part in enumerate(plan.parts):
            if part.kind == "sleep":
                telling.say(Said.SLEEPS, place)
                ctx.sleep(part.seconds)
                continue
            body = partial(_def_body, telling, place, part.seconds, before)
            before = telling.returned(place, ctx.step(part.name, body, key=part.key))
    return before


@handler("stepwise_in_thread", max_retries=40, retry_delay=_SOON, retry_max_delay=_SOON)
def stepwise_in_thread(ctx: SyncContext, input: Plan) -> Any:
    return _in_its_own_thread(ctx, input)


@handler(
    "stepwise_in_process",
    executor="process",
    max_retries=40,
    retry_delay=_SOON,
    retry_max_delay=_SOON,
)
def stepwise_in_process(ctx: SyncContext, input: Plan) -> Any:
    return _in_its_own_thread(ctx, input)

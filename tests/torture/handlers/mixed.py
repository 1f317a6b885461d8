"""Handlers of a mixed load: short ones, and long ones that go step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from edgeq import Context, handler
from tests.torture import step_ledger
from tests.torture.handlers._shapes import Work
from tests.torture.step_ledger import Said


class Course(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    steps: int
    seconds: float


def _say(said: Said, ctx: Context, place: int = -1) -> None:
    # Not waited for: it would be the disk that is measured.
    step_ledger.write(
        said,
        job_id=ctx.job.id,
        attempt=ctx.attempt,
        fence=ctx.job.fence,
        place=place,
        remaining=ctx.remaining if said is Said.START else 0.0,
        durably=False,
    )


@contextmanager
def _told(ctx: Context) -> Iterator[None]:
    _say(Said.START, ctx)
    try:
        yield
    except BaseException:
        _say(Said.LEFT, ctx)
        raise
    _say(Said.DONE, ctx)


@handler("short")
async def short(ctx: Context, input: Work) -> None:
    with _told(ctx):
        await asyncio.sleep(input.seconds)


@handler("short_and_fast", lane="fast")
async def short_and_fast(ctx: Context, input: Work) -> None:
    with _told(ctx):
        await asyncio.sleep(input.seconds)


async def _lesson(seconds: float, place: int) -> int:
    await asyncio.sleep(seconds)
    return place


@handler("long")
async def long(ctx: Context, input: Course) -> int:
    with _told(ctx):
        for place in range(input.steps):
            if await ctx.step("lesson", _lesson, input.seconds, place, key=place) != place:
                _say(Said.WRONG, ctx, place)
            _say(Said.KEPT, ctx, place)
    return input.steps

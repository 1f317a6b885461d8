"""Handlers that are stopped with their process, and say what they learn when it wakes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from edgeq import Context, SyncContext, handler
from edgeq.errors import LockLost
from tests.torture.handlers._saying import say, told
from tests.torture.handlers._shapes import Done, done
from tests.torture.ledger import Event

_STEP_SECONDS = 0.02


class Shift(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the first holder works on it, and how long whoever rescues it."""

    seconds: float
    rescue_seconds: float


@handler("zombie")
async def zombie(ctx: Context, input: Shift) -> Done:
    with told(ctx):
        try:
            await asyncio.sleep(_seconds(ctx, input))
        except asyncio.CancelledError:
            if ctx.lost:
                say(Event.LOST, ctx)
            try:
                await ctx.log("from the grave")
            except LockLost:
                say(Event.REFUSED, ctx)
            raise
    return done(ctx)


@handler("zombie_in_thread")
def zombie_in_thread(ctx: SyncContext, input: Shift) -> Done:
    """Reports progress all the time, also while nobody has told it yet that it is a zombie."""
    ends = time.monotonic() + _seconds(ctx, input)
    with told(ctx):
        while time.monotonic() < ends:
            time.sleep(_STEP_SECONDS)
            if ctx.lost:
                say(Event.LOST, ctx)
            try:
                ctx.progress(50)
            except LockLost:
                say(Event.REFUSED, ctx)
                raise
    return done(ctx)


def _seconds(ctx: Context | SyncContext, input: Shift) -> float:
    return input.seconds if ctx.job.losses == 0 else input.rescue_seconds


@handler("late")
async def late(ctx: Context, input: Shift) -> Done:
    """Ends while its process is stopped: all that is left to do is to say so, too late."""
    with told(ctx), _refusals(ctx):
        await asyncio.sleep(_seconds(ctx, input))
        await ctx.log("ended")
        await ctx.progress(99)
    return done(ctx)


@handler("late_in_thread")
def late_in_thread(ctx: SyncContext, input: Shift) -> Done:
    with told(ctx), _refusals(ctx):
        time.sleep(_seconds(ctx, input))
        ctx.log("ended")
        ctx.progress(99)
    return done(ctx)


@contextmanager
def _refusals(ctx: Context | SyncContext) -> Iterator[None]:
    """Say how it was learned that the job is lost."""
    try:
        yield
    except (asyncio.CancelledError, LockLost) as learned:
        if ctx.lost:
            say(Event.LOST, ctx)
        if isinstance(learned, LockLost):
            say(Event.REFUSED, ctx)
        raise

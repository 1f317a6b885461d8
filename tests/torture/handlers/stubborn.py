"""Handlers that do not stop in time, each in its own way."""

from __future__ import annotations

import asyncio
import time

from edgeq import Context, SyncContext, handler
from tests.torture.handlers._saying import told
from tests.torture.handlers._shapes import Done, Work, done


@handler("sleeps")
async def sleeps(ctx: Context, input: Work) -> Done:
    with told(ctx):
        await asyncio.sleep(input.seconds)
    return done(ctx)


@handler("spins")
async def spins(ctx: Context, input: Work) -> Done:
    """Keeps the event loop to itself."""
    with told(ctx):
        _spin(input.seconds)
    return done(ctx)


@handler("spins_in_thread")
def spins_in_thread(ctx: SyncContext, input: Work) -> Done:
    with told(ctx):
        _spin(input.seconds)
    return done(ctx)


@handler("ignores_cancellation")
async def ignores_cancellation(ctx: Context, input: Work) -> Done:
    ends = time.monotonic() + input.seconds
    with told(ctx):
        while time.monotonic() < ends:
            try:
                await asyncio.sleep(ends - time.monotonic())
            except asyncio.CancelledError:
                continue
    return done(ctx)


@handler("blocks_thread")
def blocks_thread(ctx: SyncContext, input: Work) -> Done:
    with told(ctx):
        time.sleep(input.seconds)
    return done(ctx)


def _spin(seconds: float) -> None:
    # As good as for ever; an end only so that a watchdog that failed cannot leave it behind.
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        pass

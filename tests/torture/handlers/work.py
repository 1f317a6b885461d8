"""Handlers that do a little work and nothing wrong."""

from __future__ import annotations

import asyncio
import time

from edgeq import Context, SyncContext, handler
from tests.torture.handlers._saying import told
from tests.torture.handlers._shapes import Done, Work, done


@handler("work")
async def work(ctx: Context, input: Work) -> Done:
    with told(ctx):
        await asyncio.sleep(input.seconds)
    return done(ctx)


@handler("work_in_thread")
def work_in_thread(ctx: SyncContext, input: Work) -> Done:
    with told(ctx):
        time.sleep(input.seconds)
    return done(ctx)


@handler("quick")
async def quick(ctx: Context, input: Work) -> Done:
    """So short that edgeq claims it ahead of its turn."""
    with told(ctx):
        pass
    return done(ctx)

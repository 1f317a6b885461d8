"""Handlers that write a row of their own into the queue's file, in the commit of their step."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
from sqlalchemy import text

from edgeq import Context, SyncContext, handler

_SOON = 0.05


class Effect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long to dawdle around the row, and how often to fail after it was written."""

    seconds: float = 0.0
    fails: int = 0


def add_row(connection: Any, job_id: str, is_to_fail: bool) -> int:  # noqa: FBT001
    connection.execute(text("INSERT INTO effects (job_id) VALUES (:job_id)"), {"job_id": job_id})
    if is_to_fail:
        raise RuntimeError("fails as planned, with the row written")
    number: int = connection.execute(text("SELECT last_insert_rowid()")).scalar_one()
    return number


@handler("effect", max_retries=10, retry_delay=_SOON, retry_max_delay=_SOON)
async def effect(ctx: Context, input: Effect) -> int:
    await asyncio.sleep(input.seconds)
    number = await ctx.transaction("row", add_row, ctx.job.id, ctx.attempt <= input.fails)
    await asyncio.sleep(input.seconds)
    return number


@handler("effect_in_thread", max_retries=10, retry_delay=_SOON, retry_max_delay=_SOON)
def effect_in_thread(ctx: SyncContext, input: Effect) -> int:
    time.sleep(input.seconds)
    number = ctx.transaction("row", add_row, ctx.job.id, ctx.attempt <= input.fails)
    time.sleep(input.seconds)
    return number

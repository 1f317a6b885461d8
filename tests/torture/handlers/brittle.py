"""A handler that takes its process with it when its input says so."""

from __future__ import annotations

import asyncio
import ctypes
import os
from typing import Literal

import msgspec

from edgeq import Context, handler
from tests.torture.handlers._saying import told
from tests.torture.handlers._shapes import Done, done


class Fate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seconds: float = 0.0
    dies_by: Literal["exit", "segfault"] | None = None


@handler("brittle")
async def brittle(ctx: Context, input: Fate) -> Done:
    with told(ctx):
        await asyncio.sleep(input.seconds)
        match input.dies_by:
            case "exit":
                os._exit(17)
            case "segfault":
                ctypes.string_at(0)
            case None:
                pass
    return done(ctx)

"""What handlers of the torture are given, and what they return."""

from __future__ import annotations

import os

import msgspec

from edgeq import Context, SyncContext


class Work(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seconds: float = 0.0


class Done(msgspec.Struct, frozen=True):
    """Who did it, so that an accepted completion can be held against the ledger."""

    pid: int
    fence: int


def done(ctx: Context | SyncContext) -> Done:
    return Done(os.getpid(), ctx.job.fence)

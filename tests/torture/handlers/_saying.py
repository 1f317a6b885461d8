"""How handlers write the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edgeq import Context, SyncContext
from tests.torture import ledger
from tests.torture.ledger import Event


def say(event: Event, ctx: Context | SyncContext) -> None:
    job = ctx.job
    ledger.write(event, job_id=job.id, attempt=ctx.attempt, fence=job.fence, losses=job.losses)


@contextmanager
def told(ctx: Context | SyncContext) -> Iterator[None]:
    """A line for the start, and one for the end if there is one."""
    say(Event.START, ctx)
    yield
    say(Event.END, ctx)

"""Work that comes to its end, however often whoever waits for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Wait for the end of work that must not be left by halves; a cancellation is heeded after."""
    working = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not working.done():
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError as heard:
            cancelled = heard
    if cancelled is not None:
        # What the work itself may have raised is of no use to a caller who has gone away.
        _ = working.cancelled() or working.exception()
        raise cancelled
    return working.result()

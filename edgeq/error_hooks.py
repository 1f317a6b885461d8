"""Telling the `on_error` hooks of a handlers folder that an attempt has failed."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Sequence
from functools import partial

from edgeq.attempt import Attempt
from edgeq.context import Context, SyncContext
from edgeq.registry import OnError
from edgeq.threads import HandlerThreads

HOOK_SECONDS = 5.0
_log = logging.getLogger("edgeq")


async def tell_hooks(
    hooks: Sequence[OnError], attempt: Attempt, error: BaseException, threads: HandlerThreads
) -> None:
    """Call all hooks at once and give them some time; whatever they do, the outcome stands."""
    calls = {_called(hook, attempt, error, threads): hook for hook in hooks}
    # Cancelled when the run ends or the attempt's time is over: it has failed already.
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait(calls, timeout=HOOK_SECONDS)
    for call, hook in calls.items():
        where = f"{hook.__module__}.{getattr(hook, '__qualname__', hook)}"
        if not call.done():
            call.cancel()
            _log.warning("%s: %s took too long and is not waited for", attempt.job.type, where)
        elif not call.cancelled() and (failure := call.exception()) is not None:
            _log.warning("%s: %s failed: %r", attempt.job.type, where, failure)


def _called(
    hook: OnError, attempt: Attempt, error: BaseException, threads: HandlerThreads
) -> asyncio.Future[object]:
    if inspect.iscoroutinefunction(hook):
        return asyncio.ensure_future(hook(Context(attempt, threads), error))
    return threads.run(partial(hook, SyncContext(attempt, threads), error))

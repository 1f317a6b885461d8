"""The plain entry point: one call, one budgeted run, for cron, scripts and serverless."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from edgeq.core.runs import RunReport
from edgeq.crew import UNWIND_SECONDS
from edgeq.registry import HandlerSource
from edgeq.settings import DEFAULT_HANDLERS, from_environment
from edgeq.wiring import Queue


def process_jobs(db: str | None = None, handlers: HandlerSource = None, **limits: Any) -> RunReport:
    """Run what is due, with the handlers of EDGEQ_HANDLERS or ./handlers, and report.

    The limits are those of `Queue.process_jobs`.
    """
    settings = from_environment(os.environ)
    if handlers is None:
        handlers = settings.handlers
    if handlers is None and Path(DEFAULT_HANDLERS).is_dir():
        handlers = DEFAULT_HANDLERS

    async def run() -> RunReport:
        async with Queue(db, handlers=handlers, settings=settings) as queue:
            return await queue.process_jobs(**limits)

    return _run_and_leave(run())


def _run_and_leave(main: Coroutine[Any, Any, RunReport]) -> RunReport:
    """As asyncio.run, which would wait for ever for a handler that swallows its cancellation."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(main)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        left = asyncio.all_tasks(loop)
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=UNWIND_SECONDS))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

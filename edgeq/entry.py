"""The plain entry point: one call, one budgeted run, for cron, scripts and serverless."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from edgeq.core.runs import RunReport
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

    return asyncio.run(run())

"""edgeq: a job queue that fits in one SQLite file."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Imported on first use: a handlers file needs three of these names, and an idle tick none.
_HOMES = {
    "Context": "edgeq.context",
    "Enqueued": "edgeq.producing",
    "Fail": "edgeq.core.outcomes",
    "FeedReset": "edgeq.core.feed",
    "Job": "edgeq.core.jobs",
    "JobEvent": "edgeq.core.feed",
    "JobStatus": "edgeq.core.jobs",
    "Queue": "edgeq.wiring",
    "RateLimited": "edgeq.core.outcomes",
    "Retry": "edgeq.core.outcomes",
    "Review": "edgeq.core.outcomes",
    "RunReport": "edgeq.core.runs",
    "Skip": "edgeq.core.outcomes",
    "Snooze": "edgeq.core.outcomes",
    "SyncContext": "edgeq.context",
    "SyncQueue": "edgeq.sync_queue",
    "attach": "edgeq.wiring",
    "content_key": "edgeq.core.ids",
    "handler": "edgeq.declaration",
    "link": "edgeq.queue.flows",
    "process_jobs": "edgeq.entry",
}

if TYPE_CHECKING:
    from edgeq.context import Context, SyncContext
    from edgeq.core.feed import FeedReset, JobEvent
    from edgeq.core.ids import content_key
    from edgeq.core.jobs import Job, JobStatus
    from edgeq.core.outcomes import Fail, RateLimited, Retry, Review, Skip, Snooze
    from edgeq.core.runs import RunReport
    from edgeq.declaration import handler
    from edgeq.entry import process_jobs
    from edgeq.producing import Enqueued
    from edgeq.sync_queue import SyncQueue
    from edgeq.wiring import Queue, attach

__all__ = [
    "Context",
    "Enqueued",
    "Fail",
    "FeedReset",
    "Job",
    "JobEvent",
    "JobStatus",
    "Queue",
    "RateLimited",
    "Retry",
    "Review",
    "RunReport",
    "Skip",
    "Snooze",
    "SyncContext",
    "SyncQueue",
    "__version__",
    "attach",
    "content_key",
    "handler",
    "link",
    "process_jobs",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'edgeq' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value

"""`edgeq process`: one budgeted run, as cron calls it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import click

from edgeq.cli.early_signals import end_at_once
from edgeq.cli.invocation import Invocation, common_options, reporting_errors
from edgeq.cli.process_start import CLOCK, process_began
from edgeq.cli.report import show_report


@click.command()
@click.option(
    "--budget", type=click.FloatRange(0), help="Seconds in which work may be started (25)."
)
@click.option(
    "--grace", type=click.FloatRange(0), help="Extra seconds in which started work may end (5)."
)
@click.option("--concurrency", type=click.IntRange(1), help="Jobs at the same time (8).")
@click.option(
    "--fast-slots",
    type=click.IntRange(0),
    help="Slots that only jobs of the fast lane take (3).",
)
@click.option("--types", multiple=True, metavar="NAME", help="Only these job types.")
@click.option("--lanes", multiple=True, metavar="LANE", help="Only these lanes.")
@click.option("--max-jobs", type=click.IntRange(1), help="Stop after this many jobs.")
@click.option("--last-chance", hidden=True, help="RUN_ID:LOSSES, for a child that runs suspects.")
@common_options
def process(invocation: Invocation, **given: Any) -> None:
    """Run what is due under a time budget, report, and exit."""
    # Starting Python and importing the engine and the handlers belong to the run.
    began = process_began()
    end_at_once()
    limits = {name: value for name, value in given.items() if value not in (None, ())}
    with reporting_errors(invocation):
        if "last_chance" in limits or not _was_idle(invocation, limits.get("types", ()), began):
            # Only now is it worth importing the engine.
            from edgeq.cli.running import run_process

            run_process(invocation, limits, began=began)


def _was_idle(invocation: Invocation, types: tuple[str, ...], began: float) -> bool:
    """Look with the standard library alone whether there is anything to do at all."""
    from edgeq.store import idle
    from edgeq.store.sqlite_file import SCHEME, path_of

    if not invocation.db.startswith(SCHEME):
        return False
    path = path_of(invocation.db)
    now = time.time_ns() // 1_000_000
    found = idle.look(path, _source(invocation.handlers), now, types)
    if found is None:
        return False
    report = _idle_report(found, began)
    worker_name = os.environ.get("EDGEQ_WORKER_NAME", "")
    idle.count_tick(path, worker_name, json.dumps(report), str(report["stopped"]), now)
    shown = {**report, "next_due_at": _rfc3339(found.next_due_at)}
    show_report(shown, as_json=invocation.as_json)
    return True


def _source(handlers: str | None) -> Any:
    """How the handlers look now; a module cannot be looked at without importing it."""
    from edgeq.handler_files import fingerprint_of
    from edgeq.store.idle import Source

    if handlers is None:
        return None
    folder = Path(handlers)
    if not folder.is_dir():
        return Source(handlers, "unknown")
    return Source(str(folder.resolve()), fingerprint_of(folder))


def _idle_report(found: Any, began: float) -> dict[str, object]:
    """The report of a run that had nothing to do; a test compares it with RunReport."""
    return {
        "run_id": "idle",
        "claimed": 0,
        "completed": 0,
        "failed": 0,
        "retried": 0,
        "review": 0,
        "snoozed": 0,
        "interrupted": 0,
        "cancelled": 0,
        "lost_locks": 0,
        "reclaimed": 0,
        "fired": 0,
        "deferred": 0,
        "unhandled_types": [],
        "remaining": 0,
        "capped": False,
        "next_due_at": found.next_due_at,
        "stopped": "empty" if found.is_enabled else "disabled",
        "duration_ms": round((time.clock_gettime(CLOCK) - began) * 1000),
    }


def _rfc3339(ms: int | None) -> str | None:
    if ms is None:
        return None
    seconds, millis = divmod(ms, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{millis:03d}Z"

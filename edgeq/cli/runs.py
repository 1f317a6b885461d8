"""`edgeq runs`: what recent runs did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgeq.cli.invocation import Invocation, ask, common_options
from edgeq.cli.output import age, duration, note, print_json, say, table
from edgeq.documents import page_document, run_document
from edgeq.ports.queries import LARGEST_PAGE, PAGE, RunRow

if TYPE_CHECKING:
    from edgeq.wiring import Queue


@click.command()
@click.option("--limit", type=int, default=PAGE, help=f"At most {LARGEST_PAGE}; default {PAGE}.")
@common_options
def runs(invocation: Invocation, *, limit: int) -> None:
    """List recent runs, newest first."""

    async def asked(queue: Queue) -> tuple[tuple[RunRow, ...], int]:
        return await queue.runs(limit=limit), queue.store.now()

    found, now = ask(invocation, asked)
    if invocation.as_json:
        print_json(page_document(map(run_document, found), None))
    elif found:
        counted = ("claimed", "completed", "failed", "retried", "stopped")
        headers = ("run", "kind", "last seen", "ticks", *counted, "took")
        say(table(headers, [_row(each, counted, now) for each in found]))
    else:
        note("No runs yet.")


def _row(run: RunRow, counted: tuple[str, ...], now: int) -> tuple[object, ...]:
    report = run.report or {}
    took = report.get("duration_ms")
    return (
        run.run_id,
        run.kind,
        age(run.last_seen_at, now),
        run.ticks,
        *(report.get(name) for name in counted),
        duration(took if isinstance(took, int) else None),
    )

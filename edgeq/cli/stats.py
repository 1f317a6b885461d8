"""`edgeq stats`: how many jobs there are in which state, and how long they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgeq.cli.invocation import Invocation, ask, common_options
from edgeq.cli.output import age, count, duration, note, print_json, say, table
from edgeq.core.jobs import JobStatus
from edgeq.documents import stats_document
from edgeq.ports.queries import Stats, TypeStats

if TYPE_CHECKING:
    from edgeq.wiring import Queue


@click.command()
@common_options
def stats(invocation: Invocation) -> None:
    """Count jobs by type and state, and tell how long they take."""

    async def asked(queue: Queue) -> tuple[Stats, int]:
        return await queue.stats(), queue.store.now()

    found, now = ask(invocation, asked)
    if invocation.as_json:
        print_json(stats_document(found))
    elif found.types:
        headers = ("type", *JobStatus, "p50", "p95", "p99", "next due")
        say(table(headers, [_row(each, now) for each in found.types]))
    else:
        note("No job types.")


def _row(stats: TypeStats, now: int) -> tuple[object, ...]:
    counts = [count(stats.counts.get(state, 0)) for state in JobStatus]
    took = [duration(ms) for ms in (stats.p50_ms, stats.p95_ms, stats.p99_ms)]
    return (stats.type, *counts, *took, age(stats.oldest_due_at, now))

"""`edgeq jobs list|show|logs|result`: looking at jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edgeq.cli.invocation import Invocation, ask, common_options
from edgeq.cli.job_views import (
    JOB_COLUMNS,
    attempts_table,
    job_fields,
    job_row,
    log_table,
    steps_table,
)
from edgeq.cli.output import fields, note, pretty_json, print_json, say, table
from edgeq.core.jobs import Attempt, Job
from edgeq.core.steps import Step
from edgeq.documents import (
    error_document,
    job_details,
    job_document,
    log_document,
    page_document,
    result_document,
)
from edgeq.errors import JobCancelled, JobFailed
from edgeq.ports.queries import LARGEST_PAGE, PAGE, JobPage, LogPage

if TYPE_CHECKING:
    from edgeq.wiring import Queue


@click.command("list")
@click.option("--status", help="pending, processing, completed, failed, review_needed, ...")
@click.option("--type", "type")
@click.option("--category")
@click.option("--lane")
@click.option("--tenant", "tenant_id")
@click.option("--correlation", "correlation_id")
@click.option("--parent", "parent_job_id", metavar="JOB_ID")
@click.option("--batch", "batch_id")
@click.option("--key", "idempotency_key")
@click.option("--reference-type")
@click.option("--reference-id")
@click.option("--created-after", metavar="TIME", help="A time in RFC 3339.")
@click.option("--created-before", metavar="TIME", help="A time in RFC 3339.")
@click.option("--error-class")
@click.option("--limit", type=int, default=PAGE, help=f"At most {LARGEST_PAGE}; default {PAGE}.")
@click.option("--cursor", help="Go on where the last page ended.")
@common_options
def list_jobs(invocation: Invocation, *, limit: int, cursor: str | None, **filters: Any) -> None:
    """List jobs, newest first."""

    async def asked(queue: Queue) -> tuple[JobPage, int]:
        return await queue.list(limit=limit, cursor=cursor, **filters), queue.store.now()

    page, now = ask(invocation, asked)
    if invocation.as_json:
        print_json(page_document(map(job_document, page.items), page.next_cursor))
        return
    if page.items:
        say(table(JOB_COLUMNS, [job_row(job, now) for job in page.items]))
    else:
        note("No jobs.")
    _note_more(page.next_cursor)


class _Whole(NamedTuple):
    """All that there is to see of a job."""

    job: Job
    steps: tuple[Step, ...]
    attempts: tuple[Attempt, ...]
    log: LogPage
    waiting_for: tuple[str, ...]
    runs_left: int | None
    now: int


@click.command("show")
@click.argument("job_id")
@common_options
def show(invocation: Invocation, job_id: str) -> None:
    """Show a job with its steps, its attempts and its log."""

    async def asked(queue: Queue) -> _Whole:
        job = await queue.get(job_id)
        return _Whole(
            job,
            await queue.steps(job_id),
            await queue.attempts(job_id),
            await queue.logs(job_id, limit=LARGEST_PAGE),
            await queue.waiting_for(job_id),
            await queue.runs_left(job),
            queue.store.now(),
        )

    seen = ask(invocation, asked)
    if invocation.as_json:
        print_json(
            job_details(
                seen.job,
                seen.attempts,
                seen.log.items,
                steps=seen.steps,
                waiting_for=seen.waiting_for,
            )
        )
    else:
        _say_whole(seen)


def _say_whole(seen: _Whole) -> None:
    job = seen.job
    say(fields([*job_fields(job, seen.now), *_flow_fields(seen)]))
    for name, value in (("Input", job.input), ("Output", job.output)):
        if value is not None:
            say(f"\n{name}\n{pretty_json(value)}")
    if seen.steps:
        say(f"\nSteps\n{steps_table(seen.steps, seen.now)}")
    if seen.attempts:
        made = attempts_table(seen.attempts, seen.now)
        say(f"\nAttempts that did not simply succeed\n{made}")
    if seen.log.items:
        say(f"\nLog\n{log_table(seen.log.items)}")
    if seen.log.next_cursor is not None:
        note(f"There is more: edgeq jobs logs {job.id} --cursor {seen.log.next_cursor}")


def _flow_fields(seen: _Whole) -> list[tuple[str, object]]:
    runs = seen.runs_left
    return [
        ("waits for", ", ".join(seen.waiting_for) or None),
        ("finishes", None if runs is None else f"in about {runs} run{'' if runs == 1 else 's'}"),
    ]


@click.command("logs")
@click.argument("job_id")
@click.option("--limit", type=int, default=PAGE, help=f"At most {LARGEST_PAGE}; default {PAGE}.")
@click.option("--cursor", help="Go on where the last page ended.")
@common_options
def logs(invocation: Invocation, job_id: str, *, limit: int, cursor: str | None) -> None:
    """List a job's log, oldest first."""

    async def asked(queue: Queue) -> LogPage:
        await queue.get(job_id)  # a job that is not there has no log, not an empty one
        return await queue.logs(job_id, limit=limit, cursor=cursor)

    page = ask(invocation, asked)
    if invocation.as_json:
        print_json(page_document(map(log_document, page.items), page.next_cursor))
        return
    if page.items:
        say(log_table(page.items))
    else:
        note("The log is empty.")
    _note_more(page.next_cursor)


@click.command("result")
@click.argument("job_id")
@common_options
def result(invocation: Invocation, job_id: str) -> None:
    """Print what a completed job returned.

    Exits with 1 when it failed, was cancelled, has not ended, or its result is gone.
    """
    try:
        output = ask(invocation, lambda queue: queue.result(job_id))
    except JobFailed as failed:
        if invocation.as_json:
            error = error_document(failed.error_class, failed.message)
            print_json(result_document(job_id, "failed", error=error))
        raise
    except JobCancelled:
        if invocation.as_json:
            print_json(result_document(job_id, "cancelled", error=None))
        raise
    if invocation.as_json:
        print_json(result_document(job_id, "completed", output=output))
    else:
        say(pretty_json(output))


def _note_more(next_cursor: str | None) -> None:
    if next_cursor is not None:
        note(f"There is more: add --cursor {next_cursor}")

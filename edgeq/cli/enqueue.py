"""`edgeq enqueue`: one job, or one for each line of a file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from edgeq.cli.bulk import enqueue_lines, rewindable
from edgeq.cli.endings import FAILED, fail
from edgeq.cli.invocation import Invocation, ask, common_options
from edgeq.cli.output import note, paint, pretty_json, print_json, say
from edgeq.cli.values import a_number, json_value, reference
from edgeq.core.jobs import Job, JobStatus
from edgeq.documents import Document, error_document
from edgeq.errors import WaitTimeout

if TYPE_CHECKING:
    from edgeq.producing import Enqueued
    from edgeq.wiring import Queue


@click.command()
@click.argument("type_name", metavar="TYPE")
@click.argument("input_json", metavar="[INPUT_JSON]", required=False)
@click.option(
    "--bulk",
    metavar="FILE",
    help="One job for each line (JSON) of a file; - is stdin.",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
)
@click.option(
    "--wait",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    callback=a_number,
    help="Wait for its end; exit 1 unless it completed.",
)
@click.option("--key", "idempotency_key", help="Idempotency key: the same key is the same job.")
@click.option(
    "--on-duplicate",
    type=click.Choice(["return", "replace"]),
    help="What a key in use does: answer with its job, or change that job if pending.",
)
@click.option("--priority", type=int, help="1 to 20, higher first.  [default: 10]")
@click.option("--in", "delay", metavar="DURATION", help="Due in 90 (seconds), 5m, 1h30m.")
@click.option("--at", "scheduled_for", metavar="TIME", help="Due at a time in RFC 3339.")
@click.option("--expires-at", metavar="TIME", help="Cancel it instead of running it after that.")
@click.option("--max-retries", type=int, help="Instead of the type's.")
@click.option("--timeout", metavar="DURATION", help="Instead of the type's.")
@click.option("--result-ttl", metavar="DURATION", help="How long the result is kept.")
@click.option("--tenant", "tenant_id", help="Whose job it is.")
@click.option("--correlation", "correlation_id", help="What it belongs to, for tracing.")
@click.option("--reference", metavar="TYPE:ID", callback=reference, help="What it is about.")
@common_options
def enqueue(
    invocation: Invocation,
    type_name: str,
    *,
    input_json: str | None,
    bulk: str | None,
    wait: float | None,
    reference: dict[str, str],
    **options: Any,
) -> None:
    """Add a job, or one for each line of a file.

    INPUT_JSON is {} unless given; - reads it from stdin. The job is durable when this returns.
    """
    given = reference | {name: value for name, value in options.items() if value is not None}
    if bulk is None:
        value = json_value("{}" if input_json is None else input_json)
        _enqueue_one(invocation, type_name, value, given, wait)
    elif wait is not None:
        raise click.UsageError("--wait is for one job, and --bulk makes many.")
    elif input_json is not None or "idempotency_key" in given:
        raise click.UsageError("--bulk has its inputs in a file, and they cannot share one --key.")
    else:
        _enqueue_lines(invocation, type_name, bulk, given)


def _enqueue_one(
    invocation: Invocation,
    type_name: str,
    value: object,
    options: dict[str, Any],
    wait: float | None,
) -> None:
    async def enqueued(queue: Queue) -> tuple[Enqueued, Job | WaitTimeout | None]:
        answer = await queue.enqueue(type_name, value, **options)
        if wait is None:
            return answer, None
        try:
            return answer, await queue.wait(answer.job_id, wait)
        except WaitTimeout as too_long:
            return answer, too_long

    answer, ended = ask(invocation, enqueued, with_handlers=True)
    _show_answer(invocation, answer, ended if isinstance(ended, Job) else None)
    if isinstance(ended, WaitTimeout):
        fail(ended, as_json=invocation.as_json)
    if ended is not None and ended.status is not JobStatus.COMPLETED:
        sys.exit(FAILED)


def _show_answer(invocation: Invocation, answer: Enqueued, ended: Job | None) -> None:
    if invocation.as_json:
        document = _answer_document(answer)
        print_json(document if ended is None else document | _ending_document(ended))
        return
    remark = "  (duplicate)" if answer.duplicate else ""
    status = answer.status if ended is None else ended.status
    say(f"{answer.job_id}  {paint(status)}{remark}")
    if ended is not None and ended.status is JobStatus.COMPLETED:
        say(pretty_json(ended.output))
    elif ended is not None and ended.error_message is not None:
        note(f"{ended.error_class}: {ended.error_message}")


def _answer_document(answer: Enqueued) -> Document:
    document = {
        "job_id": answer.job_id,
        "status": answer.status,
        "duplicate": answer.duplicate,
    }
    has_result = answer.duplicate and answer.status == "completed"
    return document | ({"result": answer.result} if has_result else {})


def _ending_document(ended: Job) -> Document:
    document: Document = {"status": ended.status.value, "result": ended.output}
    error = error_document(ended.error_class, ended.error_message)
    return document if error is None else document | {"error": error}


def _enqueue_lines(
    invocation: Invocation, type_name: str, file: str, options: dict[str, Any]
) -> None:
    with rewindable(file) as lines:
        enqueued = ask(
            invocation,
            lambda queue: enqueue_lines(queue, type_name, lines, options),
            with_handlers=True,
        )
    if invocation.as_json:
        print_json({"enqueued": enqueued})
    else:
        say(f"{enqueued:,} jobs enqueued")

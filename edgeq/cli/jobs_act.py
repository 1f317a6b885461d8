"""`edgeq jobs cancel|retry|approve|reject|fail|release|delete|update`: acting on jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from edgeq.cli.endings import FAILED
from edgeq.cli.invocation import Invocation, actor, ask, common_options
from edgeq.cli.output import paint, print_json, say
from edgeq.cli.values import json_value
from edgeq.core.jobs import Job
from edgeq.core.times import parse_duration_ms
from edgeq.documents import job_document

if TYPE_CHECKING:
    from edgeq.wiring import Queue


@click.command("cancel")
@click.argument("job_id")
@click.option("--descendants", is_flag=True, help="Its children and theirs, too.")
@common_options
def cancel(invocation: Invocation, job_id: str, *, descendants: bool) -> None:
    """Cancel a job, or ask a running one to stop.

    Exits with 1 when the job had ended already or is not there.
    """
    answer = ask(
        invocation, lambda queue: queue.cancel(job_id, descendants=descendants, actor=actor())
    )
    _say_result(invocation, job_id, answer)
    if answer in ("ended", "not_found"):
        click.get_current_context().exit(FAILED)


@click.command("retry")
@click.argument("job_id")
@click.option("--input", "input_json", metavar="JSON", help="Run it with another input.")
@click.option("--from", "from_step", metavar="STEP", help="Forget this step and all after it.")
@click.option("--fresh", is_flag=True, help="Forget the results of all its steps.")
@common_options
def retry(
    invocation: Invocation,
    job_id: str,
    *,
    input_json: str | None,
    from_step: str | None,
    fresh: bool,
) -> None:
    """Run a failed, cancelled or reviewed job again."""
    value = None if input_json is None else json_value(input_json)
    _act(
        invocation,
        lambda queue: queue.retry(
            job_id, input=value, from_step=from_step, fresh=fresh, actor=actor()
        ),
        with_handlers=value is not None,
    )


@click.command("approve")
@click.argument("job_id")
@click.option("--output", "output_json", metavar="JSON", help="Complete it with another output.")
@click.option("--note", help="Kept in the job's log.")
@common_options
def approve(
    invocation: Invocation, job_id: str, *, output_json: str | None, note: str | None
) -> None:
    """Complete a job under review."""
    value = None if output_json is None else json_value(output_json)
    _act(
        invocation,
        lambda queue: queue.approve(job_id, output=value, note=note, actor=actor()),
        with_handlers=value is not None,
    )


@click.command("reject")
@click.argument("job_id")
@click.option("--reason", required=True)
@common_options
def reject(invocation: Invocation, job_id: str, *, reason: str) -> None:
    """Fail a job under review."""
    _act(invocation, lambda queue: queue.reject(job_id, reason=reason, actor=actor()))


@click.command("fail")
@click.argument("job_id")
@click.option("--reason", required=True)
@click.option("--retry", is_flag=True, help="Only its running attempt has failed.")
@common_options
def fail(invocation: Invocation, job_id: str, *, reason: str, retry: bool) -> None:
    """End a job by hand."""
    _act(invocation, lambda queue: queue.fail(job_id, reason=reason, retry=retry, actor=actor()))


@click.command("release")
@click.argument("job_id")
@common_options
def release(invocation: Invocation, job_id: str) -> None:
    """Take the lock of a stuck job away."""
    _act(invocation, lambda queue: queue.release(job_id, actor=actor()))


@click.command("delete")
@click.argument("job_id")
@common_options
def delete(invocation: Invocation, job_id: str) -> None:
    """Delete a job that is not running, with its log."""
    ask(invocation, lambda queue: queue.delete(job_id, actor=actor()))
    _say_result(invocation, job_id, "deleted")


@click.command("update")
@click.argument("job_id")
@click.option("--priority", type=int, help="1 to 20, higher first.")
@click.option("--at", "due_at", metavar="TIME", help="Due at a time in RFC 3339.")
@click.option("--in", "due_in", metavar="DURATION", help="Due in 90 (seconds), 5m, 1h30m.")
@click.option("--input", "input_json", metavar="JSON", help="Give it another input.")
@common_options
def update(
    invocation: Invocation,
    job_id: str,
    *,
    priority: int | None,
    due_at: str | None,
    due_in: str | None,
    input_json: str | None,
) -> None:
    """Change a job that is not running."""
    if due_at is not None and due_in is not None:
        raise click.UsageError("--at and --in cannot both be given.")
    delay_ms = None if due_in is None else parse_duration_ms(due_in)
    value = None if input_json is None else json_value(input_json)

    async def updated(queue: Queue) -> Job:
        due = due_at if delay_ms is None else queue.store.now() + delay_ms
        return await queue.update(
            job_id, priority=priority, scheduled_for=due, input=value, actor=actor()
        )

    _act(invocation, updated, with_handlers=value is not None)


def _act(
    invocation: Invocation,
    action: Callable[[Queue], Awaitable[Job]],
    *,
    with_handlers: bool = False,
) -> None:
    job = ask(invocation, action, with_handlers=with_handlers)
    if invocation.as_json:
        print_json(job_document(job))
    else:
        say(f"{job.id}  {paint(job.status)}")


def _say_result(invocation: Invocation, job_id: str, result: str) -> None:
    if invocation.as_json:
        print_json({"job_id": job_id, "result": result})
    else:
        say(f"{job_id}  {paint(result)}")

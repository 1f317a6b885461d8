"""`edgeq jobs`: where its commands are."""

from __future__ import annotations

from typing import Any

import click

from edgeq.cli.invocation import group_options
from edgeq.cli.lazy import LazyGroup

COMMANDS = {
    "list": ("edgeq.cli.jobs_read:list_jobs", "List jobs, newest first."),
    "show": ("edgeq.cli.jobs_read:show", "Show a job with its steps, its attempts and its log."),
    "logs": ("edgeq.cli.jobs_read:logs", "List a job's log, oldest first."),
    "result": ("edgeq.cli.jobs_read:result", "Print what a completed job returned."),
    "cancel": ("edgeq.cli.jobs_act:cancel", "Cancel a job, or ask a running one to stop."),
    "retry": ("edgeq.cli.jobs_act:retry", "Run a failed, cancelled or reviewed job again."),
    "approve": ("edgeq.cli.jobs_act:approve", "Complete a job under review."),
    "reject": ("edgeq.cli.jobs_act:reject", "Fail a job under review."),
    "fail": ("edgeq.cli.jobs_act:fail", "End a job by hand."),
    "release": ("edgeq.cli.jobs_act:release", "Take the lock of a stuck job away."),
    "delete": ("edgeq.cli.jobs_act:delete", "Delete a job that is not running, with its log."),
    "update": ("edgeq.cli.jobs_act:update", "Change a job that is not running."),
}


@click.group(
    "jobs", cls=LazyGroup, places=COMMANDS, invoke_without_command=True, no_args_is_help=True
)
@click.option("--follow", is_flag=True, help="Print what happens to jobs as it happens.")
@click.option("--type", "types", multiple=True, metavar="NAME", help="Follow only these types.")
@click.option("--job", "job_id", metavar="ID", help="Follow only this job.")
@click.option("--after", type=int, metavar="POSITION", help="Follow from an event seen before.")
@group_options
@click.pass_context
def jobs(ctx: click.Context, /, *, follow: bool, **wanted: Any) -> None:
    """Look at jobs, and act on them."""
    has_wishes = any(value not in (None, ()) for value in wanted.values())
    if ctx.invoked_subcommand is None and follow:
        from edgeq.cli.following import follow_jobs

        follow_jobs(ctx.obj, **wanted)
    elif ctx.invoked_subcommand is None:
        raise click.UsageError("Name a command, or --follow.", ctx)
    elif follow or has_wishes:
        raise click.UsageError("--follow stands alone: it takes no command.", ctx)

"""`edgeq jobs`: where its commands are."""

from __future__ import annotations

import click

from edgeq.cli.invocation import group_options
from edgeq.cli.lazy import LazyGroup

COMMANDS = {
    "list": ("edgeq.cli.jobs_read:list_jobs", "List jobs, newest first."),
    "show": ("edgeq.cli.jobs_read:show", "Show a job with its attempts and its log."),
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


@click.group("jobs", cls=LazyGroup, places=COMMANDS)
@group_options
def jobs() -> None:
    """Look at jobs, and act on them."""

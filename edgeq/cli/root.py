"""The `edgeq` command itself: its options and where its commands are."""

from __future__ import annotations

from typing import Any

import click

from edgeq import __version__
from edgeq.cli.endings import run_command
from edgeq.cli.invocation import group_options
from edgeq.cli.lazy import LazyGroup

COMMANDS = {
    "init": ("edgeq.cli.init:init", "Write a project to start from: a handler, and its test."),
    "process": (
        "edgeq.cli.process:process",
        "Run what is due under a time budget, report, and exit.",
    ),
    "worker": (
        "edgeq.cli.worker:worker",
        "Run jobs as soon as they are due, until a signal comes.",
    ),
    "enqueue": ("edgeq.cli.enqueue:enqueue", "Add a job, or one for each line of a file."),
    "jobs": ("edgeq.cli.jobs:jobs", "Look at jobs, and act on them."),
    "types": ("edgeq.cli.types:types", "Look at job types, and change their policy."),
    "config": ("edgeq.cli.config:config", "Look at the worker's configuration, and change it."),
    "stats": (
        "edgeq.cli.stats:stats",
        "Count jobs by type and state, and tell how long they take.",
    ),
    "runs": ("edgeq.cli.runs:runs", "List recent runs, newest first."),
    "drain": ("edgeq.cli.drain:drain", "Wait until nothing runs."),
    "doctor": ("edgeq.cli.doctor:doctor", "Look for what is wrong, and say what to do about it."),
    "migrate": ("edgeq.cli.migrate:migrate", "Bring the database's schema up to date."),
}


class Root(LazyGroup):
    """The group whose every ending is worded by `run_command`, also when a test invokes it."""

    def main(self, *args: Any, **extra: Any) -> Any:
        run_command(super().main, *args, **extra)


@click.group(
    "edgeq",
    cls=Root,
    places=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@group_options
@click.version_option(__version__, message="edgeq %(version)s")
def root() -> None:
    """A job queue that fits in one SQLite file.

    The options below may also follow the command. Exit codes: 0 done, 1 what was asked for failed,
    2 usage or bad input, 3 the database cannot be used.
    """

"""`edgeq worker`: runs jobs as soon as they are due, in one process or in several."""

from __future__ import annotations

from typing import Any

import click

from edgeq.cli.early_signals import end_at_once
from edgeq.cli.invocation import Invocation, common_options, reporting_errors
from edgeq.cli.process_start import process_began
from edgeq.errors import BadSetting


@click.command()
@click.option(
    "--grace", type=click.FloatRange(0), help="Seconds for running jobs after a signal (5)."
)
@click.option(
    "--concurrency", type=click.IntRange(1), help="Jobs at the same time, in each process (8)."
)
@click.option(
    "--fast-slots", type=click.IntRange(0), help="Slots that only jobs of the fast lane take (3)."
)
@click.option("--types", multiple=True, metavar="NAME", help="Only these job types.")
@click.option("--lanes", multiple=True, metavar="LANE", help="Only these lanes.")
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    help="Worker processes; one that dies is started again (1).",
)
@click.option("--has-parent", is_flag=True, hidden=True, help="End when stdin does.")
@common_options
def worker(invocation: Invocation, *, processes: int, has_parent: bool, **given: Any) -> None:
    """Run jobs as soon as they are due, until a signal comes.

    The first SIGTERM or SIGINT lets running jobs end within the grace and puts the others back; a
    second one puts everything back at once.
    """
    began = process_began()
    end_at_once()
    limits = {name: value for name, value in given.items() if value not in (None, ())}
    with reporting_errors(invocation):
        if processes > 1:
            if invocation.db == "sqlite:///:memory:":
                raise BadSetting("Several processes cannot share sqlite:///:memory:. Use a file.")
            from edgeq.cli.supervision import supervise

            supervise(invocation, limits, processes)
        else:
            from edgeq.cli.running import run_worker

            run_worker(invocation, limits, began=began, has_parent=has_parent)

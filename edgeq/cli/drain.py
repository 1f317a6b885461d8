"""`edgeq drain`: waiting until nothing runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from edgeq.cli.endings import FAILED
from edgeq.cli.invocation import Invocation, ask, common_options
from edgeq.cli.output import age, count, note, print_json, say
from edgeq.core.times import human_duration, parse_duration_ms
from edgeq.documents import running_document
from edgeq.ports.queries import RunningJob

if TYPE_CHECKING:
    from edgeq.queue.draining import DrainLook
    from edgeq.wiring import Queue

_MOST_LISTED = 10


@click.command()
@click.option("--types", multiple=True, metavar="NAME", help="Only these job types.")
@click.option(
    "--timeout", default="30", metavar="DURATION", help="How long to wait at most.  [default: 30]"
)
@common_options
def drain(invocation: Invocation, *, types: tuple[str, ...], timeout: str) -> None:
    """Wait until nothing runs.

    Exits with 1 when something still ran after the timeout. It does not stop workers from claiming
    more; do so before, by one of

    \b
        edgeq config set worker_enabled=false
        edgeq types pause NAME
    """
    milliseconds = parse_duration_ms(timeout)
    progress = _Progress()

    async def waited(queue: Queue) -> tuple[tuple[RunningJob, ...], int]:
        left = await queue.drain(types or None, milliseconds / 1000, told=progress.show)
        return left, queue.store.now()

    try:
        left, now = ask(invocation, waited)
    finally:
        progress.wipe()
    if invocation.as_json:
        print_json({"running": len(left), "jobs": _listed(left)})
    elif not left:
        say("Nothing runs.")
    if left:
        if not invocation.as_json:
            _say_left(left, now, milliseconds)
        sys.exit(FAILED)


class _Progress:
    """How many are left, on a terminal only; and, anywhere and once, that more are claimed."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._has_warned = False

    def show(self, look: DrainLook) -> None:
        if look.claims_go_on and not self._has_warned:
            self._has_warned = True
            self.wipe()
            note(
                "Workers go on claiming these jobs. Stop them by `edgeq config set "
                "worker_enabled=false` or `edgeq types pause NAME`."
            )
        if self._is_shown:
            click.echo(f"\r{count(len(look.running))} running\x1b[K", nl=False, err=True)

    def wipe(self) -> None:
        if self._is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)


def _listed(left: tuple[RunningJob, ...]) -> list[dict[str, object]]:
    return [running_document(job) for job in left[:_MOST_LISTED]]


def _say_left(left: tuple[RunningJob, ...], now: int, waited_ms: int) -> None:
    verb = "job still runs" if len(left) == 1 else "jobs still run"
    say(f"{count(len(left))} {verb} after {human_duration(waited_ms)}:")
    for job in left[:_MOST_LISTED]:
        # Nobody may be working on it: then only a run, or `jobs release`, changes that.
        expired = f", lock expired {age(job.lock_expires_at, now)}"
        say(f"  {job.id}  {job.type}{expired if job.lock_expires_at <= now else ''}")
    if len(left) > _MOST_LISTED:
        say(f"  and {count(len(left) - _MOST_LISTED)} more")

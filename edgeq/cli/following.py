"""`edgeq jobs --follow`: what happens to jobs, a line each, as it happens."""

from __future__ import annotations

import asyncio

import msgspec

from edgeq.cli.invocation import Invocation, ask
from edgeq.cli.output import note, paint, print_json, say
from edgeq.core.feed import FeedReset, JobEvent
from edgeq.core.times import format_time
from edgeq.wiring import Queue


def follow_jobs(
    invocation: Invocation, *, types: tuple[str, ...], job_id: str | None, after: int | None
) -> None:
    """Print events until Ctrl-C; that is its ordinary end."""

    async def follow(queue: Queue) -> None:
        async for event in queue.events(after=after, job_id=job_id, types=types or None):
            _show(event, as_json=invocation.as_json)

    try:
        ask(invocation, follow)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return


def _show(event: JobEvent | FeedReset, *, as_json: bool) -> None:
    if as_json:
        print_json(_document(event))
        return
    match event:
        case FeedReset():
            note("Some events are no longer kept. What follows is new.")
        case JobEvent():
            how = f"{event.progress:>3} %" if event.event == "job.progress" else ""
            line = f"{format_time(event.at)}  {event.job_id}  {event.type}  "
            say(f"{line}{paint(event.status)}  attempt {event.attempt}  {how}".rstrip())


def _document(event: JobEvent | FeedReset) -> dict[str, object]:
    match event:
        case FeedReset(position):
            return {"event": "reset", "position": position}
        case JobEvent():
            return msgspec.structs.asdict(event) | {"at": format_time(event.at)}

"""`edgeq init`: a project to start from."""

from __future__ import annotations

from pathlib import Path

import click

from edgeq.cli.invocation import Invocation, common_options
from edgeq.cli.output import print_json, say, visible
from edgeq.starter import write_project

_NEXT = (
    """edgeq enqueue welcome '{"name": "Ada"}'""",
    "edgeq process",
    "edgeq jobs list",
)


@click.command()
@click.argument("folder", metavar="[DIR]", required=False, default=".")
@common_options
def init(invocation: Invocation, *, folder: str) -> None:
    """Write a project to start from: a handler, and its test.

    Into DIR, which is made if needed, or this folder. Nothing is ever overwritten.
    """
    files = write_project(Path(folder))
    if invocation.as_json:
        print_json({"folder": str(Path(folder).absolute()), "files": list(map(str, files))})
        return
    for name in files:
        say(f"  {visible(str(Path(folder) / name))}")
    say("\nTry it:\n")
    for command in (*_moved_to(folder), *_NEXT):
        say(f"  {command}")


def _moved_to(folder: str) -> tuple[str, ...]:
    return () if Path(folder).resolve() == Path.cwd() else (f"cd {visible(folder)}",)

"""`edgeq migrate`: the schema, brought up to date and named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgeq.cli.invocation import Invocation, ask, common_options
from edgeq.cli.output import print_json, say

if TYPE_CHECKING:
    from edgeq.wiring import Queue


@click.command()
@common_options
def migrate(invocation: Invocation) -> None:
    """Bring the database's schema up to date.

    On SQLite every command does so by itself, because opening the database does it.
    """
    from edgeq.store.migrate import HEAD

    async def nothing_more(_: Queue) -> None:
        """To open the database was all."""

    ask(invocation, nothing_more)
    if invocation.as_json:
        print_json({"schema_version": HEAD})
    else:
        say(f"schema {HEAD}")

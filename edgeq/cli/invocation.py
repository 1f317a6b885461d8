"""What every command shares: its options, its log, and its way to the queue."""

from __future__ import annotations

import logging
import os
import pwd
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edgeq.cli.endings import fail
from edgeq.errors import EdgeqError

if TYPE_CHECKING:
    from edgeq.wiring import Queue

__all__ = [
    "Invocation",
    "actor",
    "ask",
    "common_options",
    "fail",
    "find_modules_here",
    "group_options",
    "open_queue",
    "reporting_errors",
    "set_up_logging",
]

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")
T = TypeVar("T")
LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Invocation:
    """What the options that all commands have came to; it is the `obj` of click's context."""

    db: str
    handlers: str | None
    as_json: bool
    log_level: str


def common_options(function: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options that all have; it gets what they came to as first argument."""
    return group_options(click.pass_obj(function))


def group_options(function: F) -> F:
    """Accept --db, --handlers, --json and --log-level; the innermost that is given wins."""
    for option in reversed(_COMMON):
        function = option(function)
    return function


def _merge(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
    before = ctx.obj if isinstance(ctx.obj, Invocation) else _from_environment()
    if value == "":
        raise click.BadParameter("is empty.", ctx, parameter)
    # No default and no variable on the option itself: an option of a subcommand that was not
    # given would otherwise undo the same option given before it.
    given: dict[str, Any] = {} if value in (None, False) else {str(parameter.name): value}
    ctx.obj = replace(before, **given)


def _from_environment() -> Invocation:
    from edgeq.settings import DEFAULT_HANDLERS, from_environment

    settings = from_environment(os.environ)
    return Invocation(
        db=settings.database_url,
        handlers=settings.handlers
        or (DEFAULT_HANDLERS if Path(DEFAULT_HANDLERS).is_dir() else None),
        as_json=False,
        log_level=settings.log_level,
    )


_COMMON = (
    click.option(
        "--db",
        metavar="URL",
        expose_value=False,
        callback=_merge,
        help="The database.  [EDGEQ_DATABASE_URL; default: sqlite:///edgeq.db]",
    ),
    click.option(
        "--handlers",
        metavar="PATH|MODULE",
        expose_value=False,
        callback=_merge,
        help="Where handlers are.  [EDGEQ_HANDLERS; default: ./handlers if it exists]",
    ),
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        expose_value=False,
        callback=_merge,
        help="Print JSON, for programs.",
    ),
    click.option(
        "--log-level",
        metavar="LEVEL",
        type=click.Choice(LEVELS, case_sensitive=False),
        expose_value=False,
        callback=_merge,
        help="debug, info, warning or error, to stderr.  [EDGEQ_LOG_LEVEL; default: warning]",
    ),
)


def ask(
    invocation: Invocation,
    question: Callable[[Queue], Awaitable[T]],
    *,
    with_handlers: bool = False,
) -> T:
    """Open the queue, ask it one thing, and close it."""
    import asyncio  # an idle tick does without

    set_up_logging(invocation.log_level)

    async def asked() -> T:
        async with open_queue(invocation, with_handlers=with_handlers) as queue:
            return await question(queue)

    return asyncio.run(asked())


def open_queue(
    invocation: Invocation, *, with_handlers: bool, patience: float | None = None
) -> Queue:
    """The queue, for `async with`; a broken handlers folder cannot stop who comes without."""
    from edgeq.settings import from_environment
    from edgeq.wiring import Queue

    settings = from_environment(os.environ)
    if patience is not None:
        settings = replace(settings, busy_timeout=min(settings.busy_timeout, patience))
    if not with_handlers:
        return Queue(invocation.db, settings=settings)
    find_modules_here()
    return Queue(invocation.db, handlers=invocation.handlers, settings=settings)


def find_modules_here() -> None:
    """Let handlers be found that are a module of this folder, or import one."""
    here = str(Path.cwd())
    if here not in sys.path:
        # A console script does not look here by itself. Last, so that it hides nothing installed.
        sys.path.append(here)


@contextmanager
def reporting_errors(invocation: Invocation) -> Iterator[None]:
    """End the program in good order on an error of ours."""
    try:
        yield
    except EdgeqError as error:
        fail(error, as_json=invocation.as_json)


def actor() -> str:
    """Who acts, for the audit: the system's word, because the environment's can be anything."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    return f"cli:{name}"


def set_up_logging(level: str) -> None:
    """Log to stderr, one line for each record."""
    logging.getLogger().addHandler(_TO_STDERR)
    logging.getLogger().setLevel(level.upper())


class _OneLine(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", "\\n")


class _ToStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


_TO_STDERR = _ToStderr()
_TO_STDERR.setFormatter(_OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))

"""How a command ends: its exit code, and its last words on stderr, never a traceback for ours."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from edgeq.errors import (
    BadSetting,
    EdgeqError,
    GuardRefused,
    HandlerProblem,
    IdempotencyConflict,
    InvalidInput,
    QueueFull,
    StoreError,
    TypeDisabled,
    TypeExists,
    UnknownType,
)

FAILED = 1
BAD_INPUT = 2
NO_DATABASE = 3
INTERRUPTED = 130  # what a shell reports for a program ended by Ctrl-C

_BAD_INPUT_ERRORS = (
    BadSetting,
    GuardRefused,
    HandlerProblem,
    IdempotencyConflict,
    InvalidInput,
    QueueFull,
    TypeDisabled,
    TypeExists,
    UnknownType,
)


def run_command(
    command_main: Callable[..., Any],
    args: Sequence[str] | None = None,
    prog_name: str | None = None,
    **extra: Any,
) -> NoReturn:
    """Run a click command's `main` and exit; the one place that words errors and picks codes."""
    args = sys.argv[1:] if args is None else list(args)
    # Read from the words themselves: a command line that cannot be parsed has to be answered too.
    as_json = "--json" in args
    _print_any_character()
    try:
        _refuse_undecodable(args)
        code = command_main(args, prog_name, **extra | {"standalone_mode": False})
    except EdgeqError as error:
        fail(error, as_json=as_json)
    except click.exceptions.NoArgsIsHelpError as help_wanted:
        help_wanted.show()
        sys.exit(BAD_INPUT)
    except click.ClickException as wrong:
        _say_error(_usage(wrong), "usage", as_json=as_json)
        sys.exit(wrong.exit_code)
    except click.Abort:
        sys.exit(INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def fail(error: EdgeqError, *, as_json: bool) -> NoReturn:
    """Say what happened, and exit with the code for it."""
    problems = error.problems if isinstance(error, InvalidInput) else ()
    _say_error(
        str(error),
        error.code,
        as_json=as_json,
        **({"problems": [problem._asdict() for problem in problems]} if problems else {}),
    )
    sys.exit(exit_code_of(error))


def exit_code_of(error: EdgeqError) -> int:
    if isinstance(error, StoreError):
        return NO_DATABASE
    return BAD_INPUT if isinstance(error, _BAD_INPUT_ERRORS) else FAILED


def _say_error(message: str, code: str, *, as_json: bool, **more: Any) -> None:
    if as_json:
        document = {"error": {"code": code, "message": message, **more}}
        click.echo(json.dumps(document), err=True)
    else:
        click.echo(f"edgeq: {message}", err=True)


def _usage(wrong: click.ClickException) -> str:
    message = wrong.format_message()
    if isinstance(wrong, click.UsageError) and wrong.ctx is not None:
        return f"{message} Try '{wrong.ctx.command_path} --help'."
    return message


def _refuse_undecodable(args: Sequence[str]) -> None:
    """Bytes that are no UTF-8 reach us as half characters, which can be neither stored nor sent."""
    for position, text in enumerate(args, start=1):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"Argument {position} is not UTF-8 text.") from None


def _print_any_character() -> None:
    """A terminal that cannot show a character gets an escape instead of an error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")

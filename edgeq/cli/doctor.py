"""`edgeq doctor`: what is wrong with a database and its surroundings, and what to do."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap

import click
import msgspec

from edgeq.cli.endings import FAILED, NO_DATABASE
from edgeq.cli.invocation import Invocation, common_options, find_modules_here, set_up_logging
from edgeq.cli.output import print_json, say, visible
from edgeq.core.findings import Level
from edgeq.doctor.checks import Subject
from edgeq.doctor.examination import Diagnosis, examine
from edgeq.doctor.machine import Machine
from edgeq.errors import BadSetting
from edgeq.settings import from_environment
from edgeq.store.sqlite_file import MEMORY, path_of
from edgeq.wiring import SystemClock

_MARKS = {Level.OK: ("✓", "+"), Level.WARNING: ("!", "!"), Level.ERROR: ("✗", "x")}
_NARROWEST = 30
_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "red"}


@click.command()
@click.option("--full", is_flag=True, help="Look at every page, however large the file is.")
@common_options
def doctor(invocation: Invocation, *, full: bool) -> None:
    """Look for what is wrong, and say what to do about it.

    Nothing is changed, made or migrated. Exit codes: 0 nothing wrong, or warnings only, 1 errors,
    3 the database cannot be reached.
    """
    set_up_logging(invocation.log_level)
    diagnosis = examine(_subject(invocation, full=full))
    if invocation.as_json:
        print_json(_document(diagnosis))
    else:
        _say(diagnosis)
    if not diagnosis.is_reachable:
        sys.exit(NO_DATABASE)
    if diagnosis.errors:
        sys.exit(FAILED)


def _subject(invocation: Invocation, *, full: bool) -> Subject:
    path = path_of(invocation.db)
    if path.name == MEMORY:
        raise BadSetting("A queue in memory belongs to one process: there is nothing to look at.")
    find_modules_here()
    return Subject(
        path,
        now=SystemClock().now(),
        settings=from_environment(os.environ),
        machine=Machine(),
        handlers=invocation.handlers,
        full=full,
    )


def _document(diagnosis: Diagnosis) -> dict[str, object]:
    return {
        "findings": msgspec.to_builtins(diagnosis.findings),
        "errors": diagnosis.errors,
        "warnings": diagnosis.warnings,
    }


def _say(diagnosis: Diagnosis) -> None:
    width = max(len(each.check) for each in diagnosis.findings)
    for each in diagnosis.findings:
        mark = click.style(_mark(each.level), fg=_COLOURS[each.level], bold=True)
        say(f"{mark} {each.check:<{width}}  {_indented(each.message, width + 4)}")
        if each.fix is not None:
            indent = width + 4
            say(f"{' ' * indent}{click.style(_indented(each.fix, indent), bold=True)}")
    say(f"{_counted(diagnosis.errors, 'error')}, {_counted(diagnosis.warnings, 'warning')}")


def _indented(text: str, indent: int) -> str:
    """On a terminal, lines that fit behind the indent; elsewhere one line, for grep."""
    if not sys.stdout.isatty():
        return visible(text)
    width = max(_NARROWEST, shutil.get_terminal_size().columns - indent)
    lines = textwrap.wrap(visible(text), width, break_on_hyphens=False)
    return f"\n{' ' * indent}".join(lines)


def _mark(level: Level) -> str:
    mark, plain = _MARKS[level]
    try:
        mark.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return plain
    return mark


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

"""`edgeq types`: job types, their policy and their switches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from edgeq.cli.invocation import Invocation, actor, ask, common_options, group_options
from edgeq.cli.output import duration, fields, note, pretty_json, print_json, say, table
from edgeq.cli.values import assignments
from edgeq.core.job_types import OPERATOR_FIELDS, JobType
from edgeq.documents import page_document, type_document
from edgeq.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from edgeq.wiring import Queue


@click.group("types")
@group_options
def types() -> None:
    """Look at job types, and change their policy."""


@types.command("list")
@common_options
def list_types(invocation: Invocation) -> None:
    """List job types."""
    found = ask(invocation, lambda queue: queue.types(), with_handlers=True)
    if invocation.as_json:
        print_json(page_document(map(type_document, found), None))
    elif found:
        headers = ("name", "lane", "state", "timeout", "retries", "at once", "description")
        say(table(headers, [_row(each) for each in found]))
    else:
        note("No job types. Add a handler to ./handlers, or see `edgeq types create --help`.")


@types.command("show")
@click.argument("name")
@common_options
def show(invocation: Invocation, name: str) -> None:
    """Show a job type; * marks what an operator has set."""
    _say(invocation, ask(invocation, lambda queue: queue.type(name), with_handlers=True))


@types.command("create")
@click.argument("name")
@click.argument("fields", metavar="[FIELD=VALUE]...", nargs=-1)
@common_options
def create(invocation: Invocation, name: str, *, fields: tuple[str, ...]) -> None:
    """Add a job type by hand, before or without its handler."""
    given = assignments(fields)
    _refuse_unknown(given)
    _change(invocation, lambda queue: queue.create_type(name, actor=actor(), **given))


@types.command("set")
@click.argument("name")
@click.argument("fields", metavar="FIELD=VALUE...", nargs=-1, required=True)
@common_options
def set_fields(invocation: Invocation, name: str, *, fields: tuple[str, ...]) -> None:
    """Set fields of a job type; they win over the handler's declaration.

    VALUE is JSON, or text if it is not. For example: max_concurrent=4 lane=fast max_pending=null
    """
    given = assignments(fields)
    _refuse_unknown(given)
    _change(invocation, lambda queue: queue.change_type(name, actor=actor(), **given))


@types.command("unset")
@click.argument("name")
@click.argument("fields", metavar="FIELD...", nargs=-1, required=True)
@common_options
def unset(invocation: Invocation, name: str, *, fields: tuple[str, ...]) -> None:
    """Let fields follow the handler's declaration again, from its next registration on."""
    _refuse_unknown(dict.fromkeys(fields))
    _change(invocation, lambda queue: queue.change_type(name, unset=fields, actor=actor()))


@types.command("pause")
@click.argument("name")
@common_options
def pause(invocation: Invocation, name: str) -> None:
    """Accept jobs of a type, but start none."""
    _change(invocation, lambda queue: queue.pause_type(name, actor=actor()))


@types.command("resume")
@click.argument("name")
@common_options
def resume(invocation: Invocation, name: str) -> None:
    """Start jobs of a paused type again."""
    _change(invocation, lambda queue: queue.resume_type(name, actor=actor()))


@types.command("disable")
@click.argument("name")
@common_options
def disable(invocation: Invocation, name: str) -> None:
    """Refuse new jobs of a type, and start none."""
    _change(invocation, lambda queue: queue.disable_type(name, actor=actor()))


@types.command("enable")
@click.argument("name")
@common_options
def enable(invocation: Invocation, name: str) -> None:
    """Accept and start jobs of a disabled type again."""
    _change(invocation, lambda queue: queue.enable_type(name, actor=actor()))


def _change(invocation: Invocation, change: Callable[[Queue], Awaitable[JobType]]) -> None:
    _say(invocation, ask(invocation, change))


def _refuse_unknown(given: dict[str, object]) -> None:
    """Before they become keyword arguments, some of which mean something else."""
    known = ", ".join(sorted(OPERATOR_FIELDS))
    problems = [
        Problem(f"$.{name}", f"cannot be set; these can: {known}")
        for name in given
        if name not in OPERATOR_FIELDS
    ]
    if problems:
        raise InvalidInput(problems)


def _say(invocation: Invocation, job_type: JobType) -> None:
    document = type_document(job_type)
    if invocation.as_json:
        print_json(document)
        return
    schema = document.pop("input_schema")
    overrides = document.pop("overrides")
    say(fields((f"{name}{'*' * (name in overrides)}", value) for name, value in document.items()))
    if schema is not None:
        say(f"\nInput\n{pretty_json(schema)}")


def _row(job_type: JobType) -> tuple[object, ...]:
    policy = job_type.policy
    return (
        policy.name,
        policy.lane,
        _state(job_type),
        duration(policy.timeout_ms),
        policy.max_retries,
        "any" if policy.max_concurrent is None else policy.max_concurrent,
        policy.description,
    )


def _state(job_type: JobType) -> str:
    if not job_type.is_enabled:
        return "disabled"
    return "paused" if job_type.is_paused else "active"

"""`edgeq config`: the worker's configuration, which all processes share."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click

from edgeq.cli.invocation import Invocation, actor, ask, common_options, group_options
from edgeq.cli.output import fields, note, print_json, say, visible
from edgeq.cli.values import assignments
from edgeq.errors import KeyNotSet


@click.group("config")
@group_options
def config() -> None:
    """Look at the worker's configuration, and change it."""


@config.command("list")
@common_options
def list_keys(invocation: Invocation) -> None:
    """List the keys that are set; all others have their defaults."""
    _say(invocation, ask(invocation, lambda queue: queue.config()))


@config.command("get")
@click.argument("key")
@common_options
def get(invocation: Invocation, key: str) -> None:
    """Print one value; exits with 1 when it is not set."""
    found = ask(invocation, lambda queue: queue.config())
    if key not in found:
        raise KeyNotSet(key)
    if invocation.as_json:
        print_json({key: found[key]})
    else:
        say(_text(found[key]))


@config.command("set")
@click.argument("pairs", metavar="KEY=VALUE...", nargs=-1, required=True)
@common_options
def set_keys(invocation: Invocation, *, pairs: tuple[str, ...]) -> None:
    """Set keys; VALUE is JSON, or text if it is not.

    For example: worker_enabled=false process.budget=50
    """
    _set(invocation, assignments(pairs))


@config.command("unset")
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@common_options
def unset(invocation: Invocation, *, keys: tuple[str, ...]) -> None:
    """Give keys their defaults back."""
    _set(invocation, dict.fromkeys(keys))


def _set(invocation: Invocation, changes: Mapping[str, object]) -> None:
    _say(invocation, ask(invocation, lambda queue: queue.set_config(changes, actor=actor())))


def _say(invocation: Invocation, found: Mapping[str, object]) -> None:
    if invocation.as_json:
        print_json(dict(found))
    elif found:
        say(fields((key, _text(value)) for key, value in sorted(found.items())))
    else:
        note("Nothing is set: everything has its default.")


def _text(value: object) -> str:
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))

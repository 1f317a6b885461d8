"""Values as people type them: JSON, FIELD=VALUE, TYPE:ID."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from typing import IO, Any

import click

from edgeq.core.json_text import decode
from edgeq.errors import InvalidInput


def json_value(text: str) -> object:
    """The value of a JSON text, strictly; `-` reads it from stdin."""
    value = decode(standard_input().read() if text == "-" else text)
    if value is None:
        # The queue takes None for "not given", which is not what somebody who wrote null meant.
        raise InvalidInput.at("$", "is null; send a value, such as {}")
    return value


def standard_input() -> IO[bytes]:
    if sys.stdin is None:
        raise click.UsageError("There is no standard input to read from.")
    return sys.stdin.buffer


def assignments(words: Iterable[str]) -> dict[str, Any]:
    """FIELD=VALUE as a mapping; a value that is not JSON is the text itself."""
    given: dict[str, Any] = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not (name and sign):
            raise click.UsageError(f"{word!r} is not of the form NAME=VALUE.")
        if name in given:
            raise click.UsageError(f"{name} is given twice.")
        given[name] = _json_or_text(text)
    return given


def reference(ctx: click.Context, parameter: click.Parameter, text: str | None) -> dict[str, str]:
    """TYPE:ID as the two fields that it names; an id may hold colons, a type may not."""
    if text is None:
        return {}
    kind, _, identity = text.partition(":")
    if not (kind and identity):
        raise click.BadParameter("is not of the form TYPE:ID.", ctx, parameter)
    return {"reference_type": kind, "reference_id": identity}


def a_number(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """What click takes for a number may still be none."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("is not a number.", ctx, parameter)
    return value


def _json_or_text(text: str) -> object:
    try:
        return decode(text)
    except InvalidInput:
        if _is_lax_json(text):
            raise  # NaN, a key twice, too deep: meant as JSON, and not a text to store
        return text


def _is_lax_json(text: str) -> bool:
    try:
        json.loads(text)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True

"""The one way from JSON text to a value and back, strict in both directions."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from edgeq.errors import InvalidInput, Problem

MAX_DEPTH = 32
_LOCATED = re.compile(r"^(?P<reason>.*) - at `(?P<path>[^`]+)`$", re.DOTALL)
INT_MIN, INT_MAX = -(2**63), 2**63 - 1

_ENCODER = msgspec.json.Encoder()
_CANONICAL_ENCODER = msgspec.json.Encoder(order="deterministic")
# The closing quote is optional: a string without an end is then scanned once, not once per quote.
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_LONGEST_INT = len(str(INT_MIN))
_LONGEST_LABEL = 64


def decode(text: str | bytes, *, max_depth: int = MAX_DEPTH) -> object:
    """The value of a JSON text; `max_depth` has to count the envelope around an input, if any."""
    characters = _characters(text)
    _refuse_deep(characters, max_depth)
    try:
        value: object = _DECODER.decode(characters)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidInput.at("$", f"is not JSON: {error.msg} at {where}") from None
    # Parsed strings can only hold a NUL or a lone surrogate that was written as an escape.
    if "\\u" in characters and (problems := list(_text_problems(value, "$"))):
        raise InvalidInput(problems)
    return value


def encode(value: object) -> str:
    """Compact JSON for storage; `input_rules.check_value` comes first and gives better reasons."""
    return _encoded(value, _ENCODER)


def located(message: str) -> tuple[str, str]:
    """Path and reason of what msgspec says of a value that does not fit."""
    found = _LOCATED.match(message)
    return (found["path"], found["reason"]) if found else ("$", message)


def canonical(value: object) -> str:
    """The same text for equal values, whatever the order of their keys: made for hashing."""
    return _encoded(value, _CANONICAL_ENCODER)


def text_fault(text: str) -> str | None:
    """Why a string cannot be stored, or None."""
    if "\0" in text:
        return "holds a NUL character"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "holds half of a surrogate pair, which is no character"
    return None


def field_path(path: str, key: object) -> str:
    """The path of a field: `$.name`, or `$["odd name"]`."""
    if not isinstance(key, str):
        return f"{path}[{type(key).__name__}]"
    if _PLAIN_NAME.fullmatch(key):
        return f"{path}.{key}"
    return f"{path}[{json.dumps(_shortened(key))}]"


def _characters(text: str | bytes) -> str:
    try:
        characters = text.decode() if isinstance(text, bytes) else text
        if not characters.isascii():
            characters.encode()
    except UnicodeDecodeError as error:
        raise InvalidInput.at("$", f"is not UTF-8: see byte {error.start}") from None
    except UnicodeEncodeError as error:
        reason = f"holds half of a surrogate pair at character {error.start}"
        raise InvalidInput.at("$", reason) from None
    if characters.startswith("\ufeff"):
        raise InvalidInput.at("$", "starts with a byte order mark; send plain UTF-8")
    if not characters.strip():
        raise InvalidInput.at("$", "is empty; send a JSON value, such as {}")
    return characters


def _refuse_deep(text: str, max_depth: int) -> None:
    # Counting is enough for nearly every text, and it protects the parser's recursion.
    if text.count("[") + text.count("{") <= max_depth:
        return
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > max_depth:
            raise InvalidInput.at("$", f"is nested more than {max_depth} levels deep")


def _fields(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise InvalidInput.at("$", f"has the key {json.dumps(_shortened(twice))} twice")
    return fields


def _integer(digits: str) -> int:
    # The length comes first: Python refuses to convert more than 4300 digits.
    if len(digits) <= _LONGEST_INT and INT_MIN <= (number := int(digits)) <= INT_MAX:
        return number
    raise InvalidInput.at("$", f"has the integer {_shortened(digits)}, which is beyond 64 bits")


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise InvalidInput.at("$", f"has the number {_shortened(digits)}, which is too large")
    return number


def _constant(name: str) -> float:
    raise InvalidInput.at("$", f"has {name}, which is not JSON; use null or leave the field out")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_fields, parse_int=_integer, parse_float=_float, parse_constant=_constant
)


def _text_problems(value: object, path: str) -> Iterator[Problem]:
    if isinstance(value, str) and (fault := text_fault(value)):
        yield Problem(path, fault)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _text_problems(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            here = field_path(path, key)
            if fault := text_fault(key):
                yield Problem(here, f"has a name that {fault}")
            yield from _text_problems(item, here)


def _encoded(value: object, encoder: msgspec.json.Encoder) -> str:
    try:
        text = encoder.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput.at("$", f"cannot be written as JSON: {error}") from None
    # msgspec writes NaN and Infinity as null; only a text that has a null can hide one.
    if "null" in text and _holds_non_finite(msgspec.to_builtins(value)):
        raise InvalidInput.at("$", "holds NaN or Infinity, which JSON does not have")
    return text


def _holds_non_finite(value: object) -> bool:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, float) and not math.isfinite(item):
            return True
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
    return False


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else f"{text[:_LONGEST_LABEL]}…"

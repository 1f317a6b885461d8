"""What an input may hold, whatever its source."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from edgeq.core.json_text import INT_MAX, INT_MIN, MAX_DEPTH, field_path, text_fault
from edgeq.errors import InvalidInput, Problem

SECRET_NAMES: Final = (
    "password",
    "passwd",
    "secret",
    "client_secret",
    "token",
    "access_token",
    "refresh_token",
    "auth_token",
    "api_key",
    "authorization",
    "private_key",
    "card_number",
    "cvv",
    "ssn",
)

_MOST_PROBLEMS = 20
_LARGE_BYTES = 10 * 1024
_MOST_NAMES = 4096
_LONGEST_NAME = 64


Verdict = Literal["refuse", "warn"]


@dataclass(frozen=True, slots=True)
class InputRules:
    max_bytes: int = 65536
    required_fields: tuple[str, ...] = ()
    allowed_secret_fields: frozenset[str] = frozenset()
    secrets: Verdict = "refuse"


def check_value(value: object, rules: InputRules) -> tuple[Problem, ...]:
    """Raises InvalidInput with every problem of plain data; returns what is only a warning."""
    if _is_ordinary(value, MAX_DEPTH) and (
        not rules.required_fields or not _missing_fields(value, rules.required_fields)
    ):
        return ()
    problems = _missing_fields(value, rules.required_fields)
    warnings: list[Problem] = []
    for verdict, problem in _findings(value, "$", MAX_DEPTH, rules):
        (warnings if verdict == "warn" else problems).append(problem)
        # A value that holds itself has problems without end.
        if len(problems) >= _MOST_PROBLEMS:
            break
    if problems:
        raise InvalidInput(problems[:_MOST_PROBLEMS])
    return tuple(warnings[:_MOST_PROBLEMS])


def check_size(text_bytes: int, rules: InputRules) -> str | None:
    """Raises InvalidInput for a text over the limit; returns a warning for a large one."""
    if text_bytes > rules.max_bytes:
        reason = f"is {text_bytes} bytes long, and the limit is {rules.max_bytes}"
        raise InvalidInput.at("$", f"{reason}; store it elsewhere and pass a reference to it")
    if text_bytes > _LARGE_BYTES:
        return (
            f"The input is {text_bytes} bytes long; over {_LARGE_BYTES} it is better to store it "
            "elsewhere and pass a reference to it."
        )
    return None


def is_secret_name(name: str) -> bool:
    """Whether a whole field name is that of a secret: `apiKey` is one, `max_tokens` is not."""
    return _folded(name) in _SECRETS


# Words that are joined differently (apiKey, API-KEY, api key) meet when nothing joins them.
_SEPARATORS = str.maketrans(dict.fromkeys("-_ \t\n\r\f\v\xa0"))


def _folded(name: str) -> str:
    return name.casefold().translate(_SEPARATORS)


_SECRETS = frozenset(map(_folded, SECRET_NAMES))

# Names already found to be neither secret nor broken. Bounded in number and in length, because
# whoever sends inputs chooses the names.
_ordinary_names: set[str] = set()


def _is_ordinary(value: object, room: int) -> bool:
    """Whether nothing needs to be said about a value: the quick answer for nearly every input."""
    is_ordinary_scalar = _ORDINARY_SCALARS.get(type(value))
    if is_ordinary_scalar is not None:
        return is_ordinary_scalar(value)
    if room == 0:
        return False
    items: Iterable[object]
    if type(value) is dict:
        if not (_ordinary_names.issuperset(value) or _are_ordinary_names(value)):
            return False
        items = value.values()
    elif type(value) is list or type(value) is tuple:
        items = value
    else:
        return False
    for item in items:  # noqa: SIM110 - all() over a generator takes twice the time
        if not _is_ordinary(item, room - 1):
            return False
    return True


def _are_ordinary_names(names: Iterable[object]) -> bool:
    for name in names:
        if not isinstance(name, str) or is_secret_name(name) or text_fault(name):
            return False
        if len(name) <= _LONGEST_NAME:
            if len(_ordinary_names) >= _MOST_NAMES:
                _ordinary_names.clear()
            _ordinary_names.add(name)
    return True


_ORDINARY_SCALARS: dict[type, Callable[..., bool]] = {
    str: lambda text: text_fault(text) is None,
    int: lambda number: INT_MIN <= number <= INT_MAX,
    float: math.isfinite,
    bool: lambda _: True,
    type(None): lambda _: True,
}


def _missing_fields(value: object, required: tuple[str, ...]) -> list[Problem]:
    present = value if isinstance(value, dict) else ()
    return [
        Problem(field_path("$", name), "is required and missing")
        for name in required
        if name not in present
    ]


def _findings(
    value: object, path: str, room: int, rules: InputRules
) -> Iterator[tuple[Verdict, Problem]]:
    if fault := _scalar_fault(value) or _container_fault(value, room):
        yield "refuse", Problem(path, fault)
        return
    for name, here, item in _children(value, path):
        if fault := _name_fault(name):
            yield "refuse", Problem(here, fault)
        elif isinstance(name, str) and _is_unwanted_secret(name, rules):
            yield rules.secrets, Problem(here, _UNWANTED_FIELD)
        yield from _findings(item, here, room - 1, rules)


_UNWANTED_FIELD = (
    "has the name of a secret, and inputs are stored as they are; pass a reference to the secret, "
    "or name the field in allow_fields"
)


def _is_unwanted_secret(name: str, rules: InputRules) -> bool:
    allowed = map(_folded, rules.allowed_secret_fields)
    return is_secret_name(name) and _folded(name) not in allowed


def _scalar_fault(value: object) -> str | None:
    match value:
        case str():
            return text_fault(value)
        case int() if not INT_MIN <= value <= INT_MAX:
            return "is an integer beyond 64 bits; send it as a string"
        case float() if not math.isfinite(value):
            return "is NaN or Infinity, which JSON does not have"
        case str() | int() | float() | None | dict() | list() | tuple():
            return None
        case _:
            return f"is of type {type(value).__name__}, which JSON does not have"


def _container_fault(value: object, room: int) -> str | None:
    if room == 0 and isinstance(value, dict | list | tuple):
        return f"is nested more than {MAX_DEPTH} levels deep"
    return None


def _name_fault(name: object) -> str | None:
    if isinstance(name, str):
        fault = text_fault(name)
        return fault and f"has a name that {fault}"
    if name is _NO_NAME:
        return None
    return f"has a name of type {type(name).__name__}; names are strings"


_NO_NAME = object()


def _children(value: object, path: str) -> Iterator[tuple[object, str, object]]:
    """The name, the path and the value of each field; the items of a list have no name."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield name, field_path(path, name), item
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield _NO_NAME, f"{path}[{index}]", item

"""The worker's configuration: which keys there are, and what they may hold."""

from __future__ import annotations

from collections.abc import Mapping

from edgeq.core.input_rules import InputRules, check_size, check_value, is_secret_name
from edgeq.core.json_text import encode
from edgeq.errors import InvalidInput, Problem

GROUPS = ("alert.", "retention.", "llm.", "app.")
LANE_SLOTS = "process.lane_slots"
_LONGEST_KEY = 100
_LARGEST_VALUE = 16_384
_NUMBERS = {"process.budget": 0.0, "process.grace": 0.0}
_WHOLE = {"process.concurrency": 1, "process.fast_slots": 0}


def check_changes(changes: Mapping[str, object]) -> None:
    """Refuse keys that nobody reads, values of the wrong kind, and anything like a secret."""
    problems = [problem for key, value in changes.items() for problem in _problems(key, value)]
    if problems:
        raise InvalidInput(problems)


def _problems(key: str, value: object) -> list[Problem]:
    if value is None:
        return []
    if is_secret_name(key.rsplit(".", 1)[-1]):
        return [Problem(key, "looks like a secret: put it into the environment instead")]
    if key == "worker_enabled":
        return [] if isinstance(value, bool) else [Problem(key, "must be true or false")]
    if key in _NUMBERS:
        return _number(key, value, _NUMBERS[key], (int, float))
    if key in _WHOLE:
        return _number(key, value, _WHOLE[key], (int,))
    return _lane_slots(key, value) if key == LANE_SLOTS else _of_a_group(key, value)


def _lane_slots(key: str, value: object) -> list[Problem]:
    if not isinstance(value, dict):
        return [Problem(key, 'must be an object such as {"mail": 2}')]
    return [p for lane, slots in value.items() for p in _number(lane, slots, 0, (int,))]


def _of_a_group(key: str, value: object) -> list[Problem]:
    if not key.startswith(GROUPS) or key in GROUPS or len(key) > _LONGEST_KEY:
        every = ["worker_enabled", *_NUMBERS, *_WHOLE, LANE_SLOTS, *(f"{g}*" for g in GROUPS)]
        return [Problem(key[:_LONGEST_KEY], f"is unknown; keys are {', '.join(every)}")]
    try:
        check_value(value, InputRules())
        check_size(len(encode(value).encode()), InputRules(max_bytes=_LARGEST_VALUE))
    except InvalidInput as wrong:
        return [Problem(key, str(problem)) for problem in wrong.problems]
    return []


def _number(key: str, value: object, lowest: float, kinds: tuple[type, ...]) -> list[Problem]:
    if isinstance(value, bool) or not isinstance(value, kinds):
        return [Problem(key, f"must be a number, got {value!r}")]
    if not lowest <= value < 1e9:  # type: ignore[operator]
        return [Problem(key, f"must be at least {lowest:g}, got {value}")]
    return []

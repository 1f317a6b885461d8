from __future__ import annotations

import math
from collections import OrderedDict
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.core import input_rules
from edgeq.core.input_rules import (
    SECRET_NAMES,
    InputRules,
    check_size,
    check_value,
    is_secret_name,
)
from edgeq.core.json_text import decode, encode
from edgeq.errors import InvalidInput, Problem

DEFAULT = InputRules()


def problems(value: object, rules: InputRules = DEFAULT) -> tuple[Problem, ...]:
    with pytest.raises(InvalidInput) as caught:
        check_value(value, rules)
    return caught.value.problems


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def test_an_ordinary_input_passes_without_a_word() -> None:
    value = {"n": 1, "to": "ü@example.com", "x": [1.5, None, True, (2,), {"y": OrderedDict(z=1)}]}

    assert check_value(value, DEFAULT) == ()
    assert check_value(value, DEFAULT) == ()


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (math.nan, "$", "NaN"),
        ({"a": [0, math.inf]}, "$.a[1]", "Infinity"),
        ({"a": 2**63}, "$.a", "64 bits"),
        ({"a": -(2**63) - 1}, "$.a", "64 bits"),
        ({"a b": "\ud800"}, '$["a b"]', "surrogate"),
        ({"items": ["a", "b", "c", "\0"]}, "$.items[3]", "NUL"),
        ({"\0": 1}, '$["\\u0000"]', "has a name that holds a NUL"),
        ({"a": {1: 2}}, "$.a[int]", "names are strings"),
        ({"a": {2}}, "$.a", "type set"),
        ({"a": b"x"}, "$.a", "type bytes"),
        ([date(2030, 1, 1)], "$[0]", "type date"),
        ({"customer": {"token": "x"}}, "$.customer.token", "name of a secret"),
    ],
)
def test_a_value_that_is_refused_says_where_and_why(value: object, path: str, reason: str) -> None:
    [problem] = problems(value)

    assert problem.path == path
    assert reason in problem.reason


def test_all_problems_are_told_at_once() -> None:
    value = {"password": "x", "n": math.nan, "deep": {"big": 2**70}}

    found = problems(value, InputRules(required_fields=("to", "n")))

    assert [problem.path for problem in found] == ["$.to", "$.password", "$.n", "$.deep.big"]


def test_at_most_twenty_problems_are_told() -> None:
    assert len(problems([math.nan] * 1000)) == 20


def test_the_greatest_depth_passes_and_one_deeper_does_not() -> None:
    assert check_value(nested(32), DEFAULT) == ()

    [problem] = problems(nested(33))
    assert problem == Problem("$" + "[0]" * 32, "is nested more than 32 levels deep")


def test_the_same_depth_is_refused_in_a_text_and_in_a_value() -> None:
    assert decode(encode(nested(32))) == nested(32)

    with pytest.raises(InvalidInput, match="nested more than 32 levels deep"):
        decode(encode(nested(33)))


def test_a_value_that_holds_itself_twice_is_refused_at_once() -> None:
    endless: list[object] = []
    endless.extend((endless, endless))

    assert len(problems(endless)) == 20


def test_a_required_field_may_be_null_but_not_absent() -> None:
    rules = InputRules(required_fields=("to",))

    assert check_value({"to": None}, rules) == ()
    assert problems({}, rules) == (Problem("$.to", "is required and missing"),)
    assert problems([1], rules) == (Problem("$.to", "is required and missing"),)


def test_a_secret_can_be_allowed_by_name_however_it_is_written() -> None:
    rules = InputRules(allowed_secret_fields=frozenset({"api_key"}))

    assert check_value({"apiKey": "reference"}, rules) == ()
    assert [problem.path for problem in problems({"apiKey": 1, "cvv": 2}, rules)] == ["$.cvv"]


def test_a_secret_can_be_a_warning_only() -> None:
    warnings = check_value({"a": [{"token": 1}], "b": 1}, InputRules(secrets="warn"))

    assert [warning.path for warning in warnings] == ["$.a[0].token"]


def test_no_number_of_warnings_hides_a_problem() -> None:
    value = [*({"token": 1} for _ in range(100)), math.nan]

    [problem] = problems(value, InputRules(secrets="warn"))

    assert problem.path == "$[100]"


def test_at_most_twenty_warnings_are_told() -> None:
    assert len(check_value([{"token": 1}] * 100, InputRules(secrets="warn"))) == 20


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_secret_name_is_known_however_its_words_are_joined(name: str) -> None:
    words = name.split("_")
    camel = words[0] + "".join(word.title() for word in words[1:])

    for spelling in (name, name.upper(), camel, "-".join(words).title(), " ".join(words)):
        assert is_secret_name(spelling)


@pytest.mark.parametrize(
    "name", ["max_tokens", "page_token", "token_count", "tokens", "user_password", "secretary", ""]
)
def test_a_name_that_only_contains_a_secret_name_is_ordinary(name: str) -> None:
    assert not is_secret_name(name)
    assert check_value({name: 1}, DEFAULT) == ()


def test_the_remembered_names_are_bounded_in_number_and_in_length() -> None:
    check_value({f"name_{n}": 1 for n in range(10_000)}, DEFAULT)
    check_value({"x" * 1000: 1}, DEFAULT)

    assert len(input_rules._ordinary_names) <= 4096
    assert max(map(len, input_rules._ordinary_names)) <= 64


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    )
)
def test_what_passes_survives_storage_unchanged(value: object) -> None:
    try:
        check_value(value, DEFAULT)
    except InvalidInput:
        return
    assert decode(encode(value)) == value


def test_an_input_over_the_limit_is_told_both_numbers_and_what_to_do() -> None:
    with pytest.raises(InvalidInput, match="is 101 bytes long, and the limit is 100; store it"):
        check_size(101, InputRules(max_bytes=100))


def test_a_large_input_is_a_warning_and_a_small_one_is_nothing() -> None:
    assert "20000 bytes" in (check_size(20_000, DEFAULT) or "")
    assert check_size(10_240, DEFAULT) is None

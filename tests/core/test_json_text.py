from __future__ import annotations

import json
import math
from random import Random
from time import perf_counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.core.json_text import MAX_DEPTH, canonical, decode, encode, located
from edgeq.errors import InvalidInput

storable_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | storable_text
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(storable_text, inner), max_leaves=20
)


def accepts(text: str | bytes) -> bool:
    try:
        decode(text)
    except InvalidInput:
        return False
    return True


def refusal(text: str | bytes) -> str:
    with pytest.raises(InvalidInput) as caught:
        decode(text)
    return str(caught.value)


@given(values)
def test_what_was_encoded_decodes_to_the_same_value(value: object) -> None:
    assert decode(encode(value)) == value


@given(st.text() | st.binary())
def test_decoding_arbitrary_text_raises_nothing_but_invalid_input(text: str | bytes) -> None:
    assert accepts(text) in (True, False)


@given(st.text(alphabet='[]{}",:\\u0d8- .eE19ntN\ud800'))
def test_decoding_text_that_resembles_json_raises_nothing_but_invalid_input(text: str) -> None:
    assert accepts(text) in (True, False)


def test_bytes_and_text_decode_alike() -> None:
    assert decode('{"é": [1, -2.5, true, null]}'.encode()) == {"é": [1, -2.5, True, None]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'"\xff"', "$: is not UTF-8: see byte 1"),
        ('{"a": }', "is not JSON: Expecting value at line 1, column 7"),
        ("{}\n{}", "is not JSON: Extra data at line 2, column 1"),
        ("", "is empty"),
        (" \n", "is empty"),
        ("\ufeff{}", "byte order mark"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ("[NaN]", "has NaN, which is not JSON"),
        ("-Infinity", "has -Infinity, which is not JSON"),
        ("[1e999]", "the number 1e999, which is too large"),
        ('{"a": 1, "b": 2, "a": 3}', 'has the key "a" twice'),
        ("9223372036854775808", "9223372036854775808, which is beyond 64 bits"),
        ("-9223372036854775809", "beyond 64 bits"),
        pytest.param("1" * 5000, "beyond 64 bits", id="thousands of digits"),
        ('"\ud800"', "half of a surrogate pair at character 1"),
        ('{"a": ["\\ud800"]}', "$.a[0]: holds half of a surrogate pair"),
        ('{"a": "x\\u0000y"}', "$.a: holds a NUL character"),
        ('{"b c\\u0000": 1}', '$["b c\\u0000"]: has a name that holds a NUL character'),
        ('"a\0b"', "is not JSON: Invalid control character"),
    ],
)
def test_a_text_that_is_not_strict_json_is_refused_with_its_reason(
    text: str | bytes, reason: str
) -> None:
    assert reason in refusal(text)


def test_the_largest_integers_of_64_bits_are_accepted() -> None:
    assert decode(f"[{-(2**63)}, {2**63 - 1}]") == [-(2**63), 2**63 - 1]


def test_an_escape_of_an_ordinary_character_is_accepted() -> None:
    assert decode('{"a": "\\u00e9 \\ud83d\\ude00", "b": 1}') == {"a": "é 😀", "b": 1}


def test_a_text_of_the_greatest_depth_is_accepted_and_one_deeper_is_not() -> None:
    decode("[" * MAX_DEPTH + "]" * MAX_DEPTH)

    assert "nested more than 32 levels deep" in refusal("[" * 33 + "]" * 33)


def test_the_envelope_of_an_input_can_be_allowed_for() -> None:
    text = '{"input": ' + "[" * 32 + "]" * 32 + "}"

    assert decode(text, max_depth=MAX_DEPTH + 1)
    assert "deep" in refusal(text)


@pytest.mark.parametrize("unit", ["[", '{"a":', '[{"a":', '"['])
def test_a_hundred_thousand_brackets_are_refused_without_recursion(unit: str) -> None:
    assert refusal(unit * 100_000)


@pytest.mark.parametrize("unit", ['"', '\\"', "\\", '"['])
def test_a_string_without_an_end_is_refused_in_linear_time(unit: str) -> None:
    begun = perf_counter()

    refusal("[" * 40 + '"' + unit * 300_000)

    assert perf_counter() - begun < 5


def test_brackets_within_strings_and_side_by_side_are_not_depth() -> None:
    assert decode(json.dumps(['"[{\\' * 50, *([] for _ in range(50))]))


def test_a_long_key_is_shortened_in_the_reason() -> None:
    key = "k" * 1000

    assert len(refusal(f'{{"{key}": 1, "{key}": 2}}')) < 200


@pytest.mark.parametrize(
    "value", [math.nan, [math.inf], {"a": (None, -math.inf)}, msgspec.UNSET, object(), "\ud800"]
)
def test_a_value_that_json_does_not_have_is_not_encoded(value: object) -> None:
    for encoder in (encode, canonical):
        with pytest.raises(InvalidInput):
            encoder(value)


def test_a_value_that_holds_itself_is_not_encoded() -> None:
    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(InvalidInput):
        encode(endless)


def test_a_null_is_encoded() -> None:
    assert encode({"a": None, "b": [1.5, "null"]}) == '{"a":null,"b":[1.5,"null"]}'


def test_the_stored_text_keeps_the_order_of_the_keys() -> None:
    assert encode({"b": 1, "a": 2}) == '{"b":1,"a":2}'


@given(st.dictionaries(storable_text, scalars), st.randoms())
def test_the_canonical_text_does_not_depend_on_the_order_of_the_keys(
    fields: dict[str, object], chance: Random
) -> None:
    shuffled = list(fields.items())
    chance.shuffle(shuffled)

    assert canonical(dict(shuffled)) == canonical(fields)


def test_path_and_reason_of_a_misfit_are_told_apart() -> None:
    assert located("Expected `int`, got `str` - at `$.a[0]`") == (
        "$.a[0]",
        "Expected `int`, got `str`",
    )
    assert located("Object missing required field `to`") == (
        "$",
        "Object missing required field `to`",
    )

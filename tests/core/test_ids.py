from __future__ import annotations

import uuid
from contextlib import AbstractContextManager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.core.ids import (
    IdSequence,
    content_key,
    created_ms,
    first_id_at,
    is_job_id,
    request_hash,
    unique_key,
    uuid7,
)
from edgeq.errors import BadSetting, InvalidInput

times = st.integers(0, 2**48 - 1)
chances = st.integers(0, 2**74 - 1)


@given(times, chances)
def test_a_job_id_is_a_uuid_of_version_seven(now_ms: int, random_bits: int) -> None:
    job_id = uuid7(now_ms, random_bits)

    parsed = uuid.UUID(job_id)
    assert (parsed.version, parsed.variant, str(parsed)) == (7, uuid.RFC_4122, job_id)
    assert is_job_id(job_id)


@given(times, chances)
def test_a_job_id_tells_its_time_and_keeps_every_random_bit(now_ms: int, random_bits: int) -> None:
    job_id = uuid7(now_ms, random_bits)

    number = uuid.UUID(job_id).int
    assert created_ms(job_id) == now_ms
    assert (number >> 64 & 0xFFF) << 62 | number & (2**62 - 1) == random_bits


@given(times, chances, times, chances)
def test_job_ids_sort_by_time(one_ms: int, one: int, other_ms: int, other: int) -> None:
    assert (uuid7(one_ms, one) < uuid7(other_ms, other)) == ((one_ms, one) < (other_ms, other))


def test_the_example_of_the_rfc_has_the_same_layout() -> None:
    job_id = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
    random_bits = 0xCC3 << 62 | 0x18C4DC0C0C07398F

    assert uuid7(0x017F22E279B0, random_bits) == job_id


@given(times, chances)
def test_the_first_id_of_a_time_is_below_all_its_ids_and_above_all_earlier(
    now_ms: int, random_bits: int
) -> None:
    assert first_id_at(now_ms) <= uuid7(now_ms, random_bits) < first_id_at(now_ms + 1) or (
        now_ms == 2**48 - 1
    )


def test_the_first_id_of_a_time_beyond_all_ids_is_at_the_border() -> None:
    assert first_id_at(-1) == first_id_at(0)
    assert first_id_at(2**60) == first_id_at(2**48 - 1)


@pytest.mark.parametrize("now_ms", [-1, 2**48])
def test_a_clock_beyond_all_ids_is_refused(now_ms: int) -> None:
    with pytest.raises(BadSetting, match="Check the clock"):
        uuid7(now_ms, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "017F22E2-79B0-7CC3-98C4-DC0C0C07398F",
        "017f22e2-79b0-4cc3-98c4-dc0c0c07398f",
        "017f22e2-79b0-7cc3-c8c4-dc0c0c07398f",
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398f\n",
    ],
)
def test_other_texts_are_no_job_ids(text: str) -> None:
    assert not is_job_id(text)
    with pytest.raises(BadSetting, match="is not a job id"):
        created_ms(text)


@given(st.tuples(st.text(), st.text(), st.text()), st.tuples(st.text(), st.text(), st.text()))
def test_unique_keys_are_equal_only_for_the_same_triple(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert (unique_key(*one) == unique_key(*other)) == (one == other)


def test_moving_a_letter_between_tenant_type_and_key_makes_another_unique_key() -> None:
    keys = {unique_key("a", "bc", "d"), unique_key("ab", "c", "d"), unique_key("a", "b", "cd")}

    assert len(keys) == 3
    assert all(len(key) == 64 for key in keys)


def test_no_tenant_is_the_empty_tenant() -> None:
    assert unique_key(None, "type", "key") == unique_key("", "type", "key")


def test_a_broken_key_is_hashed_like_any_other() -> None:
    assert unique_key(None, "type", "\ud800") != unique_key(None, "type", "\ud801")


def test_the_key_of_a_content_does_not_depend_on_the_order_of_its_fields() -> None:
    assert content_key({"a": 1, "b": 2}) == content_key({"b": 2, "a": 1})
    assert content_key({"a": 1}) != content_key({"a": 2})
    assert content_key({"a": 1}) == request_hash('{"a":1}')


def test_a_content_that_json_does_not_have_has_no_key() -> None:
    with pytest.raises(InvalidInput):
        content_key({"a": object()})


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2**74 - 1)), min_size=2, max_size=50))
def test_ids_of_one_process_follow_each_other_even_when_the_clock_trembles(
    steps: list[tuple[int, int]],
) -> None:
    sequence = IdSequence()
    made = [sequence.next(1_000_000 + offset, bits) for offset, bits in steps]
    ids = [job_id for job_id, _ in made]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert [created_ms(job_id) for job_id in ids] == [ms for _, ms in made]


def test_a_clock_that_was_set_back_is_believed() -> None:
    sequence = IdSequence()
    sequence.next(10_000_000, 5)
    assert created_ms(sequence.next(1_000_000, 5)[0]) == 1_000_000


def test_ids_are_made_one_at_a_time_by_threads_that_share_them() -> None:
    taken: list[str] = []

    class Lock(AbstractContextManager[None]):
        def __enter__(self) -> None:
            taken.append("in")

        def __exit__(self, *_: object) -> None:
            taken.append("out")

    sequence = IdSequence(Lock())
    sequence.next(1, 1)
    sequence.next(1, 1)
    assert taken == ["in", "out", "in", "out"]

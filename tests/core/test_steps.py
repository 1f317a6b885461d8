"""Steps: their names, whether one fits, and in how many runs a job is done."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.core.durations import Histogram
from edgeq.core.steps import FIRST_PART, SLEEP, TOTAL, runs_needed, step_fits, step_id, step_seconds
from edgeq.errors import StepRefused

JOB = "019b76da-a800-7119-b9fd-ef7c42930b33"
SECONDS = st.floats(min_value=0, max_value=1e6)
NAMES = st.text(min_size=1, max_size=100).filter(str.isprintable)
KEYS = st.one_of(st.integers(), NAMES)


def took(ms: float, times: int) -> Histogram:
    histogram = Histogram.EMPTY
    for _ in range(times):
        histogram = histogram.plus(ms)
    return histogram


@pytest.mark.parametrize(
    ("name", "key", "expected"),
    [
        ("page", None, ("page", "")),
        ("page", 3, ("page", "3")),
        ("page", -1, ("page", "-1")),
        ("page", "x", ("page", "x")),
        ("ä page: 1/2", 0, ("ä page: 1/2", "0")),
    ],
)
def test_a_step_is_known_by_its_name_and_key(name: str, key: Any, expected: Any) -> None:
    assert step_id(JOB, name, key) == expected


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb", "a\0", None, 3, b"page", ["page"]])
def test_what_is_no_name_is_refused(name: Any) -> None:
    with pytest.raises(StepRefused, match="1 to 100 printable"):
        step_id(JOB, name)


@pytest.mark.parametrize("name", [FIRST_PART, TOTAL, SLEEP])
def test_names_of_edgeqs_own_are_refused(name: str) -> None:
    with pytest.raises(StepRefused, match="edgeq's own"):
        step_id(JOB, name)


@pytest.mark.parametrize("key", [True, False, 1.0, b"x", ("a",), object])
def test_a_key_that_is_neither_a_text_nor_a_whole_number_is_refused(key: Any) -> None:
    with pytest.raises(StepRefused, match="a text or a whole number"):
        step_id(JOB, "page", key)


@pytest.mark.parametrize("key", ["", "x" * 101, "a\nb", 10**101])
def test_a_key_that_is_no_short_text_is_refused(key: Any) -> None:
    with pytest.raises(StepRefused, match="a key has 1 to 100"):
        step_id(JOB, "page", key)


@given(NAMES, KEYS, KEYS)
def test_two_keys_are_one_step_only_if_they_read_the_same(
    name: str, one: int | str, two: int | str
) -> None:
    if name in (FIRST_PART, TOTAL, SLEEP):
        return
    assert (step_id(JOB, name, one) == step_id(JOB, name, two)) == (str(one) == str(two))
    assert step_id(JOB, name, one) != step_id(JOB, name)


def test_too_few_samples_say_nothing_of_a_step() -> None:
    assert step_seconds(took(100, 4)) is None
    assert step_seconds(Histogram.EMPTY) is None


@given(st.floats(min_value=0.1, max_value=1e7), st.integers(min_value=5, max_value=50))
def test_a_step_is_expected_to_take_no_less_than_it_did(ms: float, times: int) -> None:
    seconds = step_seconds(took(ms, times))
    assert seconds is not None
    assert ms / 1000 <= seconds <= max(0.001, ms / 1000 * 2 + 0.001)


@given(SECONDS, SECONDS, SECONDS)
def test_a_known_step_fits_if_it_ends_in_time(needed: float, budget: float, left: float) -> None:
    assert step_fits(needed, budget=budget, seconds_left=left) == (needed <= left)


@given(SECONDS, SECONDS)
def test_an_unknown_step_asks_for_half_the_budget(budget: float, left: float) -> None:
    assert step_fits(None, budget=budget, seconds_left=left) == (budget / 2 <= left)


@given(st.one_of(st.none(), SECONDS), SECONDS)
def test_where_there_is_no_budget_every_step_fits(needed: float | None, left: float) -> None:
    assert step_fits(needed, budget=math.inf, seconds_left=left)


@pytest.mark.parametrize(
    ("total_ms", "done_ms", "budget", "runs"),
    [(20_000, 0, 5, 5), (20_000, 10_000, 5, 3), (20_000, 60_000, 5, 1), (10, 0, 25, 1)],
)
def test_what_is_left_is_divided_into_runs(
    total_ms: int, done_ms: int, budget: float, runs: int
) -> None:
    """20 s fall into the bucket up to 20.48 s."""
    assert runs_needed(took(total_ms, 1), done_ms=done_ms, budget=budget) == runs


def test_nobody_knows_how_many_runs_a_new_kind_of_job_needs() -> None:
    assert runs_needed(Histogram.EMPTY, done_ms=0, budget=5) is None
    assert runs_needed(took(100, 9), done_ms=0, budget=0) is None


@given(
    st.floats(min_value=0, max_value=1e7),
    st.integers(min_value=0, max_value=10**7),
    st.floats(min_value=0.001, max_value=1e5),
)
def test_there_is_always_one_run_more_and_progress_never_adds_one(
    total_ms: float, done_ms: int, budget: float
) -> None:
    total = took(total_ms, 3)
    before = runs_needed(total, done_ms=0, budget=budget)
    after = runs_needed(total, done_ms=done_ms, budget=budget)
    assert before is not None
    assert after is not None
    assert 1 <= after <= before

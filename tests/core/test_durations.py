from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.core.durations import BOUNDS_MS, BUCKETS, Histogram, Tally, bucket_of
from edgeq.errors import BadSetting, InvalidInput

durations = st.floats(0, 1e9)
histograms = st.lists(st.integers(0, 1000), min_size=BUCKETS, max_size=BUCKETS).map(
    lambda counts: Histogram(tuple(counts))
)


def histogram_of(*samples_ms: float) -> Histogram:
    tally = Tally()
    for ms in samples_ms:
        tally.add(ms)
    return tally.freeze()


def test_the_buckets_reach_from_a_tenth_of_a_millisecond_to_a_day() -> None:
    assert len(BOUNDS_MS) == 32
    assert BOUNDS_MS[0] <= 0.1
    assert BOUNDS_MS[-1] >= 86_400_000
    assert 5 in BOUNDS_MS


def test_a_median_of_five_means_below_five_milliseconds() -> None:
    assert histogram_of(4.99, 4.99).quantile(0.5) == 5
    assert histogram_of(5, 5).quantile(0.5) == 10


def test_an_empty_histogram_has_no_quantile() -> None:
    assert Histogram.EMPTY.quantile(0.5) is None
    assert Histogram.EMPTY.samples == 0


def test_what_lasts_for_weeks_falls_into_the_last_bucket() -> None:
    assert bucket_of(1e12) == bucket_of(math.inf) == BUCKETS - 1
    assert histogram_of(1e12).quantile(1) == BOUNDS_MS[-1]


def test_a_clock_that_stepped_back_falls_into_the_first_bucket() -> None:
    assert bucket_of(-5) == 0


@pytest.mark.parametrize("q", [-0.1, 1.1, 95, math.nan])
def test_a_quantile_outside_of_zero_to_one_is_refused(q: float) -> None:
    with pytest.raises(BadSetting, match="between 0 and 1"):
        Histogram.EMPTY.quantile(q)


@given(histograms, st.floats(0, 1), st.floats(0, 1))
def test_a_higher_quantile_is_never_shorter(histogram: Histogram, a: float, b: float) -> None:
    low, high = histogram.quantile(min(a, b)), histogram.quantile(max(a, b))

    assert (low is None and high is None) or (low or 0) <= (high or 0)


@given(st.lists(durations, min_size=1), st.floats(0, 1))
def test_a_quantile_is_above_the_sample_it_stands_for_and_at_most_its_double(
    samples_ms: list[float], q: float
) -> None:
    exact = sorted(samples_ms)[max(1, math.ceil(q * len(samples_ms))) - 1]

    estimate = histogram_of(*samples_ms).quantile(q)

    assert estimate is not None
    assert min(exact, BOUNDS_MS[-1]) <= estimate <= max(2 * exact + 1, 1)


@given(st.lists(durations))
def test_a_tally_counts_like_a_histogram(samples_ms: list[float]) -> None:
    histogram = Histogram.EMPTY
    tally = Tally()
    for ms in samples_ms:
        histogram = histogram.plus(ms)
        tally.add(ms)

    assert tally.freeze() == histogram
    assert len(tally) == histogram.samples == len(samples_ms)


@given(histograms, histograms)
def test_merging_adds_the_samples_in_any_order(one: Histogram, other: Histogram) -> None:
    assert one.merge(other) == other.merge(one)
    assert one.merge(other).samples == one.samples + other.samples
    assert one.merge(Histogram.EMPTY) == one


@given(histograms)
def test_a_histogram_survives_storage(histogram: Histogram) -> None:
    assert Histogram.from_json(histogram.to_json()) == histogram


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", str([-1] * 32), str([1.5] * 32), b"\xff"])
def test_a_text_that_is_no_histogram_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidInput, match="list of 32 counts"):
        Histogram.from_json(text)

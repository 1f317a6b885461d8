from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.core.backoff import RETRYABLE, Backoff, ErrorClass, named, retry_delay_ms
from edgeq.errors import BadSetting

units = st.floats(0, 1, exclude_max=True)
jittered = st.sampled_from([ErrorClass.TRANSIENT, ErrorClass.TIMEOUT])


def test_the_delay_doubles_with_each_failure_until_the_cap() -> None:
    delays = [retry_delay_ms(ErrorClass.TRANSIENT, Backoff(), n, 0.5) for n in range(1, 9)]

    assert delays == [5000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000]


def test_a_rate_limited_job_waits_for_minutes_without_jitter() -> None:
    delays = {
        unit: [retry_delay_ms(ErrorClass.RATE_LIMITED, Backoff(), n, unit) for n in range(1, 5)]
        for unit in (0.0, 0.9)
    }

    assert delays[0.0] == delays[0.9] == [60_000, 120_000, 240_000, 300_000]


@given(jittered, st.integers(0, 10**6), st.integers(0, 10**9), st.integers(1, 20), units)
def test_jitter_stays_within_a_fifth_and_below_the_cap(
    error_class: ErrorClass, base_ms: int, cap_ms: int, failures: int, unit: float
) -> None:
    delay = retry_delay_ms(error_class, Backoff(base_ms, cap_ms), failures, unit)

    exact = base_ms * 2 ** (failures - 1)
    assert min(cap_ms, exact * 0.8 - 1) <= delay <= min(cap_ms, exact * 1.2 + 1)


@given(st.sampled_from(sorted(RETRYABLE)), st.integers(-(10**9), 10**9), units)
def test_no_number_of_failures_overflows(
    error_class: ErrorClass, failures: int, unit: float
) -> None:
    assert 0 < retry_delay_ms(error_class, Backoff(), failures, unit) <= 300_000


def test_a_job_whose_worker_was_lost_waits_for_nothing() -> None:
    assert retry_delay_ms(ErrorClass.WORKER_LOST, Backoff(), 3, 0.5) == 0


@pytest.mark.parametrize(
    "error_class", sorted(set(ErrorClass) - RETRYABLE - {ErrorClass.WORKER_LOST})
)
def test_what_is_never_retried_has_no_delay(error_class: ErrorClass) -> None:
    with pytest.raises(ValueError, match="never retried"):
        retry_delay_ms(error_class, Backoff(), 1, 0.5)


@pytest.mark.parametrize("error_class", ErrorClass)
def test_every_class_is_found_by_its_name(error_class: ErrorClass) -> None:
    assert named(error_class.value) is error_class


def test_retryable_is_another_name_of_transient() -> None:
    assert named("retryable") is ErrorClass.TRANSIENT


def test_an_unknown_class_is_refused_with_the_list_of_names() -> None:
    with pytest.raises(BadSetting, match=r"'fatal' is no error class.*transient.*retryable"):
        named("fatal")

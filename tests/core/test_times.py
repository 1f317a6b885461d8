from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.core.times import format_time, human_duration, parse_duration_ms, parse_time_ms
from edgeq.errors import BadSetting

YEAR_1_MS, YEAR_9999_MS = -62_135_596_800_000, 253_402_300_799_999


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("1h 30min", 5_400_000),
        (" 1 H ", 3_600_000),
        ("250ms", 250),
        ("1.5s", 1500),
        ("2d", 172_800_000),
        ("90", 90_000),
        ("0.25", 250),
        (90, 90_000),
        (1.5, 1500),
        (0, 0),
        (timedelta(minutes=1, microseconds=600), 60_001),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str | float | timedelta, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5 parsecs",
        "m",
        "-5m",
        "1h30",
        "1,5s",
        "٣s",
        "1e3",
        pytest.param("9" * 5000, id="thousands of digits"),
        pytest.param("9" * 5000 + "d", id="thousands of digits of days"),
        -1,
        -0.5,
        math.nan,
        math.inf,
        pytest.param(10**5000, id="huge"),
        pytest.param(-(10**5000), id="hugely negative"),
        1e300,
        True,
        timedelta(seconds=-1),
        "101000000h",
    ],
)
def test_what_is_no_duration_is_refused_with_examples(text: str | float | timedelta) -> None:
    with pytest.raises(BadSetting, match="'1h30m'") as caught:
        parse_duration_ms(text)
    assert len(str(caught.value)) < 250


@given(st.integers(0, 10**9), st.integers(0, 59), st.integers(0, 999))
def test_the_parts_of_a_duration_add_up(minutes: int, seconds: int, ms: int) -> None:
    minutes %= 10**7

    assert parse_duration_ms(f"{minutes}m{seconds}s{ms}ms") == (minutes * 60 + seconds) * 1000 + ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00.5z", 500),
        ("1970-01-01 01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2030-01-31T09:30:00.123456789-00:30", 1_896_084_000_123),
    ],
)
def test_a_time_is_read_in_its_zone(text: str, ms: int) -> None:
    assert parse_time_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2030-01-31",
        "2030-01-31T09:30:00",
        "2030-02-31T09:30:00Z",
        "2030-01-31T09:30:60Z",
        "2030-W05-4T09:30:00Z",
        "2030-01-31T09:30:00+25:00",
        "0001-01-01T00:00:00+01:00",
        "1893456000000",
        pytest.param("x" * 10_000, id="long"),
    ],
)
def test_what_is_no_time_with_a_zone_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadSetting, match="'2030-01-31T09:30:00Z'"):
        parse_time_ms(text)


@given(st.integers(YEAR_1_MS, YEAR_9999_MS))
def test_a_time_survives_being_written_and_read(ms: int) -> None:
    text = format_time(ms)

    assert text is not None
    assert text.endswith("Z")
    assert parse_time_ms(text) == ms


def test_a_time_is_written_to_the_millisecond_in_utc() -> None:
    moment = datetime(2030, 1, 31, 9, 30, tzinfo=UTC)

    assert format_time(int(moment.timestamp() * 1000) + 7) == "2030-01-31T09:30:00.007Z"


def test_no_time_is_written_as_none() -> None:
    assert format_time(None) is None


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (0.44, "0.4 ms"),
        (850, "850 ms"),
        (999.7, "1 s"),
        (1234, "1.2 s"),
        (12_345, "12 s"),
        (59_970, "1 min"),
        (180_000, "3 min"),
        (90_000, "1.5 min"),
        (5_400_000, "1.5 h"),
        (86_400_000, "24 h"),
        (3 * 86_400_000, "3 d"),
        (4000 * 86_400_000, "4000 d"),
    ],
)
def test_a_duration_for_people_has_two_digits_that_matter(ms: float, text: str) -> None:
    assert human_duration(ms) == text

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgeq.core.admission import (
    Admitted,
    AdmittedLong,
    Deferred,
    Verdict,
    admit,
    seconds_needed,
    share,
)
from edgeq.core.durations import Histogram
from edgeq.core.runs import RunLimits

LIMITS = RunLimits(budget=25, grace=5)


def _took(seconds: float, times: int = 10) -> Histogram:
    histogram = Histogram.EMPTY
    for _ in range(times):
        histogram = histogram.plus(seconds * 1000)
    return histogram


def _admit(durations: Histogram, **changes: object) -> Verdict:
    facts = {"elapsed": 0.0, "is_first_claim": False, "long_running": 0, "open_slots": 5}
    return admit(durations, LIMITS, **(facts | changes))  # type: ignore[arg-type]


def test_an_unknown_type_asks_for_half_the_budget() -> None:
    assert seconds_needed(Histogram.EMPTY, LIMITS) == 12.5
    assert seconds_needed(_took(0.1, 4), LIMITS) == 12.5


def test_an_unknown_type_is_always_tried_by_the_first_claim() -> None:
    assert _admit(Histogram.EMPTY, elapsed=29, is_first_claim=True) == Admitted()
    assert _admit(Histogram.EMPTY, elapsed=29) == Deferred()


def test_a_short_type_fits_until_the_end() -> None:
    assert _admit(_took(0.001), elapsed=24.9) == Admitted()


def test_what_would_not_finish_in_this_run_is_left_for_a_later_one() -> None:
    assert _admit(_took(8), elapsed=24) == Deferred()


def test_what_fits_no_run_starts_early_in_half_of_the_open_slots() -> None:
    assert _admit(_took(100), elapsed=1) == AdmittedLong(2)
    assert _admit(_took(100), elapsed=1, long_running=1) == AdmittedLong(1)
    assert _admit(_took(100), elapsed=1, long_running=2) == Deferred()


def test_what_fits_no_run_does_not_start_late() -> None:
    assert _admit(_took(100), elapsed=3) == Deferred()


def test_the_first_claim_counts_as_early_however_late_it_comes() -> None:
    assert _admit(_took(100), elapsed=3, is_first_claim=True) == AdmittedLong(2)


def test_one_slot_is_enough_to_start_long_work() -> None:
    assert _admit(_took(100), open_slots=1) == AdmittedLong(1)


@given(st.floats(0.001, 1000), st.floats(0, 30), st.integers(1, 8))
def test_what_is_admitted_as_fitting_fits(seconds: float, elapsed: float, slots: int) -> None:
    durations = _took(seconds)
    verdict = _admit(durations, elapsed=elapsed, open_slots=slots)
    if verdict == Admitted():
        assert elapsed + seconds_needed(durations, LIMITS) <= LIMITS.seconds


@given(st.integers(0, 20), st.lists(st.text(), unique=True, max_size=6), st.integers(0, 50))
def test_a_room_is_shared_evenly_and_wholly(room: int, names: list[str], turn: int) -> None:
    shares = share(room, names, turn)
    assert sum(shares.values()) == (room if names else 0)
    assert max(shares.values(), default=0) - min(shares.values(), default=0) <= 1


def test_who_gets_the_rest_of_a_room_changes_by_turn() -> None:
    assert [share(1, ["a", "b"], turn) for turn in (0, 1)] == [{"a": 1, "b": 0}, {"a": 0, "b": 1}]


def test_work_that_fits_a_whole_run_is_not_deferred_by_every_run() -> None:
    nearly_all = _took(29)
    if seconds_needed(nearly_all, LIMITS) <= LIMITS.seconds:
        assert _admit(nearly_all, elapsed=2, is_first_claim=True) != Deferred()
    assert _admit(_took(2.5), elapsed=2, is_first_claim=True) == Admitted()

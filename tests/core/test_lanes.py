from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgeq.core.durations import Histogram
from edgeq.core.lanes import ClaimStep, claim_steps, claims_ahead, has_room, open_slots

lanes = st.sampled_from(["fast", "general", "mail"])


def test_reserved_slots_are_offered_to_their_lane_and_the_rest_to_all() -> None:
    steps = claim_steps(8, {"fast": 3}, {})
    assert steps == (ClaimStep("fast", 3), ClaimStep(None, 5))


def test_slow_work_cannot_take_the_slots_of_the_fast_lane() -> None:
    assert claim_steps(8, {"fast": 3}, {"general": 5}) == (ClaimStep("fast", 3),)


def test_fast_work_beyond_its_own_slots_sits_in_the_open_ones() -> None:
    assert claim_steps(8, {"fast": 3}, {"fast": 5}) == (ClaimStep(None, 3),)


def test_nothing_is_claimed_when_all_slots_are_taken() -> None:
    assert claim_steps(8, {"fast": 3}, {"fast": 3, "general": 5}) == ()


@given(
    st.integers(1, 16),
    st.dictionaries(lanes, st.integers(0, 5), max_size=2),
    st.lists(lanes, max_size=16),
)
def test_claiming_all_that_is_free_never_exceeds_the_concurrency(
    concurrency: int, reserved: dict[str, int], started: list[str]
) -> None:
    if sum(reserved.values()) >= concurrency:
        reserved = {}
    running: dict[str, int] = {}
    for lane in started:
        steps = claim_steps(concurrency, reserved, running)
        if any(step.lane in (None, lane) for step in steps):
            running[lane] = running.get(lane, 0) + 1
    free = sum(step.limit for step in claim_steps(concurrency, reserved, running))
    assert free + sum(running.values()) == concurrency


def test_open_slots_are_what_is_not_reserved() -> None:
    assert open_slots(8, {"fast": 3, "mail": 1}) == 4


def _took(ms: float, times: int) -> Histogram:
    histogram = Histogram.EMPTY
    for _ in range(times):
        histogram = histogram.plus(ms)
    return histogram


def test_only_short_and_well_known_types_are_claimed_ahead() -> None:
    assert claims_ahead(_took(1, 5), is_limited=False)
    assert not claims_ahead(_took(1, 4), is_limited=False)
    assert not claims_ahead(_took(50, 5), is_limited=False)


def test_a_limited_type_is_never_claimed_ahead() -> None:
    assert not claims_ahead(_took(1, 50), is_limited=True)


def test_one_more_job_has_room_in_its_own_slots_or_in_the_open_ones() -> None:
    full = {"general": 5}
    assert has_room("fast", 8, {"fast": 3}, full)
    assert not has_room("general", 8, {"fast": 3}, full)
    assert has_room("general", 8, {"fast": 3}, {"general": 4})
    assert not has_room("general", 8, {"fast": 3}, {"general": 4}, sparing=1)

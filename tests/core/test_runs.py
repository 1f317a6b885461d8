from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.core.runs import RunLimits
from edgeq.errors import BadSetting


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": -1},
        {"budget": math.nan},
        {"budget": math.inf},
        {"grace": -0.1},
        {"concurrency": 0},
        {"fast_slots": -1},
        {"lane_slots": {"slow": -1}},
        {"max_jobs": 0},
        {"max_jobs": 1.5},
        {"concurrency": True},
        {"budget": "1"},
    ],
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadSetting, match=r"must be a (whole )?number of at least"):
        RunLimits(**wrong)  # type: ignore[arg-type]


def test_a_run_may_use_its_budget_and_its_grace() -> None:
    assert RunLimits(budget=25, grace=5, max_jobs=1).seconds == 30


@given(
    st.integers(1, 20),
    st.integers(0, 20),
    st.dictionaries(st.sampled_from(["slow", "mail"]), st.integers(0, 20)),
)
def test_at_least_one_slot_stays_open_to_every_lane(
    concurrency: int, fast: int, lanes: dict[str, int]
) -> None:
    limits = RunLimits(concurrency=concurrency, fast_slots=fast, lane_slots=lanes)
    reserved = limits.reserved_slots()
    assert sum(reserved.values()) <= concurrency - 1
    assert all(slots > 0 for slots in reserved.values())


def test_fast_slots_are_clipped_below_the_concurrency() -> None:
    assert RunLimits(concurrency=2, fast_slots=3).reserved_slots() == {"fast": 1}
    assert RunLimits(concurrency=1, fast_slots=3).reserved_slots() == {}

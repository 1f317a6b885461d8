from __future__ import annotations

import pytest

from edgeq.core.clock_jumps import TOLERATED_MS, WAIT_MS, ClockWatch

WATCH = ClockWatch(wall_ms=1_000_000, elapsed=50.0)


def test_clocks_that_agree_are_trusted() -> None:
    watch, jump = WATCH.look(1_010_000, 60.0)
    assert jump == 0
    assert watch.trusts_locks(60.0)


def test_small_differences_are_not_jumps() -> None:
    assert WATCH.look(1_010_000 + TOLERATED_MS, 60.0)[1] == 0


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000, 2_001])
def test_after_a_jump_locks_are_left_alone_for_one_heartbeat(jump_ms: int) -> None:
    watch, jump = WATCH.look(1_010_000 + jump_ms, 60.0)
    assert jump == jump_ms
    assert not watch.trusts_locks(60.0 + WAIT_MS / 1000 - 0.1)
    assert watch.trusts_locks(60.0 + WAIT_MS / 1000)


def test_suspicion_outlives_the_next_quiet_look() -> None:
    jumped, _ = WATCH.look(5_000_000, 60.0)
    looked, jump = jumped.look(5_001_000, 61.0)
    assert jump == 0
    assert not looked.trusts_locks(61.0)

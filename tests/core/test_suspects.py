from __future__ import annotations

from edgeq.core.suspects import BUSY_MS, QUIET_MS, Quarantine, next_claim


def test_without_a_suspect_others_are_claimed() -> None:
    after, wants = next_claim(Quarantine(5, 0), suspect_is_due=False, in_flight=3, now=10)
    assert (after.quiet_since, wants) == (None, "others")


def test_a_suspect_is_claimed_when_nothing_else_runs() -> None:
    _, wants = next_claim(Quarantine(), suspect_is_due=True, in_flight=0, now=10)
    assert wants == "suspect"


def test_the_run_falls_quiet_to_make_room_for_a_suspect() -> None:
    quiet, wants = next_claim(Quarantine(), suspect_is_due=True, in_flight=2, now=10)
    assert (quiet.quiet_since, wants) == (10, "nothing")
    still, wants = next_claim(quiet, suspect_is_due=True, in_flight=1, now=10 + QUIET_MS - 1)
    assert (still.quiet_since, wants) == (10, "nothing")


def test_quiet_does_not_last_behind_a_long_job() -> None:
    quiet = Quarantine(quiet_since=10)
    busy, wants = next_claim(quiet, suspect_is_due=True, in_flight=1, now=10 + QUIET_MS)
    assert wants == "others"
    _, wants = next_claim(busy, suspect_is_due=True, in_flight=1, now=10 + QUIET_MS + 1)
    assert wants == "others"
    later = 10 + QUIET_MS + BUSY_MS
    _, wants = next_claim(busy, suspect_is_due=True, in_flight=1, now=later)
    assert wants == "nothing"

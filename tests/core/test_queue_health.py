from __future__ import annotations

import pytest

from edgeq.core.findings import Broken, Doubtful, Fine, Verdict
from edgeq.core.queue_health import (
    CLOCK_LEEWAY_MS,
    LONGEST_LOCK_MS,
    Latest,
    judge_clock,
    judge_expired,
    judge_guard,
    judge_orphaned,
    judge_schema,
    judge_settings,
    judge_silent_runs,
    judge_switch,
    judge_unhandled,
)

NOW = 1_767_225_600_000
KNOWN = ("0001", "0002")


@pytest.mark.parametrize(
    ("version", "kind", "says"),
    [
        ("0002", Fine, "0002"),
        ("0001", Doubtful, "0001"),
        ("0003", Broken, "does not know"),
    ],
)
def test_a_schema_is_current_behind_or_newer(version: str, kind: type[Verdict], says: str) -> None:
    verdict = judge_schema(version, KNOWN, is_empty=False, is_ours=True)

    assert isinstance(verdict, kind)
    assert says in verdict.message


def test_an_empty_database_can_be_migrated_and_one_of_another_program_must_not() -> None:
    empty = judge_schema(None, KNOWN, is_empty=True, is_ours=False)
    foreign = judge_schema(None, KNOWN, is_empty=False, is_ours=False)

    assert isinstance(empty, Doubtful)
    assert isinstance(foreign, Broken)
    assert "another program" in foreign.message


@pytest.mark.parametrize("mode", [None, "frozen", "moved", "backup"])
def test_a_guard_that_is_not_open_is_broken(mode: str | None) -> None:
    verdict = judge_guard(mode)

    assert isinstance(verdict, Broken)
    assert (mode or "missing") in verdict.message


def test_an_open_guard_is_fine() -> None:
    assert isinstance(judge_guard("open"), Fine)


def test_due_jobs_without_a_handler_are_counted_by_type() -> None:
    verdict = judge_unhandled({"mail": 3, "idle": 0, "bulk": 10_000}, 10_000)

    assert isinstance(verdict, Doubtful)
    assert verdict.message.endswith("bulk (10,000+), mail (3).")
    assert isinstance(judge_unhandled({"idle": 0}, 10_000), Fine)


def test_jobs_that_nobody_works_on_are_named_but_not_all_of_them() -> None:
    ids = [f"job-{n}" for n in range(7)]

    assert isinstance(judge_expired([]), Fine)
    assert isinstance(judge_orphaned([]), Fine)
    assert "7 jobs: job-0, job-1, job-2, job-3, job-4, and 2 more" in judge_expired(ids).message
    assert "holds job job-0, job-1." in judge_orphaned(ids[:2]).message


@pytest.mark.parametrize(
    "latest",
    [
        Latest(None, None, None),
        Latest(NOW, NOW, NOW + LONGEST_LOCK_MS),
        Latest(NOW + CLOCK_LEEWAY_MS, None, NOW + LONGEST_LOCK_MS + CLOCK_LEEWAY_MS),
    ],
)
def test_a_clock_that_is_not_far_behind_the_database_is_fine(latest: Latest) -> None:
    assert isinstance(judge_clock(NOW, latest), Fine)


@pytest.mark.parametrize(
    ("latest", "says"),
    [
        (Latest(NOW + 3_600_000, None, None), "a job was created 1 h in the future"),
        (Latest(None, NOW + 3_600_000, None), "a run was started 1 h"),
        (Latest(NOW, NOW, NOW + LONGEST_LOCK_MS + 120_000), "a lock began 2 min"),
    ],
)
def test_a_clock_far_behind_the_database_is_doubtful(latest: Latest, says: str) -> None:
    verdict = judge_clock(NOW, latest)

    assert isinstance(verdict, Doubtful)
    assert says in verdict.message


def test_a_clock_before_2020_was_never_set() -> None:
    assert isinstance(judge_clock(0, Latest(None, None, None)), Broken)


def test_runs_that_never_ended_are_only_noted() -> None:
    assert isinstance(judge_silent_runs(0), Fine)
    assert judge_silent_runs(1).message.startswith("1 run never")
    assert judge_silent_runs(2).message.startswith("2 runs never")


def test_the_switch_is_doubtful_when_it_is_off() -> None:
    assert isinstance(judge_switch(is_enabled=True), Fine)
    assert isinstance(judge_switch(is_enabled=False), Doubtful)


def test_less_durable_commits_are_only_noted() -> None:
    assert isinstance(judge_settings(is_durable=True), Fine)
    assert "normal" in judge_settings(is_durable=False).message

"""The checker of steps sees what it is there to see."""

from __future__ import annotations

import dataclasses
import json

from tests.torture.database import JobRow, StepRow
from tests.torture.slots import FAST, Stay, idle_seconds
from tests.torture.step_checker import StepEvidence, violations
from tests.torture.step_ledger import Line, Said, StepLedger
from tests.torture.step_plans import Part, Plan

_SECOND = 1_000_000_000
_PLAN = Plan(7, (Part("step", "first", seconds=0.1), Part("step", "second", fails=1)))


def _said(
    said: Said, second: float, place: int = -1, fence: int = 1, root: str = "one", attempt: int = 1
) -> Line:
    at = round(second * _SECOND)
    remaining = 5.0 if said is Said.START else 0.0
    wall_ms = round(second * 1000)
    return Line(said, root, 1, "job", attempt, fence, at, wall_ms, place, remaining)


_GOOD = (
    _said(Said.START, 1.0),
    _said(Said.BEGIN, 1.1, 0),
    _said(Said.END, 1.2, 0),
    _said(Said.KEPT, 1.3, 0),
    _said(Said.BEGIN, 1.4, 1),
    _said(Said.RAISED, 1.5, 1),
    _said(Said.LEFT, 1.6),
    _said(Said.START, 2.0, fence=3, attempt=2),
    _said(Said.BEGIN, 2.1, 1, fence=3, attempt=2),
    _said(Said.END, 2.2, 1, fence=3, attempt=2),
    _said(Said.KEPT, 2.3, 1, fence=3, attempt=2),
    _said(Said.DONE, 2.4, fence=3, attempt=2),
)


def _evidence(*lines: Line) -> StepEvidence:
    results = {place: json.dumps(value) for place, value in _PLAN.results().items()}
    job = JobRow("job", "stepwise", "completed", 3, 2, 0, 0, None, None, json.dumps(_PLAN.output()))
    rows = (
        StepRow("job", "first", "", "step", results[0], 1, 1250, "one"),
        StepRow("job", "second", "", "step", results[1], 2, 2250, "one"),
    )
    return StepEvidence({"job": _PLAN}, {"job": job}, rows, StepLedger(lines), grace=1.0)


def _broken(evidence: StepEvidence) -> set[str]:
    return {text.split(":")[0] for text in violations(evidence)}


def test_nothing_is_wrong_with_a_job_that_fails_as_planned_and_goes_on() -> None:
    assert violations(_evidence(*_GOOD)) == []


def test_a_step_that_runs_after_it_was_kept_is_seen() -> None:
    again = (_said(Said.BEGIN, 2.05, 0, fence=3, attempt=2), _said(Said.END, 2.06, 0, fence=3))

    assert _broken(_evidence(*_GOOD[:8], *again, *_GOOD[8:])) == {
        "what_is_kept_never_runs_again",
        "bodies_run_once_unless_cut",
    }


def test_a_step_that_ended_undisturbed_and_was_not_kept_is_seen() -> None:
    lines = [line for line in _GOOD if (line.said, line.place) != (Said.KEPT, 0)]

    assert _broken(_evidence(*lines)) == {"bodies_run_once_unless_cut"}


def test_a_step_that_was_not_kept_because_its_process_was_ended_is_explained() -> None:
    lines = [line for line in _GOOD if (line.said, line.place) != (Said.KEPT, 0)]
    evidence = _evidence(*lines)
    ended = {"one": round(0.1 * _SECOND)}

    assert violations(dataclasses.replace(evidence, killed=ended)) == []
    assert violations(dataclasses.replace(evidence, asked=ended)) == []


def test_a_step_kept_by_somebody_whose_job_was_taken_over_is_seen() -> None:
    late = (
        _said(Said.BEGIN, 2.15, 1, root="zombie"),
        _said(Said.END, 2.16, 1, root="zombie"),
        _said(Said.KEPT, 2.17, 1, root="zombie"),
    )
    lines = [line for line in _GOOD if line.fence != 1 or line.place != 1]
    evidence = dataclasses.replace(
        _evidence(*lines[:5], *late, *lines[5:]), frozen=frozenset({"zombie"})
    )

    assert "no_zombie_is_heard" in _broken(evidence)


def test_a_wrong_result_is_seen() -> None:
    evidence = _evidence(*_GOOD)
    wrong = dataclasses.replace(evidence.rows[0], result='"other"')

    assert _broken(dataclasses.replace(evidence, rows=(wrong, evidence.rows[1]))) == {
        "every_step_is_kept_once"
    }


def test_a_step_that_is_missing_is_seen() -> None:
    evidence = _evidence(*_GOOD)

    assert "every_step_is_kept_once" in _broken(
        dataclasses.replace(evidence, rows=evidence.rows[:1])
    )


def test_an_execution_that_got_nowhere_is_seen() -> None:
    idle = (_said(Said.START, 1.7, fence=2), _said(Said.LEFT, 1.8, fence=2))

    assert _broken(_evidence(*_GOOD[:7], *idle, *_GOOD[7:])) == {"every_run_gets_on"}


def _idle(*stays: Stay) -> float:
    return idle_seconds(stays, since=0, until=10, concurrency=2, fast_slots=1)


def test_a_slot_is_idle_only_while_somebody_waits_who_may_have_it() -> None:
    runs = Stay("general", 0, 4, is_running=True)
    waits = Stay("general", 0, 6)

    assert _idle(runs) == 0
    assert _idle(waits) == 6
    assert _idle(runs, waits) == 2, "the other slot is for fast jobs"
    assert _idle(runs, Stay(FAST, 1, 3)) == 2
    assert _idle(Stay(FAST, 0, 1), Stay(FAST, 0, 1)) == 2

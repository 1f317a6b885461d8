"""A checker that cannot find anything proves nothing: each promise is broken once."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.torture import checker, ledger
from tests.torture.checker import Evidence, Promise
from tests.torture.database import JobRow
from tests.torture.ledger import Entry, Event, Ledger

JOB = JobRow("a", "work", "completed", 1, 1, 0, 0, None, None, '{"pid": 7, "fence": 1}')
START = Entry(Event.START, pid=7, parent=1, job_id="a", attempt=1, fence=1, losses=0, at=10)
END = replace(START, event=Event.END, at=20)
KEPT = Evidence(
    accepted=("a",),
    jobs={"a": JOB},
    completions=Counter({"a": 1}),
    letters=Counter(),
    ledger=Ledger((START, END)),
)


def _with_job(**changes: object) -> Evidence:
    return replace(KEPT, jobs={"a": replace(JOB, **changes)})  # type: ignore[arg-type]


def _with_entries(*more: Entry) -> Evidence:
    return replace(KEPT, ledger=Ledger((START, END, *more)))


_AGAIN = replace(START, pid=8, fence=3, at=30)
_SUSPECT = replace(START, job_id="b", losses=1, at=15)
BROKEN: list[tuple[Promise, Evidence]] = [
    (checker.nothing_accepted_is_lost, replace(KEPT, accepted=("a", "b"))),
    (checker.every_job_completed, _with_job(status="pending")),
    (checker.one_accepted_completion_each, replace(KEPT, completions=Counter({"a": 2}))),
    (checker.one_accepted_completion_each, replace(KEPT, completions=Counter())),
    (checker.one_accepted_completion_each, _with_job(output_data='{"pid": 7, "fence": 3}')),
    (checker.none_stuck, _with_job(status="processing")),
    (checker.nobody_innocent_failed, _with_job(status="failed", error_class="worker_lost")),
    (checker.executions_are_explained, _with_entries(_AGAIN)),
    (checker.executions_are_explained, _with_entries(replace(START, pid=8))),
    (checker.suspects_run_alone, _with_entries(_SUSPECT)),
    (checker.poison_failed_after_three_losses, replace(KEPT, poison=frozenset({"a"}))),
    (checker.integrity_ok, replace(KEPT, integrity="row 1 missing from index")),
]


def test_nothing_is_wrong_with_a_job_that_was_done_once() -> None:
    assert checker.violations(KEPT, checker.AFTER_A_STORM) == []


@pytest.mark.parametrize(("promise", "evidence"), BROKEN)
def test_a_broken_promise_is_noticed(promise: Promise, evidence: Evidence) -> None:
    assert promise(evidence)


def test_an_execution_is_explained_by_the_kill_of_its_process_or_of_that_ones_parent() -> None:
    again = _with_entries(_AGAIN)

    assert checker.executions_are_explained(replace(again, killed=frozenset({8}))) == []
    assert checker.executions_are_explained(replace(again, killed=frozenset({1}))) == []


def test_a_line_that_a_kill_tore_apart_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(b'\n{"event": "sta')
    monkeypatch.setenv(ledger.LEDGER, str(path))
    ledger._descriptor.cache_clear()

    ledger.write(Event.START, job_id="a", attempt=1, fence=1, losses=0)

    os.close(ledger._descriptor())
    ledger._descriptor.cache_clear()
    read = ledger.read(path)
    assert (len(read.entries), read.torn) == (1, 1)
    assert json.loads(path.read_bytes().splitlines()[-1])["job_id"] == "a"

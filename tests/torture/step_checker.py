"""The promises about steps, each as a function from what is known to what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tests.torture.database import JobRow, StepRow
from tests.torture.step_ledger import Line, Said, StepLedger
from tests.torture.step_plans import Plan

Promise = Callable[["StepEvidence"], list[str]]
_SECOND = 1_000_000_000
# A machine that is busy with other things is slow, not wrong.
_LATE_SECONDS = 5.0
# A handler that was called this long before the end of the budget has to get something done.
_LEAST_BUDGET = 0.2
_CLOCKS_MS = 5


@dataclass(frozen=True)
class StepEvidence:
    """The database and the ledger after everything has ended, and what was done to processes."""

    plans: Mapping[str, Plan]
    jobs: Mapping[str, JobRow]
    rows: tuple[StepRow, ...]
    ledger: StepLedger
    grace: float
    killed: Mapping[str, int] = field(default_factory=dict)
    asked: Mapping[str, int] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()

    @cached_property
    def bodies(self) -> list[Body]:
        """Every execution of a step's body."""
        found: dict[tuple[str, int, int], list[Line]] = {}
        for line in self.ledger.lines:
            if line.said in _OF_BODIES:
                found.setdefault((*line.execution, line.place), []).append(line)
        return [Body(lines) for lines in found.values()]

    @cached_property
    def starts(self) -> dict[str, list[Line]]:
        found: dict[str, list[Line]] = {}
        for line in self.ledger.of(Said.START):
            found.setdefault(line.job_id, []).append(line)
        return found

    def was_left_alone(self, line: Line) -> bool:
        return line.root not in self.frozen and line.root not in self.killed

    def interrupted_at(self, line: Line) -> float:
        """When the run of this execution interrupts what still runs, in ns."""
        start = next(
            each for each in self.ledger.by_execution[line.execution] if each.said is Said.START
        )
        moment = start.at + start.remaining * _SECOND
        asked = self.asked.get(line.root)
        return moment if asked is None else min(moment, asked + self.grace * _SECOND)

    def taken_over_at(self, line: Line) -> float:
        """When somebody else was given the job of this execution, in ns."""
        later = [s.at for s in self.starts.get(line.job_id, ()) if s.fence > line.fence]
        return min(later, default=float("inf"))


_OF_BODIES = (Said.BEGIN, Said.RAISED, Said.END, Said.KEPT)


class Body:
    """One execution of a step's body, from what it said."""

    def __init__(self, lines: list[Line]) -> None:
        self.begins = [line for line in lines if line.said is Said.BEGIN]
        self.first = lines[0]
        by_kind = {line.said: line for line in lines}
        self.end = by_kind.get(Said.END)
        self.kept = by_kind.get(Said.KEPT)
        self.raised = by_kind.get(Said.RAISED)

    def __str__(self) -> str:
        line = self.first
        return f"part {line.place} of job {line.job_id}, fence {line.fence}, in {line.root}"


def violations(evidence: StepEvidence, promises: Iterable[Promise] | None = None) -> list[str]:
    return [
        f"{promise.__name__}: {wrong}"
        for promise in (ALL if promises is None else promises)
        for wrong in promise(evidence)
    ]


def results_are_those_of_an_undisturbed_run(evidence: StepEvidence) -> list[str]:
    wrong = [
        f"part {line.place} of job {line.job_id} was given something else"
        for line in evidence.ledger.of(Said.WRONG)
    ]
    for job_id, plan in evidence.plans.items():
        job = evidence.jobs[job_id]
        if job.status != "completed" or job.output != plan.output():
            wrong.append(f"job {job_id} is {job.status} with {job.output_data}")
        last = len(plan.parts) - 1
        if job.attempt != plan.attempt_of(last):
            wrong.append(f"job {job_id} took {job.attempt} attempts of {plan.attempt_of(last)}")
    return wrong


def every_step_is_kept_once(evidence: StepEvidence) -> list[str]:
    """With the result and in the attempt that the plan says."""
    wrong = []
    kept: dict[str, list[StepRow]] = {job_id: [] for job_id in evidence.plans}
    for row in evidence.rows:
        kept[row.job_id].append(row)
    for job_id, plan in evidence.plans.items():
        places = plan.step_ids()
        results = plan.results()
        if sorted((row.name, row.key) for row in kept[job_id]) != sorted(places):
            wrong.append(f"job {job_id} has kept {len(kept[job_id])} of {len(places)} parts")
            continue
        for row in kept[job_id]:
            place = places[row.name, row.key]
            if row.attempt != plan.attempt_of(place):
                wrong.append(f"part {place} of job {job_id} is from attempt {row.attempt}")
            if row.kind != "sleep" and json.loads(row.result or "null") != results[place]:
                wrong.append(f"part {place} of job {job_id} is kept as {row.result}")
    return wrong


def what_is_kept_never_runs_again(evidence: StepEvidence) -> list[str]:
    wrong = []
    kept_at: dict[tuple[str, int], int] = {}
    for body in evidence.bodies:
        if body.kept is not None:
            where = (body.kept.job_id, body.kept.place)
            if where in kept_at:
                wrong.append(f"{body} was kept a second time")
            kept_at[where] = min(body.kept.at, kept_at.get(where, body.kept.at))
    row_at = _stored_at(evidence)
    for line in evidence.ledger.of(Said.BEGIN):
        where = (line.job_id, line.place)
        stored = row_at.get(where)
        # Who slept while it was done by somebody else cannot know of it.
        is_late = stored is not None and line.wall_ms > stored + _CLOCKS_MS
        if line.root not in evidence.frozen and (line.at > kept_at.get(where, line.at) or is_late):
            wrong.append(f"part {line.place} of job {line.job_id} ran in {line.root} after it was")
    return wrong


def _stored_at(evidence: StepEvidence) -> dict[tuple[str, int], int]:
    ids = {job_id: plan.step_ids() for job_id, plan in evidence.plans.items()}
    return {
        (row.job_id, ids[row.job_id][row.name, row.key]): row.created_at
        for row in evidence.rows
        if row.kind != "sleep" and (row.name, row.key) in ids.get(row.job_id, {})
    }


def bodies_run_once_unless_cut(evidence: StepEvidence) -> list[str]:
    return [f"{body}: {why}" for body in evidence.bodies if (why := _unexplained(evidence, body))]


def _unexplained(evidence: StepEvidence, body: Body) -> str | None:
    first = body.first
    plan = evidence.plans[first.job_id]
    if len(body.begins) != 1:
        return f"began {len(body.begins)} times in one attempt"
    if body.raised is not None:
        is_planned = body.raised.attempt < plan.attempt_of(first.place)
        return None if is_planned else f"raised in attempt {body.raised.attempt}"
    if body.kept is not None or first.root in evidence.frozen:
        return None
    last = first if body.end is None else body.end
    needed = plan.parts[first.place].seconds if body.end is None else 0.0
    ends = last.at + (needed + _LATE_SECONDS) * _SECOND
    if first.root in evidence.killed:
        alone = evidence.killed[first.root] > ends
        return "took no notice for seconds before the kill" if alone else None
    if body.end is None:
        is_cut = evidence.interrupted_at(first) <= ends
        return None if is_cut else "neither ended nor was cut"
    is_cut = body.end.at >= evidence.interrupted_at(first)
    return None if is_cut else "ended, was not interrupted, and yet was not kept"


def no_zombie_is_heard(evidence: StepEvidence) -> list[str]:
    """What ended after the job was somebody else's is not kept."""
    wrong = [
        f"{body} ended after the job was somebody else's, and was kept"
        for body in evidence.bodies
        if body.kept and body.end and body.end.at > evidence.taken_over_at(body.end)
    ]
    ends: dict[tuple[str, int], set[str]] = {}
    for body in evidence.bodies:
        if body.end and body.end.at <= evidence.taken_over_at(body.end):
            ends.setdefault((body.end.job_id, body.end.place), set()).add(body.end.root)
    ids = {job_id: plan.step_ids() for job_id, plan in evidence.plans.items()}
    for row in evidence.rows:
        place = ids[row.job_id].get((row.name, row.key), -1)
        if row.kind != "sleep" and row.root not in ends.get((row.job_id, place), ()):
            wrong.append(f"part {place} of job {row.job_id} was kept by {row.root}, not its doer")
    return wrong


def every_run_gets_on(evidence: StepEvidence) -> list[str]:
    """Who was left alone with budget to spare has finished a step, or failed or slept."""
    wrong = []
    for lines in evidence.ledger.by_execution.values():
        start = lines[0]
        if not evidence.was_left_alone(start) or start.root in evidence.asked:
            continue
        told = {line.said for line in lines}
        has_time = start.remaining - evidence.grace >= _LEAST_BUDGET
        if has_time and not told & {Said.KEPT, Said.RAISED, Said.SLEEPS, Said.DONE}:
            wrong.append(f"job {start.job_id}, fence {start.fence}, got nowhere in {start.root}")
    return wrong


def nobody_needs_more_runs_than_steps(evidence: StepEvidence) -> list[str]:
    """Each peaceful execution but the last one made progress in one of the plan's parts."""
    wrong = []
    for job_id, plan in evidence.plans.items():
        starts = evidence.starts.get(job_id, [])
        in_peace = [
            line
            for line in starts
            if evidence.was_left_alone(line)
            and line.root not in evidence.asked
            and line.remaining - evidence.grace >= _LEAST_BUDGET
        ]
        most = 1 + len(plan.parts) + sum(part.fails for part in plan.parts)
        if len(in_peace) > most:
            wrong.append(f"job {job_id} was started {len(in_peace)} times in peace, not {most}")
        if len({line.fence for line in starts}) != len(starts):
            wrong.append(f"job {job_id} was started twice under one fence")
    return wrong


def sleeps_are_slept(evidence: StepEvidence) -> list[str]:
    """What follows a sleep begins when it is over."""
    wrong = []
    for row in evidence.rows:
        if row.kind != "sleep":
            continue
        place = evidence.plans[row.job_id].step_ids()[row.name, row.key]
        until = int(row.result or 0)
        early = [
            line
            for line in evidence.ledger.by_job[row.job_id]
            if line.said is Said.BEGIN and line.place > place and line.wall_ms < until - _CLOCKS_MS
        ]
        wrong += [f"part {line.place} of job {row.job_id} began before its time" for line in early]
    return wrong


ALL: tuple[Promise, ...] = (
    results_are_those_of_an_undisturbed_run,
    every_step_is_kept_once,
    what_is_kept_never_runs_again,
    bodies_run_once_unless_cut,
    no_zombie_is_heard,
    every_run_gets_on,
    nobody_needs_more_runs_than_steps,
    sleeps_are_slept,
)

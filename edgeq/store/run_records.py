"""Runs: recording them and their durations, and putting back what they hold."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.dialects import sqlite

from edgeq.core.backoff import ErrorClass
from edgeq.core.durations import Histogram
from edgeq.core.job_types import JobType
from edgeq.core.jobs import Job, JobStatus
from edgeq.core.moves import lose
from edgeq.core.moves import settle as settled_as
from edgeq.core.outcomes import Failed, Interrupted, NotStarted, Outcome
from edgeq.core.runs import RunReport, Stop
from edgeq.core.steps import WHOLE
from edgeq.ports.commands import (
    FinishRun,
    LoseRun,
    Moved,
    RefreshRun,
    ReleaseRun,
    RunStart,
    StartRun,
)
from edgeq.ports.queries import COUNTED_AT_MOST, GetDurations
from edgeq.store import due, jobs_sql, settle, system_sql
from edgeq.store.session import Transaction, TypeBook
from edgeq.store.system_sql import Reader
from edgeq.store.tables import durations, jobs, runs

IDLE_RUN = "idle"
HOUR_MS = 3_600_000
_HOURS_USED = 24
_HOURS_KEPT = 24 * 7

_START = insert(runs).values(
    id=bindparam("run_id"),
    kind=bindparam("kind"),
    worker_name=bindparam("worker_name"),
    limits=bindparam("limits"),
    started_at=bindparam("now"),
    last_seen_at=bindparam("now"),
)
_FINISH = (
    update(runs)
    .where(runs.c.id == bindparam("run_id"))
    .values(
        ended_at=bindparam("now"),
        last_seen_at=bindparam("now"),
        stopped=bindparam("stopped"),
        report=bindparam("report"),
    )
)
SEEN = update(runs).where(runs.c.id == bindparam("run_id")).values(last_seen_at=bindparam("now"))
_FORGET = delete(runs).where(runs.c.id == bindparam("run_id"))
_COUNT_IDLE = (
    sqlite.insert(runs)
    .values(
        id=IDLE_RUN,
        kind="idle",
        worker_name=bindparam("worker_name"),
        started_at=bindparam("now"),
        last_seen_at=bindparam("now"),
        ended_at=bindparam("now"),
        stopped=bindparam("stopped"),
        report=bindparam("report"),
    )
    .on_conflict_do_update(
        index_elements=["id"],
        set_={
            "ticks": runs.c.ticks + 1,
            "last_seen_at": bindparam("now"),
            "ended_at": bindparam("now"),
            "stopped": bindparam("stopped"),
            "report": bindparam("report"),
        },
    )
)
_COUNT_PUT_BACK = (
    update(runs)
    .where(runs.c.id == bindparam("run_id"))
    .values(put_back=runs.c.put_back + bindparam("more"))
)
_PUT_BACK = select(runs.c.put_back).where(runs.c.id == bindparam("run_id"))
_KIND_AND_NAME = select(runs.c.kind, runs.c.worker_name).where(runs.c.id == bindparam("run_id"))

_READ_DURATIONS = select(durations.c.type, durations.c.buckets).where(
    durations.c.step == bindparam("step"), durations.c.hour >= bindparam("since")
)
_READ_STEP_DURATIONS = select(durations.c.type, durations.c.step, durations.c.buckets).where(
    durations.c.step != WHOLE, durations.c.hour >= bindparam("since")
)
_READ_HOUR = select(durations.c.buckets).where(
    durations.c.type == bindparam("type"),
    durations.c.step == bindparam("step"),
    durations.c.hour == bindparam("hour"),
)
_WRITE_HOUR = (
    sqlite.insert(durations)
    .values(
        type=bindparam("type"),
        step=bindparam("step"),
        hour=bindparam("hour"),
        buckets=bindparam("buckets"),
    )
    .on_conflict_do_update(
        index_elements=["type", "step", "hour"], set_={"buckets": bindparam("buckets")}
    )
)
_FORGET_HOURS = delete(durations).where(durations.c.hour < bindparam("before"))
_READ_HELD = jobs_sql.select_jobs().where(
    jobs_sql.is_status(JobStatus.PROCESSING), jobs.c.locked_by == bindparam("run_id")
)
_CLAIMED_AHEAD = select(jobs.c.claimed_ahead).where(jobs.c.seq == bindparam("seq"))


def start(tx: Transaction, command: StartRun) -> RunStart:
    tx.change(
        _START,
        run_id=command.run_id,
        kind=command.kind,
        worker_name=command.worker_name,
        limits=command.limits,
        now=tx.now,
    )
    return _what_a_run_knows(tx)


def refresh(tx: Transaction, command: RefreshRun) -> RunStart:
    """A resident run keeps what it learned, and learns what others did."""
    _add_durations(tx, command.durations)
    tx.change(SEEN, run_id=command.run_id, now=tx.now)
    return _what_a_run_knows(tx)


def _what_a_run_knows(tx: Transaction) -> RunStart:
    return RunStart(
        is_enabled=system_sql.is_enabled(tx.config),
        types=tuple(tx.types.by_name.values()),
        durations=read_durations(tx),
        config=tx.config,
        step_durations=read_step_durations(tx),
    )


def finish(tx: Transaction, command: FinishRun) -> RunReport:
    """Record what a run did; a run that had nothing to do is only counted."""
    report = _with_what_is_left(tx, command)
    _add_durations(tx, command.durations)
    begun = tx.row(_KIND_AND_NAME, run_id=command.run_id)
    if begun is None:
        # Cancelled before it began, or ended before: there is nothing to count.
        return report
    kind, worker_name = begun
    text = msgspec.json.encode(report).decode()
    if kind == "worker" or report.claimed or report.reclaimed or report.fired:
        tx.change(_FINISH, run_id=command.run_id, now=tx.now, stopped=report.stopped, report=text)
        return report
    tx.change(_FORGET, run_id=command.run_id)
    tx.change(
        _COUNT_IDLE,
        worker_name=worker_name,
        now=tx.now,
        stopped=report.stopped,
        report=text,
    )
    return report


def release(tx: Transaction, command: ReleaseRun) -> int:
    """Put back what a run still holds; each job as if its own run had interrupted it.

    Answers how many were put back in all: the run and its watchdog may both have asked.
    """
    held = map(jobs_sql.job_from, tx.rows(_READ_HELD, run_id=command.run_id))
    released = [job for job in held if job.seq not in command.sparing]
    for job in released:
        outcome = _ending_of(tx, job, command)
        standing = settle.standing_of(tx, job)
        settlement = settled_as(outcome, standing, now=tx.now, unit=0.0)
        settle.apply(tx, job, settlement, command.run_id)
    tx.change(_COUNT_PUT_BACK, run_id=command.run_id, more=len(released))
    counted = tx.row(_PUT_BACK, run_id=command.run_id)
    return len(released) if counted is None else counted[0]


def _ending_of(tx: Transaction, job: Job, command: ReleaseRun) -> Outcome:
    if job.seq in command.overdue:
        return Failed(ErrorClass.TIMEOUT, "timed out, and could not be stopped")
    ahead = tx.row(_CLAIMED_AHEAD, seq=job.seq)
    was_ahead = ahead is not None and ahead[0] == 1
    if was_ahead and job.seq not in command.begun:
        return NotStarted()
    return Interrupted(by_budget=command.by_budget)


def lose_run(tx: Transaction, command: LoseRun) -> tuple[Moved, ...]:
    """The process of a run was seen to die: what it held is lost at once, and counts."""
    moved = []
    for row in tx.rows(_READ_HELD, run_id=command.run_id):
        job = jobs_sql.job_from(row)
        lost = lose(settle.standing_of(tx, job))
        settle.apply(tx, job, lost, command.run_id)
        moved.append(jobs_sql.moved(job, lost.status, lost.error_class, lost.error_message))
    return tuple(moved)


def read_durations(reader: Reader, step: str = WHOLE) -> Mapping[str, Histogram]:
    """How long each type took in the last day."""
    merged: dict[str, Histogram] = {}
    since = reader.now // HOUR_MS - _HOURS_USED
    for name, buckets in reader.rows(_READ_DURATIONS, step=step, since=since):
        merged[name] = merged.get(name, Histogram.EMPTY).merge(Histogram.from_json(buckets))
    return merged


def read_step_durations(reader: Reader) -> Mapping[tuple[str, str], Histogram]:
    """How long each part of each type took in the last day."""
    merged: dict[tuple[str, str], Histogram] = {}
    since = reader.now // HOUR_MS - _HOURS_USED
    for name, step, buckets in reader.rows(_READ_STEP_DURATIONS, since=since):
        before = merged.get((name, step), Histogram.EMPTY)
        merged[name, step] = before.merge(Histogram.from_json(buckets))
    return merged


def get_durations(reader: Reader, query: GetDurations) -> Histogram:
    return read_durations(reader, query.step).get(query.type, Histogram.EMPTY)


def _add_durations(tx: Transaction, samples: Mapping[tuple[str, str], Histogram]) -> None:
    hour = tx.now // HOUR_MS
    for (name, step), histogram in samples.items():
        row = tx.row(_READ_HOUR, type=name, step=step, hour=hour)
        if row is not None:
            histogram = histogram.merge(Histogram.from_json(row[0]))
        tx.change(_WRITE_HOUR, type=name, step=step, hour=hour, buckets=histogram.to_json())
    if samples:
        tx.change(_FORGET_HOURS, before=hour - _HOURS_KEPT)


def _with_what_is_left(tx: Transaction, command: FinishRun) -> RunReport:
    left = {t.name: due.count(tx, t) for t in _claimable(tx.types)}
    total = sum(left.values())
    deferred = sum(left.get(name, 0) for name in command.deferred)
    stopped = command.report.stopped
    return msgspec.structs.replace(
        command.report,
        # Nothing fitted the time that was left: that is the budget's doing, not an empty queue.
        stopped=Stop.BUDGET if deferred and stopped is Stop.EMPTY else stopped,
        deferred=deferred,
        remaining=min(total, COUNTED_AT_MOST),
        capped=total >= COUNTED_AT_MOST,
        next_due_at=due.first(tx, _claimable(tx.types)),
        unhandled_types=tuple(
            name for name, count in left.items() if count and name not in command.handled
        ),
    )


def _claimable(types: TypeBook) -> list[JobType]:
    return [t for t in types.by_name.values() if t.is_claimable]

"""Runs: recording them, their durations, what is left to do, and putting back what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlalchemy.dialects import sqlite

from edgeq.core.durations import Histogram
from edgeq.core.job_types import JobType
from edgeq.core.jobs import HIGHEST_PRIORITY, JobStatus
from edgeq.core.moves import lose
from edgeq.core.moves import settle as settled_as
from edgeq.core.outcomes import Interrupted, NotStarted
from edgeq.core.runs import RunReport, Stop
from edgeq.ports.commands import (
    FinishRun,
    LoseRun,
    Moved,
    ReleaseRun,
    RunStart,
    StartRun,
)
from edgeq.ports.queries import COUNTED_AT_MOST
from edgeq.store import claim, jobs_sql, settle, system_sql
from edgeq.store.session import Transaction, TypeBook
from edgeq.store.system_sql import Reader
from edgeq.store.tables import READY, SUSPECT, durations, jobs, runs

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
_WORKER_NAME = select(runs.c.worker_name).where(runs.c.id == bindparam("run_id"))

_READ_DURATIONS = select(durations.c.type, durations.c.buckets).where(
    durations.c.step == bindparam("step"), durations.c.hour >= bindparam("since")
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

_COUNT_DUE = {
    index: select(func.count()).select_from(
        claim.pending([jobs.c.seq], index)
        .where(
            jobs.c.priority == bindparam("priority"),
            jobs.c.scheduled_for <= bindparam("now"),
        )
        .limit(bindparam("at_most"))
        .subquery()
    )
    for index in (READY, SUSPECT)
}
_FIRST_DUE = {
    index: claim.pending([func.min(jobs.c.scheduled_for)], index).where(
        jobs.c.priority == bindparam("priority")
    )
    for index in (READY, SUSPECT)
}


def start(tx: Transaction, command: StartRun) -> RunStart:
    tx.change(
        _START,
        run_id=command.run_id,
        kind=command.kind,
        worker_name=command.worker_name,
        limits=command.limits,
        now=tx.now,
    )
    return RunStart(
        is_enabled=system_sql.is_enabled(tx.config),
        types=tuple(tx.types.by_name.values()),
        durations=read_durations(tx),
        config=tx.config,
    )


def finish(tx: Transaction, command: FinishRun) -> RunReport:
    """Record what a run did; a run that had nothing to do is only counted."""
    report = _with_what_is_left(tx, command)
    _add_durations(tx, command.durations)
    text = msgspec.json.encode(report).decode()
    if report.claimed or report.reclaimed or report.fired:
        tx.change(_FINISH, run_id=command.run_id, now=tx.now, stopped=report.stopped, report=text)
        return report
    name = tx.row(_WORKER_NAME, run_id=command.run_id)
    tx.change(_FORGET, run_id=command.run_id)
    tx.change(
        _COUNT_IDLE,
        worker_name=name[0] if name is not None else "",
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
        ahead = tx.row(_CLAIMED_AHEAD, seq=job.seq)
        was_ahead = ahead is not None and ahead[0] == 1
        never_began = was_ahead and job.seq not in command.begun
        outcome = NotStarted() if never_began else Interrupted(by_budget=command.by_budget)
        standing = settle.standing_of(tx, job)
        settlement = settled_as(outcome, standing, now=tx.now, unit=0.0)
        settle.apply(tx, job, settlement, command.run_id)
    tx.change(_COUNT_PUT_BACK, run_id=command.run_id, more=len(released))
    counted = tx.row(_PUT_BACK, run_id=command.run_id)
    return len(released) if counted is None else counted[0]


def lose_run(tx: Transaction, command: LoseRun) -> tuple[Moved, ...]:
    """The process of a run was seen to die: what it held is lost at once, and counts."""
    moved = []
    for row in tx.rows(_READ_HELD, run_id=command.run_id):
        job = jobs_sql.job_from(row)
        lost = lose(settle.standing_of(tx, job))
        settle.apply(tx, job, lost, command.run_id)
        moved.append(jobs_sql.moved(job, lost.status, lost.error_class, lost.error_message))
    return tuple(moved)


def read_durations(reader: Reader, step: str = "") -> Mapping[str, Histogram]:
    """How long each type took in the last day."""
    merged: dict[str, Histogram] = {}
    since = reader.now // HOUR_MS - _HOURS_USED
    for name, buckets in reader.rows(_READ_DURATIONS, step=step, since=since):
        merged[name] = merged.get(name, Histogram.EMPTY).merge(Histogram.from_json(buckets))
    return merged


def _add_durations(tx: Transaction, samples: Mapping[str, Histogram]) -> None:
    hour = tx.now // HOUR_MS
    for name, histogram in samples.items():
        row = tx.row(_READ_HOUR, type=name, step="", hour=hour)
        if row is not None:
            histogram = histogram.merge(Histogram.from_json(row[0]))
        tx.change(_WRITE_HOUR, type=name, step="", hour=hour, buckets=histogram.to_json())
    if samples:
        tx.change(_FORGET_HOURS, before=hour - _HOURS_KEPT)


def _with_what_is_left(tx: Transaction, command: FinishRun) -> RunReport:
    left = {t.name: count_due(tx, t) for t in _claimable(tx.types)}
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
        next_due_at=first_due(tx, _claimable(tx.types)),
        unhandled_types=tuple(
            name for name, due in left.items() if due and name not in command.handled
        ),
    )


def _claimable(types: TypeBook) -> list[JobType]:
    return [t for t in types.by_name.values() if t.is_claimable]


def count_due(reader: Reader, job_type: JobType) -> int:
    """Due jobs of a type, counted up to 10,000 and no further."""
    total = 0
    for index, priority in _priorities(reader, job_type):
        if total < COUNTED_AT_MOST:
            total += reader.rows(
                _COUNT_DUE[index],
                type_id=job_type.id,
                priority=priority,
                now=reader.now,
                at_most=COUNTED_AT_MOST - total,
            )[0][0]
    return total


def first_due(reader: Reader, types: list[JobType]) -> int | None:
    """When the next pending job is due, or was."""
    return min(
        (
            reader.rows(_FIRST_DUE[index], type_id=job_type.id, priority=priority)[0][0]
            for job_type in types
            for index, priority in _priorities(reader, job_type)
        ),
        default=None,
    )


def _priorities(reader: Reader, job_type: JobType) -> Iterator[tuple[str, int]]:
    """The priorities at which a type has pending jobs, by index, each found with one seek."""
    for index in (READY, SUSPECT):
        below = HIGHEST_PRIORITY + 1
        while True:
            rows = reader.rows(claim.NEXT_PRIORITY[index], type_id=job_type.id, below=below)
            below = rows[0][0]
            if below is None:
                break
            yield index, below

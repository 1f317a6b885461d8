"""The cycle: record what ended, take back what was lost, claim what is next, in one commit."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, bindparam, literal_column, null, select, update

from edgeq.core.jobs import ClaimedJob, Job, JobStatus
from edgeq.core.moves import lose
from edgeq.ports.commands import Cycle, CycleAnswer, ExtendLocks, Held, Moved
from edgeq.store import due, flows, jobs_sql, run_records, settle, system_sql
from edgeq.store.claim import claim_jobs, suspects_due
from edgeq.store.session import Transaction
from edgeq.store.tables import LOCKED, jobs

TAKEN_BACK_AT_MOST = 50
LOCK_LIFE_MS = 60_000
_MARGIN_MS = 1_000


def _locked(*columns: Any) -> Select[Any]:
    return (
        select(*columns)
        .with_hint(jobs, f"INDEXED BY {LOCKED}", "sqlite")
        .where(jobs_sql.is_status(JobStatus.PROCESSING))
    )


_EXPIRED = (
    _locked(jobs.c.seq, jobs.c.claimed_ahead, jobs.c.is_isolated)
    .where(jobs.c.lock_expires_at <= bindparam("now"))
    .order_by(jobs.c.lock_expires_at)
    .limit(TAKEN_BACK_AT_MOST)
)
_PUT_BACK_AHEAD = (
    update(jobs)
    .where(jobs.c.seq == bindparam("at_seq"))
    .values(
        status=literal_column("'pending'"),
        claimed_ahead=literal_column("2"),
        fence=jobs.c.fence + literal_column("1"),
        updated_at=bindparam("now"),
        locked_at=null(),
        locked_by=null(),
        lock_expires_at=null(),
    )
)
# No lock reaches further than a lock's life: one that does was set before the clock stepped back.
_SHORTEN = (
    update(jobs)
    .where(jobs.c.seq.in_(_locked(jobs.c.seq).where(jobs.c.lock_expires_at > bindparam("latest"))))
    .values(lock_expires_at=bindparam("latest"))
)
_LONGEST_LOCK = _locked(jobs.c.lock_expires_at).order_by(jobs.c.lock_expires_at.desc()).limit(1)
_EXTEND = (
    update(jobs)
    .where(jobs.c.seq.in_(_locked(jobs.c.seq).where(jobs.c.locked_by == bindparam("run_id"))))
    .values(lock_expires_at=bindparam("lock_until"))
)


def run_cycle(tx: Transaction, cycle: Cycle) -> CycleAnswer:
    lost = settle.record_notes(tx, cycle.run_id, cycle.notes, cycle.progress)
    applied, lost_outcomes = settle.record_outcomes(tx, cycle.run_id, cycle.settled)
    is_enabled = system_sql.is_enabled(tx.config)
    taken_back: list[Moved] = []
    expired: list[Moved] = []
    claimed: list[ClaimedJob] = []
    suspect = last_chance = False
    next_moment = None
    if cycle.claim is not None and is_enabled:
        if cycle.takes_back:
            taken_back = take_back(tx)
        claimed, late = claim_jobs(tx, cycle.run_id, cycle.lock_until, cycle.claim)
        flows.follow(tx, [flows.End(job.id, JobStatus.CANCELLED, job.batch_id) for job in late])
        expired = [jobs_sql.moved(job, JobStatus.CANCELLED) for job in late]
        suspect, last_chance = suspects_due(tx, cycle.claim)
        if cycle.claim.asks_when and len(claimed) < cycle.claim.wanted:
            wanted = (tx.types.by_name.get(each.name) for each in cycle.claim.types)
            next_moment = due.next_moment(tx, [t for t in wanted if t and t.is_claimable])
    return CycleAnswer(
        applied=tuple(applied),
        lost=frozenset(lost | lost_outcomes),
        claimed=tuple(claimed),
        reclaimed=len(taken_back),
        moved=(*taken_back, *expired),
        is_enabled=is_enabled,
        suspect_is_due=suspect,
        last_chance_is_due=last_chance,
        next_moment=next_moment,
    )


def take_back(tx: Transaction) -> list[Moved]:
    """Free a bounded number of jobs whose process died; answers which."""
    longest = tx.row(_LONGEST_LOCK)
    if longest is None:
        return []
    latest = tx.now + LOCK_LIFE_MS + _MARGIN_MS
    if longest[0] > latest:
        tx.change(_SHORTEN, latest=latest)
    return [
        _taken_back(tx, _read(tx, seq), claimed_ahead=claimed_ahead, is_isolated=is_isolated)
        for seq, claimed_ahead, is_isolated in tx.rows(_EXPIRED, now=tx.now)
    ]


def _taken_back(tx: Transaction, job: Job, *, claimed_ahead: int, is_isolated: int) -> Moved:
    if claimed_ahead == 1 and job.cancel_requested_at is None:
        _put_back_unstarted(tx, job)
        return jobs_sql.moved(job, JobStatus.PENDING)
    lost = lose(settle.standing_of(tx, job), was_isolated=bool(is_isolated))
    settle.apply(tx, job, lost, None)
    return jobs_sql.moved(job, lost.status, lost.error_class, lost.error_message)


def _put_back_unstarted(tx: Transaction, job: Job) -> None:
    """It waited ahead of its turn, so it most likely did not kill its process: no loss yet.

    It is not claimed ahead again; should it be lost from a slot, that counts.
    """
    tx.change(_PUT_BACK_AHEAD, at_seq=job.seq, now=tx.now)
    jobs_sql.tell(tx, job, "stalled", JobStatus.PENDING)


def _read(tx: Transaction, seq: int) -> Job:
    row = tx.row(jobs_sql.READ_BY_SEQ, seq=seq)
    assert row is not None  # noqa: S101 - selected in this transaction
    return jobs_sql.job_from(row)


def extend_locks(tx: Transaction, command: ExtendLocks) -> Held:
    # Whoever waited long for the gate asked for a time that may be over by now.
    until = max(command.lock_until, tx.now + LOCK_LIFE_MS // 3)
    tx.change(_EXTEND, run_id=command.run_id, lock_until=until)
    tx.change(run_records.SEEN, run_id=command.run_id, now=tx.now)
    return jobs_sql.held_by(tx, command.run_id)

"""Claiming: seeks by (type, priority) for what is due, highest priority first, then oldest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sqlalchemy import Select, bindparam, func, literal_column, null, select, update

from edgeq.core.job_types import JobType
from edgeq.core.jobs import HIGHEST_PRIORITY, ClaimedJob, JobStatus
from edgeq.core.lanes import ClaimStep
from edgeq.ports.commands import Claim, ClaimableType
from edgeq.store import jobs_sql
from edgeq.store.session import Row, Transaction
from edgeq.store.tables import LISTED, READY, SUSPECT, jobs

_CANDIDATE = (
    "seq",
    "id",
    "fence",
    "priority",
    "input_data",
    "retry_count",
    "max_retries",
    "timeout_ms",
    "interruptions",
    "losses",
    "payload_version",
    "scheduled_for",
    "created_at",
    "tenant_id",
    "correlation_id",
    "idempotency_key",
    "reference_type",
    "reference_id",
    "parent_job_id",
    "claimed_ahead",
    "steps",
    "batch_id",
    "expires_at",
)
_SEQ, _SCHEDULED_FOR, _CLAIMED_AHEAD, _EXPIRES_AT = (
    _CANDIDATE.index(name) for name in ("seq", "scheduled_for", "claimed_ahead", "expires_at")
)
# A claim cancels no more than this many expired jobs: it has to be short.
EXPIRED_AT_MOST = 500


def pending(columns: Any, index: str) -> Select[Any]:
    losses = jobs.c.losses == literal_column("0")
    if index == SUSPECT:
        losses = jobs.c.losses > literal_column("0")
    return (
        select(*columns)
        .with_hint(jobs, f"INDEXED BY {index}", "sqlite")
        .where(
            jobs_sql.is_status(JobStatus.PENDING),
            losses,
            jobs.c.job_type_id == bindparam("type_id"),
        )
    )


def _due(index: str) -> Select[Any]:
    rows = pending([jobs.c[name] for name in _CANDIDATE], index)
    if index == SUSPECT:
        rows = rows.where(jobs.c.losses.between(bindparam("fewest"), bindparam("most")))
    return (
        rows.where(
            jobs.c.priority == bindparam("priority"),
            jobs.c.scheduled_for <= bindparam("now"),
            jobs.c.payload_version <= bindparam("version"),
        )
        .order_by(jobs.c.scheduled_for, jobs.c.seq)
        .limit(bindparam("at_most"))
    )


# One seek each: the next priority below the last one that has pending rows, and its due rows.
NEXT_PRIORITY = {
    index: pending([func.max(jobs.c.priority)], index).where(jobs.c.priority < bindparam("below"))
    for index in (READY, SUSPECT)
}
_DUE = {index: _due(index) for index in (READY, SUSPECT)}
_COUNT_RUNNING = (
    select(func.count())
    .with_hint(jobs, f"INDEXED BY {LISTED}", "sqlite")
    .select_from(jobs)
    .where(jobs.c.job_type_id == bindparam("type_id"), jobs_sql.is_status(JobStatus.PROCESSING))
)
_LOCK = (
    update(jobs)
    .where(
        jobs.c.seq == bindparam("at_seq"),
        jobs.c.fence == bindparam("at_fence"),
        jobs_sql.is_status(JobStatus.PENDING),
    )
    .values(
        status=literal_column("'processing'"),
        locked_at=bindparam("now"),
        locked_by=bindparam("run_id"),
        lock_expires_at=bindparam("lock_until"),
        started_at=bindparam("now"),
        updated_at=bindparam("now"),
        fence=jobs.c.fence + literal_column("1"),
        claimed_ahead=bindparam("ahead"),
    )
)
_ISOLATE = (
    update(jobs).where(jobs.c.seq == bindparam("at_seq")).values(is_isolated=literal_column("1"))
)
_EXPIRE = (
    update(jobs)
    .where(jobs.c.seq == bindparam("at_seq"), jobs.c.fence == bindparam("at_fence"))
    .values(
        status=literal_column("'cancelled'"),
        unique_key=null(),
        completed_at=bindparam("now"),
        updated_at=bindparam("now"),
        result_expires_at=bindparam("now")
        + func.coalesce(jobs.c.result_ttl_ms, bindparam("result_ttl_ms")),
        fence=jobs.c.fence + literal_column("1"),
    )
)


_NO_LIMIT = 1_000_000


class Selection:
    """One claim being made up: what was picked so far, and how much room each type has left."""

    def __init__(self, tx: Transaction, claim: Claim) -> None:
        self._tx = tx
        self._wanted = [
            (wanted, tx.types.by_name[wanted.name])
            for wanted in claim.types
            if wanted.name in tx.types.by_name and tx.types.by_name[wanted.name].is_claimable
        ]
        self._room = {wanted.name: _room(tx, wanted, stored) for wanted, stored in self._wanted}
        self._at_most = _NO_LIMIT if claim.at_most is None else claim.at_most
        self._losses = _losses_wanted(claim)
        # Jobs that the run has seen enough of are passed over as if they were picked already.
        self._seen: set[int] = set(claim.sparing)
        self.picked: list[ClaimedJob] = []
        self.expired: list[ClaimedJob] = []

    def fill(self, step: ClaimStep, *, index: str = READY, ahead: bool = False) -> None:
        """Pick up to the step's limit, highest priority first, then by due time."""
        limit = min(step.limit, self._at_most - len(self.picked))
        if limit <= 0:
            return
        eligible = [
            (wanted, stored)
            for wanted, stored in self._wanted
            if step.lane in (None, stored.policy.lane) and (wanted.ahead or not ahead)
        ]
        for priority, at_priority in self._by_priority(eligible, index):
            is_hidden = True
            while limit > 0 and is_hidden:
                expired_before = len(self.expired)
                limit -= self._pick(at_priority, priority, limit, index, ahead=ahead)
                # Rows that have expired take no slot, but were read instead of those behind them.
                is_hidden = expired_before < len(self.expired) < EXPIRED_AT_MOST
            if limit <= 0:
                return

    def _pick(
        self,
        types: list[tuple[ClaimableType, JobType]],
        priority: int,
        limit: int,
        index: str,
        *,
        ahead: bool,
    ) -> int:
        """Pick up to `limit` rows of one priority by due time; answers how many."""
        picked_before = len(self.picked)
        found = [
            (row[_SCHEDULED_FOR], row[_SEQ], row, stored)
            for wanted, stored in types
            for row in self._due_rows(wanted, stored, priority, limit, index)
        ]
        for _, seq, row, stored in sorted(found, key=lambda each: each[:2]):
            is_full = len(self.picked) - picked_before >= limit
            if not is_full and self._takes(row, stored, ahead=ahead):
                self._seen.add(seq)
                self.picked.append(_claimed(row, stored, ahead=ahead))
        return len(self.picked) - picked_before

    def _by_priority(
        self, eligible: list[tuple[ClaimableType, JobType]], index: str
    ) -> Iterator[tuple[int, list[tuple[ClaimableType, JobType]]]]:
        """Priorities that have pending rows, from the top, each with the types that have them."""
        tops = [(self._top(pair[1], HIGHEST_PRIORITY + 1, index), pair) for pair in eligible]
        while True:
            highest = max((top for top, _ in tops if top is not None), default=None)
            if highest is None:
                return
            yield highest, [pair for top, pair in tops if top == highest]
            tops = [
                (self._top(pair[1], highest, index) if top == highest else top, pair)
                for top, pair in tops
            ]

    def _top(self, stored: JobType, below: int, index: str) -> int | None:
        if self._room[stored.name] <= 0:
            return None
        row = self._tx.row(NEXT_PRIORITY[index], type_id=stored.id, below=below)
        return None if row is None else row[0]

    def _due_rows(
        self, wanted: ClaimableType, stored: JobType, priority: int, limit: int, index: str
    ) -> list[Row]:
        return self._tx.rows(
            _DUE[index],
            type_id=stored.id,
            priority=priority,
            now=self._tx.now,
            version=wanted.version,
            # Rows seen before are still pending and come first again. Where some had expired,
            # more are likely to: reading as many again keeps the number of looks small.
            at_most=min(limit, self._room[stored.name]) + len(self._seen) + len(self.expired),
            **(self._losses if index == SUSPECT else {}),
        )

    def _takes(self, row: Row, stored: JobType, *, ahead: bool) -> bool:
        if row[_SEQ] in self._seen or self._room[stored.name] <= 0:
            return False
        if ahead and row[_CLAIMED_AHEAD]:
            return False
        if row[_EXPIRES_AT] is not None and row[_EXPIRES_AT] <= self._tx.now:
            self._seen.add(row[_SEQ])
            self.expired.append(_claimed(row, stored, ahead=False))
            return False
        self._room[stored.name] -= 1
        return True


def claim_jobs(
    tx: Transaction, run_id: str, lock_until: int, claim: Claim
) -> tuple[list[ClaimedJob], list[ClaimedJob]]:
    """Lock the jobs that a run shall work on next; answers them, and what had expired."""
    selection = Selection(tx, claim)
    if claim.wants in ("suspect", "last_chance"):
        selection.fill(ClaimStep(None, 1), index=SUSPECT)
    if claim.wants == "others" or (claim.wants == "suspect" and not selection.picked):
        for step in claim.steps:
            selection.fill(step)
        if claim.ahead > 0:
            selection.fill(ClaimStep(None, claim.ahead), ahead=True)
    _cancel_expired(tx, selection.expired)
    _lock(tx, run_id, lock_until, selection.picked)
    if claim.wants == "last_chance":
        for job in selection.picked:
            tx.change(_ISOLATE, at_seq=job.seq)
    return selection.picked, selection.expired


_ANY_SUSPECT = (
    select(jobs.c.seq)
    .with_hint(jobs, f"INDEXED BY {SUSPECT}", "sqlite")
    .where(jobs_sql.is_status(JobStatus.PENDING), jobs.c.losses > literal_column("0"))
    .limit(literal_column("1"))
)


def suspects_due(tx: Transaction, claim: Claim) -> tuple[bool, bool]:
    """Whether a lost job waits to be run alone, and whether one waits for its last chance."""
    if tx.row(_ANY_SUSPECT) is None:
        return False, False
    first = _has_due(tx, replace(claim, wants="suspect"))
    last = claim.isolates_from is not None and _has_due(tx, replace(claim, wants="last_chance"))
    return first, last


def _has_due(tx: Transaction, claim: Claim) -> bool:
    selection = Selection(tx, claim)
    selection.fill(ClaimStep(None, 1), index=SUSPECT)
    return bool(selection.picked)


def _losses_wanted(claim: Claim) -> dict[str, int]:
    """A run that can isolate keeps jobs for processes of their own apart from other suspects."""
    if claim.isolates_from is None:
        return {"fewest": 1, "most": _NO_LIMIT}
    if claim.wants == "last_chance":
        return {"fewest": claim.isolates_from, "most": _NO_LIMIT}
    return {"fewest": 1, "most": claim.isolates_from - 1}


def _room(tx: Transaction, wanted: ClaimableType, stored: JobType) -> int:
    limit = stored.policy.max_concurrent
    if limit is None:
        return wanted.at_most
    row = tx.row(_COUNT_RUNNING, type_id=stored.id)
    running = 0 if row is None else row[0]
    return min(wanted.at_most, limit - running)


def _lock(tx: Transaction, run_id: str, lock_until: int, picked: list[ClaimedJob]) -> None:
    if not picked:
        return
    tx.change_many(
        _LOCK,
        [
            {
                "at_seq": job.seq,
                "at_fence": job.fence - 1,
                "now": tx.now,
                "run_id": run_id,
                "lock_until": lock_until,
                "ahead": job.claimed_ahead,
            }
            for job in picked
        ],
    )
    for job in picked:
        jobs_sql.tell(tx, job, "processing", JobStatus.PROCESSING)


def _cancel_expired(tx: Transaction, expired: list[ClaimedJob]) -> None:
    """A job past its `expires_at` is cancelled instead of run."""
    for job in expired:
        ttl = tx.types.by_name[job.type].policy.result_ttl_ms
        tx.change(_EXPIRE, at_seq=job.seq, at_fence=job.fence - 1, now=tx.now, result_ttl_ms=ttl)
        jobs_sql.tell(tx, job, "cancelled", JobStatus.CANCELLED)


def _claimed(row: Row, stored: JobType, *, ahead: bool) -> ClaimedJob:
    (
        seq,
        job_id,
        fence,
        priority,
        input_data,
        retry_count,
        max_retries,
        timeout_ms,
        interruptions,
        losses,
        payload_version,
        scheduled_for,
        created_at,
        tenant_id,
        correlation_id,
        idempotency_key,
        reference_type,
        reference_id,
        parent_job_id,
        claimed_ahead,
        steps,
        batch_id,
        _,
    ) = row
    policy = stored.policy
    return ClaimedJob(
        seq,
        job_id,
        policy.name,
        policy.lane,
        fence + 1,
        priority,
        input_data,
        retry_count,
        policy.max_retries if max_retries is None else max_retries,
        policy.timeout_ms if timeout_ms is None else timeout_ms,
        interruptions,
        losses,
        payload_version,
        scheduled_for,
        created_at,
        tenant_id,
        correlation_id or job_id,
        idempotency_key or job_id,
        reference_type,
        reference_id,
        parent_job_id,
        1 if ahead else claimed_ahead,
        policy.handler_name,
        steps,
        batch_id,
    )

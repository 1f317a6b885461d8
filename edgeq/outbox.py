"""The outbox: outcomes, log lines and progress of a run that wait for its next commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import msgspec

from edgeq.attempt import Attempt, Journal
from edgeq.core.backoff import ErrorClass
from edgeq.core.jobs import ClaimedJob
from edgeq.core.outcomes import Completed, Failed, Outcome
from edgeq.errors import (
    NewerSchema,
    StoreBusy,
    StoreClosed,
    StoreFrozen,
    StoreFull,
    StoreMoved,
)
from edgeq.ports.commands import Applied, Cycle, CycleAnswer, Lock, Settled
from edgeq.ports.store import Store

_RETRY_SECONDS = 1.0
# What is wrong with the database, and not with what is written to it.
_NOT_ABOUT_CONTENT = (StoreBusy, StoreFull, StoreClosed, StoreFrozen, StoreMoved, NewerSchema)

Ending = tuple[Settled, Attempt | None]


class Outbox:
    """Keeps what ended until it is written; nothing leaves it before."""

    def __init__(self, store: Store, journal: Journal, unit: Callable[[], float]) -> None:
        self._store = store
        self._journal = journal
        self._unit = unit
        self._endings: list[Ending] = []
        self._in_flight: list[Ending] = []

    def __bool__(self) -> bool:
        return bool(self._endings)

    def is_empty(self) -> bool:
        return not self._endings and self._journal.is_empty()

    def completed_in_flight(self) -> int:
        """Successes that are being written and whose answer has not been heard."""
        return sum(isinstance(settled.outcome, Completed) for settled, _ in list(self._in_flight))

    def add(self, job: ClaimedJob, outcome: Outcome, attempt: Attempt | None) -> None:
        settled = Settled(
            seq=job.seq,
            job_id=job.id,
            type=job.type,
            tenant_id=job.tenant_id,
            attempt=job.attempt,
            fence=job.fence,
            outcome=outcome,
            unit=self._unit() if isinstance(outcome, Failed) else 0.0,
            children=() if attempt is None else tuple(attempt.children),
            batch_id=job.batch_id,
        )
        self._endings.append((settled, attempt))

    async def send(
        self, cycle: Cycle, may_wait: Callable[[], bool]
    ) -> tuple[list[Ending], CycleAnswer]:
        """Write everything with a cycle; answers what was sent and what became of it.

        If that fails or is cancelled, everything is back: what was written after all is then
        refused by its fence.
        """
        endings, self._endings = self._endings, []
        self._in_flight = endings
        notes, progress = self._journal.take()
        settled = tuple(settled for settled, _ in endings)
        full = replace(cycle, settled=settled, notes=notes, progress=progress)
        try:
            return endings, await self._write(full, may_wait)
        except BaseException:
            self._endings[:0] = endings
            self._journal.put_back(notes, progress)
            raise
        finally:
            self._in_flight = []

    async def _write(self, cycle: Cycle, may_wait: Callable[[], bool]) -> CycleAnswer:
        while True:
            try:
                return await self._store.write(cycle)
            except (StoreBusy, StoreFull, StoreFrozen):
                if not may_wait():
                    raise
                await asyncio.sleep(_RETRY_SECONDS)
            except _NOT_ABOUT_CONTENT:
                raise
            except Exception:
                if not cycle.settled:
                    raise
                return await self._one_by_one(cycle)

    async def _one_by_one(self, cycle: Cycle) -> CycleAnswer:
        """One outcome cannot be stored: it fails its own job, and the others are written."""
        applied: list[Applied] = []
        lost: set[Lock] = set()
        with suppress(Exception):
            await self._store.write(replace(cycle, settled=(), claim=None))
        for each in cycle.settled:
            alone = Cycle(cycle.run_id, cycle.lock_until, settled=(each,))
            try:
                answer = await self._store.write(alone)
            except _NOT_ABOUT_CONTENT:
                raise
            except Exception as refused:
                failed = Failed(
                    ErrorClass.NON_RETRYABLE,
                    f"its outcome could not be stored ({type(refused).__name__})",
                )
                instead = msgspec.structs.replace(each, outcome=failed, children=())
                answer = await self._store.write(replace(alone, settled=(instead,)))
            applied += answer.applied
            lost |= answer.lost
        return CycleAnswer(applied=tuple(applied), lost=frozenset(lost))

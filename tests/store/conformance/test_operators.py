"""Operators: each act from each state, and what is written down about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edgeq.core.jobs import JobStatus
from edgeq.errors import IllegalMove, JobNotFound
from edgeq.ports.commands import (
    ApproveJob,
    CancelJob,
    Command,
    DeleteJob,
    FailJob,
    RejectJob,
    ReleaseJob,
    RetryJob,
    UpdateJob,
)
from edgeq.ports.queries import GetJobs
from edgeq.ports.store import Store
from tests.conftest import Backend, JobBuilder, Register
from tests.store.conformance.acts import BOSS, bring_to, get, position

S = JobStatus
Act = Callable[[str], Command[Any]]
ACTS: dict[str, Act] = {
    "retry": lambda job_id: RetryJob(job_id, BOSS),
    "approve": lambda job_id: ApproveJob(job_id, BOSS),
    "reject": lambda job_id: RejectJob(job_id, BOSS),
    "fail": lambda job_id: FailJob(job_id, BOSS, retry=False, unit=0.5),
    "fail_with_retry": lambda job_id: FailJob(job_id, BOSS, retry=True, unit=0.5),
    "release": lambda job_id: ReleaseJob(job_id, BOSS),
    "delete": lambda job_id: DeleteJob(job_id, BOSS),
    "update": lambda job_id: UpdateJob(job_id, BOSS, priority=19),
}
# What each act makes of a job in each state; where there is nothing, the act is illegal.
LEGAL: dict[tuple[str, JobStatus], JobStatus | None] = {
    ("retry", S.FAILED): S.PENDING,
    ("retry", S.CANCELLED): S.PENDING,
    ("retry", S.REVIEW_NEEDED): S.PENDING,
    ("approve", S.REVIEW_NEEDED): S.COMPLETED,
    ("reject", S.REVIEW_NEEDED): S.FAILED,
    ("fail", S.PENDING): S.FAILED,
    ("fail", S.PROCESSING): S.FAILED,
    ("fail", S.BLOCKED): S.FAILED,
    ("fail", S.REVIEW_NEEDED): S.FAILED,
    ("fail_with_retry", S.PROCESSING): S.PENDING,
    ("release", S.PROCESSING): S.PENDING,
    ("update", S.PENDING): S.PENDING,
    ("update", S.BLOCKED): S.BLOCKED,
    ("update", S.REVIEW_NEEDED): S.REVIEW_NEEDED,
    **{("delete", status): None for status in S if status is not S.PROCESSING},
}
ILLEGAL = [(act, status) for act in ACTS for status in S if (act, status) not in LEGAL]
CANCELS = {
    S.PENDING: ("cancelled", S.CANCELLED),
    S.BLOCKED: ("cancelled", S.CANCELLED),
    S.REVIEW_NEEDED: ("cancelled", S.CANCELLED),
    S.PROCESSING: ("requested", S.PROCESSING),
    S.COMPLETED: ("ended", S.COMPLETED),
    S.FAILED: ("ended", S.FAILED),
    S.CANCELLED: ("ended", S.CANCELLED),
}


async def one_in(store: Store, backend: Backend, new_job: JobBuilder, status: JobStatus) -> str:
    """The id of a job in this state; no command blocks a job yet, so that is set by hand."""
    job = new_job(idempotency_key="k")
    await bring_to(store, job, S.PENDING if status is S.BLOCKED else status)
    if status is S.BLOCKED:
        backend.sql("UPDATE background_jobs SET status = 'blocked', blocked_by = 1")
    return job.id


def audit(backend: Backend) -> list[tuple[Any, ...]]:
    return backend.sql("SELECT actor, action, subject, reason FROM audit_events ORDER BY id")


@pytest.mark.parametrize(("act", "status"), LEGAL)
async def test_a_legal_act_is_done_audited_and_told(
    store: Store,
    new_job: JobBuilder,
    registered: Register,
    backend: Backend,
    act: str,
    status: JobStatus,
) -> None:
    await registered(store, "noop")
    job_id = await one_in(store, backend, new_job, status)
    fence, feed, acts = (await get(store, job_id)).fence, await position(store), audit(backend)

    await store.write(ACTS[act](job_id))

    after = (await store.read(GetJobs((job_id,)))).get(job_id)
    word = "fail" if act == "fail_with_retry" else act
    assert (after.status if after is not None else None) == LEGAL[act, status]
    assert after is None or after.fence > fence
    assert audit(backend) == [*acts, ("boss", f"job_{word}", f"job:{job_id}", "because")]
    assert await position(store) == feed + 1


@pytest.mark.parametrize(("act", "status"), ILLEGAL)
async def test_an_illegal_act_is_refused_and_changes_nothing(
    store: Store,
    new_job: JobBuilder,
    registered: Register,
    backend: Backend,
    act: str,
    status: JobStatus,
) -> None:
    await registered(store, "noop")
    job_id = await one_in(store, backend, new_job, status)
    before, feed, acts = await get(store, job_id), await position(store), audit(backend)

    with pytest.raises(IllegalMove) as caught:
        await store.write(ACTS[act](job_id))

    assert (caught.value.job_id, caught.value.status) == (job_id, status)
    assert await get(store, job_id) == before
    assert (audit(backend), await position(store)) == (acts, feed)


@pytest.mark.parametrize("status", CANCELS)
async def test_cancelling_ends_what_waits_and_asks_what_runs(
    store: Store, new_job: JobBuilder, registered: Register, backend: Backend, status: JobStatus
) -> None:
    await registered(store, "noop")
    job_id = await one_in(store, backend, new_job, status)
    before = await get(store, job_id)

    answer = await store.write(CancelJob(job_id, BOSS))

    after = await get(store, job_id)
    assert (answer, after.status) == CANCELS[status]
    assert (after == before) is (answer == "ended")
    assert (after.cancel_requested_at is not None) is (answer == "requested")
    assert (after.fence > before.fence) is (answer == "cancelled")


@pytest.mark.parametrize("act", ACTS)
async def test_an_act_on_a_job_that_is_not_there_is_refused(store: Store, act: str) -> None:
    with pytest.raises(JobNotFound):
        await store.write(ACTS[act]("nobody"))


async def test_cancelling_a_job_that_is_not_there_says_so(store: Store) -> None:
    assert await store.write(CancelJob("nobody", BOSS)) == "not_found"

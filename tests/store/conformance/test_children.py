"""Children: what a handler enqueued exists exactly when its own success does."""

from __future__ import annotations

import pytest

from edgeq.core.job_types import TypePolicy
from edgeq.core.jobs import JobStatus, NewJob
from edgeq.core.outcomes import Completed, NeedsReview, Outcome
from edgeq.ports.commands import ChangeType
from edgeq.ports.queries import GetJobs
from edgeq.ports.store import Store
from tests.conftest import JobBuilder, Register
from tests.store.conformance.acts import (
    BOSS,
    BROKEN,
    FLAKY,
    claim_one,
    ended,
    get,
    insert,
    settle,
)


async def test_children_are_stored_with_their_parents_success(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    parent = await claim_one(store, new_job())
    child = new_job(parent_job_id=parent.id)

    await settle(store, ended(parent, Completed("1"), children=(child,)))

    assert (await get(store, parent.id)).output == 1
    assert (await get(store, child.id)).parent_job_id == parent.id


@pytest.mark.parametrize("outcome", [FLAKY, BROKEN, NeedsReview("odd")])
async def test_children_of_an_attempt_that_did_not_succeed_are_dropped(
    store: Store, new_job: JobBuilder, registered: Register, outcome: Outcome
) -> None:
    await registered(store, "noop")
    parent, child = await claim_one(store, new_job()), new_job()

    await settle(store, ended(parent, outcome, children=(child,)))

    assert await store.read(GetJobs((child.id,))) == {}


async def test_children_of_a_zombie_are_dropped(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    parent, child = await claim_one(store, new_job()), new_job()
    await settle(store, ended(parent, Completed()))

    answer = await settle(store, ended(parent, Completed(), children=(child,)))

    assert answer.lost == {(parent.seq, parent.fence)}
    assert await store.read(GetJobs((child.id,))) == {}


async def test_a_child_that_is_there_already_is_no_obstacle(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    parent = await claim_one(store, new_job())
    await insert(store, new_job(idempotency_key="k"))

    await settle(store, ended(parent, Completed(), children=(new_job(idempotency_key="k"),)))

    assert (await get(store, parent.id)).status is JobStatus.COMPLETED


async def test_a_child_that_is_refused_fails_only_the_attempt_that_wanted_it(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop", "off", TypePolicy(name="full", max_pending=1))
    await insert(store, new_job("full"), new_job(idempotency_key="k", input_data="1"))
    await store.write(ChangeType("off", BOSS, is_enabled=False))
    refused = [
        new_job("off"),
        new_job("full"),
        new_job("nobody-knows"),
        new_job(idempotency_key="k", input_data="2"),
    ]
    fine = new_job()
    parents = [await claim_one(store, new_job(priority=20)) for _ in range(6)]
    wanted: list[tuple[NewJob, ...]] = [*((fine, child) for child in refused), (new_job(),), ()]

    answer = await settle(
        store,
        *(
            ended(job, Completed(), children=children)
            for job, children in zip(parents, wanted, strict=True)
        ),
    )

    after = [await get(store, job.id) for job in parents]
    assert [job.status for job in after] == ["pending"] * 4 + ["completed"] * 2
    assert [job.retry_count for job in after] == [1] * 4 + [0] * 2
    assert {job.error_class for job in after[:4]} == {"transient"}
    assert "is disabled" in (after[0].error_message or "")
    assert len(answer.applied) == 6
    assert await store.read(GetJobs((fine.id, *(child.id for child in refused)))) == {}

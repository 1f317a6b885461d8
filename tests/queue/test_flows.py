"""Chains, dependencies and batches as the queue offers them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edgeq import Context, Fail, handler
from edgeq.errors import BatchNotFound, InvalidInput, JobNotFound, UnknownType
from edgeq.queue.flows import link
from edgeq.testing import FakeClock, drain, queue_for_test

NOBODY = "019b76da-a800-7119-b9fd-ef7c42930b33"


class Number(msgspec.Struct):
    n: int = 1


@handler("add", retry_delay=0, max_retries=0)
async def add(ctx: Context, input: Number) -> Number:
    if input.n < 0:
        raise Fail("negative")
    return Number(input.n + 1)


@handler("report")
async def report(ctx: Context, input: dict[str, Any]) -> str:
    return f"{ctx.job.reference_type} {ctx.job.reference_id}"


async def test_a_link_without_an_input_gets_the_output_of_the_one_before_it() -> None:
    async with queue_for_test([add]) as queue:
        jobs = await queue.chain([(add, {"n": 1}), link("add"), (add, Number(10)), link(add)])
        assert [job.status for job in jobs] == ["pending", *["blocked"] * 3]
        assert await queue.waiting_for(jobs[1].job_id) == (jobs[0].job_id,)
        await queue.process_jobs(budget=5)
        outputs = [await queue.result(job.job_id) for job in jobs]
        found = await queue.get_many(job.job_id for job in jobs)
    assert outputs == [{"n": 2}, {"n": 3}, {"n": 11}, {"n": 12}]
    assert {job.correlation_id for job in found.values()} == {jobs[0].job_id}


@pytest.mark.parametrize(
    ("on_failure", "statuses"),
    [
        (None, ["failed", "failed", "failed"]),
        ("cancel", ["failed", "cancelled", "cancelled"]),
        ("run", ["failed", "completed", "completed"]),
    ],
)
async def test_a_chain_does_as_it_is_told_when_a_link_fails(
    on_failure: str | None, statuses: list[str]
) -> None:
    async with queue_for_test([add]) as queue:
        links = [link(add, {"n": -1}), link(add, {"n": 1}), link(add)]
        jobs = await queue.chain(links, on_failure=on_failure)
        await queue.process_jobs(budget=5)
        found = [await queue.get(job.job_id) for job in jobs]
    assert [job.status for job in found] == statuses
    if on_failure is None:
        assert found[1].error_class == "dependency_failed"


async def test_a_link_may_wait_for_others_beside_the_one_before_it() -> None:
    async with queue_for_test([add]) as queue:
        other = await queue.enqueue(add, {}, delay=60)
        jobs = await queue.chain([link(add, {}), link(add, {}, after=other.job_id)])
        waits = await queue.waiting_for(jobs[1].job_id)
    assert set(waits) == {jobs[0].job_id, other.job_id}


async def test_options_of_a_chain_hold_for_all_and_those_of_a_link_for_it() -> None:
    async with queue_for_test([add]) as queue:
        jobs = await queue.chain(
            [link(add, {}), link(add, {}, priority=3)], priority=7, tenant_id="t"
        )
        found = [await queue.get(job.job_id) for job in jobs]
    assert [(job.priority, job.tenant_id) for job in found] == [(7, "t"), (3, "t")]


async def test_a_chain_that_is_enqueued_again_by_its_keys_is_the_same_one() -> None:
    links = [link(add, {}, idempotency_key="a"), link(add, {"n": 5}, idempotency_key="b")]
    async with queue_for_test([add]) as queue:
        first, second = await queue.chain(links), await queue.chain(links)
        report = await queue.process_jobs(budget=5)
    assert [job.job_id for job in first] == [job.job_id for job in second]
    assert [job.duplicate for job in second] == [True, True]
    assert report.completed == 2


@pytest.mark.parametrize(
    "links", [[], [(add, {"n": "x"})], [(add, {}), ("nobody", {})], [link(add, {}, on_failure="x")]]
)
async def test_a_chain_that_is_wrong_anywhere_leaves_nothing(links: Any) -> None:
    async with queue_for_test([add]) as queue:
        with pytest.raises((InvalidInput, UnknownType)):
            await queue.chain(links)
        assert (await queue.list()).items == ()


@pytest.mark.parametrize("after", [[NOBODY], ["no id"], [3], NOBODY])
async def test_what_is_no_job_cannot_be_waited_for(after: Any) -> None:
    async with queue_for_test([add]) as queue:
        with pytest.raises(InvalidInput, match="after"):
            await queue.enqueue(add, {}, after=after)
        assert (await queue.list()).items == ()


async def test_a_batch_is_counted_and_calls_back_with_its_id() -> None:
    async with queue_for_test([add, report]) as queue:
        async with queue.batch("numbers", callback=link(report), tenant_id="t") as batch:
            for n in (1, 2, -1):
                batch.add(add, {"n": n})
        begun = await queue.get_batch(batch.id)
        assert (begun.total, begun.pending, begun.name) == (3, 3, "numbers")
        assert [job.status for job in batch.jobs] == ["pending"] * 3
        await queue.process_jobs(budget=5)
        over = await queue.get_batch(batch.id)
        assert (over.completed, over.failed, over.pending) == (2, 1, 0)
        assert over.ended_at is not None
        assert over.callback_job_id is not None
        assert await queue.result(over.callback_job_id) == f"batch {batch.id}"
        members = (await queue.list(batch_id=batch.id)).items
        assert {job.tenant_id for job in members} == {"t"}
        assert {job.correlation_id for job in members} == {batch.id}


async def test_a_batch_whose_block_fails_leaves_nothing() -> None:
    async with queue_for_test([add]) as queue:
        begun: list[str] = []

        async def begin() -> None:
            async with queue.batch() as batch:
                begun.append(batch.id)
                batch.add(add, {})
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await begin()
        with pytest.raises(BatchNotFound):
            await queue.get_batch(begun[0])
        assert (await queue.list()).items == ()


async def test_a_wrong_member_refuses_the_batch_and_is_named() -> None:
    async with queue_for_test([add]) as queue:

        async def begin() -> None:
            async with queue.batch() as batch:
                batch.add(add, {})
                batch.add(add, {"n": "x"})

        with pytest.raises(InvalidInput) as wrong:
            await begin()
        assert wrong.value.index == 1
        assert (await queue.list()).items == ()


async def test_a_batch_without_jobs_calls_back_at_once() -> None:
    async with queue_for_test([report]) as queue:
        async with queue.batch(callback=(report, {})):
            pass
        assert (await queue.process_jobs(budget=5)).completed == 1


async def test_steps_and_blockers_of_a_job_that_is_not_there_are_not_found() -> None:
    async with queue_for_test([add]) as queue:
        with pytest.raises(JobNotFound):
            await queue.steps(NOBODY)
        with pytest.raises(JobNotFound):
            await queue.waiting_for(NOBODY)


async def test_children_of_a_handler_can_be_a_chain_and_wait_for_their_parent() -> None:
    @handler("parent")
    async def parent(ctx: Context, input: dict[str, Any]) -> str:
        first = await ctx.enqueue(add, {"n": 1})
        return await ctx.enqueue(add, {"n": 2}, after=[first, ctx.job.id], on_failure="run")

    clock = FakeClock()
    async with queue_for_test([parent, add], clock=clock) as queue:
        job_id = (await queue.enqueue(parent, {})).job_id
        await drain(queue, clock=clock)
        last = await queue.get(await queue.result(job_id))
        assert (last.status, last.parent_job_id) == ("completed", job_id)
        assert last.correlation_id == job_id

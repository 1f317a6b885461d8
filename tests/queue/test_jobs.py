from __future__ import annotations

from typing import Any

import pytest

from edgeq import Context, Fail, Review, handler
from edgeq.errors import (
    IdempotencyConflict,
    IllegalMove,
    InvalidInput,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultExpired,
    ResultNotReady,
)
from edgeq.registry import AnyHandler
from edgeq.testing import FakeClock, drain, queue_for_test

MISSING = "00000000-0000-7000-8000-000000000000"


@handler("echo", result_ttl=60)
async def echo(ctx: Context, input: dict[str, Any]) -> dict[str, Any]:
    await ctx.log("echoing", size=len(input))
    return input


@handler("decide", max_retries=0)
async def decide(ctx: Context, input: dict[str, Any]) -> dict[str, int]:
    raise Review("a person has to look", output={"amount": 5})


@handler("broken")
async def broken(ctx: Context, input: dict[str, Any]) -> None:
    raise Fail("no way")


HANDLERS: list[AnyHandler] = [echo, decide, broken]


async def test_a_missing_job_is_an_error_that_names_it() -> None:
    async with queue_for_test(HANDLERS) as queue:
        with pytest.raises(JobNotFound, match=MISSING):
            await queue.get(MISSING)
        with pytest.raises(JobNotFound):
            await queue.result(MISSING)
        assert await queue.get_many([MISSING]) == {}
        assert await queue.cancel(MISSING) == "not_found"


async def test_a_result_is_there_until_its_time_to_live_is_over(clock: FakeClock) -> None:
    async with queue_for_test(HANDLERS, clock=clock) as queue:
        enqueued = await queue.enqueue("echo", {"a": 1})
        with pytest.raises(ResultNotReady):
            await queue.result(enqueued.job_id)
        await drain(queue)
        assert await queue.result(enqueued.job_id) == {"a": 1}
        clock.advance(60)
        with pytest.raises(ResultExpired):
            await queue.result(enqueued.job_id)
        assert (await queue.get(enqueued.job_id)).output is None


async def test_a_job_may_bring_its_own_time_to_live(clock: FakeClock) -> None:
    async with queue_for_test(HANDLERS, clock=clock) as queue:
        enqueued = await queue.enqueue("echo", {}, result_ttl=3600)
        await drain(queue)
        clock.advance(3599)
        assert await queue.result(enqueued.job_id) == {}


async def test_after_its_time_to_live_a_key_is_free(clock: FakeClock) -> None:
    async with queue_for_test(HANDLERS, clock=clock) as queue:
        first = await queue.enqueue("echo", {}, idempotency_key="k")
        await drain(queue)
        clock.advance(60)
        second = await queue.enqueue("echo", {"other": "input"}, idempotency_key="k")
    assert (second.duplicate, second.job_id == first.job_id) == (False, False)


async def test_waiting_for_a_failed_or_cancelled_job_raises_what_became_of_it() -> None:
    async with queue_for_test(HANDLERS) as queue:
        failed = await queue.enqueue("broken", {})
        cancelled = await queue.enqueue("echo", {})
        assert await queue.cancel(cancelled.job_id) == "cancelled"
        assert await queue.cancel(cancelled.job_id) == "ended"
        await drain(queue)
        with pytest.raises(JobFailed, match="no way") as told:
            await queue.result(failed.job_id)
        with pytest.raises(JobCancelled):
            await queue.result(cancelled.job_id)
    assert told.value.error_class == "non_retryable"
    assert len(told.value.attempts) == 1


async def test_a_reviewed_job_is_approved_with_an_edited_output() -> None:
    async with queue_for_test(HANDLERS) as queue:
        job_id = (await queue.enqueue("decide", {})).job_id
        await drain(queue)
        held = await queue.get(job_id)
        assert (held.status, held.review_reason) == ("review_needed", "a person has to look")
        with pytest.raises(InvalidInput):
            await queue.approve(job_id, output={"amount": "lots"})
        approved = await queue.approve(job_id, output={"amount": 4}, note="halved")
        log = await queue.logs(job_id)
    assert (approved.status, approved.output) == ("completed", {"amount": 4})
    assert any("halved" in line.message for line in log.items)


async def test_a_reviewed_job_is_approved_as_it_is_or_rejected_or_sent_back() -> None:
    async with queue_for_test(HANDLERS) as queue:
        ids = [(await queue.enqueue("decide", {})).job_id for _ in range(3)]
        await drain(queue)
        approved = await queue.approve(ids[0])
        rejected = await queue.reject(ids[1], reason="wrong customer")
        sent_back = await queue.retry(ids[2], input={"hint": 1})
    assert (approved.status, approved.output) == ("completed", {"amount": 5})
    assert (rejected.status, rejected.error_class) == ("failed", "rejected")
    assert (sent_back.status, sent_back.input) == ("pending", {"hint": 1})


async def test_a_failed_job_is_retried_from_its_first_attempt() -> None:
    async with queue_for_test(HANDLERS) as queue:
        job_id = (await queue.enqueue("broken", {})).job_id
        await drain(queue)
        again = await queue.retry(job_id)
        assert (again.status, again.retry_count, again.error_class) == ("pending", 0, None)
        await drain(queue)
        assert len(await queue.attempts(job_id)) == 2


async def test_moves_that_the_state_does_not_allow_are_refused_and_change_nothing() -> None:
    async with queue_for_test(HANDLERS) as queue:
        job_id = (await queue.enqueue("echo", {})).job_id
        await drain(queue)
        before = await queue.get(job_id)
        for act in (
            queue.retry(job_id),
            queue.approve(job_id),
            queue.reject(job_id, reason="no"),
            queue.fail(job_id, reason="no"),
            queue.release(job_id),
            queue.update(job_id, priority=5),
        ):
            with pytest.raises(IllegalMove, match="completed"):
                await act
        assert await queue.get(job_id) == before


async def test_a_pending_job_can_be_changed_failed_and_deleted() -> None:
    async with queue_for_test(HANDLERS) as queue:
        job_id = (await queue.enqueue("echo", {})).job_id
        changed = await queue.update(job_id, priority=20, input={"b": 2}, scheduled_for=5)
        assert (changed.priority, changed.input, changed.scheduled_for) == (20, {"b": 2}, 5)
        failed = await queue.fail(job_id, reason="by hand")
        assert (failed.error_class, failed.error_message) == ("operator", "by hand")
        await queue.delete(job_id)
        with pytest.raises(JobNotFound):
            await queue.get(job_id)


async def test_a_change_of_nothing_or_to_nonsense_is_refused() -> None:
    async with queue_for_test(HANDLERS) as queue:
        job_id = (await queue.enqueue("echo", {})).job_id
        for wrong in ({}, {"priority": 21}, {"scheduled_for": "x"}):
            with pytest.raises(InvalidInput):
                await queue.update(job_id, **wrong)


async def test_lists_are_filtered_and_paged_newest_first() -> None:
    async with queue_for_test(HANDLERS) as queue:
        ids = [
            each.job_id for each in await queue.enqueue_many("echo", [{"n": n} for n in range(5)])
        ]
        await queue.enqueue("broken", {})
        first = await queue.list(type="echo", limit=3)
        rest = await queue.list(type="echo", limit=3, cursor=first.next_cursor)
    listed = [job.id for job in (*first.items, *rest.items)]
    assert sorted(listed) == sorted(ids)
    assert listed == sorted(ids, reverse=True)
    assert rest.next_cursor is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "sleeping"},
        {"limit": 0},
        {"limit": 201},
        {"cursor": "'; drop table--"},
        {"created_after": "yesterday"},
        {"colour": "red"},
    ],
)
async def test_a_list_refuses_filters_that_make_no_sense(wrong: dict[str, Any]) -> None:
    async with queue_for_test(HANDLERS) as queue:
        with pytest.raises(InvalidInput):
            await queue.list(**wrong)


async def test_a_log_is_paged_oldest_first() -> None:
    async with queue_for_test(HANDLERS) as queue:
        job_id = (await queue.enqueue("echo", {})).job_id
        await drain(queue)
        page = await queue.logs(job_id)
        with pytest.raises(InvalidInput):
            await queue.logs(job_id, cursor="x")
    assert [(line.message, line.details) for line in page.items] == [("echoing", '{"size":0}')]


async def test_a_changed_input_takes_its_hash_and_version_with_it() -> None:
    async with queue_for_test(HANDLERS) as queue:
        first = await queue.enqueue("echo", {"a": 1}, idempotency_key="k")
        await queue.update(first.job_id, input={"a": 2})
        again = await queue.enqueue("echo", {"a": 2}, idempotency_key="k")
        assert (again.job_id, again.duplicate) == (first.job_id, True)
        with pytest.raises(IdempotencyConflict):
            await queue.enqueue("echo", {"a": 1}, idempotency_key="k")


async def test_the_log_of_a_missing_job_is_not_an_empty_one() -> None:
    async with queue_for_test(HANDLERS) as queue:
        for ask in (queue.logs, queue.attempts):
            with pytest.raises(JobNotFound):
                await ask(MISSING)


@pytest.mark.parametrize("nonsense", ["\ud800", "", "x' OR 1=1", None])
async def test_what_is_not_an_id_names_no_job(nonsense: Any) -> None:
    async with queue_for_test(HANDLERS) as queue:
        assert await queue.cancel(nonsense) == "not_found"
        for act in (
            queue.get(nonsense),
            queue.logs(nonsense),
            queue.attempts(nonsense),
            queue.retry(nonsense),
            queue.release(nonsense),
            queue.delete(nonsense),
        ):
            with pytest.raises(JobNotFound):
                await act


async def test_an_actor_has_to_have_a_name() -> None:
    async with queue_for_test(HANDLERS) as queue:
        job_id = (await queue.enqueue("echo", {})).job_id
        with pytest.raises(InvalidInput, match="actor"):
            await queue.cancel(job_id, actor="")

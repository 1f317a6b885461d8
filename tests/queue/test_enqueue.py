from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

import msgspec
import pytest

from edgeq import Context, Fail, Queue, content_key, handler
from edgeq.errors import (
    EdgeqError,
    GuardRefused,
    IdempotencyConflict,
    InvalidInput,
    QueueFull,
    TypeDisabled,
    UnknownType,
)
from edgeq.registry import AnyHandler
from edgeq.testing import FakeClock, drain, queue_for_test


class Mail(msgspec.Struct):
    to: str
    copies: int = 1


@dataclass
class Report:
    month: int


class Invoice(TypedDict):
    number: int


class LikePydantic:
    """A model that is validated the way pydantic models are, without depending on pydantic."""

    def __init__(self, size: int) -> None:
        self.size = size

    @classmethod
    def model_validate(cls, plain: Any) -> LikePydantic:
        if not isinstance(plain.get("size"), int):
            raise ValueError("size: must be a whole number")
        return cls(plain["size"])

    @classmethod
    def model_json_schema(cls) -> dict[str, object]:
        return {"type": "object", "properties": {"size": {"type": "integer"}}}

    def model_dump(self, mode: str) -> dict[str, object]:
        return {"size": self.size}


@handler("mail")
async def mail(ctx: Context, input: Mail) -> str:
    return f"sent to {input.to}"


@handler("report")
async def report(ctx: Context, input: Report) -> int:
    return input.month


@handler("invoice")
async def invoice(ctx: Context, input: Invoice) -> int:
    return input["number"]


@handler("picture")
async def picture(ctx: Context, input: LikePydantic) -> LikePydantic:
    return LikePydantic(input.size * 2)


@handler("anything", allow_fields=["token"], requires=["id"], input_max_bytes=200)
async def anything(ctx: Context, input: dict[str, Any]) -> dict[str, Any]:
    return input


@handler("picky", guard=lambda input: "not on Sundays" if input.get("day") == "sun" else None)
async def picky(ctx: Context, input: dict[str, Any]) -> None:
    return None


@handler("broken", max_retries=0)
async def broken(ctx: Context, input: dict[str, Any]) -> None:
    raise Fail("never works")


HANDLERS: list[AnyHandler] = [mail, report, invoice, picture, anything, picky, broken]


@pytest.mark.parametrize(
    ("job_type", "value", "stored"),
    [
        ("mail", {"to": "a@b.c"}, {"to": "a@b.c"}),
        (mail, Mail("a@b.c", 2), {"to": "a@b.c", "copies": 2}),
        (report, Report(5), {"month": 5}),
        (invoice, {"number": 7}, {"number": 7}),
        (picture, LikePydantic(3), {"size": 3}),
        ("anything", {"id": 1, "token": "allowed here"}, {"id": 1, "token": "allowed here"}),
    ],
)
async def test_inputs_of_every_kind_are_stored_as_plain_json(
    job_type: Any, value: Any, stored: object
) -> None:
    async with queue_for_test(HANDLERS) as queue:
        enqueued = await queue.enqueue(job_type, value)
        job = await queue.get(enqueued.job_id)
    assert (enqueued.status, enqueued.duplicate) == ("pending", False)
    assert job.input == stored


async def test_typed_inputs_and_outputs_reach_the_handler_and_come_back() -> None:
    async with queue_for_test(HANDLERS) as queue:
        ids = [
            (await queue.enqueue(mail, Mail("a@b.c"))).job_id,
            (await queue.enqueue(report, {"month": 5})).job_id,
            (await queue.enqueue(invoice, {"number": 7})).job_id,
            (await queue.enqueue(picture, {"size": 3})).job_id,
        ]
        await drain(queue)
        results = [await queue.result(job_id) for job_id in ids]
    assert results == ["sent to a@b.c", 5, 7, {"size": 6}]


@pytest.mark.parametrize(
    ("job_type", "value", "where"),
    [
        ("mail", {"to": 5}, r"\$\.to"),
        ("mail", {}, "to"),
        ("mail", "not an object", r"\$"),
        ("report", {"month": "May"}, r"\$\.month"),
        ("invoice", {"number": None}, r"\$\.number"),
        ("picture", {"size": "big"}, "whole number"),
        ("anything", {}, "id"),
        ("anything", {"id": math.nan}, r"\$\.id"),
        ("anything", {"id": 2**70}, r"\$\.id"),
        ("anything", {"id": "x" * 300}, "200"),
        ("anything", {"id": 1, "password": "x"}, r"\$\.password"),
        ("anything", {"id": object()}, "Encoding|not|unsupported|object"),
        ("anything", {"id": {1: 2}}, "name|key|text"),
    ],
)
async def test_an_input_that_does_not_fit_is_refused_with_path_and_reason(
    job_type: str, value: Any, where: str
) -> None:
    async with queue_for_test(HANDLERS) as queue:
        with pytest.raises(InvalidInput, match=where):
            await queue.enqueue(job_type, value)
        assert (await queue.list()).items == ()


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 0},
        {"priority": 21},
        {"priority": True},
        {"priority": "10"},
        {"scheduled_for": "tomorrow"},
        {"scheduled_for": datetime(2026, 1, 1)},  # noqa: DTZ001 - what is tested
        {"scheduled_for": -1},
        {"scheduled_for": 1, "delay": 1},
        {"delay": -1},
        {"delay": "soon"},
        {"delay": [1]},
        {"created_by": "\ud800"},
        {"result_ttl": 0},
        {"timeout": -5},
        {"max_retries": -1},
        {"payload_version": 0},
        {"expires_at": "never"},
        {"idempotency_key": ""},
        {"tenant_id": "x" * 201},
        {"correlation_id": "a\nb"},
        {"reference_id": 5},
        {"on_duplicate": "explode"},
    ],
)
async def test_a_field_of_the_job_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    async with queue_for_test(HANDLERS) as queue:
        with pytest.raises(InvalidInput):
            await queue.enqueue("mail", {"to": "a"}, **options)
        assert (await queue.list()).items == ()


async def test_a_type_is_a_name_or_a_handler() -> None:
    async with queue_for_test(HANDLERS) as queue:
        with pytest.raises(InvalidInput, match="type"):
            await queue.enqueue(None, {})  # type: ignore[arg-type]


async def test_an_unknown_type_is_refused_with_the_nearest_name() -> None:
    async with queue_for_test(HANDLERS) as queue:
        with pytest.raises(UnknownType, match="Did you mean 'mail'"):
            await queue.enqueue("mial", {"to": "a"})


async def test_a_disabled_type_takes_no_jobs_and_a_paused_one_does() -> None:
    async with queue_for_test(HANDLERS) as queue:
        await queue.disable_type("mail")
        with pytest.raises(TypeDisabled):
            await queue.enqueue("mail", {"to": "a"})
        await queue.enable_type("mail")
        await queue.pause_type("mail")
        assert (await queue.enqueue("mail", {"to": "a"})).status == "pending"


async def test_a_guard_may_refuse_before_storing() -> None:
    async with queue_for_test(HANDLERS) as queue:
        with pytest.raises(GuardRefused, match="not on Sundays"):
            await queue.enqueue("picky", {"day": "sun"})
        assert (await queue.enqueue("picky", {"day": "mon"})).status == "pending"


async def test_a_type_holds_no_more_pending_jobs_than_its_limit() -> None:
    async with queue_for_test(HANDLERS) as queue:
        await queue.change_type("mail", max_pending=2)
        await queue.enqueue_many("mail", [{"to": "a"}, {"to": "b"}])
        with pytest.raises(QueueFull, match="max_pending"):
            await queue.enqueue("mail", {"to": "c"})


async def test_a_delay_and_a_time_say_when_a_job_is_due(clock: FakeClock) -> None:
    later = datetime.fromtimestamp(clock.now() / 1000, UTC) + timedelta(hours=1)
    async with queue_for_test(HANDLERS, clock=clock) as queue:
        delayed = await queue.enqueue("mail", {"to": "a"}, delay=timedelta(minutes=5))
        planned = await queue.enqueue("mail", {"to": "a"}, scheduled_for=later)
        past = await queue.enqueue("mail", {"to": "a"}, scheduled_for="2020-01-01T00:00:00Z")
        jobs = await queue.get_many([delayed.job_id, planned.job_id, past.job_id])
        done = await queue.process_jobs()
    assert jobs[delayed.job_id].scheduled_for == clock.now() + 300_000
    assert jobs[planned.job_id].scheduled_for == clock.now() + 3_600_000
    assert (done.completed, done.next_due_at) == (1, clock.now() + 300_000)


async def test_one_invalid_input_refuses_all_and_names_its_index() -> None:
    async with queue_for_test(HANDLERS) as queue:
        with pytest.raises(InvalidInput, match="job 1") as refused:
            await queue.enqueue_many("mail", [{"to": "a"}, {"to": 5}, {"to": "c"}])
        assert refused.value.index == 1
        assert (await queue.list()).items == ()


async def test_many_jobs_are_stored_in_order() -> None:
    async with queue_for_test(HANDLERS) as queue:
        enqueued = await queue.enqueue_many("mail", [{"to": str(n)} for n in range(1500)])
        found = await queue.get_many([each.job_id for each in enqueued])
    assert [found[each.job_id].input["to"] for each in enqueued] == [str(n) for n in range(1500)]


async def test_the_same_key_answers_with_the_first_job_and_later_with_its_result() -> None:
    async with queue_for_test(HANDLERS) as queue:
        first = await queue.enqueue("mail", {"to": "a"}, idempotency_key="k")
        again = await queue.enqueue("mail", {"to": "a"}, idempotency_key="k")
        await drain(queue)
        after = await queue.enqueue("mail", {"to": "a"}, idempotency_key="k")
    assert (again.job_id, again.duplicate, again.status) == (first.job_id, True, "pending")
    assert (after.status, after.result) == ("completed", "sent to a")


async def test_the_same_key_with_another_input_is_a_conflict() -> None:
    async with queue_for_test(HANDLERS) as queue:
        first = await queue.enqueue("mail", {"to": "a"}, idempotency_key="k")
        with pytest.raises(IdempotencyConflict, match=first.job_id):
            await queue.enqueue("mail", {"to": "b"}, idempotency_key="k")


async def test_a_key_belongs_to_a_tenant_and_a_type() -> None:
    async with queue_for_test(HANDLERS) as queue:
        answers = [
            await queue.enqueue("mail", {"to": "a"}, idempotency_key="k"),
            await queue.enqueue("mail", {"to": "a"}, idempotency_key="k", tenant_id="t1"),
            await queue.enqueue("report", {"month": 1}, idempotency_key="k"),
        ]
        found = await queue.find("mail", "k", tenant_id="t1")
    assert not any(answer.duplicate for answer in answers)
    assert found is not None
    assert found.id == answers[1].job_id


async def test_a_key_is_free_again_after_failure() -> None:
    async with queue_for_test(HANDLERS) as queue:
        first = await queue.enqueue("broken", {}, idempotency_key="k")
        await drain(queue)
        assert (await queue.get(first.job_id)).status == "failed"
        assert await queue.find("broken", "k") is None
        second = await queue.enqueue("broken", {}, idempotency_key="k")
    assert not second.duplicate


async def test_a_pending_duplicate_can_be_replaced() -> None:
    async with queue_for_test(HANDLERS) as queue:
        first = await queue.enqueue("mail", {"to": "a"}, idempotency_key="k")
        second = await queue.enqueue(
            "mail", {"to": "b"}, idempotency_key="k", on_duplicate="replace", priority=20
        )
        job = await queue.get(first.job_id)
    assert (second.job_id, second.duplicate) == (first.job_id, True)
    assert (job.input, job.priority) == ({"to": "b"}, 20)


async def test_a_key_can_be_made_from_the_content() -> None:
    key = content_key({"to": "a", "copies": 1})
    assert key == content_key({"copies": 1, "to": "a"})
    async with queue_for_test(HANDLERS) as queue:
        await queue.enqueue("mail", {"to": "a"}, idempotency_key=key)
        again = await queue.enqueue("mail", {"to": "a"}, idempotency_key=key)
    assert again.duplicate


async def test_a_producer_without_handlers_checks_against_the_stored_schema(
    tmp_path: Any,
) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    async with Queue(url, handlers=HANDLERS):
        pass
    async with Queue(url) as producer:
        assert (await producer.enqueue("mail", {"to": "a"})).status == "pending"
        with pytest.raises(InvalidInput, match="to"):
            await producer.enqueue("mail", {"to": 5})
        with pytest.raises(UnknownType):
            await producer.enqueue("nobody_has_this", {})


async def test_every_refusal_has_a_stable_code() -> None:
    async with queue_for_test(HANDLERS) as queue:
        with pytest.raises(EdgeqError) as refused:
            await queue.enqueue("nope", {})
    assert refused.value.code == "unknown_type"


async def test_a_type_can_require_a_tenant_and_a_key() -> None:
    @handler("strict", requires=["tenant_id", "idempotency_key", "amount"])
    async def strict(ctx: Context, input: dict[str, Any]) -> None:
        return None

    async with queue_for_test([strict]) as queue:
        for options in ({}, {"tenant_id": "t"}, {"idempotency_key": "k"}):
            with pytest.raises(InvalidInput, match="is required"):
                await queue.enqueue(strict, {"amount": 1}, **options)
        with pytest.raises(InvalidInput, match="amount"):
            await queue.enqueue(strict, {}, tenant_id="t", idempotency_key="k")
        whole = await queue.enqueue(strict, {"amount": 1}, tenant_id="t", idempotency_key="k")
    assert whole.status == "pending"

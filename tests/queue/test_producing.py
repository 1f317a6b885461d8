"""Handlers that are enqueued by themselves; mypy reads the types that are asserted here."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import msgspec
import pytest
from sqlalchemy import create_engine

import edgeq
from edgeq import Context, Enqueued, Queue, SyncContext, SyncQueue, handler
from edgeq.errors import HandlerProblem, InvalidInput, StoreClosed
from edgeq.settings import Settings
from edgeq.testing import queue_for_test

SETTINGS = Settings(synchronous="normal")


class EmailInput(msgspec.Struct):
    to: str


@handler("email")
async def email(ctx: Context, input: EmailInput) -> int:
    return len(input.to)


@handler("resize")
def resize(ctx: SyncContext, picture: dict[str, Any]) -> str:
    return str(picture)


async def test_a_handler_is_enqueued_with_its_own_input() -> None:
    async with queue_for_test([email]) as queue:
        enqueued = await email.enqueue(EmailInput("a@example.com"))
        job = await queue.get(enqueued.job_id)
        assert (job.type, job.input) == ("email", {"to": "a@example.com"})


async def test_its_input_may_be_named() -> None:
    async with queue_for_test([resize]) as queue:
        enqueued = await resize.enqueue(picture={"name": "cat"})
        assert (await queue.get(enqueued.job_id)).input == {"name": "cat"}


async def test_options_go_before_the_input() -> None:
    urgent = email.with_options(priority=15)
    async with queue_for_test([email]) as queue:
        enqueued = await urgent.with_options(tenant_id="t").enqueue(EmailInput("a@example.com"))
        job = await queue.get(enqueued.job_id)
        assert (job.priority, job.tenant_id) == (15, "t")
        plain = await email.enqueue(EmailInput("a@example.com"))
        assert (await queue.get(plain.job_id)).priority == 10


async def test_an_option_that_makes_no_sense_is_refused() -> None:
    async with queue_for_test([email]):
        with pytest.raises(InvalidInput, match="priority"):
            await email.with_options(priority=99).enqueue(EmailInput("a@example.com"))


async def test_without_an_open_queue_it_says_what_to_do() -> None:
    with pytest.raises(StoreClosed, match=r"No Queue is open with <handler 'email'"):
        await email.enqueue(EmailInput("a@example.com"))
    async with queue_for_test([email]):
        pass
    with pytest.raises(StoreClosed, match="No Queue is open"):
        await email.enqueue(EmailInput("a@example.com"))


async def test_of_two_open_queues_none_is_guessed() -> None:
    async with queue_for_test([email]) as first, queue_for_test([email]):
        with pytest.raises(HandlerProblem, match=r"2 open queues .* queue\.enqueue\(handler"):
            await email.enqueue(EmailInput("a@example.com"))
        enqueued = await first.enqueue(email, EmailInput("a@example.com"))
        assert enqueued.status == "pending"


async def test_a_queue_that_could_not_be_opened_is_not_bound(tmp_path: Path) -> None:
    with pytest.raises(edgeq.errors.StoreUnavailable):
        await Queue(f"sqlite:///{tmp_path}/missing/app.db", handlers=[email]).open()
    with pytest.raises(StoreClosed):
        await email.enqueue(EmailInput("a@example.com"))


async def test_it_joins_a_transaction(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'app.db'}"
    async with queue_for_test([email], database=database) as queue:
        engine = edgeq.attach(create_engine(database), settings=SETTINGS)
        with engine.connect() as connection:
            await email.with_options(connection=connection).enqueue(EmailInput("a@example.com"))
        assert (await queue.list()).items == ()
        engine.dispose()


def test_a_sync_queue_is_used_by_the_blocking_form(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'app.db'}"
    with SyncQueue(database, handlers=[email], settings=SETTINGS) as queue:
        enqueued = email.with_options(priority=3).enqueue_blocking(EmailInput("a@example.com"))
        assert queue.get(enqueued.job_id).priority == 3
    with pytest.raises(StoreClosed, match="No SyncQueue is open"):
        email.enqueue_blocking(EmailInput("a@example.com"))


async def test_the_two_kinds_of_queues_do_not_meet(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'app.db'}"
    with SyncQueue(database, handlers=[email], settings=SETTINGS):
        with pytest.raises(StoreClosed, match="No Queue is open"):
            await email.enqueue(EmailInput("a@example.com"))
        async with Queue(database, handlers=[email], settings=SETTINGS):
            await email.enqueue(EmailInput("a@example.com"))
            email.enqueue_blocking(EmailInput("a@example.com"))


async def test_more_than_one_input_is_a_mistake() -> None:
    async with queue_for_test([email]):
        with pytest.raises(TypeError, match="takes one input"):
            await email.enqueue(EmailInput("a"), priority=3)  # type: ignore[call-arg]


async def typed_by_the_handlers_own_input(context: Context, sync_context: SyncContext) -> None:
    """Never called: an `ignore` that is not needed, or a type that differs, fails mypy."""
    assert_type(await email.enqueue(EmailInput("a")), Enqueued)
    assert_type(email.enqueue_blocking(EmailInput("a")), Enqueued)
    assert_type(await email.with_options(delay=3).enqueue(input=EmailInput("a")), Enqueued)
    assert_type(await email(context, EmailInput("a")), int)
    assert_type(resize(sync_context, picture={}), str)

    await email.enqueue({"to": "a"})  # type: ignore[arg-type]
    await email.enqueue()  # type: ignore[call-arg]
    email.enqueue_blocking("a")  # type: ignore[arg-type]
    await email.with_options(delay=3).enqueue(3)  # type: ignore[arg-type]
    await email(sync_context, EmailInput("a"))  # type: ignore[arg-type]
    resize(sync_context, input={})  # type: ignore[call-arg]

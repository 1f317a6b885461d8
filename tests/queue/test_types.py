from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeq import Context, Queue, handler
from edgeq.errors import BadSetting, InvalidInput, TypeExists, UnknownType
from edgeq.testing import drain, queue_for_test


@handler("echo", max_retries=1, timeout=10)
async def echo(ctx: Context, input: dict[str, Any]) -> object:
    return ctx.config.get("app.greeting")


@handler("echo", max_retries=5, timeout=20)
async def newer_echo(ctx: Context, input: dict[str, Any]) -> None:
    return None


async def test_registration_stores_what_the_handler_declares() -> None:
    async with queue_for_test([echo]) as queue:
        stored = await queue.type("echo")
    assert (stored.policy.max_retries, stored.policy.timeout_ms) == (1, 10_000)
    assert stored.policy.input_schema is not None


async def test_an_operators_change_wins_over_newer_code_until_it_is_unset(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'types.db'}"
    async with Queue(url, handlers=[echo]) as queue:
        changed = await queue.change_type("echo", max_retries=9, reason="flaky supplier")
        assert changed.overrides == {"max_retries"}
    async with Queue(url, handlers=[newer_echo]) as queue:
        kept = (await queue.type("echo")).policy
        assert (kept.max_retries, kept.timeout_ms) == (9, 20_000)
        await queue.change_type("echo", unset=["max_retries"])
    async with Queue(url, handlers=[newer_echo]) as queue:
        assert (await queue.type("echo")).policy.max_retries == 5


async def test_a_type_can_be_made_by_hand_once() -> None:
    async with queue_for_test() as queue:
        made = await queue.create_type("later", lane="fast", max_retries=0)
        assert made.policy.lane == "fast"
        assert made.overrides == {"lane", "max_retries"}
        assert (await queue.enqueue("later", {"any": "thing"})).status == "pending"
        with pytest.raises(TypeExists):
            await queue.create_type("later")
        report = await queue.process_jobs()
    assert (report.unhandled_types, report.remaining) == (("later",), 1)


@pytest.mark.parametrize(
    "wrong",
    [{"max_retries": -1}, {"max_retries": "x"}, {"colour": 1}, {"version": 2}],
)
async def test_a_type_refuses_fields_that_make_no_sense(wrong: dict[str, Any]) -> None:
    async with queue_for_test([echo]) as queue:
        with pytest.raises(InvalidInput):
            await queue.change_type("echo", **wrong)
        with pytest.raises(InvalidInput):
            await queue.create_type("other", **wrong)
        with pytest.raises(UnknownType):
            await queue.change_type("nope", max_retries=1)


async def test_a_paused_type_starts_nothing_until_it_is_resumed() -> None:
    async with queue_for_test([echo]) as queue:
        await queue.enqueue("echo", {})
        await queue.pause_type("echo")
        assert (await queue.process_jobs()).claimed == 0
        await queue.resume_type("echo")
        assert (await queue.process_jobs()).completed == 1


async def test_handlers_see_the_configuration_and_secrets_stay_out_of_it() -> None:
    async with queue_for_test([echo]) as queue:
        with pytest.raises(InvalidInput, match="secret"):
            await queue.set_config({"llm.api_key": "sk-123"})
        await queue.set_config({"app.greeting": "hello"})
        assert await queue.config() == {"app.greeting": "hello"}
        job_id = (await queue.enqueue("echo", {})).job_id
        await drain(queue)
        assert await queue.result(job_id) == "hello"
        await queue.set_config({"app.greeting": None})
        assert await queue.config() == {}


async def test_configured_limits_are_the_defaults_of_the_next_opening(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'config.db'}"
    async with Queue(url) as queue:
        await queue.set_config({"process.budget": 3, "process.concurrency": 2})
    async with Queue(url) as queue:
        limits = queue.limits(concurrency=5)
    assert (limits.budget, limits.concurrency, limits.grace) == (3, 5, 5.0)


async def test_a_run_of_an_unknown_type_is_refused() -> None:
    async with queue_for_test([echo]) as queue:
        with pytest.raises(BadSetting, match="echo"):
            await queue.process_jobs(types=["ehco"])


async def test_stats_count_by_type_and_state() -> None:
    async with queue_for_test([echo]) as queue:
        await queue.enqueue_many("echo", [{}, {}])
        await queue.process_jobs(max_jobs=1)
        (stats,) = (await queue.stats()).types
    assert (stats.counts["pending"], stats.counts["completed"]) == (1, 1)  # type: ignore[index]
    assert (stats.capped, stats.p50_ms is not None) == (False, True)

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edgeq import Context, handler
from edgeq.errors import BadSetting, UnknownType
from edgeq.queue.draining import DrainLook
from edgeq.testing import FakeClock, queue_for_test


class Gatekeeper:
    """Handlers that run until the test lets them go."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.may_end = asyncio.Event()

        @handler("slow")
        async def slow(ctx: Context, input: dict[str, Any]) -> None:
            self.has_begun.set()
            await self.may_end.wait()

        @handler("other")
        async def other(ctx: Context, input: dict[str, Any]) -> None: ...

        self.handlers = [slow, other]


async def test_a_drain_of_an_idle_queue_ends_at_once() -> None:
    async with queue_for_test() as queue:
        await queue.create_type("later")
        await queue.enqueue("later", {})

        assert await queue.drain() == ()


async def test_a_drain_ends_when_the_last_running_job_has_ended() -> None:
    gate = Gatekeeper()
    async with queue_for_test(gate.handlers) as queue:
        await queue.enqueue("slow", {})
        run = asyncio.create_task(queue.process_jobs(budget=10))
        await gate.has_begun.wait()
        looks: list[DrainLook] = []

        def let_go(look: DrainLook) -> None:
            looks.append(look)
            gate.may_end.set()

        left = await queue.drain(told=let_go)
        await run

    assert left == ()
    assert [len(look.running) for look in (looks[0], looks[-1])] == [1, 0]


async def test_a_drain_whose_time_is_up_tells_what_still_runs() -> None:
    gate = Gatekeeper()
    async with queue_for_test(gate.handlers) as queue:
        job = await queue.enqueue("slow", {})
        run = asyncio.create_task(queue.process_jobs(budget=10))
        await gate.has_begun.wait()

        left = await queue.drain(timeout=0.01)
        gate.may_end.set()
        await run

    assert [(each.id, each.type) for each in left] == [(job.job_id, "slow")]


async def test_a_drain_of_some_types_does_not_wait_for_others() -> None:
    gate = Gatekeeper()
    async with queue_for_test(gate.handlers) as queue:
        await queue.enqueue("slow", {})
        run = asyncio.create_task(queue.process_jobs(budget=10))
        await gate.has_begun.wait()

        left = await queue.drain(["other"])
        gate.may_end.set()
        await run

    assert left == ()


@pytest.mark.parametrize("switch", ["none", "type", "all"])
async def test_a_drain_tells_that_workers_go_on_claiming_unless_a_switch_is_off(
    switch: str,
) -> None:
    gate, clock = Gatekeeper(), FakeClock()
    async with queue_for_test(gate.handlers, clock=clock) as queue:
        await queue.enqueue_many("slow", [{}, {}])
        first = asyncio.create_task(queue.process_jobs(budget=10, max_jobs=1))
        await gate.has_begun.wait()
        looks: asyncio.Queue[DrainLook] = asyncio.Queue()
        drain = asyncio.create_task(queue.drain(told=looks.put_nowait))
        before = await looks.get()

        gate.has_begun.clear()
        clock.advance(1)
        second = asyncio.create_task(queue.process_jobs(budget=10, max_jobs=1))
        await gate.has_begun.wait()
        if switch == "type":
            await queue.pause_type("slow")
        if switch == "all":
            await queue.set_config({"worker_enabled": False})
        await looks.get()  # may have been half done when the switch was set
        after = await looks.get()
        gate.may_end.set()
        await asyncio.gather(first, second, drain)

    assert (before.claims_go_on, len(after.running)) == (False, 2)
    assert after.claims_go_on == (switch == "none")


async def test_a_drain_of_an_unknown_type_is_refused() -> None:
    async with queue_for_test(Gatekeeper().handlers) as queue:
        with pytest.raises(UnknownType, match="Did you mean 'slow'"):
            await queue.drain(["slwo"])


@pytest.mark.parametrize("timeout", [-1, float("nan")])
async def test_a_timeout_that_is_none_is_refused(timeout: float) -> None:
    async with queue_for_test() as queue:
        with pytest.raises(BadSetting, match="timeout"):
            await queue.drain(timeout=timeout)

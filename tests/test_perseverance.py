"""What comes to its end, however often its caller is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from edgeq.perseverance import to_the_end


async def test_work_goes_on_to_its_end_and_the_cancellation_is_heeded_after() -> None:
    may_end = asyncio.Event()
    has_ended = False

    async def work() -> None:
        nonlocal has_ended
        await may_end.wait()
        has_ended = True

    caller = asyncio.create_task(to_the_end(work()))
    for _ in range(2):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.sleep(0)
    was_waiting = not caller.done()
    may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await caller
    assert was_waiting
    assert has_ended


async def test_without_a_cancellation_it_answers_like_the_work_itself() -> None:
    async def answer() -> int:
        return 7

    async def fail() -> None:
        raise ValueError("no")

    assert await to_the_end(answer()) == 7
    with pytest.raises(ValueError, match="no"):
        await to_the_end(fail())

"""The handlers on a real queue in a temporary file, with a clock that stands still."""

import asyncio
from pathlib import Path

import pytest

from edgeq.errors import InvalidInput
from edgeq.testing import drain, queue_for_test

HANDLERS = Path(__file__).resolve().parent.parent / "handlers"


def test_a_welcome_names_who_is_welcomed() -> None:
    async def run() -> object:
        async with queue_for_test(HANDLERS) as queue:
            job = await queue.enqueue("welcome", {"name": "Ada"})
            await drain(queue)
            return await queue.result(job.job_id)

    assert asyncio.run(run()) == {"text": "Welcome, Ada!"}


def test_a_welcome_without_a_name_is_refused() -> None:
    async def run() -> None:
        async with queue_for_test(HANDLERS) as queue:
            await queue.enqueue("welcome", {"name": ""})

    with pytest.raises(InvalidInput):
        asyncio.run(run())

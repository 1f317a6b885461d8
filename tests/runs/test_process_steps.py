"""Steps of handlers in processes of their own: the parent keeps them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from edgeq.testing import FakeClock, queue_for_test
from tests.runs import child_handlers
from tests.runs.living import written

pytestmark = pytest.mark.process

MODULE = child_handlers.__name__


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def calls() -> list[str]:
    return Path("calls").read_text().splitlines()


@pytest.mark.parametrize("job_type", ["stepwise", "stepwise_async"])
async def test_a_retry_in_a_child_skips_what_is_done(job_type: str) -> None:
    async with queue_for_test(MODULE) as queue:
        job_id = (await queue.enqueue(job_type, {"then": "fail"})).job_id
        await queue.process_jobs(budget=20, max_jobs=2)
        job, steps = await queue.get(job_id), await queue.steps(job_id)
        children = (await queue.list(parent_job_id=job_id)).items
    assert (job.status, job.attempt) == ("completed", 2)
    assert calls().count("first") == 1
    assert [step.attempt for step in steps] == [1] + [2] * (len(steps) - 1)
    is_async = job_type == "stepwise_async"
    assert job.output == ([1, 2] if is_async else [1, 2, 3])
    assert len(children) == (2 if is_async else 0)


async def test_a_sleep_in_a_child_holds_no_slot_and_no_child() -> None:
    clock = FakeClock()
    async with queue_for_test(MODULE, clock=clock) as queue:
        job_id = (await queue.enqueue("stepwise", {"then": "sleep"})).job_id
        report = await queue.process_jobs(budget=20)
        job = await queue.get(job_id)
        assert (report.snoozed, job.status, job.retry_count) == (1, "pending", 0)
        assert clock.now() + 299_000 <= job.scheduled_for <= clock.now() + 330_000
        clock.advance(331)
        assert (await queue.process_jobs(budget=20)).completed == 1
    assert calls() == ["first", "more 0", "more 1"]


@pytest.mark.parametrize(
    ("then", "why"),
    [("transaction", "process of its own"), ("unserializable", "cannot be stored")],
)
async def test_what_a_child_cannot_do_fails_the_job_for_good(then: str, why: str) -> None:
    async with queue_for_test(MODULE) as queue:
        job_id = (await queue.enqueue("stepwise", {"then": then})).job_id
        await queue.process_jobs(budget=20)
        job: Any = await queue.get(job_id)
    assert (job.status, job.error_class) == ("failed", "non_retryable")
    assert why in job.error_message


async def test_a_child_that_is_killed_has_kept_its_steps() -> None:
    async with queue_for_test(MODULE) as queue:
        job_id = (await queue.enqueue("stepwise", {"then": "wait"})).job_id
        run = asyncio.create_task(queue.process_jobs(budget=20))
        os.kill(await written("waiting"), signal.SIGKILL)
        Path("go on").touch()  # noqa: ASYNC240 - nothing else runs here
        await run
        assert (await queue.get(job_id)).status == "completed"
    assert calls() == ["first", "more 0", "more 1"]


async def test_the_durations_of_a_childs_steps_are_known_to_its_run() -> None:
    async with queue_for_test(MODULE) as queue:
        await queue.enqueue_many("stepwise", [{}] * 5)
        await queue.process_jobs(budget=20)
        job_id = (await queue.enqueue("stepwise", {"then": "sleep"})).job_id
        await queue.process_jobs(budget=20)
        assert await queue.runs_left(await queue.get(job_id)) == 1

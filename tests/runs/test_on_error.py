"""The hooks that hear of failures, for error trackers and the like."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest

from edgeq import error_hooks
from edgeq.registry import load
from edgeq.testing import queue_for_test

# Each handler and each hook leaves a line in a diary, because some of them run in a child.
DIARY = """
import asyncio, os, threading, time
from pathlib import Path
from edgeq import Fail, RateLimited, Retry, Review, Skip, Snooze, handler

def write(*words):
    with Path("diary").open("a") as file:
        print(*words, file=file)
"""

HANDLERS = """
from ._diary import *

@handler("boom", max_retries=0)
async def boom(ctx, input): raise ValueError("boom")

@handler("boom_thread", max_retries=0)
def boom_thread(ctx, input): raise ValueError("boom")

@handler("boom_process", max_retries=0, executor="process")
def boom_process(ctx, input): raise ValueError("boom")

@handler("slow", max_retries=0, timeout=0.1)
async def slow(ctx, input): await asyncio.sleep(30)

@handler("slow_thread", max_retries=0, timeout=0.1)
def slow_thread(ctx, input): threading.Event().wait(1)

@handler("typed", max_retries=0)
async def typed(ctx, input: dict): return None

ANSWERS = [Fail("no"), RateLimited(), Retry(), Review("look"), Snooze(5)]

@handler("answers")
async def answers(ctx, input):
    if input["n"] < len(ANSWERS):
        raise ANSWERS[input["n"]]
    return Skip("nothing")
"""

HOOK = """
from ._diary import *

async def on_error(ctx, error):
    here = "here" if os.getpid() == int(os.environ["TEST_PID"]) else "there"
    await ctx.log("the hook was here")
    write("async", here, ctx.job.type, type(error).__name__, error)
"""

SYNC_HOOK = """
from ._diary import *

def on_error(ctx, error):
    write("sync", threading.current_thread().name, ctx.job.type, type(error).__name__)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEST_PID", str(os.getpid()))
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "_diary.py").write_text(DIARY)
    (jobs / "handlers.py").write_text(HANDLERS)
    return jobs


def _diary(folder: Path) -> list[str]:
    diary = folder.parent / "diary"
    return sorted(diary.read_text().splitlines()) if diary.exists() else []


async def _run(folder: Path, job_type: str, *inputs: Any) -> tuple[Any, Any]:
    async with queue_for_test(folder) as queue:
        jobs = await queue.enqueue_many(job_type, inputs or [{}])
        await queue.process_jobs(budget=20)
        job = await queue.get(jobs[0].job_id)
        return job, (await queue.logs(job.id)).items


async def test_every_hook_hears_of_an_exception(folder: Path) -> None:
    (folder / "one.py").write_text(HOOK)
    (folder / "two.py").write_text(SYNC_HOOK)
    job, log = await _run(folder, "boom")
    assert _diary(folder) == [
        "async here boom ValueError boom",
        "sync edgeq-handler boom ValueError",
    ]
    assert (job.status, job.error_message) == ("failed", "ValueError: boom")
    assert "the hook was here" in [each.message for each in log]


@pytest.mark.process
async def test_a_hook_is_called_in_the_process_of_the_handler(folder: Path) -> None:
    (folder / "one.py").write_text(HOOK)
    await _run(folder, "boom_process")
    assert _diary(folder) == ["async there boom_process ValueError boom"]


@pytest.mark.parametrize("job_type", ["slow", "slow_thread"])
async def test_a_hook_hears_of_a_timeout(folder: Path, job_type: str) -> None:
    (folder / "one.py").write_text(HOOK)
    job, _ = await _run(folder, job_type)
    assert _diary(folder) == [f"async here {job_type} TimeoutError timed out after 0.1 s"]
    assert job.error_class == "timeout"


async def test_what_a_handler_answers_is_no_error(folder: Path) -> None:
    (folder / "one.py").write_text(HOOK)
    await _run(folder, "answers", *({"n": n} for n in range(6)))
    assert _diary(folder) == []


async def test_a_hook_hears_of_a_stored_input_that_no_longer_fits(folder: Path) -> None:
    database = f"sqlite:///{folder.parent / 'queue.db'}"
    async with queue_for_test(folder, database=database) as queue:
        await queue.enqueue("typed", {"n": "one"})
    (folder / "handlers.py").write_text(HANDLERS.replace("input: dict", "input: dict[str, int]"))
    (folder / "one.py").write_text(SYNC_HOOK)
    async with queue_for_test(folder, database=database) as queue:
        await queue.process_jobs(budget=20)
    assert _diary(folder) == ["sync edgeq-handler typed InvalidInput"]


async def test_a_hook_that_fails_is_logged_and_changes_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "one.py").write_text("def on_error(ctx, error): raise KeyError('the hook')")
    with caplog.at_level(logging.WARNING, "edgeq"):
        job, _ = await _run(folder, "boom")
    assert (job.status, job.error_message) == ("failed", "ValueError: boom")
    assert "one.on_error failed: KeyError('the hook')" in caplog.text


@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_a_hook_that_takes_too_long_is_not_waited_for(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(error_hooks, "HOOK_SECONDS", 0.1)
    waits = "await asyncio.sleep(30)" if kind == "async def" else "threading.Event().wait(30)"
    (folder / "one.py").write_text(f"import asyncio, threading\n{kind} on_error(c, e): {waits}\n")
    with caplog.at_level(logging.WARNING, "edgeq"):
        job, _ = await _run(folder, "boom")
    assert (job.status, job.error_message) == ("failed", "ValueError: boom")
    assert "took too long" in caplog.text


async def test_a_hook_does_not_keep_a_run_beyond_its_end(folder: Path) -> None:
    (folder / "one.py").write_text(
        "import asyncio\nasync def on_error(c, e): await asyncio.sleep(4)"
    )
    async with queue_for_test(folder) as queue:
        job_id = (await queue.enqueue("boom", {})).job_id
        began = time.monotonic()
        report = await queue.process_jobs(budget=0.3, grace=0.1)
        took = time.monotonic() - began
        job = await queue.get(job_id)
    assert (report.failed, job.error_message) == (1, "ValueError: boom")
    assert took < 1.4


def test_one_hook_that_several_files_import_is_called_once(folder: Path) -> None:
    (folder / "one.py").write_text(HOOK)
    (folder / "two.py").write_text("from .one import on_error")
    assert len(load(folder).on_error) == 1

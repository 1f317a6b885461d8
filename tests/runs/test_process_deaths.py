"""Handlers in processes of their own: how they die, and that none of them is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgeq.testing import queue_for_test
from tests.runs import child_handlers
from tests.runs.living import children_of, is_alive, pid_in, wait_until, written

pytestmark = pytest.mark.process

MODULE = child_handlers.__name__
PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Handlers leave their files here; whatever a test does, no child of ours is left."""
    monkeypatch.chdir(tmp_path)
    before = children_of(os.getpid())
    yield tmp_path
    assert children_of(os.getpid()) <= before


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("segfault", "ended by signal SIGSEGV"),
        ("killed", "ended by signal SIGKILL"),
        ("exit", "ended with exit code 3"),
        ("fork", "ended with exit code 4"),
        ("garbage", "sent what is no message"),
        ("memory", "MemoryError"),
    ],
)
async def test_a_crash_is_one_failed_attempt_and_the_next_job_has_a_child_again(
    how: str, message: str
) -> None:
    async with queue_for_test(MODULE) as queue:
        job_id = (await queue.enqueue("crash", {"how": how}, priority=20)).job_id
        after = (await queue.enqueue("where_async", {})).job_id
        report = await queue.process_jobs(budget=20, concurrency=1)
        job, attempts = await queue.get(job_id), await queue.attempts(job_id)
        assert (await queue.result(after))["pid"] != os.getpid()
    assert (report.failed, report.completed) == (1, 1)
    assert (job.error_class, job.losses, len(attempts)) == ("transient", 0, 1)
    assert message in (job.error_message or "")


async def test_a_process_that_a_dead_child_forked_dies_too() -> None:
    async with queue_for_test(MODULE) as queue:
        await queue.enqueue("crash", {"how": "fork"})
        await queue.process_jobs(budget=20)
    await wait_until(lambda: not is_alive(pid_in("forked")))


async def test_a_timeout_ends_the_child_and_what_it_has_started() -> None:
    async with queue_for_test(MODULE) as queue:
        job_id = (await queue.enqueue("forever", {})).job_id
        began = time.monotonic()
        report = await queue.process_jobs(budget=30)
        took = time.monotonic() - began
        job = await queue.get(job_id)
    assert (report.failed, job.error_class, job.error_message) == (1, "timeout", "timed out")
    assert 1 <= took < 8
    assert not is_alive(pid_in("forever"))
    await wait_until(lambda: not is_alive(pid_in("grandchild")))


async def test_the_end_of_the_run_kills_a_child_and_interrupts_its_job() -> None:
    async with queue_for_test(MODULE) as queue:
        job_id = (await queue.enqueue("stubborn", {})).job_id
        run = queue.new_run(queue.limits(budget=2, grace=0.2))
        began = time.monotonic()
        report = await run.process()
        took = time.monotonic() - began
        job = await queue.get(job_id)
    assert (report.interrupted, job.status, job.interruptions) == (1, "pending", 1)
    assert took < 3.2
    assert not run.has_leftovers()
    assert not is_alive(pid_in("stubborn"))


async def test_a_child_that_is_still_starting_at_the_end_of_the_run_is_interrupted() -> None:
    async with queue_for_test(MODULE) as queue:
        job_id = (await queue.enqueue("where", {})).job_id
        report = await queue.process_jobs(budget=0.05, grace=0)
        job = await queue.get(job_id)
    assert (report.interrupted, job.status) == (1, "pending")


async def test_the_end_of_a_signals_grace_kills_a_child_uncounted() -> None:
    async with queue_for_test(MODULE) as queue:
        job_id = (await queue.enqueue("stubborn", {})).job_id
        run = queue.new_run(queue.limits(budget=60, grace=0.2))
        running = asyncio.create_task(run.process())
        pid = await written("stubborn")
        run.stop()
        report = await asyncio.wait_for(running, 5)
        job = await queue.get(job_id)
    assert (report.interrupted, job.status, job.interruptions) == (1, "pending", 0)
    assert not is_alive(pid)


async def test_a_lost_lock_kills_the_child() -> None:
    async with queue_for_test(MODULE) as queue:
        job_id = (await queue.enqueue("stubborn", {})).job_id
        running = asyncio.create_task(queue.process_jobs(budget=60, max_jobs=1))
        pid = await written("stubborn")
        await queue.pause_type("stubborn")
        await queue.release(job_id)
        report = await asyncio.wait_for(running, 10)
        job = await queue.get(job_id)
    assert (report.claimed, report.lost_locks, job.status) == (1, 1, "pending")
    assert not is_alive(pid)


async def test_cancelling_the_run_itself_leaves_no_child() -> None:
    async with queue_for_test(MODULE) as queue:
        job_id = (await queue.enqueue("stubborn", {})).job_id
        running = asyncio.create_task(queue.process_jobs(budget=60))
        pid = await written("stubborn")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await queue.get(job_id)).status == "pending"
    assert not is_alive(pid)


async def test_whatever_children_die_of_everything_else_goes_on() -> None:
    crashes = ["segfault", "exit", "killed", "memory", "garbage"]
    async with queue_for_test(MODULE) as queue:
        ids = [(await queue.enqueue("crash", {"how": how})).job_id for how in crashes]
        ids.append((await queue.enqueue("forever", {})).job_id)
        await queue.enqueue_many("quick", [{} for _ in range(1000)])
        report = await queue.process_jobs(budget=40)
        jobs = [await queue.get(each) for each in ids]
        attempts = [await queue.attempts(each) for each in ids]
    assert (report.completed, report.failed, report.claimed) == (1000, 6, 1006)
    assert [job.error_class for job in jobs] == ["transient"] * 5 + ["timeout"]
    assert [len(each) for each in attempts] == [1] * 6
    pids = [pid_in(f"crash-{how}") for how in crashes] + [pid_in("forever")]
    assert not any(map(is_alive, pids))


def _process(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    database = f"sqlite:///{folder / 'queue.db'}"
    return subprocess.Popen(
        [sys.executable, "-m", "edgeq", "--db", database, "--handlers", "jobs", "process", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def _enqueue(folder: Path, *job_types: str) -> None:
    """Make a handlers folder, and give it something to do."""
    (folder / "jobs").mkdir()
    (folder / "jobs" / "all.py").write_text(
        "import asyncio, pathlib, time\n"
        "from edgeq import handler\n"
        f"from {MODULE} import *\n"
        "@handler('chatty', executor='process')\n"
        "def chatty(ctx, input): print('a handler prints')\n"
        "@handler('blocks_the_loop')\n"
        "async def blocks_the_loop(ctx, input):\n"
        "    while not pathlib.Path('stubborn').exists(): await asyncio.sleep(0.01)\n"
        "    time.sleep(60)\n"
    )
    async with queue_for_test(
        folder / "jobs", database=f"sqlite:///{folder / 'queue.db'}"
    ) as queue:
        for each in job_types:
            await queue.enqueue(each, {})


@pytest.mark.parametrize("job_type", ["polite", "stubborn"])
async def test_children_die_with_a_parent_that_is_killed(folder: Path, job_type: str) -> None:
    await _enqueue(folder, job_type)
    process = _process(folder, "--budget", "60")
    pid = await written(job_type)
    assert is_alive(pid)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    await wait_until(lambda: not is_alive(pid), seconds=5)


async def test_children_die_with_a_parent_that_its_watchdog_ends(folder: Path) -> None:
    await _enqueue(folder, "stubborn", "blocks_the_loop")
    process = _process(folder, "--budget", "3", "--grace", "0.1", "--json")
    pid = await written("stubborn")
    out, _ = await asyncio.to_thread(process.communicate)
    assert json.loads(out)["interrupted"] == 2
    await wait_until(lambda: not is_alive(pid), seconds=5)


async def test_what_a_child_prints_stays_out_of_the_report(folder: Path) -> None:
    await _enqueue(folder, "chatty")
    process = _process(folder, "--budget", "20", "--json")
    out, err = await asyncio.to_thread(process.communicate)
    report: dict[str, Any] = json.loads(out)
    assert report["completed"] == 1
    assert b"a handler prints" in err

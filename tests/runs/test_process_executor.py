"""Handlers in processes of their own: what they can do, and where they can be found."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from edgeq import Context, SyncContext, handler
from edgeq.errors import HandlerProblem
from edgeq.processes import pool
from edgeq.registry import load
from edgeq.testing import FakeClock, queue_for_test
from tests.runs import child_handlers
from tests.runs.living import is_alive, wait_until, written

pytestmark = pytest.mark.process

MODULE = child_handlers.__name__


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Handlers leave their files here."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def _outputs(queue: Any, job_type: Any, inputs: list[Any], **limits: Any) -> list[Any]:
    jobs = await queue.enqueue_many(job_type, inputs)
    await queue.process_jobs(**{"budget": 20, **limits})
    return [await queue.result(each.job_id) for each in jobs]


@pytest.mark.parametrize("job_type", ["where", "where_async"])
async def test_one_child_runs_what_comes_one_after_the_other(job_type: str) -> None:
    async with queue_for_test(MODULE) as queue:
        seen = await _outputs(queue, job_type, [{} for _ in range(5)], concurrency=1)
    pids = {each["pid"] for each in seen}
    assert len(pids) == 1
    assert os.getpid() not in pids


async def test_there_are_no_more_children_than_slots() -> None:
    async with queue_for_test(MODULE) as queue:
        seen = await _outputs(queue, "where", [{} for _ in range(12)], concurrency=2)
    assert len({each["pid"] for each in seen}) <= 2


async def test_a_child_is_a_fresh_interpreter_that_searches_where_its_parent_does(
    folder: Path,
) -> None:
    (folder / "queue.py").write_text("raise ImportError('this is not the one that is meant')")
    async with queue_for_test(MODULE) as queue:
        (seen,) = await _outputs(queue, "where", [{}])
    assert seen["path"] == sys.path
    assert seen["cwd"] == str(folder)
    assert seen["main"] is None


async def test_a_child_goes_first_when_memory_runs_out() -> None:
    async with queue_for_test(MODULE) as queue:
        (seen,) = await _outputs(queue, "where", [{}])
    assert seen["oom"] == "1000"


@pytest.mark.parametrize("job_type", ["talkative", "talkative_async"])
async def test_the_context_of_a_child_is_that_of_every_handler(
    job_type: str, clock: FakeClock
) -> None:
    async with queue_for_test(MODULE, clock=clock) as queue:
        await queue.set_config({"app.greeting": "hi"})
        (seen,) = await _outputs(queue, job_type, [{}], grace=5)
        job = (await queue.list()).items[0]
        log = (await queue.logs(job.id)).items
    assert (seen["state"], seen["config"]["app.greeting"], seen["attempt"]) == (True, "hi", 1)
    assert seen["flags"] == [False, False]
    assert 15 < seen["remaining"] <= 25
    assert (job.status, job.current_stage) == ("completed", "second half")
    assert [(each.level, each.message) for each in log] == [
        ("warning", "hello"),
        ("info", "second half done"),
    ]
    assert log[0].details == '{"size":3}'
    assert {each.created_at for each in log} == {clock.now()}


async def test_a_child_enqueues_through_its_parent_and_hears_what_was_refused(
    clock: FakeClock,
) -> None:
    async with queue_for_test(MODULE, clock=clock) as queue:
        (answer,) = await _outputs(queue, "parent", [{}])
        born = await queue.get(answer["child"])
    assert (born.type, born.input, born.priority) == ("where", {"n": 1}, 3)
    assert born.scheduled_for == clock.now() + 3_600_000
    assert born.parent_job_id is not None
    assert answer["errors"] == [
        ["unknown_type", "UnknownType {'name': 'nowhere'}"],
        ["invalid_input", "$.x"],
        ["invalid_input", "delay"],
        ["invalid_input", "priority"],
        ["RuntimeError", "TypeError"],
        ["invalid_input", "type"],
    ]


async def test_each_child_has_a_lifespan_of_its_own_and_leaves_it_at_the_end(folder: Path) -> None:
    async with queue_for_test(MODULE) as queue:
        (seen, _) = await _outputs(queue, "where", [{}, {}], concurrency=1)
    diary = (folder / "lifespans").read_text().splitlines()
    ours, theirs = os.getpid(), seen["pid"]
    assert diary == [f"opened {ours}", f"opened {theirs}", f"closed {theirs}", f"closed {ours}"]


async def test_a_checkpoint_stops_a_child_when_the_budget_is_over(folder: Path) -> None:
    async with queue_for_test(MODULE) as queue:
        job_id = (await queue.enqueue("polite", {})).job_id
        began = time.monotonic()
        report = await queue.process_jobs(budget=1.5, grace=30)
        took = time.monotonic() - began
        job = await queue.get(job_id)
    assert (report.interrupted, job.status, job.interruptions) == (1, "pending", 1)
    assert took < 10
    # It went back in good order, so its process could leave in good order too.
    assert f"closed {(folder / 'polite').read_text()}" in (folder / "lifespans").read_text()


async def test_a_signal_stops_a_child_at_its_checkpoint_uncounted() -> None:
    async with queue_for_test(MODULE) as queue:
        job_id = (await queue.enqueue("polite", {})).job_id
        run = queue.new_run(queue.limits(budget=60, grace=30))
        running = asyncio.create_task(run.process())
        await written("polite")
        run.stop()
        report = await asyncio.wait_for(running, 10)
        job = await queue.get(job_id)
    assert (report.interrupted, report.stopped) == (1, "signal")
    assert (job.status, job.interruptions) == ("pending", 0)


async def test_a_cancel_request_stops_a_child_at_its_checkpoint_and_leaves_it_warm() -> None:
    async with queue_for_test(MODULE) as queue:
        await queue.enqueue("polite", {}, priority=20)
        later = (await queue.enqueue("where", {})).job_id
        running = asyncio.create_task(queue.process_jobs(budget=60, concurrency=1))
        pid = await written("polite")
        (polite,) = (await queue.list(status="processing")).items
        await queue.cancel(polite.id)
        report = await asyncio.wait_for(running, 20)
        assert (await queue.result(later))["pid"] == pid
    assert (report.cancelled, report.completed) == (1, 1)


async def test_a_child_sees_that_its_cancellation_was_asked_for() -> None:
    async with queue_for_test(MODULE) as queue:
        job_id = (await queue.enqueue("until_cancelled", {})).job_id
        running = asyncio.create_task(queue.process_jobs(budget=60))
        await written("until_cancelled")
        await queue.cancel(job_id)
        await asyncio.wait_for(running, 20)
        assert await queue.result(job_id) == "finished anyway"


async def test_a_signal_to_everybody_is_left_to_the_parent() -> None:
    async with queue_for_test(MODULE) as queue:
        assert await _outputs(queue, "hears_sigterm", [{}]) == ["still here"]


async def test_a_timeout_counts_from_when_the_handler_is_called(folder: Path) -> None:
    (folder / "jobs").mkdir()
    (folder / "jobs" / "slow_to_load.py").write_text(
        "import os, time\n"
        "from edgeq import handler\n"
        f"if os.getpid() != {os.getpid()}:\n"
        "    time.sleep(0.5)\n"
        "@handler('brief', timeout=0.4, max_retries=0, executor='process')\n"
        "def brief(ctx, input): return 'in time'\n"
    )
    async with queue_for_test(folder / "jobs") as queue:
        assert await _outputs(queue, "brief", [{}]) == ["in time"]


async def test_a_child_that_cannot_load_the_handlers_is_a_failed_attempt(folder: Path) -> None:
    (folder / "jobs").mkdir()
    (folder / "jobs" / "shy.py").write_text(
        "import os\n"
        "from edgeq import handler\n"
        f"if os.getpid() != {os.getpid()}:\n"
        "    raise ValueError('not in a child')\n"
        "@handler('shy', max_retries=0, executor='process')\n"
        "def shy(ctx, input): ...\n"
    )
    async with queue_for_test(folder / "jobs") as queue:
        job_id = (await queue.enqueue("shy", {})).job_id
        report = await queue.process_jobs(budget=20)
        job = await queue.get(job_id)
    assert (report.failed, job.error_class) == (1, "transient")
    assert "not in a child" in (job.error_message or "")


async def test_a_child_that_cannot_be_started_is_a_failed_attempt(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue_for_test(MODULE) as queue:
        job_id = (await queue.enqueue("where", {}, max_retries=0)).job_id
        monkeypatch.setattr(sys, "executable", str(folder / "no-python"))
        report = await queue.process_jobs(budget=20)
        job = await queue.get(job_id)
    assert (report.failed, job.error_class) == (1, "transient")
    assert "could not be started" in (job.error_message or "")


async def test_a_handler_that_a_child_no_longer_finds_is_a_failed_attempt(folder: Path) -> None:
    (folder / "jobs").mkdir()
    source = folder / "jobs" / "gone.py"
    source.write_text(
        "from edgeq import handler\n"
        "@handler('gone', max_retries=0, executor='process')\n"
        "def gone(ctx, input): ...\n"
    )
    async with queue_for_test(folder / "jobs") as queue:
        job_id = (await queue.enqueue("gone", {})).job_id
        source.unlink()
        report = await queue.process_jobs(budget=20)
        job = await queue.get(job_id)
    assert (report.failed, job.error_class) == (1, "transient")
    assert "found no handler 'gone'" in (job.error_message or "")


async def test_a_child_that_is_not_ready_in_time_is_a_failed_attempt(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "READY_SECONDS", 0.5)
    (folder / "jobs").mkdir()
    (folder / "jobs" / "sleepy.py").write_text(
        "import os, time\n"
        "from edgeq import handler\n"
        f"if os.getpid() != {os.getpid()}:\n"
        "    time.sleep(60)\n"
        "@handler('sleepy', max_retries=0, executor='process')\n"
        "def sleepy(ctx, input): ...\n"
    )
    async with queue_for_test(folder / "jobs") as queue:
        job_id = (await queue.enqueue("sleepy", {})).job_id
        report = await queue.process_jobs(budget=20)
        job = await queue.get(job_id)
    assert (report.failed, job.error_class) == (1, "transient")
    assert job.error_message == "the handler's process was not ready after 0.5 s"


async def test_a_thread_that_a_handler_left_in_its_child_learns_that_it_is_over() -> None:
    async with queue_for_test(MODULE) as queue:
        await queue.enqueue("leaves_a_thread", {}, priority=20)
        job_id = (await queue.enqueue("waits_for_it", {})).job_id
        report = await queue.process_jobs(budget=20, concurrency=1)
        log = (await queue.logs(job_id)).items
    assert (report.completed, log) == (2, ())


@pytest.mark.parametrize("source", [[child_handlers.where], child_handlers, MODULE])
async def test_a_child_finds_handlers_given_one_by_one_by_module_or_by_name(source: Any) -> None:
    async with queue_for_test(source) as queue:
        (seen,) = await _outputs(queue, "where", [{}])
    assert seen["pid"] != os.getpid()


def test_a_handler_that_no_child_could_find_is_refused() -> None:
    @handler("local", executor="process")
    def local(ctx: SyncContext, input: dict[str, Any]) -> None: ...

    @handler("main", executor="process")
    async def main(ctx: Context, input: dict[str, Any]) -> None: ...

    main.function.__module__, main.function.__qualname__ = "__main__", "main"

    @handler("hidden", executor="process")
    def hidden(ctx: SyncContext, input: dict[str, Any]) -> None: ...

    hidden.function.__module__, hidden.function.__qualname__ = MODULE, "where"

    made_up = ModuleType("made_up")
    made_up.__dict__["local"] = local

    for source, reason in (
        ([local], "inside a function"),
        ([main], "main file"),
        ([hidden], "something else"),
        (made_up, "not a module that it could import"),
    ):
        with pytest.raises(HandlerProblem, match=reason):
            load(source)


@pytest.mark.parametrize("wanted", ["async", "thread"])
def test_any_other_executor_than_the_natural_one_is_refused(wanted: str) -> None:
    def plain(ctx: SyncContext, input: dict[str, Any]) -> None: ...

    async def coroutine(ctx: Context, input: dict[str, Any]) -> None: ...

    with pytest.raises(HandlerProblem, match="executor"):
        handler("x", executor=wanted)(plain if wanted == "async" else coroutine)


async def test_a_child_that_died_while_it_was_idle_costs_no_job_an_attempt(folder: Path) -> None:
    @handler("between")
    async def between(ctx: Context, input: dict[str, Any]) -> None:
        (folder / "explode").touch()
        (bomb,) = (await queue.list(type="bomb")).items
        await wait_until(lambda: not is_alive(bomb.output))

    async with queue_for_test([child_handlers.bomb, child_handlers.where, between]) as queue:
        await queue.enqueue("bomb", {}, priority=20)
        await queue.enqueue("between", {}, priority=15)
        await queue.enqueue("where", {})
        report = await queue.process_jobs(budget=20, concurrency=1, fast_slots=0)
    assert (report.completed, report.retried) == (3, 0)


async def test_a_run_that_needs_no_child_starts_none(folder: Path) -> None:
    async with queue_for_test(MODULE) as queue:
        await queue.enqueue("quick", {})
        await queue.process_jobs(budget=20)
    assert (folder / "lifespans").read_text().count("opened") == 1

"""A worker: the cycle of a run without an end, woken by the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from edgeq import Context, Queue, RunReport, handler
from edgeq.core.outcomes import Completed
from edgeq.core.runs import RunLimits
from edgeq.errors import BadSetting, StoreBusy, StoreError, StoreFrozen, StoreFull
from edgeq.events import RunStarted
from edgeq.ports.clock import Clock
from edgeq.ports.commands import Command, Cycle, RegisterTypes
from edgeq.ports.store import LockWatch
from edgeq.settings import Settings
from edgeq.store import lock_watches
from edgeq.store.sqlite import SqliteStore
from edgeq.surroundings import ChildDied, ChildRefused, LastChance
from edgeq.testing import FakeClock, RecordingObserver
from edgeq.wiring import SystemClock
from tests.store.conformance.acts import claim, ended, settle

T = TypeVar("T")
# Less than the ten seconds after which a worker looks by itself.
SOON = 6.0


class WatchedStore(SqliteStore):
    """A real store that keeps the cycles it was given, and fails when the test says so."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycles: list[Cycle] = []
        self.fault: Callable[[Cycle], BaseException | None] = lambda _: None

    async def write(self, command: Command[T]) -> T:
        if isinstance(command, Cycle):
            self.cycles.append(command)
            fault = self.fault(command)
            if fault is not None:
                raise fault
        return await super().write(command)

    def claims(self) -> int:
        return sum(cycle.claim is not None for cycle in self.cycles)


class Bench:
    """A worker in a test: its queue, its store, and gates for its handlers."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        self.store = WatchedStore(f"sqlite:///{path}", clock, durable=False)
        self.seen = RecordingObserver()
        self.may_end = asyncio.Event()
        self.begun = asyncio.Semaphore(0)
        self.was_stopped = asyncio.Event()
        self.queue = self._queue(self.store)

    def _queue(self, store: SqliteStore | None) -> Queue:
        return Queue(
            f"sqlite:///{self.path}",
            store=store,
            handlers=self._handlers(),
            clock=self.clock,
            observers=[self.seen] if store is not None else [],
            settings=Settings(synchronous="normal"),
        )

    def _handlers(self) -> list[Any]:
        @handler("echo")
        async def echo(ctx: Context, input: dict[str, Any]) -> Any:
            return input.get("say")

        @handler("limited", max_concurrent=1)
        async def limited(ctx: Context, input: dict[str, Any]) -> None:
            pass

        @handler("setting")
        async def setting(ctx: Context, input: dict[str, Any]) -> Any:
            return ctx.config.get("app.color")

        @handler("patient", max_retries=0)
        async def patient(ctx: Context, input: dict[str, Any]) -> str:
            self.begun.release()
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.was_stopped.set()
                raise
            return "done"

        return [echo, limited, setting, patient]

    @asynccontextmanager
    async def working(self, **limits: Any) -> AsyncIterator[asyncio.Task[RunReport]]:
        """A worker that has begun; it is cancelled afterwards."""
        before = len(self.seen.of(RunStarted))
        task = asyncio.create_task(self.queue.work(**limits))
        await until(lambda: len(self.seen.of(RunStarted)) > before or task.done())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def idle(self) -> None:
        """Change something that is no work, and wait until the worker has looked at it."""
        before = self.store.claims()
        await self.queue.set_config({"app.change": before})
        await until(lambda: self.store.claims() > before)

    async def looks(self, times: int) -> None:
        """Wait until the store has looked so often at what its runs hold."""
        counted = 0

        def lock_until() -> int:
            nonlocal counted
            counted += 1
            return 0

        stop = self.store.keep_locks(LockWatch("nobody", lock_until, lambda _: None))
        await until(lambda: counted >= times)
        stop()


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(SOON):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.001)


async def until_asked(is_so: Callable[[], Any]) -> None:
    async with asyncio.timeout(SOON):
        while True:
            if await is_so():
                return


@pytest.fixture
def frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_watches, "LOOK_SECONDS", 0.02)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """In real time: what a worker does by itself, it does when its time has come."""
    bench = Bench(tmp_path / "queue.db", SystemClock())
    async with bench.queue:
        yield bench


@pytest.fixture
async def still(tmp_path: Path, clock: FakeClock, frequent_looks: None) -> AsyncIterator[Bench]:
    """In time that stands still; the store looks often at what runs hold."""
    bench = Bench(tmp_path / "queue.db", clock)
    async with bench.queue:
        yield bench


@pytest.fixture
async def elsewhere(bench: Bench) -> AsyncIterator[Queue]:
    async with bench._queue(None) as queue:
        yield queue


async def test_a_job_is_run_as_soon_as_it_comes(bench: Bench, elsewhere: Queue) -> None:
    async with bench.working() as work:
        await bench.looks(3)
        for queue in (bench.queue, elsewhere, elsewhere):
            assert await queue.enqueue_and_wait("echo", {"say": "hi"}, timeout=SOON) == "hi"
        assert not work.done()


async def test_many_jobs_are_run_by_one_worker(still: Bench) -> None:
    async with still.working(concurrency=20):
        ids = [
            each.job_id
            for each in await still.queue.enqueue_many("echo", [{"say": n} for n in range(300)])
        ]
        jobs = await asyncio.gather(*(still.queue.wait(job_id, SOON) for job_id in ids))
        assert [job.output for job in jobs] == list(range(300))


async def test_a_job_that_comes_due_is_run_then(bench: Bench) -> None:
    async with bench.working():
        soon = await bench.queue.enqueue("echo", {"say": 1}, delay=0.3)
        assert (await bench.queue.wait(soon.job_id, SOON)).output == 1


async def test_a_job_that_comes_due_beside_a_running_one_is_run_then(bench: Bench) -> None:
    async with bench.working():
        await bench.queue.enqueue("patient")
        soon = await bench.queue.enqueue("echo", {"say": 1}, delay=0.5)
        await bench.begun.acquire()
        assert (await bench.queue.wait(soon.job_id, SOON)).output == 1
        bench.may_end.set()


async def test_a_job_of_a_dead_run_is_run_when_its_lock_expires(bench: Bench) -> None:
    job_id = (await bench.queue.enqueue("echo", {"say": 1})).job_id
    (held,) = (await claim(bench.store, "echo", run="dead", lock_ms=300)).claimed
    async with bench.working():
        job = await bench.queue.wait(job_id, SOON)
    assert held.id == job_id
    assert (job.output, job.losses) == (1, 1)


async def test_a_switched_off_worker_stays_and_goes_on_when_it_is_switched_on(
    still: Bench,
) -> None:
    async with still.working() as work:
        await still.queue.set_config({"worker_enabled": False})
        job_id = (await still.queue.enqueue("echo")).job_id
        await still.idle()
        await still.looks(5)
        paused = await still.queue.get(job_id)
        await still.queue.set_config({"worker_enabled": True})
        job = await still.queue.wait(job_id, SOON)
        is_alive = not work.done()
        (run,) = await still.queue.runs()
    assert (paused.status, job.status, is_alive) == ("pending", "completed", True)
    assert run.ended_at is None


async def test_a_worker_may_begin_switched_off(still: Bench) -> None:
    await still.queue.set_config({"worker_enabled": False})
    job_id = (await still.queue.enqueue("echo")).job_id
    async with still.working():
        await still.idle()
        await still.queue.set_config({"worker_enabled": True})
        assert (await still.queue.wait(job_id, SOON)).status == "completed"


async def test_a_cancelled_worker_puts_its_jobs_back_and_says_that_it_ended(still: Bench) -> None:
    async with still.working() as work:
        job_id = (await still.queue.enqueue("patient")).job_id
        await still.begun.acquire()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    job = await still.queue.get(job_id)
    (run,) = await still.queue.runs()
    assert (job.status, job.retry_count, job.interruptions, job.losses) == ("pending", 0, 0, 0)
    assert still.was_stopped.is_set()
    assert run.kind == "worker"
    assert run.ended_at is not None
    assert run.report is not None
    assert (run.report["stopped"], run.report["claimed"]) == ("signal", 1)


async def test_an_idle_worker_does_not_write_between_its_polls(still: Bench) -> None:
    async with still.working():
        await still.queue.enqueue_and_wait("echo", timeout=SOON)
        await still.looks(5)
        before = len(still.store.cycles)
        await still.looks(40)
        after = len(still.store.cycles)
    assert after - before <= 1


async def test_what_others_do_without_new_work_is_answered_with_one_claim_a_look(
    still: Bench,
) -> None:
    async with still.working():
        await still.looks(5)
        before = still.store.claims()
        await still.idle()
        await still.looks(20)
        assert still.store.claims() - before <= 3


async def test_a_worker_stores_what_it_learned_and_learns_what_changed(
    still: Bench, clock: FakeClock
) -> None:
    async with still.working():
        await still.queue.enqueue_and_wait("echo", timeout=SOON)
        await still.queue.set_config({"app.color": "blue"})
        clock.advance(61)

        async def has_learned() -> bool:
            return bool(await still.queue.enqueue_and_wait("setting", timeout=SOON) == "blue")

        await until_asked(has_learned)
        stats = {each.type: each for each in (await still.queue.stats()).types}
    assert stats["echo"].p50_ms is not None


async def test_what_an_operator_changed_about_a_type_is_learned(
    still: Bench, clock: FakeClock
) -> None:
    async with still.working(lanes=["special"]):
        await still.queue.change_type("echo", lane="special")
        job_id = (await still.queue.enqueue("echo")).job_id
        await still.looks(3)
        not_yet = (await still.queue.get(job_id)).status
        clock.advance(61)
        await still.queue.set_config({"app.change": 1})
        job = await still.queue.wait(job_id, SOON)
    assert (not_yet, job.status) == ("pending", "completed")


async def test_a_worker_is_seen_to_be_alive(still: Bench, clock: FakeClock) -> None:
    async with still.working():
        (run,) = await still.queue.runs()
        clock.advance(25)

        async def was_seen() -> bool:
            (later,) = await still.queue.runs()
            return later.last_seen_at == run.started_at + 25_000

        await until_asked(was_seen)
        assert (run.kind, run.ended_at) == ("worker", None)


async def test_a_type_that_is_resumed_is_worked_on_again(still: Bench) -> None:
    await still.queue.pause_type("echo")
    async with still.working():
        job_id = (await still.queue.enqueue("echo")).job_id
        await still.idle()
        paused = (await still.queue.get(job_id)).status
        await still.queue.resume_type("echo")
        job = await still.queue.wait(job_id, SOON)
    assert (paused, job.status) == ("pending", "completed")


async def test_room_that_another_process_frees_is_used_soon(bench: Bench, elsewhere: Queue) -> None:
    first = (await elsewhere.enqueue("limited")).job_id
    (held,) = (await claim(elsewhere.store, "limited", run="other")).claimed
    async with bench.working():
        second = (await elsewhere.enqueue("limited")).job_id
        await bench.idle()
        waits = (await elsewhere.get(second)).status
        await settle(elsewhere.store, ended(held, Completed()), run="other")
        job = await elsewhere.wait(second, 3)
    assert (held.id, waits, job.status) == (first, "pending", "completed")


@pytest.mark.parametrize("error", [StoreBusy("held"), StoreFull("full"), StoreFrozen("frozen")])
async def test_a_database_that_refuses_for_a_while_costs_no_outcome(
    bench: Bench, error: StoreError
) -> None:
    refusals = 2

    def refuse(cycle: Cycle) -> BaseException | None:
        nonlocal refusals
        if cycle.settled and refusals:
            refusals -= 1
            return error
        return None

    bench.store.fault = refuse
    async with bench.working() as work:
        ids = [e.job_id for e in await bench.queue.enqueue_many("echo", [{"say": 1}] * 5)]
        jobs = await asyncio.gather(*(bench.queue.wait(job_id, SOON) for job_id in ids))
        assert not work.done()
    assert {job.status for job in jobs} == {"completed"}
    assert {job.losses for job in jobs} == {0}
    assert refusals == 0


async def test_a_timeout_is_kept_while_the_database_refuses(bench: Bench) -> None:
    """Nor does anybody believe that a handler keeps the event loop."""
    is_full = True
    bench.store.fault = lambda c: StoreFull("full") if is_full and c.settled else None
    limits = bench.queue.limits(resident=True)
    run = bench.queue.new_run(limits)
    work = asyncio.create_task(run.process())
    slow = (await bench.queue.enqueue("patient", timeout=0.5)).job_id
    await bench.begun.acquire()
    await bench.queue.enqueue("echo")

    async with asyncio.timeout(SOON):
        await bench.was_stopped.wait()
    stuck_since = run.stuck_since()
    is_full = False

    job = await bench.queue.wait(slow, SOON)
    run.stop()
    report = await work
    assert stuck_since is None
    assert (job.status, job.error_class) == ("failed", "timeout")
    assert (report.stopped, report.completed, report.failed) == ("signal", 1, 1)


async def test_a_handler_that_keeps_the_event_loop_is_noticed(bench: Bench) -> None:
    run = bench.queue.new_run(bench.queue.limits(resident=True))
    work = asyncio.create_task(run.process())
    await bench.queue.enqueue("patient", timeout=0.05)
    await bench.begun.acquire()

    # This test keeps it, as a handler would.
    deadline = bench.clock.elapsed() + SOON
    while run.stuck_since() is None and bench.clock.elapsed() < deadline:
        pass
    is_stuck = run.stuck_since() is not None
    held_too_long = run.releasing().overdue

    run.stop()
    await work
    assert is_stuck
    assert len(held_too_long) == 1
    assert run.stuck_since() is None


async def test_a_worker_that_is_asked_to_stop_lets_jobs_end_within_its_grace(
    bench: Bench,
) -> None:
    run = bench.queue.new_run(bench.queue.limits(resident=True, grace=5))
    work = asyncio.create_task(run.process())
    job_id = (await bench.queue.enqueue("patient")).job_id
    await bench.begun.acquire()

    run.stop()
    late = (await bench.queue.enqueue("echo")).job_id
    await bench.looks(2)
    bench.may_end.set()
    report = await work

    assert (report.stopped, report.completed, report.claimed) == ("signal", 1, 1)
    assert (await bench.queue.get(job_id)).status == "completed"
    assert (await bench.queue.get(late)).status == "pending"


async def test_a_worker_without_a_grace_puts_its_jobs_back_at_once(bench: Bench) -> None:
    run = bench.queue.new_run(bench.queue.limits(resident=True, grace=0))
    work = asyncio.create_task(run.process())
    job_id = (await bench.queue.enqueue("patient")).job_id
    await bench.begun.acquire()

    run.stop()
    run.stop()
    async with asyncio.timeout(SOON):
        report = await work

    assert (report.stopped, report.interrupted) == ("signal", 1)
    job = await bench.queue.get(job_id)
    assert (job.status, job.interruptions) == ("pending", 0)


async def test_the_limits_of_a_worker_can_be_stored_and_have_no_budget(still: Bench) -> None:
    await still.queue.set_config({"process.budget": 3, "process.concurrency": 2})
    limits = still.queue.limits(resident=True)
    async with still.working():
        pass
    assert limits.seconds == float("inf")
    with pytest.raises(BadSetting):
        RunLimits(budget=float("inf"))
    with pytest.raises(BadSetting):
        still.queue.limits(resident=True, grace=float("inf"))


async def a_suspect(bench: Bench, job_type: str = "echo") -> str:
    """A job that was lost with a process once."""
    job_id = (await bench.queue.enqueue(job_type)).job_id
    await claim(bench.store, job_type, run="dead", lock_ms=-1)
    await claim(bench.store, "nobody")
    assert (await bench.queue.get(job_id)).losses == 1
    return job_id


class Isolating:
    """Stands for the processes of isolated jobs: it says when and how they end."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[LastChance] = asyncio.Queue()
        self.answers: asyncio.Queue[RunReport | ChildDied | ChildRefused] = asyncio.Queue()
        self.running = 0

    async def __call__(
        self, last_chance: LastChance, seconds: float
    ) -> RunReport | ChildDied | ChildRefused:
        self.running += 1
        self.asked.put_nowait(last_chance)
        try:
            return await self.answers.get()
        finally:
            self.running -= 1


async def test_suspects_of_a_worker_are_isolated_while_other_jobs_go_on(bench: Bench) -> None:
    suspect = await a_suspect(bench)
    isolating = Isolating()
    run = bench.queue.new_run(bench.queue.limits(resident=True), isolate=isolating)
    work = asyncio.create_task(run.process())
    async with asyncio.timeout(SOON):
        last_chance = await isolating.asked.get()

    said = await bench.queue.enqueue_and_wait("echo", {"say": 1}, timeout=SOON)
    still_pending = (await bench.queue.get(suspect)).status
    await claim(bench.store, "echo", run=last_chance.run_id, wants="last_chance", isolates_from=1)
    isolating.answers.put_nowait(ChildDied())
    await until_asked(lambda: _is_lost(bench, suspect))

    run.stop()
    async with asyncio.timeout(SOON):
        isolating.answers.put_nowait(ChildRefused())
        await work
    assert (said, still_pending, last_chance.from_losses) == (1, "pending", 1)


async def _is_lost(bench: Bench, job_id: str) -> bool:
    return (await bench.queue.get(job_id)).losses == 2


async def test_a_worker_that_stops_waits_for_its_isolated_jobs(bench: Bench) -> None:
    await a_suspect(bench)
    isolating = Isolating()
    run = bench.queue.new_run(bench.queue.limits(resident=True), isolate=isolating)
    work = asyncio.create_task(run.process())
    async with asyncio.timeout(SOON):
        last_chance = await isolating.asked.get()

    run.stop()
    await bench.looks(2)
    was_waiting = not work.done()
    isolating.answers.put_nowait(RunReport(run_id=last_chance.run_id, claimed=1, interrupted=1))
    async with asyncio.timeout(SOON):
        report = await work

    assert was_waiting
    assert (report.claimed, report.interrupted) == (1, 1)


async def test_a_worker_that_is_cancelled_ends_its_isolated_jobs(bench: Bench) -> None:
    await a_suspect(bench)
    isolating = Isolating()
    run = bench.queue.new_run(bench.queue.limits(resident=True), isolate=isolating)
    work = asyncio.create_task(run.process())
    async with asyncio.timeout(SOON):
        await isolating.asked.get()

    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work

    assert isolating.running == 0


async def test_a_second_suspect_gets_a_process_beside_the_first(bench: Bench) -> None:
    await a_suspect(bench, "echo")
    await a_suspect(bench, "setting")
    isolating = Isolating()
    run = bench.queue.new_run(bench.queue.limits(resident=True), isolate=isolating)
    work = asyncio.create_task(run.process())
    async with asyncio.timeout(SOON):
        await isolating.asked.get()
        await isolating.asked.get()
    assert isolating.running == 2

    run.stop()
    for _ in range(2):
        isolating.answers.put_nowait(ChildRefused())
    await work


async def test_types_that_others_register_do_not_disturb_a_worker(still: Bench) -> None:
    async with still.working():
        await still.store.write(RegisterTypes(()))
        assert await still.queue.enqueue_and_wait("echo", {"say": 1}, timeout=SOON) == 1

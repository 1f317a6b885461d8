"""Steps in the store: kept under the fence, in order, until somebody forgets them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from edgeq.core.jobs import ClaimedJob, JobStatus
from edgeq.core.outcomes import Completed, Interrupted
from edgeq.core.steps import Step, StepKind
from edgeq.errors import InvalidInput, LockLost, TransactionFailed, WriterHeld
from edgeq.ports.commands import CancelJob, Command, DeleteJob, ReleaseJob, RetryJob
from edgeq.ports.flow_commands import NewStep, RecordStep, RunInTransaction
from edgeq.ports.queries import ListSteps
from edgeq.ports.store import Store
from edgeq.store import lending
from edgeq.testing import FakeClock
from tests.conftest import Backend, JobBuilder, Register
from tests.store.conformance.acts import (
    BOSS,
    BROKEN,
    claim,
    claim_one,
    end,
    get,
    insert,
    position,
)


def new_step(job: ClaimedJob, name: str = "fetch", key: str = "", **more: Any) -> NewStep:
    return NewStep(
        seq=job.seq,
        fence=job.fence,
        job_id=job.id,
        type=job.type,
        tenant_id=job.tenant_id,
        attempt=job.attempt,
        progress=0,
        run_id="run-1",
        name=name,
        key=key,
        **{"result": '"done"', "duration_ms": 12, **more},
    )


async def keep(store: Store, job: ClaimedJob, *names: str) -> None:
    for name in names:
        await store.write(RecordStep(new_step(job, name)))


async def names(store: Store, job_id: str) -> list[str]:
    return [step.name for step in await store.read(ListSteps(job_id))]


def in_transaction(
    job: ClaimedJob, work: Callable[[Connection], str | None], name: str = "book"
) -> RunInTransaction:
    step = new_step(job, name, kind=StepKind.TRANSACTION, result=None)
    return RunInTransaction(step, work, time.monotonic)


def paid(connection: Connection, amount: int = 1) -> str:
    connection.execute(text("INSERT INTO payments VALUES (:amount)"), {"amount": amount})
    return str(amount)


@pytest.fixture
async def job(
    store: Store, new_job: JobBuilder, registered: Register, backend: Backend
) -> ClaimedJob:
    """A running job, and a table of the application's own."""
    await registered(store, "noop")
    backend.sql("CREATE TABLE payments (amount INTEGER CHECK (amount > 0))")
    return await claim_one(store, new_job())


def payments(backend: Backend) -> list[int]:
    return [amount for (amount,) in backend.sql("SELECT amount FROM payments ORDER BY 1")]


async def test_a_step_is_kept_with_its_result_its_attempt_and_its_duration(
    store: Store, job: ClaimedJob, clock: FakeClock
) -> None:
    await store.write(RecordStep(new_step(job, "page", "3", result="[1]")))

    kept = Step(
        name="page",
        key="3",
        kind=StepKind.STEP,
        result="[1]",
        attempt=1,
        run_id="run-1",
        duration_ms=12,
        created_at=clock.now(),
    )
    assert await store.read(ListSteps(job.id)) == (kept,)
    assert (await get(store, job.id)).steps == 1


async def test_steps_are_listed_in_the_order_in_which_they_were_done(
    store: Store, job: ClaimedJob
) -> None:
    await keep(store, job, "c", "a", "b")
    assert await names(store, job.id) == ["c", "a", "b"]


async def test_a_zombie_cannot_keep_a_step(store: Store, job: ClaimedJob, backend: Backend) -> None:
    await store.write(ReleaseJob(job.id, BOSS))
    before = await position(store)

    with pytest.raises(LockLost):
        await store.write(RecordStep(new_step(job)))

    assert await names(store, job.id) == []
    assert (await get(store, job.id)).steps == 0
    assert await position(store) == before
    assert backend.sql("SELECT count(*) FROM background_job_steps") == [(0,)]


async def test_the_next_holder_of_a_job_keeps_its_steps_and_the_last_one_does_not(
    store: Store, job: ClaimedJob
) -> None:
    await keep(store, job, "one")
    await store.write(ReleaseJob(job.id, BOSS))
    (again,) = (await claim(store, run="run-2")).claimed
    await keep(store, again, "two")

    with pytest.raises(LockLost):
        await keep(store, job, "late")

    assert again.steps == 1
    assert await names(store, job.id) == ["one", "two"]


async def test_a_refused_step_takes_nobody_else_of_its_group_with_it(
    store: Store, job: ClaimedJob, new_job: JobBuilder
) -> None:
    other = await claim_one(store, new_job())
    await store.write(ReleaseJob(job.id, BOSS))

    answers = await asyncio.gather(
        *(store.write(RecordStep(new_step(each))) for each in (job, other, job, other)[:3]),
        return_exceptions=True,
    )

    assert [type(answer) for answer in answers] == [LockLost, type(None), LockLost]
    assert await names(store, other.id) == ["fetch"]


async def test_a_name_and_key_are_kept_once(store: Store, job: ClaimedJob) -> None:
    await keep(store, job, "one")
    with pytest.raises(Exception, match="UNIQUE"):
        await keep(store, job, "one")
    assert (await get(store, job.id)).steps == 1


async def test_a_step_forgets_the_interruptions_before_it(store: Store, job: ClaimedJob) -> None:
    assert (await end(store, job, Interrupted(by_budget=True))).interruptions == 1
    (again,) = (await claim(store)).claimed
    await keep(store, again, "one")
    assert (await get(store, job.id)).interruptions == 0
    assert (await end(store, again, Interrupted(by_budget=True))).interruptions == 1


async def test_a_retry_keeps_the_steps(store: Store, job: ClaimedJob) -> None:
    await keep(store, job, "a", "b")
    await end(store, job, BROKEN)

    retried = await store.write(RetryJob(job.id, BOSS))

    assert (retried.status, retried.steps) == (JobStatus.PENDING, 2)
    assert (await claim(store)).claimed[0].steps == 2


async def test_a_retry_from_a_step_forgets_it_and_all_that_came_after(
    store: Store, job: ClaimedJob
) -> None:
    await keep(store, job, "a", "b")
    await store.write(RecordStep(new_step(job, "b", "2")))
    await keep(store, job, "c")
    await end(store, job, BROKEN)

    retried = await store.write(RetryJob(job.id, BOSS, from_step="b"))

    assert retried.steps == 1
    assert await names(store, job.id) == ["a"]


async def test_a_fresh_retry_forgets_all_steps(store: Store, job: ClaimedJob) -> None:
    await keep(store, job, "a", "b")
    await end(store, job, BROKEN)
    assert (await store.write(RetryJob(job.id, BOSS, fresh=True))).steps == 0
    assert await names(store, job.id) == []


async def test_a_retry_from_a_step_that_is_not_there_changes_nothing(
    store: Store, job: ClaimedJob
) -> None:
    await keep(store, job, "a")
    failed = await end(store, job, BROKEN)
    with pytest.raises(InvalidInput, match="no finished step 'z'"):
        await store.write(RetryJob(job.id, BOSS, from_step="z"))
    assert await get(store, job.id) == failed
    assert await names(store, job.id) == ["a"]


async def test_steps_go_with_their_job(
    store: Store, job: ClaimedJob, backend: Backend, new_job: JobBuilder
) -> None:
    other = await claim_one(store, new_job())
    await keep(store, job, "a")
    await keep(store, other, "mine")
    await end(store, job, Completed("1"))

    await store.write(DeleteJob(job.id, BOSS))

    assert backend.sql("SELECT name FROM background_job_steps") == [("mine",)]


async def test_what_a_transaction_writes_is_kept_with_its_step(
    store: Store, job: ClaimedJob, backend: Backend
) -> None:
    answer = await store.write(in_transaction(job, paid))
    assert answer == "1"
    assert payments(backend) == [1]
    (step,) = await store.read(ListSteps(job.id))
    assert (step.name, step.kind, step.result) == ("book", StepKind.TRANSACTION, "1")
    assert step.duration_ms >= 0


async def test_what_a_transaction_raises_comes_back_as_it_was_and_nothing_is_kept(
    store: Store, job: ClaimedJob, backend: Backend
) -> None:
    class Declined(Exception):
        pass

    declined = Declined("no money")

    def fails(connection: Connection) -> str:
        paid(connection)
        raise declined

    with pytest.raises(TransactionFailed) as failed:
        await store.write(in_transaction(job, fails))

    assert failed.value.cause is declined
    assert payments(backend) == []
    assert await names(store, job.id) == []
    assert (await get(store, job.id)).steps == 0


async def test_an_error_of_the_database_comes_back_as_sqlalchemy_says_it(
    store: Store, job: ClaimedJob, backend: Backend
) -> None:
    with pytest.raises(TransactionFailed) as failed:
        await store.write(in_transaction(job, lambda connection: paid(connection, -1)))
    assert isinstance(failed.value.cause, IntegrityError)
    assert payments(backend) == []


@pytest.mark.parametrize("raised", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
async def test_not_even_an_exit_inside_a_transaction_ends_the_writer(
    store: Store, job: ClaimedJob, backend: Backend, raised: BaseException
) -> None:
    def leaves(connection: Connection) -> str:
        paid(connection)
        raise raised

    with pytest.raises(TransactionFailed) as failed:
        await store.write(in_transaction(job, leaves))

    assert failed.value.cause is raised
    await keep(store, job, "after")
    assert payments(backend) == []


async def test_a_zombies_transaction_is_not_even_begun(
    store: Store, job: ClaimedJob, backend: Backend
) -> None:
    called = []

    def work(connection: Connection) -> str:
        called.append(connection)
        return paid(connection)

    await store.write(ReleaseJob(job.id, BOSS))
    with pytest.raises(LockLost):
        await store.write(in_transaction(job, work))
    assert called == []
    assert payments(backend) == []


async def test_a_transaction_is_alone_and_others_go_on_when_it_is_over(
    store: Store, job: ClaimedJob, backend: Backend, new_job: JobBuilder
) -> None:
    """Many writes wait behind it and with it: its failure is felt by none of them."""
    is_inside, may_go_on = threading.Event(), threading.Event()

    def fails(connection: Connection) -> str:
        is_inside.set()
        assert may_go_on.wait(4)
        paid(connection)
        raise ValueError

    failing = asyncio.create_task(store.write(in_transaction(job, fails)))
    await asyncio.to_thread(is_inside.wait, 4)
    new = [new_job() for _ in range(5)]
    others = [asyncio.create_task(insert(store, each)) for each in new]
    second = asyncio.create_task(store.write(in_transaction(job, paid, "second")))
    last = asyncio.create_task(insert(store, new_job()))
    await asyncio.sleep(0)
    may_go_on.set()
    with pytest.raises(TransactionFailed):
        await failing
    await asyncio.gather(*others, second, last)

    assert payments(backend) == [1]
    assert backend.sql("SELECT count(*) FROM background_jobs") == [(7,)]
    # Its commit holds the change of its own job, and nobody else's.
    feed = backend.sql("SELECT changes FROM job_changes WHERE changes LIKE '%progress%'")
    assert len(feed) == 1
    assert feed[0][0].count(job.id) == 1
    assert not any(each.id in feed[0][0] for each in new)


@pytest.mark.parametrize(
    "ends_it",
    [
        lambda connection: connection.commit(),
        lambda connection: connection.rollback(),
        lambda connection: connection.execute(text("COMMIT")),
        lambda connection: connection.execute(text("ROLLBACK")),
        lambda connection: connection.exec_driver_sql("END"),
        lambda connection: connection.connection.driver_connection.commit(),
        lambda connection: connection.connection.driver_connection.rollback(),
        lambda connection: connection.connection.driver_connection.executescript("SELECT 1"),
    ],
    ids=["commit", "rollback", "COMMIT", "ROLLBACK", "END", "driver", "driver back", "script"],
)
@pytest.mark.parametrize("swallows", [False, True], ids=["raises", "swallows"])
async def test_a_transaction_cannot_be_ended_from_inside(
    store: Store,
    job: ClaimedJob,
    backend: Backend,
    ends_it: Callable[[Any], Any],
    *,
    swallows: bool,
) -> None:
    def meddles(connection: Connection) -> str:
        paid(connection)
        try:
            ends_it(connection)
        except Exception:
            if not swallows:
                raise
        return "1"

    if swallows:
        await store.write(in_transaction(job, meddles))
    else:
        with pytest.raises(TransactionFailed) as failed:
            await store.write(in_transaction(job, meddles))
        assert isinstance(failed.value.cause, WriterHeld)
        assert "commits with the step" in str(failed.value.cause)
    # Either both are there or neither is.
    assert len(payments(backend)) == len(await names(store, job.id)) == (1 if swallows else 0)
    await keep(store, job, "after")


async def test_a_statement_that_rolls_back_everything_lets_nothing_follow_it(
    store: Store, job: ClaimedJob, backend: Backend
) -> None:
    def meddles(connection: Connection) -> str:
        paid(connection)
        with contextlib.suppress(IntegrityError):
            connection.execute(text("INSERT OR ROLLBACK INTO payments VALUES (-1)"))
        connection.execute(text("INSERT INTO payments VALUES (3)"))
        return "1"

    with pytest.raises(TransactionFailed) as failed:
        await store.write(in_transaction(job, meddles))

    assert isinstance(failed.value.cause, WriterHeld)
    assert payments(backend) == []
    assert await names(store, job.id) == []
    await store.write(in_transaction(job, paid))


async def test_a_part_of_a_transaction_can_be_undone(
    store: Store, job: ClaimedJob, backend: Backend
) -> None:
    def tries(connection: Connection) -> str:
        paid(connection, 1)
        try:
            with connection.begin_nested():
                paid(connection, 2)
                paid(connection, -1)
        except IntegrityError:
            paid(connection, 3)
        return "null"

    await store.write(in_transaction(job, tries))
    assert payments(backend) == [1, 3]


async def test_a_queue_that_is_used_inside_a_transaction_says_so_instead_of_waiting(
    store: Store, job: ClaimedJob, backend: Backend, new_job: JobBuilder
) -> None:
    def calls_back(connection: Connection) -> str:
        paid(connection)
        command: Command[Any] = CancelJob(job.id, BOSS)
        store.write_blocking(command)
        return "1"

    with pytest.raises(TransactionFailed) as failed:
        await store.write(in_transaction(job, calls_back))
    assert isinstance(failed.value.cause, WriterHeld)
    assert payments(backend) == []


def _endless_sql(connection: Connection) -> str:
    connection.execute(
        text(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
        )
    )
    return "1"


def _endless_python(connection: Connection) -> str:
    while True:
        connection.execute(text("SELECT 1"))


def _deaf_python(connection: Connection) -> str:
    while True:
        try:
            _endless_python(connection)
        except Exception:  # noqa: BLE001, S112 - what careless code does
            continue


def _late_but_done(connection: Connection) -> str:
    began = time.monotonic()
    try:
        while time.monotonic() - began < 10:
            pass
    except BaseException:  # noqa: BLE001 - worse still
        return "1"
    return "1"


@pytest.mark.parametrize(
    "endless",
    [_endless_sql, _endless_python, _deaf_python, _late_but_done],
    ids=["sql", "python", "deaf", "late"],
)
async def test_a_transaction_is_stopped_after_its_time_and_nothing_of_it_is_kept(
    store: Store,
    job: ClaimedJob,
    backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
    endless: Callable[[Connection], str],
) -> None:
    assert lending.LENT_SECONDS == 5.0
    monkeypatch.setattr(lending, "LENT_SECONDS", 0.1)

    def slow(connection: Connection) -> str:
        paid(connection)
        return endless(connection)

    with pytest.raises(TransactionFailed) as failed:
        await store.write(in_transaction(job, slow))

    assert isinstance(failed.value.cause, TimeoutError)
    assert "more than 0.1 s" in str(failed.value.cause)
    assert payments(backend) == []
    # The writer is as good as new: also a long statement of its own is not stopped.
    monkeypatch.setattr(lending, "LENT_SECONDS", 5.0)
    counted = text(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300000) "
        "SELECT count(*) FROM n"
    )
    work = in_transaction(job, lambda connection: str(connection.execute(counted).scalar()))
    assert await store.write(work) == "300000"


async def test_transactions_of_one_name_and_key_happen_once(
    store: Store, job: ClaimedJob, backend: Backend
) -> None:
    await store.write(in_transaction(job, paid))
    with pytest.raises(Exception, match="UNIQUE"):
        await store.write(in_transaction(job, paid))
    assert payments(backend) == [1]
    await store.write(replace(in_transaction(job, paid), step=new_step(job, "book", "2")))
    assert payments(backend) == [1, 1]

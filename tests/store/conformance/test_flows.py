"""Jobs that wait for others: how each end is felt by those behind it, in the same commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from edgeq.core.job_types import TypePolicy
from edgeq.core.jobs import ENDED, Job, JobStatus, NewJob, OnFailure
from edgeq.core.outcomes import Completed, NeedsReview
from edgeq.errors import IllegalMove, InvalidInput
from edgeq.ports.commands import (
    ApproveJob,
    CancelJob,
    DeleteJob,
    Duplicate,
    FailJob,
    Inserted,
    InsertJobs,
    RejectJob,
    RetryJob,
    UpdateJob,
)
from edgeq.ports.queries import GetJobs, ListBlockers
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import Backend, JobBuilder, Register
from tests.store.conformance.acts import (
    BOSS,
    BROKEN,
    LOCK_MS,
    bring_to,
    claim,
    claim_one,
    end,
    ended,
    get,
    insert,
    settle,
)

S = JobStatus
WORK = TypePolicy(name="work", handler_name="work")


@pytest.fixture(autouse=True)
async def _types(store: Store, registered: Register) -> None:
    """What comes first is a `noop`; what waits is `work`, so that claims tell them apart."""
    await registered(store, "noop", WORK)


def behind(new_job: JobBuilder, *before: NewJob | str, **fields: object) -> NewJob:
    ids = tuple(each if isinstance(each, str) else each.id for each in before)
    return new_job("work", after=ids, **fields)


async def completes(store: Store, clock: FakeClock, first: NewJob) -> None:
    (job,) = (await claim(store)).claimed
    await end(store, job, Completed('{"n":1}'))


async def completes_with_a_child(store: Store, clock: FakeClock, first: NewJob) -> None:
    """What has children is not settled in bulk."""
    (job,) = (await claim(store)).claimed
    child = NewJob(
        id="019b76da-a800-7000-8000-000000000001", type="noop", created_at=0, scheduled_for=0
    )
    await settle(store, ended(job, Completed("1"), children=(child,)))


async def is_approved(store: Store, clock: FakeClock, first: NewJob) -> None:
    (job,) = (await claim(store)).claimed
    await end(store, job, NeedsReview("look", "1"))
    await store.write(ApproveJob(first.id, BOSS))


async def fails(store: Store, clock: FakeClock, first: NewJob) -> None:
    (job,) = (await claim(store)).claimed
    await end(store, job, BROKEN)


async def is_failed(store: Store, clock: FakeClock, first: NewJob) -> None:
    await store.write(FailJob(first.id, BOSS, retry=False, unit=0.5))


async def is_cancelled(store: Store, clock: FakeClock, first: NewJob) -> None:
    assert await store.write(CancelJob(first.id, BOSS)) == "cancelled"


async def is_cancelled_while_running(store: Store, clock: FakeClock, first: NewJob) -> None:
    (job,) = (await claim(store)).claimed
    await store.write(CancelJob(first.id, BOSS))
    await end(store, job, BROKEN)


async def expires(store: Store, clock: FakeClock, first: NewJob) -> None:
    clock.advance(3600)
    assert (await claim(store)).claimed == ()


async def is_deleted(store: Store, clock: FakeClock, first: NewJob) -> None:
    await store.write(DeleteJob(first.id, BOSS))


async def is_rejected(store: Store, clock: FakeClock, first: NewJob) -> None:
    (job,) = (await claim(store)).claimed
    await end(store, job, NeedsReview("look"))
    await store.write(RejectJob(first.id, BOSS))


async def is_lost_three_times(store: Store, clock: FakeClock, first: NewJob) -> None:
    for _ in range(4):
        await claim(store, wants="suspect")
        clock.advance(LOCK_MS / 1000 + 1)


GOOD = [completes, completes_with_a_child, is_approved]
BAD = [
    fails,
    is_failed,
    is_cancelled,
    is_cancelled_while_running,
    expires,
    is_deleted,
    is_rejected,
    is_lost_three_times,
]
Way = Callable[[Store, FakeClock, NewJob], Awaitable[None]]


def first_job(new_job: JobBuilder, clock: FakeClock, way: Way) -> NewJob:
    return new_job(expires_at=clock.now() + 1000 if way is expires else None)


@pytest.mark.parametrize("way", GOOD)
async def test_when_the_first_completes_the_second_is_due(
    store: Store, clock: FakeClock, new_job: JobBuilder, way: Way
) -> None:
    first = first_job(new_job, clock, way)
    second = behind(new_job, first)
    answers = await store.write(InsertJobs((first, second)))
    waiting = await get(store, second.id)
    assert answers == (Inserted(first.id), Inserted(second.id, "blocked"))
    assert (waiting.status, waiting.blocked_by) == (S.BLOCKED, 1)
    assert await store.read(ListBlockers(second.id)) == (first.id,)

    await way(store, clock, first)

    free = await get(store, second.id)
    assert (free.status, free.blocked_by) == (S.PENDING, 0)
    assert await store.read(ListBlockers(second.id)) == ()
    assert [job.id for job in (await claim(store, "work")).claimed] == [second.id]


@pytest.mark.parametrize("on_failure", [None, *OnFailure])
@pytest.mark.parametrize("way", BAD)
async def test_when_the_first_ends_badly_the_second_does_as_it_was_told(
    store: Store,
    clock: FakeClock,
    new_job: JobBuilder,
    backend: Backend,
    way: Way,
    on_failure: OnFailure | None,
) -> None:
    first = first_job(new_job, clock, way)
    second = behind(new_job, first, on_failure=on_failure, idempotency_key="k")
    third = behind(new_job, second)
    await insert(store, first, second, third)

    await way(store, clock, first)

    after, last = await get(store, second.id), await get(store, third.id)
    letters = backend.sql("SELECT count(*) FROM dead_letters WHERE job_id = ?", second.id)
    assert await store.read(ListBlockers(second.id)) == ()
    assert after.blocked_by == 0
    match on_failure:
        case OnFailure.RUN:
            assert (after.status, last.status, letters) == (S.PENDING, S.BLOCKED, [(0,)])
        case OnFailure.CANCEL:
            assert (after.status, last.status, letters) == (S.CANCELLED, S.FAILED, [(0,)])
        case OnFailure.FAIL | None:
            assert (after.status, after.error_class) == (S.FAILED, "dependency_failed")
            assert first.id in (after.error_message or "")
            assert (last.status, letters) == (S.FAILED, [(1,)])
    if after.status in ENDED:
        # Its key is free, as that of every job that did not complete.
        (again,) = await store.write(InsertJobs((new_job("work", idempotency_key="k"),)))
        assert isinstance(again, Inserted)


async def test_a_blocked_job_is_not_claimed(
    store: Store, new_job: JobBuilder, clock: FakeClock
) -> None:
    first = new_job(scheduled_for=clock.now() + 10_000)
    await insert(store, first, behind(new_job, first))
    clock.advance(5)
    assert (await claim(store, "work")).claimed == ()


async def test_a_job_waits_for_all_that_it_names(store: Store, new_job: JobBuilder) -> None:
    firsts = [new_job() for _ in range(3)]
    last = behind(new_job, *firsts, firsts[0])
    await insert(store, *firsts, last)
    counts = [(await get(store, last.id)).blocked_by]
    for job in (await claim(store)).claimed:
        await end(store, job, Completed("1"))
        counts.append((await get(store, last.id)).blocked_by)
    assert counts == [3, 2, 1, 0]
    assert (await get(store, last.id)).status is S.PENDING


async def test_all_that_complete_in_one_commit_are_counted(
    store: Store, new_job: JobBuilder
) -> None:
    firsts = [new_job() for _ in range(5)]
    last = behind(new_job, *firsts)
    await insert(store, *firsts, last)
    claimed = (await claim(store)).claimed
    await settle(store, *(ended(job, Completed("1")) for job in claimed))
    assert (await get(store, last.id)).status is S.PENDING


async def test_one_that_fails_among_several_ends_the_job_once(
    store: Store, new_job: JobBuilder, backend: Backend
) -> None:
    firsts = [new_job() for _ in range(3)]
    last = behind(new_job, *firsts)
    await insert(store, *firsts, last)
    claimed = (await claim(store)).claimed
    await settle(store, *(ended(job, BROKEN) for job in claimed))
    assert (await get(store, last.id)).status is S.FAILED
    letters = "SELECT count(*) FROM dead_letters WHERE job_id = ?"
    assert backend.sql(letters, last.id) == [(1,)]
    assert backend.sql("SELECT count(*) FROM job_dependencies") == [(0,)]


async def test_a_job_behind_what_has_completed_already_is_due_at_once(
    store: Store, new_job: JobBuilder
) -> None:
    first = await bring_to(store, new_job(), S.COMPLETED)
    (answer,) = await store.write(InsertJobs((behind(new_job, first.id),)))
    assert isinstance(answer, Inserted)
    assert answer.status == "pending"


@pytest.mark.parametrize(
    ("on_failure", "status"),
    [(None, S.FAILED), (OnFailure.CANCEL, S.CANCELLED), (OnFailure.RUN, S.PENDING)],
)
async def test_a_job_behind_what_has_failed_already_does_as_it_is_told(
    store: Store, new_job: JobBuilder, on_failure: OnFailure | None, status: JobStatus
) -> None:
    first = await bring_to(store, new_job(), S.FAILED)
    second = behind(new_job, first.id, on_failure=on_failure)
    third = behind(new_job, second)
    answers = await store.write(InsertJobs((second, third)))
    assert isinstance(answers[0], Inserted)
    assert answers[0].status == status == (await get(store, second.id)).status
    assert (await get(store, third.id)).status is (S.BLOCKED if on_failure == "run" else S.FAILED)


async def test_what_is_partly_there_and_failed_ends_the_job_also_while_others_run(
    store: Store, new_job: JobBuilder, backend: Backend
) -> None:
    failed = await bring_to(store, new_job(), S.FAILED)
    running = await claim_one(store, new_job())
    (answer,) = await store.write(InsertJobs((behind(new_job, failed.id, running.id),)))
    assert isinstance(answer, Inserted)
    assert answer.status == "failed"
    assert backend.sql("SELECT count(*) FROM job_dependencies") == [(0,)]


async def test_an_unknown_id_is_refused_and_nothing_is_stored(
    store: Store, new_job: JobBuilder, backend: Backend
) -> None:
    first = new_job()
    nobody = new_job()
    with pytest.raises(InvalidInput, match=r"after\[1\]"):
        await store.write(InsertJobs((first, behind(new_job, first, nobody.id))))
    assert backend.sql("SELECT count(*) FROM background_jobs") == [(0,)]


async def test_a_job_cannot_wait_for_itself_or_for_one_that_comes_after_it(
    store: Store, new_job: JobBuilder
) -> None:
    """So there are no circles."""
    one, two = new_job(), new_job()
    with pytest.raises(InvalidInput):
        await store.write(InsertJobs((behind(new_job, one.id, id=one.id),)))
    with pytest.raises(InvalidInput):
        await store.write(InsertJobs((behind(new_job, two), two)))


@pytest.mark.parametrize("on_failure", list(OnFailure))
async def test_a_chain_of_a_thousand_links_ends_in_one_commit(
    store: Store, new_job: JobBuilder, backend: Backend, on_failure: OnFailure
) -> None:
    chain = [new_job()]
    for _ in range(1000):
        chain.append(behind(new_job, chain[-1], on_failure=on_failure))
    await insert(store, *chain)
    (first,) = (await claim(store)).claimed

    await end(store, first, BROKEN)

    counts = dict(backend.sql("SELECT status, count(*) FROM background_jobs GROUP BY 1"))
    assert (
        counts
        == {
            OnFailure.FAIL: {"failed": 1001},
            OnFailure.CANCEL: {"failed": 1, "cancelled": 1000},
            OnFailure.RUN: {"failed": 1, "pending": 1, "blocked": 999},
        }[on_failure]
    )


async def test_a_thousand_jobs_that_wait_for_one_are_freed_with_it(
    store: Store, new_job: JobBuilder, backend: Backend
) -> None:
    first = new_job()
    await insert(store, first, *(behind(new_job, first) for _ in range(1000)))
    await end(store, (await claim(store)).claimed[0], Completed("1"))
    assert backend.sql("SELECT count(*) FROM background_jobs WHERE status = 'pending'") == [(1000,)]


async def test_the_output_of_the_first_is_the_input_of_the_second(
    store: Store, new_job: JobBuilder, clock: FakeClock
) -> None:
    first = new_job()
    second = behind(new_job, first, input_from=first.id)
    await insert(store, first, second)
    await completes(store, clock, first)
    assert (await get(store, second.id)).input == {"n": 1}
    assert (await claim(store, "work")).claimed[0].input_data == '{"n":1}'


async def test_the_output_that_a_reviewer_approved_is_the_input_of_the_second(
    store: Store, new_job: JobBuilder
) -> None:
    first = new_job()
    second = behind(new_job, first, input_from=first.id)
    await insert(store, first, second)
    await end(store, (await claim(store)).claimed[0], NeedsReview("look", '{"draft":1}'))
    assert (await get(store, second.id)).status is S.BLOCKED
    await store.write(ApproveJob(first.id, BOSS, '{"final":2}'))
    assert (await get(store, second.id)).input == {"final": 2}


async def test_the_output_of_a_job_that_completed_before_is_taken_at_once(
    store: Store, new_job: JobBuilder
) -> None:
    first = await bring_to(store, new_job(), S.COMPLETED)
    second = behind(new_job, first.id, input_from=first.id)
    await insert(store, second)
    assert (await get(store, second.id)).input == {"done": True}


async def test_a_link_that_is_there_already_by_its_key_is_followed_as_it_is(
    store: Store, new_job: JobBuilder
) -> None:
    there = new_job(idempotency_key="k")
    await insert(store, there)
    again = new_job(idempotency_key="k")
    last = behind(new_job, again, input_from=again.id)
    answers = await store.write(InsertJobs((again, last)))
    assert isinstance(answers[0], Duplicate)
    assert await store.read(ListBlockers(last.id)) == (there.id,)
    await end(store, (await claim(store)).claimed[0], Completed('{"of":"the first"}'))
    assert (await get(store, last.id)).input == {"of": "the first"}


async def test_a_waiting_job_keeps_its_own_time(
    store: Store, new_job: JobBuilder, clock: FakeClock
) -> None:
    first = new_job()
    later = behind(new_job, first, scheduled_for=clock.now() + 60_000)
    await insert(store, first, later)
    await completes(store, clock, first)
    free = await get(store, later.id)
    assert (free.status, free.scheduled_for) == (S.PENDING, clock.now() + 60_000)


async def test_a_retried_job_no_longer_holds_back_those_that_it_failed(
    store: Store, new_job: JobBuilder, clock: FakeClock
) -> None:
    first = new_job()
    second = behind(new_job, first)
    await insert(store, first, second)
    await fails(store, clock, first)
    await store.write(RetryJob(first.id, BOSS))
    assert (await get(store, second.id)).status is S.FAILED
    assert (await store.write(RetryJob(second.id, BOSS))).status is S.PENDING


async def test_a_retried_link_waits_again_for_the_job_whose_output_it_needs(
    store: Store, new_job: JobBuilder, clock: FakeClock
) -> None:
    first = new_job()
    second = behind(new_job, first, input_from=first.id)
    await insert(store, first, second)
    await fails(store, clock, first)

    with pytest.raises(IllegalMove, match="retry that one first"):
        await store.write(RetryJob(second.id, BOSS))
    await store.write(RetryJob(first.id, BOSS))
    waiting = await store.write(RetryJob(second.id, BOSS))
    await completes(store, clock, first)

    assert (waiting.status, waiting.blocked_by) == (S.BLOCKED, 1)
    free = await get(store, second.id)
    assert (free.status, free.input) == (S.PENDING, {"n": 1})


async def test_a_cancelled_job_waits_for_nobody(
    store: Store, new_job: JobBuilder, clock: FakeClock, backend: Backend
) -> None:
    first = new_job()
    second = behind(new_job, first)
    await insert(store, first, second)
    await store.write(CancelJob(second.id, BOSS))
    assert await store.read(ListBlockers(second.id)) == ()
    assert (await get(store, second.id)).blocked_by == 0
    await completes(store, clock, first)
    assert (await get(store, second.id)).status is S.CANCELLED


async def test_a_blocked_job_can_be_changed_failed_and_deleted(
    store: Store, new_job: JobBuilder, backend: Backend
) -> None:
    first = new_job()
    changed, failed, gone = (behind(new_job, first) for _ in range(3))
    await insert(store, first, changed, failed, gone)
    job = await store.write(UpdateJob(changed.id, BOSS, 17))
    assert (job.status, job.priority) == (S.BLOCKED, 17)
    assert (await store.write(FailJob(failed.id, BOSS, retry=False, unit=0.5))).status is S.FAILED
    await store.write(DeleteJob(gone.id, BOSS))
    assert backend.sql("SELECT job_id FROM job_dependencies") == [(changed.id,)]


async def family(store: Store, new_job: JobBuilder) -> list[NewJob]:
    parent = new_job()
    child = new_job(parent_job_id=parent.id)
    grandchild = behind(new_job, child, parent_job_id=child.id)
    stranger = new_job()
    await insert(store, parent, child, grandchild, stranger)
    return [parent, child, grandchild, stranger]


async def statuses(store: Store, jobs: list[NewJob]) -> list[JobStatus]:
    found = await store.read(GetJobs(tuple(job.id for job in jobs)))
    return [found[job.id].status for job in jobs]


async def test_a_cancelled_parent_leaves_its_children_alone(
    store: Store, new_job: JobBuilder
) -> None:
    jobs = await family(store, new_job)
    await store.write(CancelJob(jobs[0].id, BOSS))
    assert await statuses(store, jobs) == [S.CANCELLED, S.PENDING, S.BLOCKED, S.PENDING]


async def test_descendants_are_cancelled_with_their_parent_if_one_says_so(
    store: Store, new_job: JobBuilder
) -> None:
    jobs = await family(store, new_job)
    assert await store.write(CancelJob(jobs[0].id, BOSS, descendants=True)) == "cancelled"
    found: list[Job] = [await get(store, job.id) for job in jobs]
    assert [job.status for job in found] == [*(S.CANCELLED,) * 3, S.PENDING]


async def test_descendants_of_an_ended_parent_are_cancelled_and_running_ones_asked(
    store: Store, new_job: JobBuilder
) -> None:
    parent = await bring_to(store, new_job(), S.COMPLETED)
    running = await claim_one(store, new_job(parent_job_id=parent.id))
    waiting = new_job(parent_job_id=running.id)
    await insert(store, waiting)
    assert await store.write(CancelJob(parent.id, BOSS, descendants=True)) == "ended"
    assert (await get(store, running.id)).cancel_requested_at is not None
    assert (await get(store, waiting.id)).status is S.CANCELLED

"""The change feed: one row for each commit, in order, kept for an hour."""

from __future__ import annotations

import asyncio

import pytest

from edgeq.core.jobs import JobStatus
from edgeq.core.outcomes import Completed
from edgeq.errors import UnknownType
from edgeq.ports.commands import (
    CancelJob,
    Cycle,
    DeleteJob,
    ExtendLocks,
    InsertJobs,
    Progress,
    RetryJob,
)
from edgeq.ports.queries import Change, GetChanges
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import JobBuilder, Register
from tests.store.conformance.acts import (
    BOSS,
    BROKEN,
    FLAKY,
    bring_to,
    claim,
    claim_one,
    end,
    insert,
    position,
)

HOUR_SECONDS = 3600


async def commit_often(store: Store, times: int = 130) -> None:
    """Commits that change no job; the feed is trimmed with some of them."""
    for _ in range(times):
        await store.write(ExtendLocks("nobody", store.now()))


async def test_a_new_feed_is_empty(store: Store) -> None:
    feed = await store.read(GetChanges(after=0))

    assert (feed.position, feed.changes, feed.reset) == (0, (), False)


async def test_the_life_of_a_job_is_told_in_order(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    claimed = await claim_one(store, new_job(tenant_id="t"))
    clock.advance(1)
    await end(store, claimed, FLAKY)
    clock.advance(60)
    (claimed,) = (await claim(store)).claimed
    await end(store, claimed, BROKEN)
    await store.write(RetryJob(claimed.id, BOSS))
    (claimed,) = (await claim(store)).claimed
    await store.write(CancelJob(claimed.id, BOSS))
    await end(store, claimed, Completed())
    await store.write(DeleteJob(claimed.id, BOSS))

    feed = await store.read(GetChanges(after=0))

    told = [(change.event, change.status, change.attempt) for _, _, change in feed.changes]
    assert told == [
        ("queued", "pending", 1),
        ("processing", "processing", 1),
        ("retrying", "pending", 2),
        ("processing", "processing", 2),
        ("failed", "failed", 2),
        ("queued", "pending", 1),
        ("processing", "processing", 1),
        ("cancelling", "processing", 1),
        ("completed", "completed", 1),
        ("deleted", "completed", 1),
    ]
    assert {(c.job_id, c.type, c.tenant_id) for _, _, c in feed.changes} == {
        (claimed.id, "noop", "t")
    }
    positions = [at for at, _, _ in feed.changes]
    assert positions == sorted(set(positions))
    assert feed.position == positions[-1]
    assert feed.changes[0][1] == clock.now() - 61_000


async def test_all_changes_of_one_commit_share_one_position(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    before = await position(store)
    jobs = tuple(new_job() for _ in range(5))

    await store.write(InsertJobs(jobs))

    feed = await store.read(GetChanges(after=before))
    assert [change.job_id for _, _, change in feed.changes] == [job.id for job in jobs]
    assert {at for at, _, _ in feed.changes} == {before + 1}


async def test_a_reader_continues_where_it_was(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    ids = [(await insert(store, new_job()))[0] for _ in range(7)]
    seen: list[Change] = []
    after = 0

    while found := (feed := await store.read(GetChanges(after, limit=3))).changes:
        seen += [change for _, _, change in found]
        after = feed.position

    assert [change.job_id for change in seen] == ids
    assert feed.position == after


async def test_what_was_refused_or_changed_no_job_is_not_told(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    before = await position(store)

    good = new_job()
    writes = [
        store.write(InsertJobs((good,))),
        store.write(InsertJobs((new_job(), new_job("nobody-knows")))),
        store.write(InsertJobs((new_job("nobody-knows"),))),
        store.write(ExtendLocks("nobody", 1)),
        claim(store, "nobody-knows"),
    ]
    answers = await asyncio.gather(*writes, return_exceptions=True)

    feed = await store.read(GetChanges(after=before))
    assert [type(answer) for answer in answers[1:3]] == [UnknownType, UnknownType]
    assert [change.job_id for _, _, change in feed.changes] == [good.id]


async def test_an_expired_job_and_a_lost_one_are_told(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    lost = await claim_one(store, new_job())
    stale = await bring_to(store, new_job(expires_at=clock.now() + 1), JobStatus.PENDING)
    before = await position(store)
    clock.advance(61)

    await claim(store)

    feed = await store.read(GetChanges(after=before))
    assert {(c.job_id, c.event, c.status) for _, _, c in feed.changes} == {
        (lost.id, "stalled", "pending"),
        (stale.id, "cancelled", "cancelled"),
    }


@pytest.mark.parametrize("later", [0, 1])
async def test_a_reader_that_is_too_far_behind_is_told_to_start_over(
    store: Store,
    new_job: JobBuilder,
    registered: Register,
    clock: FakeClock,
    later: int,
) -> None:
    await registered(store, "noop")
    await insert(store, new_job())
    behind = await position(store)
    for _ in range(3):
        await insert(store, new_job())
    kept_up = await position(store)
    clock.advance(HOUR_SECONDS + 1)
    await commit_often(store)
    for _ in range(later):
        await insert(store, new_job())

    late = await store.read(GetChanges(after=behind))
    current = await store.read(GetChanges(after=kept_up))

    assert late.reset
    assert late.position == kept_up + later
    assert (current.reset, len(current.changes)) == (False, later)


async def test_changes_of_the_last_hour_are_kept(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    await insert(store, new_job())
    clock.advance(HOUR_SECONDS - 1)

    await commit_often(store)

    feed = await store.read(GetChanges(after=0))
    assert (len(feed.changes), feed.reset) == (1, False)


async def test_a_position_is_never_given_out_twice(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    await insert(store, new_job())
    before = await position(store)
    clock.advance(HOUR_SECONDS + 1)
    await commit_often(store)

    await insert(store, new_job())

    assert await position(store) == before + 1


async def test_progress_is_told_with_its_percentage(
    store: Store, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> None:
    await registered(store, "noop")
    claimed = await claim_one(store, new_job())
    shown = Progress(claimed.seq, claimed.fence, 40, "half way")
    await store.write(Cycle("run", clock.now() + 1_000, progress=(shown,)))

    feed = await store.read(GetChanges(after=0))

    last = feed.changes[-1][2]
    assert (last.event, last.status, last.progress) == ("progress", "processing", 40)

"""Lists of jobs: every filter against a filter in Python, every page exactly once."""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import Any

import pytest

from edgeq.core.backoff import ErrorClass
from edgeq.core.job_types import TypePolicy
from edgeq.core.jobs import Job, JobStatus, NewJob
from edgeq.core.outcomes import Completed, Failed, NeedsReview, Outcome
from edgeq.errors import InvalidInput
from edgeq.ports.commands import CancelJob
from edgeq.ports.queries import GetJobs, JobFilter, ListJobs
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import Backend, JobBuilder, Register
from tests.store.conformance.acts import BOSS, claim, end, insert

TYPES = (
    TypePolicy(name="mail", category="out", lane="fast"),
    TypePolicy(name="hook", category="out"),
    TypePolicy(name="scan", category="in"),
    TypePolicy(name="plain"),
)
JOBS = 200
SPREAD_MS = 1000


def some_job(new_job: JobBuilder, chance: random.Random, start: int) -> NewJob:
    """A job of which every field that a list can filter by is often shared and often absent."""

    def maybe(*values: str) -> str | None:
        return chance.choice((None, *values))

    created_at = start + chance.randrange(SPREAD_MS)
    return new_job(
        chance.choice(TYPES).name,
        created_at=created_at,
        scheduled_for=start,
        priority=chance.randint(1, 20),
        tenant_id=maybe("t-1", "t-2"),
        correlation_id=maybe("c-1", "c-2"),
        parent_job_id=maybe("p-1"),
        reference_type=maybe("order", "user"),
        reference_id=maybe("1", "2"),
        idempotency_key=maybe(f"k-{chance.randrange(10**6)}"),
    )


@pytest.fixture
async def jobs(
    store: Store, backend: Backend, new_job: JobBuilder, registered: Register, clock: FakeClock
) -> list[Job]:
    """Some hundred jobs in all states, as they are stored."""
    chance = random.Random(11)
    await registered(store, *TYPES)
    ids = await insert(store, *(some_job(new_job, chance, clock.now()) for _ in range(JOBS)))
    outcomes: list[Outcome] = [
        Completed("1"),
        NeedsReview("look"),
        Failed(ErrorClass.NON_RETRYABLE, "no"),
        Failed(ErrorClass.REJECTED, "no"),
        Failed(ErrorClass.TRANSIENT, "again"),
    ]
    for job in (await claim(store, *(t.name for t in TYPES), slots=120)).claimed:
        if chance.random() < 0.9:
            await end(store, job, chance.choice(outcomes))
    for job_id in ids[::9]:
        await store.write(CancelJob(job_id, BOSS))
    # Nothing that the port can do puts a job into a batch yet.
    backend.sql("UPDATE background_jobs SET batch_id = 'b-' || seq % 3 WHERE seq % 2 = 0")
    return list((await store.read(GetJobs(ids))).values())


def by(name: str, value: Any) -> JobFilter:
    return JobFilter(**{name: value})


def matches(job: Job, wanted: JobFilter) -> bool:
    for name, value in asdict(wanted).items():
        if value is None:
            continue
        if name == "created_after":
            fits = job.created_at >= value
        elif name == "created_before":
            fits = job.created_at < value
        else:
            fits = getattr(job, name) == value
        if not fits:
            return False
    return True


async def walk(store: Store, wanted: JobFilter, limit: int) -> list[Job]:
    """All pages of a list, one after the other."""
    found: list[Job] = []
    cursor = None
    while True:
        page = await store.read(ListJobs(wanted, limit, cursor))
        assert len(page.items) <= limit
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found
        assert len(page.items) == limit


def values_of(jobs: list[Job], name: str) -> list[Any]:
    """What a filter may be asked for: values that occur, some that do not fit, and ids."""
    if name in {"created_after", "created_before"}:
        first = min(job.created_at for job in jobs)
        return [first, first + SPREAD_MS // 3, first + SPREAD_MS // 2, first + SPREAD_MS]
    if name == "status":
        return list(JobStatus)
    occurring = {getattr(job, name) for job in jobs} - {None}
    return [*sorted(occurring)[:6], "nothing-like-that"]


@pytest.mark.parametrize("name", JobFilter.__dataclass_fields__)
async def test_each_filter_alone_finds_exactly_what_fits(
    store: Store, jobs: list[Job], name: str
) -> None:
    newest_first = sorted(jobs, key=lambda job: job.id, reverse=True)

    for value in values_of(jobs, name):
        wanted = by(name, value)
        expected = [job for job in newest_first if matches(job, wanted)]
        assert await walk(store, wanted, 17) == expected, wanted


async def test_any_combination_of_filters_finds_exactly_what_fits(
    store: Store, jobs: list[Job]
) -> None:
    chance = random.Random(5)
    newest_first = sorted(jobs, key=lambda job: job.id, reverse=True)
    names = list(JobFilter.__dataclass_fields__)
    found_any = 0

    for _ in range(150):
        # Taken from one job, so that most combinations have something to find.
        one = chance.choice(jobs)
        chosen = {
            name: chance.choice(values_of(jobs, name))
            if name.startswith("created") or chance.random() < 0.1
            else getattr(one, name)
            for name in chance.sample(names, chance.randint(2, 4))
        }
        wanted = JobFilter(**chosen)
        expected = [job for job in newest_first if matches(job, wanted)]
        found_any += bool(expected)
        assert await walk(store, wanted, 13) == expected, wanted

    assert found_any > 50


async def test_a_key_and_a_correlation_are_both_asked_for(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    await registered(store, "noop")
    (job_id, _) = await insert(
        store,
        new_job(idempotency_key="k", correlation_id="c-1"),
        new_job(idempotency_key="k", tenant_id="t", correlation_id="c-2"),
    )

    page = await store.read(ListJobs(JobFilter(idempotency_key="k", correlation_id="c-1")))

    assert [job.id for job in page.items] == [job_id]


@pytest.mark.parametrize("name", ["idempotency_key", "correlation_id"])
async def test_an_absent_key_or_correlation_is_found_by_the_jobs_id(
    store: Store, jobs: list[Job], name: str
) -> None:
    without = next(job for job in jobs if getattr(job, f"stored_{name}") is None)
    having = next(job for job in jobs if getattr(job, f"stored_{name}") is not None)

    found = await walk(store, by(name, without.id), 10)
    nothing = await walk(store, by(name, having.id), 10)

    assert (found, nothing) == ([without], [])


@pytest.mark.parametrize("limit", [1, 50, 199, 200, 201])
async def test_pages_of_any_size_cover_everything_once(
    store: Store, jobs: list[Job], limit: int
) -> None:
    found = await walk(store, JobFilter(), limit)

    assert found == sorted(jobs, key=lambda job: job.id, reverse=True)


async def test_jobs_that_come_meanwhile_do_not_disturb_the_pages(
    store: Store, jobs: list[Job], new_job: JobBuilder, clock: FakeClock
) -> None:
    chance = random.Random(3)
    clock.advance(60)
    found: list[str] = []
    cursor = None

    while True:
        page = await store.read(ListJobs(JobFilter(), 20, cursor))
        found += [job.id for job in page.items]
        await insert(store, *(some_job(new_job, chance, clock.now()) for _ in range(5)))
        cursor = page.next_cursor
        if cursor is None:
            break

    assert found == sorted((job.id for job in jobs), reverse=True)


async def test_a_list_works_with_any_number_of_types(
    store: Store, new_job: JobBuilder, registered: Register
) -> None:
    names = [f"type-{n}" for n in range(100)]
    await registered(store, *names)
    ids = await insert(store, *(new_job(name) for name in names))

    by_lane = await walk(store, JobFilter(lane="general"), 200)
    by_status = await walk(store, JobFilter(status=JobStatus.PENDING), 200)

    assert [job.id for job in by_lane] == sorted(ids, reverse=True)
    assert by_status == by_lane


async def test_a_type_that_nobody_knows_has_an_empty_list(store: Store) -> None:
    page = await store.read(ListJobs(JobFilter(type="nobody")))

    assert (page.items, page.next_cursor) == ((), None)


@pytest.mark.parametrize("cursor", ["", "1", "~", "'; DROP TABLE background_jobs"])
async def test_a_cursor_that_no_list_gave_out_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(InvalidInput):
        await store.read(ListJobs(JobFilter(), cursor=cursor))

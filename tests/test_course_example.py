"""The example of docs/examples/course: a pipeline of jobs, end to end."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from docs.examples.course import course_generation as course
from edgeq import Job, Queue, RunReport
from edgeq.testing import FakeClock, drain, queue_for_test

MODULE = course.__name__
PARTS = [
    "outline",
    "module_lessons:sql-1",
    "module_exam:sql-1",
    "module_lessons:sql-2",
    "module_exam:sql-2",
    "final_exam",
    "mastery_analysis",
]


@dataclass
class FakeModel(course.SampleModel):
    """Notes who called when, and fails as it is told."""

    clock: FakeClock
    seconds: float = 0.5
    breaks: dict[str, Exception] = field(default_factory=dict)
    calls: list[tuple[float, str]] = field(default_factory=list)

    async def outline(self, topic: str) -> course.Outline:
        self._work("outline")
        return await super().outline(topic)

    async def write(self, what: course.Part, about: list[str]) -> str:
        self._work(what)
        return await super().write(what, about)

    def _work(self, what: str) -> None:
        self.calls.append((self.clock.elapsed(), what))
        self.clock.advance(self.seconds)
        if what in self.breaks:
            raise self.breaks[what]

    def count(self) -> Counter[str]:
        return Counter(what for _, what in self.calls)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def model(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    model = FakeModel(clock)

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    pace = course.Pace(elapsed=clock.elapsed, sleep=sleep)
    monkeypatch.setattr(course, "open_studio", lambda: course.Studio(model, pace))
    return model


@asynccontextmanager
async def opened(clock: FakeClock, path: Path) -> AsyncIterator[Queue]:
    database = f"sqlite:///{path / 'queue.db'}"
    async with queue_for_test(MODULE, clock=clock, database=database) as queue:
        yield queue


async def order(queue: Queue, course_id: str) -> str:
    key = f"outline:{course_id}"
    about = {"course_id": course_id, "topic": course_id}
    return (await queue.enqueue("course_generation", about, idempotency_key=key)).job_id


async def parts(queue: Queue) -> list[Job]:
    return sorted((await queue.list(limit=200)).items, key=lambda job: job.id)


def written(path: Path, course_id: str = "sql") -> list[str]:
    with closing(sqlite3.connect(path / "queue.db")) as connection:
        rows = connection.execute(
            "SELECT part FROM course_parts WHERE course_id = ? ORDER BY rowid", (course_id,)
        )
        return [part for (part,) in rows]


async def test_a_course_is_written_part_by_part(
    clock: FakeClock, model: FakeModel, tmp_path: Path
) -> None:
    async with opened(clock, tmp_path) as queue:
        first = await order(queue, "sql")
        assert await order(queue, "sql") == first
        await drain(queue, clock=clock, budget=100)
        jobs = await parts(queue)
    assert [job.status for job in jobs] == ["completed"] * 7
    assert [job.idempotency_key for job in jobs] == [
        "outline:sql",
        *PARTS[1:5],
        "final_exam:sql",
        "mastery_analysis:sql",
    ]
    assert {job.correlation_id for job in jobs} == {first}
    # Four lessons to a module, three of them in one call: two calls and two records for each.
    assert written(tmp_path) == [
        *[PARTS[1]] * 2,
        PARTS[2],
        *[PARTS[3]] * 2,
        PARTS[4],
        *PARTS[5:],
    ]
    assert model.count() == {
        "outline": 1,
        "module_lessons": 4,
        "module_exam": 2,
        "final_exam": 1,
        "mastery_analysis": 1,
    }


async def test_calls_are_two_seconds_apart_also_those_of_different_courses(
    clock: FakeClock, model: FakeModel, tmp_path: Path
) -> None:
    async with opened(clock, tmp_path) as queue:
        for course_id in ("sql", "git", "css"):
            await order(queue, course_id)
        await drain(queue, clock=clock, budget=1000)
        assert {job.status for job in await parts(queue)} == {"completed"}
    times = [at for at, _ in model.calls]
    assert len(times) == 27
    # A call is made, and noted, a moment after its turn has come.
    assert min(later - earlier for earlier, later in pairwise(times)) > 1.99


async def test_at_most_two_courses_advance_at_once(
    clock: FakeClock, model: FakeModel, tmp_path: Path
) -> None:
    async with opened(clock, tmp_path) as queue:
        running: list[int] = []
        work = model._work

        def watched(what: str) -> None:
            with closing(sqlite3.connect(tmp_path / "queue.db")) as connection:
                sql = "SELECT count(*) FROM background_jobs WHERE status = 'processing'"
                running.append(connection.execute(sql).fetchone()[0])
            work(what)

        model._work = watched  # type: ignore[method-assign]
        for course_id in ("sql", "git", "css", "bash"):
            await order(queue, course_id)
        await drain(queue, clock=clock, budget=1000)
    assert max(running) == 2


async def test_an_exam_that_exhausts_its_retries_lets_the_course_go_on(
    clock: FakeClock, model: FakeModel, tmp_path: Path
) -> None:
    model.breaks["module_exam"] = ConnectionError("the model is away")
    async with opened(clock, tmp_path) as queue:
        await order(queue, "sql")
        await drain(queue, clock=clock, budget=100)
        jobs = {job.idempotency_key: job for job in await parts(queue)}
        exam = jobs["module_exam:sql-1"]
        assert (exam.status, exam.attempt, exam.error_class) == ("failed", 3, "transient")
        others = {job.status for key, job in jobs.items() if "module_exam" not in key}
        assert others == {"completed"}
        assert "module_exam:sql-1" not in written(tmp_path)
        # Who repairs the model can have the exam after all.
        model.breaks.clear()
        await queue.retry(exam.id)
        await drain(queue, clock=clock, budget=100)
    assert written(tmp_path)[-1] == "module_exam:sql-1"


async def test_an_unrecoverable_outline_ends_the_course(
    clock: FakeClock, model: FakeModel, tmp_path: Path
) -> None:
    model.breaks["outline"] = course.NoCredit()
    async with opened(clock, tmp_path) as queue:
        await order(queue, "sql")
        await drain(queue, clock=clock, budget=100)
        (outline,) = await parts(queue)
    assert (outline.status, outline.attempt) == ("failed", 1)
    assert (outline.error_class, outline.error_message) == ("non_retryable", "insufficient credits")
    assert model.count() == {"outline": 1}


async def test_an_unrecoverable_part_stops_those_behind_it(
    clock: FakeClock, model: FakeModel, tmp_path: Path
) -> None:
    model.breaks["module_exam"] = course.NoCredit()
    async with opened(clock, tmp_path) as queue:
        await order(queue, "sql")
        await order(queue, "git")
        await drain(queue, clock=clock, budget=100)
        jobs = [job for job in await parts(queue) if job.idempotency_key.endswith(("sql", "sql-1"))]
    assert [job.idempotency_key for job in jobs if job.status == "failed"] == ["module_exam:sql-1"]
    skipped = [job for job in jobs if isinstance(job.output, dict) and "skipped" in job.output]
    assert [job.idempotency_key for job in skipped] == ["final_exam:sql", "mastery_analysis:sql"]
    assert model.count()["final_exam"] == 0


async def test_a_course_is_written_over_several_short_runs_without_a_call_too_many(
    clock: FakeClock, model: FakeModel, tmp_path: Path
) -> None:
    reports: list[RunReport] = []
    async with opened(clock, tmp_path) as queue:
        await order(queue, "sql")
        while len(reports) < 20:
            began = clock.elapsed()
            reports.append(await queue.process_jobs(budget=5, grace=1))
            assert clock.elapsed() - began <= 7
            if reports[-1].remaining == 0 and reports[-1].next_due_at is None:
                break
            clock.advance(60)
        jobs = await parts(queue)
    assert {job.status for job in jobs} == {"completed"}
    assert len(reports) >= 3
    assert sum(model.count().values()) == 9
    assert {job.retry_count for job in jobs} == {0}

"""A course written by a language model, part by part, over as many runs as it takes.

    outline -> for each module: lessons (in batches), exam -> final exam -> mastery analysis

Try it: `edgeq enqueue course_generation '{"course_id": "sql", "topic": "SQL"}'`, then
`edgeq process`, both with `--handlers docs/examples/course`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec
from sqlalchemy import Connection, text

from edgeq import Context, Fail, Skip, handler

LESSONS_IN_ONE_CALL = 3
SECONDS_BETWEEN_CALLS = 2.0

Part = Literal["outline", "module_lessons", "module_exam", "final_exam", "mastery_analysis"]


class Module(msgspec.Struct, frozen=True):
    id: str
    lessons: list[str]


class Outline(msgspec.Struct, frozen=True):
    modules: list[Module]


class NoCredit(Exception):
    """What no retry can help: whoever pays has to act."""


class LanguageModel(Protocol):
    async def outline(self, topic: str) -> Outline: ...

    async def write(self, what: Part, about: list[str]) -> str: ...


@dataclass
class Pace:
    """Keeps calls apart, within this process."""

    seconds: float = SECONDS_BETWEEN_CALLS
    elapsed: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _next: float = 0.0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def wait(self) -> None:
        async with self._turn:
            await self.sleep(max(0.0, self._next - self.elapsed()))
            self._next = self.elapsed() + self.seconds


@dataclass
class Studio:
    """What all jobs of a run share: `ctx.state`."""

    model: LanguageModel
    pace: Pace = field(default_factory=Pace)

    async def outline(self, topic: str) -> Outline:
        await self.pace.wait()
        return await self.model.outline(topic)

    async def write(self, what: Part, about: list[str]) -> str:
        await self.pace.wait()
        return await self.model.write(what, about)


class SampleModel:
    """Stands for the client of a real one."""

    async def outline(self, topic: str) -> Outline:
        titles = [f"{topic}, lesson {n}" for n in range(1, 5)]
        return Outline([Module(f"{topic}-{n}", titles) for n in (1, 2)])

    async def write(self, what: Part, about: list[str]) -> str:
        return f"{what} on {', '.join(about)}"


def open_studio() -> Studio:
    return Studio(SampleModel())


@asynccontextmanager
async def lifespan() -> AsyncIterator[Studio]:
    yield open_studio()


class CourseInput(msgspec.Struct, forbid_unknown_fields=True):
    course_id: str
    topic: str = ""
    part: Part = "outline"
    module: Module | None = None


# One type for all parts: so `max_concurrent` is the number of courses that advance at once,
# because the parts of one course come one after the other.
@handler("course_generation", max_concurrent=2, max_retries=2, retry_delay=5, timeout=120)
async def course_generation(ctx: Context, input: CourseInput) -> Any:
    """Write one part of a course; the outline knows which others there are, and enqueues them."""
    if await ctx.transaction("look", is_stopped, input.course_id):
        return Skip("the course was stopped")
    try:
        return await _write(ctx, input)
    except NoCredit as refused:
        # An unrecoverable part stops the course; one that only exhausts its retries does not,
        # because the next part is enqueued with on_failure="run".
        await ctx.transaction("stop", stop, input.course_id)
        raise Fail("insufficient credits") from refused


async def _write(ctx: Context, input: CourseInput) -> Any:
    studio: Studio = ctx.state
    match input.part:
        case "outline":
            outline = await ctx.step("outline", studio.outline, input.topic)
            await _enqueue_parts(ctx, input.course_id, outline)
            return outline
        case "module_lessons" if input.module is not None:
            titles = input.module.lessons
            for n in range(0, len(titles), LESSONS_IN_ONE_CALL):
                batch = titles[n : n + LESSONS_IN_ONE_CALL]
                content = await ctx.step("lessons", studio.write, input.part, batch, key=n)
                await ctx.transaction("keep", keep, input, content, key=n)
        case "module_exam" if input.module is not None:
            content = await ctx.step("exam", studio.write, input.part, input.module.lessons)
            await ctx.transaction("keep", keep, input, content)
        case "final_exam" | "mastery_analysis":
            written = await ctx.transaction("parts", parts_of, input.course_id)
            content = await ctx.step(input.part, studio.write, input.part, written)
            await ctx.transaction("keep", keep, input, content)
        case _:
            raise Fail(f"{input.part} needs a module")
    return {"part": input.part, "module": input.module and input.module.id}


async def _enqueue_parts(ctx: Context, course_id: str, outline: Outline) -> None:
    """Enqueue all other parts, one behind the other; they exist once the outline is completed."""
    parts = [
        (f"{part}:{module.id}", CourseInput(course_id, part=part, module=module))
        for module in outline.modules
        for part in _PARTS_OF_A_MODULE
    ]
    parts += [(f"{part}:{course_id}", CourseInput(course_id, part=part)) for part in _LAST_PARTS]
    before = ctx.job.id
    for key, part_input in parts:
        before = await ctx.enqueue(
            course_generation,
            part_input,
            idempotency_key=key,
            after=[before],
            on_failure="run",
            reference_type="course",
            reference_id=course_id,
        )


_PARTS_OF_A_MODULE: tuple[Part, ...] = ("module_lessons", "module_exam")
_LAST_PARTS: tuple[Part, ...] = ("final_exam", "mastery_analysis")


# The application's own tables, in the queue's file: what is written there is committed with the
# step that says so, and therefore exactly once.
_TABLES = (
    "CREATE TABLE IF NOT EXISTS course_parts (course_id TEXT, part TEXT, content TEXT)",
    "CREATE TABLE IF NOT EXISTS stopped_courses (course_id TEXT PRIMARY KEY)",
)


def is_stopped(connection: Connection, course_id: str) -> bool:
    for table in _TABLES:
        connection.execute(text(table))
    found = connection.execute(
        text("SELECT 1 FROM stopped_courses WHERE course_id = :id"), {"id": course_id}
    )
    return found.first() is not None


def stop(connection: Connection, course_id: str) -> None:
    connection.execute(text("INSERT INTO stopped_courses VALUES (:id)"), {"id": course_id})


def keep(connection: Connection, input: CourseInput, content: str) -> None:
    name = input.part if input.module is None else f"{input.part}:{input.module.id}"
    connection.execute(
        text("INSERT INTO course_parts VALUES (:id, :part, :content)"),
        {"id": input.course_id, "part": name, "content": content},
    )


def parts_of(connection: Connection, course_id: str) -> list[str]:
    found = connection.execute(
        text("SELECT DISTINCT part FROM course_parts WHERE course_id = :id ORDER BY rowid"),
        {"id": course_id},
    )
    return list(found.scalars())

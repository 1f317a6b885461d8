"""Steps and flows on the command line."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edgeq import Queue
from tests.cli.command_line import JOB_FIELDS, MISSING, CommandLine

HANDLERS = """
from pathlib import Path
from typing import Any

from edgeq import Context, handler


def mark(name: str) -> dict[str, str]:
    with Path("marks").open("a") as file:
        file.write(name)
    return {"name": name}


@handler("stepwise", max_retries=0)
async def stepwise(ctx: Context, input: dict[str, Any]) -> None:
    for name in "abc":
        await ctx.step(name, mark, name, key=1 if name == "b" else None)
    if input.get("sleep"):
        await ctx.sleep(3600)
    if input.get("fail"):
        raise RuntimeError("after all of them")
"""


@pytest.fixture(autouse=True)
def handlers(edgeq: CommandLine) -> None:
    (edgeq.handlers / "stepwise.py").write_text(HANDLERS)


def stepped(edgeq: CommandLine, input: str) -> str:
    job_id = edgeq.enqueue("stepwise", input)
    edgeq.process()
    return job_id


def marks(edgeq: CommandLine) -> str:
    return (edgeq.folder / "marks").read_text()


def chained(edgeq: CommandLine) -> list[str]:
    async def chain() -> list[str]:
        async with Queue(f"sqlite:///{edgeq.path}", handlers=edgeq.handlers) as queue:
            links: Any = [("anything", {}), ("anything", {})]
            return [job.job_id for job in await queue.chain(links)]

    return asyncio.run(chain())


class TestShow:
    def test_has_a_table_of_steps(self, edgeq: CommandLine) -> None:
        out = edgeq("jobs", "show", stepped(edgeq, '{"sleep": true}')).out

        table = out.partition("\nSteps\n")[2].splitlines()
        assert table[0].split() == ["STEP", "KEY", "KIND", "ATTEMPT", "TOOK", "DONE"]
        rows = [line.split()[:4] for line in table[1:5]]
        assert rows == [
            ["a", "-", "step", "1"],
            ["b", "1", "step", "1"],
            ["c", "-", "step", "1"],
            ["sleep", "1", "sleep", "1"],
        ]

    def test_has_steps_in_json(self, edgeq: CommandLine) -> None:
        document = edgeq("jobs", "show", stepped(edgeq, "{}"), "--json").json

        assert tuple(document) == (*JOB_FIELDS, "steps", "attempts", "logs")
        assert document["waiting_for"] is None
        step = document["steps"][1]
        assert tuple(step) == (
            *("name", "key", "kind", "result", "duration_ms", "attempt", "run_id", "created_at"),
        )
        assert (step["name"], step["key"], step["kind"]) == ("b", "1", "step")
        assert (step["result"], step["attempt"]) == ({"name": "b"}, 1)

    def test_says_in_about_how_many_runs_a_job_finishes(self, edgeq: CommandLine) -> None:
        stepped(edgeq, "{}")

        out = edgeq("jobs", "show", stepped(edgeq, '{"sleep": true}')).out

        assert "in about 1 run\n" in out

    def test_says_what_a_job_waits_for(self, edgeq: CommandLine) -> None:
        first, second = chained(edgeq)

        shown = edgeq("jobs", "show", second)
        document = edgeq("jobs", "show", second, "--json").json

        (line,) = (line for line in shown.out.splitlines() if line.startswith("waits for"))
        assert line.split()[-1] == first
        assert (document["status"], document["waiting_for"]) == ("blocked", [first])

    def test_of_no_job_is_a_failure(self, edgeq: CommandLine) -> None:
        edgeq.enqueue("anything")
        assert edgeq("jobs", "show", MISSING).code == 1


class TestRetry:
    @pytest.mark.parametrize(
        ("words", "again"), [((), ""), (("--from", "b"), "bc"), (("--fresh",), "abc")]
    )
    def test_keeps_steps_unless_it_is_told_otherwise(
        self, edgeq: CommandLine, words: tuple[str, ...], again: str
    ) -> None:
        job_id = stepped(edgeq, '{"fail": true}')

        assert edgeq("jobs", "retry", job_id, *words).code == 0
        edgeq.process()

        assert marks(edgeq) == f"abc{again}"

    def test_from_a_step_that_is_not_there_is_bad_input(self, edgeq: CommandLine) -> None:
        job_id = stepped(edgeq, '{"fail": true}')

        ended = edgeq("jobs", "retry", job_id, "--from", "z")

        assert ended.code == 2
        assert "'z'" in ended.err

    def test_from_a_step_and_afresh_is_bad_input(self, edgeq: CommandLine) -> None:
        job_id = stepped(edgeq, '{"fail": true}')

        assert edgeq("jobs", "retry", job_id, "--from", "b", "--fresh").code == 2


class TestCancel:
    def test_takes_the_descendants_along_if_it_is_told_to(self, edgeq: CommandLine) -> None:
        parent, child, grandchild = (edgeq.enqueue("anything") for _ in range(3))
        for younger, older in ((child, parent), (grandchild, child)):
            edgeq.sql("UPDATE background_jobs SET parent_job_id = ? WHERE id = ?", older, younger)

        ended = edgeq("jobs", "cancel", parent, "--descendants", "--json")

        assert ended.json == {"job_id": parent, "result": "cancelled"}
        assert {job["status"] for job in edgeq.jobs()} == {"cancelled"}

"""The `edgeq` command in this process, in a folder of its own with a database and handlers."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from edgeq import Queue, RunReport
from edgeq.cli.root import root

HANDLERS = '''
from typing import Any

import msgspec

from edgeq import Context, Fail, Review, handler


class EchoInput(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    times: int = 1


class EchoOutput(msgspec.Struct):
    said: str


@handler("echo", category="sample", lane="fast", stages=["say"])
async def echo(ctx: Context, input: EchoInput) -> EchoOutput:
    """Say a text again."""
    await ctx.log("said it", times=input.times)
    return EchoOutput(input.text * input.times)


@handler("anything", allow_fields=["ssn"])
async def anything(ctx: Context, input: dict[str, Any]) -> None:
    pass


@handler("small", input_max_bytes=40)
async def small(ctx: Context, input: dict[str, Any]) -> None:
    pass


@handler("guarded", guard=lambda input: "no credit" if input.get("poor") else None)
async def guarded(ctx: Context, input: dict[str, Any]) -> None:
    pass


@handler("doubtful")
async def doubtful(ctx: Context, input: dict[str, Any]) -> EchoOutput:
    raise Review("is that so?", output=EchoOutput("maybe"))


@handler("hopeless")
async def hopeless(ctx: Context, input: dict[str, Any]) -> None:
    raise Fail("it cannot be done")
'''

# The fields of a job, in the order of the documentation.
JOB_FIELDS = (
    *("id", "type", "category", "status", "priority", "progress", "current_stage", "input"),
    *("output", "error", "attempt", "retry_count", "max_retries", "interruptions", "created_at"),
    *("scheduled_for", "started_at", "completed_at", "updated_at", "tenant_id", "correlation_id"),
    *("reference_type", "reference_id", "parent_job_id", "batch_id", "idempotency_key"),
    *("review_reason", "waiting_for"),
)
MISSING = "01900000-0000-7000-8000-000000000000"


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


class CommandLine:
    """Runs commands, and reaches behind them where a test needs more than they can do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "edgeq.db"
        self.handlers = folder / "handlers"
        self.handlers.mkdir()
        (self.handlers / "samples.py").write_text(HANDLERS)

    def __call__(self, *words: str, stdin: str | bytes | None = None) -> Ended:
        # Its watchdog ends the process that it is in, which has to be its own.
        assert words[:1] != ("process",), "use run()"
        ended = CliRunner().invoke(root, words, input=stdin)
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        return Ended(ended.exit_code, ended.stdout, ended.stderr)

    def run(self, *words: str) -> Ended:
        """A command as a process of its own."""
        ended = subprocess.run(
            [sys.executable, "-m", "edgeq", *words], capture_output=True, text=True, check=False
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def enqueue(self, *words: str) -> str:
        """The id of a new job."""
        ended = self("enqueue", *words, "--json")
        assert ended.code == 0, ended.err
        job_id: str = ended.json["job_id"]
        return job_id

    def jobs(self) -> list[Any]:
        items: list[Any] = self("jobs", "list", "--json").json["items"]
        return items

    def process(self) -> RunReport:
        async def run() -> RunReport:
            async with Queue(f"sqlite:///{self.path}", handlers=self.handlers) as queue:
                return await queue.process_jobs(budget=5)

        return asyncio.run(run())

    def sql(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(statement, parameters).fetchall()

    def failed(self) -> str:
        return self._processed("hopeless")

    def under_review(self) -> str:
        return self._processed("doubtful")

    def running(self) -> str:
        """The id of a job that some process seems to be working on."""
        job_id = self.enqueue("anything")
        self.sql(
            "UPDATE background_jobs SET status = 'processing', locked_by = 'r', locked_at = 1,"
            " lock_expires_at = 9999999999999, fence = fence + 1 WHERE id = ?",
            job_id,
        )
        return job_id

    def _processed(self, type_name: str) -> str:
        job_id = self.enqueue(type_name)
        self.process()
        return job_id

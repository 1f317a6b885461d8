"""An idle tick answers with the standard library alone; it must never disagree with the store."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edgeq import Context, Queue, RunReport, handler
from edgeq.handler_files import fingerprint_of
from edgeq.settings import Settings
from edgeq.store import idle, migrate
from edgeq.testing import FakeClock

HANDLER = """
from edgeq import Context, handler

@handler("echo")
async def echo(ctx: Context, input: dict) -> dict:
    return input
"""


@handler("a")
async def a(ctx: Context, input: dict[str, Any]) -> None:
    return None


@handler("b")
async def b(ctx: Context, input: dict[str, Any]) -> None:
    return None


def _sql(path: Path, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement, parameters).fetchall()


@pytest.mark.parametrize("seed", range(25))
async def test_it_says_idle_exactly_when_a_run_would_find_nothing(
    tmp_path: Path, clock: FakeClock, seed: int
) -> None:
    chosen = random.Random(seed)
    path = tmp_path / "queue.db"
    settings = Settings(synchronous="normal")
    async with Queue(f"sqlite:///{path}", handlers=[a, b], clock=clock, settings=settings) as queue:
        for _ in range(chosen.randrange(4)):
            await queue.enqueue(
                chosen.choice("ab"),
                {},
                priority=chosen.randint(1, 20),
                scheduled_for=clock.now() + chosen.choice([-5, 0, 1, 60_000]),
            )
        if chosen.random() < 0.3:
            await queue.pause_type("a")
        if chosen.random() < 0.2:
            await queue.set_config({"worker_enabled": False})
        _sql(path, "UPDATE background_jobs SET losses = 1 WHERE seq % 3 = ?", chosen.randrange(4))
        _sql(
            path,
            "UPDATE background_jobs SET status = 'processing', locked_by = 'x',"
            " lock_expires_at = ? WHERE seq % 4 = ?",
            clock.now() + chosen.choice([-1, 0, 5_000, 999_999]),
            chosen.randrange(5),
        )
        found = idle.look(path, None, clock.now())
        report = await queue.process_jobs(budget=5)
    has_nothing = (report.claimed, report.reclaimed, report.remaining) == (0, 0, 0)
    if found is None:
        # Being careful is allowed: locks that have expired while the switch is off, or that reach
        # too far, are left to a real run to look at.
        locked = _sql(path, "SELECT 1 FROM background_jobs WHERE status = 'processing'")
        assert not has_nothing or locked
    else:
        assert has_nothing
        assert (report.stopped == "disabled") is not found.is_enabled
        assert report.next_due_at == found.next_due_at


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "handlers").mkdir()
    (tmp_path / "handlers" / "echo.py").write_text(HANDLER)
    return tmp_path


def _process() -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-m", "edgeq", "process", "--json", "--budget", "5"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    report: dict[str, Any] = json.loads(ran.stdout)
    return report


def test_an_idle_report_has_the_fields_of_every_report(project: Path) -> None:
    real = _process()
    quick = _process()
    assert real["run_id"] != "idle"
    assert quick["run_id"] == "idle"
    assert set(quick) == set(real) == set(RunReport.__struct_fields__)


def test_idle_ticks_share_one_row_however_they_were_answered(project: Path) -> None:
    for _ in range(3):
        _process()
    rows = _sql(project / "edgeq.db", "SELECT id, ticks FROM worker_runs")
    assert rows == [("idle", 3)]


def test_a_new_handler_is_registered_by_the_next_tick_though_nothing_is_due(
    project: Path,
) -> None:
    _process()
    (project / "handlers" / "more.py").write_text(HANDLER.replace("echo", "more"))
    assert _process()["run_id"] != "idle"
    assert _process()["run_id"] == "idle"
    names = _sql(project / "edgeq.db", "SELECT name FROM background_job_types ORDER BY name")
    assert names == [("echo",), ("more",)]


def test_a_database_that_is_not_as_expected_is_left_to_the_engine(
    project: Path, clock: FakeClock
) -> None:
    path = project / "edgeq.db"
    assert idle.look(path, None, clock.now()) is None
    _process()
    source = idle.Source(str(project / "handlers"), fingerprint_of(project / "handlers"))
    assert idle.look(path, source, clock.now()) == idle.Idle(True, None)  # noqa: FBT003
    assert idle.look(path, idle.Source("elsewhere", "x"), clock.now()) is None
    _sql(path, "UPDATE queue_guard SET mode = 'frozen'")
    assert idle.look(path, source, clock.now()) is None
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    assert idle.look(path, source, clock.now()) is None


def test_the_revision_it_knows_is_the_newest() -> None:
    assert idle.KNOWN_REVISION == migrate.HEAD


@pytest.mark.process
def test_an_idle_tick_imports_nothing_heavy(project: Path) -> None:
    _process()
    heavy = ("sqlalchemy", "msgspec", "asyncio", "alembic", "aiosqlite", "jsonschema")
    script = (
        "import sys\n"
        "from edgeq.cli import main\n"
        "sys.argv = ['edgeq', 'process']\n"
        "try:\n    main()\nfinally:\n"
        f"    print([name for name in {heavy} if name in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"

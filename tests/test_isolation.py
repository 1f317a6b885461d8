"""A job on its last chance runs in a process of its own: its death tells poison from bad luck."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process

HANDLERS = """
import asyncio, os
from pathlib import Path
from edgeq import Context, handler

@handler("poison")
async def poison(ctx: Context, input: dict) -> None:
    os._exit(7)

@handler("innocent")
async def innocent(ctx: Context, input: dict) -> str:
    Path("running").write_text(f"{os.getpid()} {os.getppid()}")
    while Path("hold").exists():
        await asyncio.sleep(0.02)
    return "done"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "handlers").mkdir()
    (tmp_path / "handlers" / "jobs.py").write_text(HANDLERS)
    return tmp_path


def _edgeq(project: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "edgeq", "--db", f"sqlite:///{project}/queue.db", *words]


def _run(project: Path, *words: str) -> dict[str, Any]:
    ran = subprocess.run(
        _edgeq(project, *words, "--json"), cwd=project, capture_output=True, text=True, check=True
    )
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def _on_its_last_chance(project: Path, job_type: str) -> str:
    job_id: str = _run(project, "enqueue", job_type, "{}")["job_id"]
    _sql(project, "UPDATE background_jobs SET losses = 2")
    return job_id


def _sql(project: Path, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(project / "queue.db", isolation_level=None)) as connection:
        return connection.execute(statement, parameters).fetchall()


def _wait_until(is_so: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_poison_ends_its_own_process_and_fails_while_the_run_goes_on(project: Path) -> None:
    job_id = _on_its_last_chance(project, "poison")
    _run(project, "enqueue", "innocent", "{}")
    report = _run(project, "process", "--budget", "10", "--grace", "1")
    job = _run(project, "jobs", "show", job_id)
    assert (report["failed"], report["completed"], report["claimed"]) == (1, 1, 2)
    assert (job["status"], job["error"]["class"]) == ("failed", "worker_lost")


@pytest.mark.parametrize("code", [0, 2])
def test_poison_is_blamed_whatever_its_exit_code_says(project: Path, code: int) -> None:
    (project / "handlers" / "jobs.py").write_text(HANDLERS.replace("_exit(7)", f"_exit({code})"))
    job_id = _on_its_last_chance(project, "poison")
    report = _run(project, "process", "--budget", "10", "--grace", "1")
    assert report["failed"] == 1
    assert _run(project, "jobs", "show", job_id)["error"]["class"] == "worker_lost"


def test_an_innocent_job_completes_in_its_own_process(project: Path) -> None:
    job_id = _on_its_last_chance(project, "innocent")
    report = _run(project, "process", "--budget", "10", "--grace", "1")
    job = _run(project, "jobs", "show", job_id)
    kinds = {kind for (kind,) in _sql(project, "SELECT kind FROM worker_runs")}
    assert (report["completed"], report["claimed"]) == (1, 1)
    assert (job["status"], job["output"]) == ("completed", "done")
    assert kinds == {"process", "isolated"}


def test_killing_the_run_does_not_blame_the_job_and_leaves_no_process(project: Path) -> None:
    job_id = _on_its_last_chance(project, "innocent")
    (project / "hold").touch()
    parent = subprocess.Popen(
        _edgeq(project, "process", "--budget", "4", "--grace", "0.5"),
        cwd=project,
        stdout=subprocess.DEVNULL,
    )
    started = project / "running"
    _wait_until(lambda: started.exists() and started.read_text())
    child, its_parent = map(int, started.read_text().split())
    assert its_parent == parent.pid
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _wait_until(lambda: not _is_alive(child))
    left = _sql(project, "SELECT status, losses, interruptions FROM background_jobs")
    assert left == [("pending", 0, 0)]
    (project / "hold").unlink()
    report = _run(project, "process", "--budget", "10", "--grace", "1")
    job = _run(project, "jobs", "show", job_id)
    assert (report["completed"], job["status"]) == (1, "completed")


def test_what_an_isolated_handler_prints_does_not_disturb_its_report(project: Path) -> None:
    loud = HANDLERS.replace('Path("running")', 'print("loud", flush=True); Path("running")')
    (project / "handlers" / "jobs.py").write_text(loud)
    _on_its_last_chance(project, "innocent")
    report = _run(project, "process", "--budget", "10", "--grace", "1")
    assert (report["completed"], report["claimed"]) == (1, 1)


def test_a_second_signal_puts_an_isolated_job_back(project: Path) -> None:
    _on_its_last_chance(project, "innocent")
    (project / "hold").touch()
    parent = subprocess.Popen(
        _edgeq(project, "process", "--budget", "20", "--grace", "20"),
        cwd=project,
        stdout=subprocess.DEVNULL,
    )
    started = project / "running"
    _wait_until(lambda: started.exists() and started.read_text())
    child = int(started.read_text().split()[0])
    for _ in range(2):
        os.kill(parent.pid, signal.SIGTERM)
        time.sleep(0.1)
    assert parent.wait(5) == 0
    _wait_until(lambda: not _is_alive(child))
    assert _sql(project, "SELECT status FROM background_jobs") == [("pending",)]


def test_a_budget_too_small_for_a_child_still_gives_the_last_chance(project: Path) -> None:
    job_id = _on_its_last_chance(project, "innocent")
    report = _run(project, "process", "--budget", "2", "--grace", "2")
    assert (report["completed"], report["claimed"]) == (1, 1)
    assert _run(project, "jobs", "show", job_id)["status"] == "completed"

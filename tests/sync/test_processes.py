"""The blocking queue in real processes: their end, and their children."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.process

APP = """
import os
from edgeq import Context, SyncQueue, handler

@handler("note")
async def note(ctx: Context, input: dict) -> None:
    pass

queue = SyncQueue("sqlite:///app.db", handlers=[note])
"""


def _run(program: str, folder: Path) -> str:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", APP + program],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_a_process_that_forgets_to_close_closes_at_its_end(tmp_path: Path) -> None:
    # The read opens a connection of the other kind, which has to be closed too.
    assert _run("job = queue.enqueue('note'); print(queue.get(job.job_id).status)", tmp_path)
    # Only an orderly close leaves no write-ahead log behind.
    assert {path.name for path in tmp_path.iterdir()} == {"app.db", "app.db.gate"}


def test_a_queue_that_was_not_opened_before_the_fork_works_in_the_child(tmp_path: Path) -> None:
    program = """
if os.fork() == 0:
    queue.enqueue("note")
else:
    _, status = os.wait()
    assert status == 0, status
    print(len(queue.list().items))
"""
    assert _run(program, tmp_path) == "1\n"


def test_a_queue_that_was_open_before_the_fork_is_refused_in_the_child(tmp_path: Path) -> None:
    program = """
from edgeq.errors import StoreClosed
queue.enqueue("note")
if os.fork() == 0:
    try:
        queue.enqueue("note")
    except StoreClosed as refused:
        print("forked" in str(refused))
    queue.close()
else:
    _, status = os.wait()
    assert status == 0, status
    queue.enqueue("note")
    print(len(queue.list().items))
"""
    assert _run(program, tmp_path) == "True\n2\n"

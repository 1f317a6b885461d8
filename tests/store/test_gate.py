"""The gate: one at a time, in turn, and nobody who gave up is ever inside."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeq.errors import StoreBusy
from edgeq.store.gate import Gate


def _join_waiters(seconds: float = 5) -> None:
    for thread in threading.enumerate():
        if thread.name == "edgeq-gate":
            thread.join(seconds)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "queue.db")
    yield gate
    gate.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Gate]:
    other = Gate(tmp_path / "queue.db")
    yield other
    other.close()


def test_whoever_gave_up_does_not_open_the_gate_for_their_next_try(gate: Gate, other: Gate) -> None:
    other.acquire()
    with pytest.raises(StoreBusy):
        gate.acquire_within(0.01)
    other.release()
    gate.acquire_within(5)
    _join_waiters(0.05)
    assert not other.acquire_at_once()


async def test_a_task_gets_its_turn_without_blocking_its_loop(gate: Gate, other: Gate) -> None:
    other.acquire()
    waiting = asyncio.create_task(gate.acquire_beside_loop(5))
    await asyncio.sleep(0)
    other.release()
    await waiting
    assert not other.acquire_at_once()


async def test_a_task_that_waits_for_too_long_learns_who_holds_it(gate: Gate, other: Gate) -> None:
    other.acquire()
    with pytest.raises(StoreBusy, match="by process"):
        await gate.acquire_beside_loop(0.01)
    other.release()
    await gate.acquire_beside_loop(5)
    await asyncio.to_thread(_join_waiters, 0.05)
    assert not other.acquire_at_once()


async def test_a_task_that_was_cancelled_lets_go_of_what_still_comes(
    gate: Gate, other: Gate
) -> None:
    other.acquire()
    waiting = asyncio.create_task(gate.acquire_beside_loop(5))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    other.release()
    await asyncio.to_thread(_join_waiters)
    assert other.acquire_at_once()


def test_a_link_has_the_gate_of_the_file_that_it_leads_to(tmp_path: Path, gate: Gate) -> None:
    (tmp_path / "queue.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "queue.db")
    gate.acquire()
    link = Gate(tmp_path / "link.db")
    assert not link.acquire_at_once()
    link.close()


FORKS = """
import os, sys, time
from pathlib import Path
from edgeq.store.gate import Gate

gate = Gate(Path(sys.argv[1]))
gate.acquire()
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(60)
os.kill(os.getpid(), 9)
"""


def test_a_forked_child_does_not_keep_the_gate_of_a_parent_that_died(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    parent = subprocess.Popen(
        [sys.executable, "-c", FORKS, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        parent.wait()
        gate = Gate(path)
        gate.acquire_within(5)
        gate.close()
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()

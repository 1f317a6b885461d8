"""Applications in real processes: killed, and all at once."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edgeq import SyncQueue
from edgeq.store.gate import Gate
from tests.joined import sample_app
from tests.joined.sample_app import sell, sell_in_a_loop, ship

pytestmark = pytest.mark.process
KILLS = 25  # of each kind
# A server that has imported everything makes a fresh process in a few milliseconds.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload([sample_app.__name__])


def _orders_and_shipments(file: Path) -> tuple[set[str], set[str]]:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        is_there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'")
        ordered = connection.execute("SELECT id FROM orders") if is_there.fetchall() else ()
        inputs = connection.execute("SELECT input_data FROM background_jobs").fetchall()
        return {row[0] for row in ordered}, {json.loads(text)["order"] for (text,) in inputs}


@pytest.mark.parametrize("app", [sell, sell_in_a_loop], ids=["sync", "async"])
def test_killed_at_any_moment_orders_and_jobs_agree_and_the_gate_is_open(
    file: Path, app: Callable[..., None]
) -> None:
    chance = random.Random(app.__name__)
    gate = Gate(file)
    sold = 0
    for _ in range(KILLS):
        process = processes.Process(target=app, args=(file,))
        process.start()
        time.sleep(chance.uniform(0.02, 0.25))
        process.kill()
        process.join()

        assert gate.acquire_at_once(), "the dead process still holds the gate"
        ordered, shipped = _orders_and_shipments(file)
        gate.release()
        assert ordered == shipped
        sold = len(ordered)
        process.close()
    gate.close()
    assert sold > KILLS, "it was killed before it could do anything"


def test_applications_and_the_queue_share_the_file_and_nobody_finds_it_locked(
    file: Path,
) -> None:
    def start(app: Callable[..., None]) -> Any:
        process = processes.Process(target=app, args=(file, 200))
        process.start()
        return process

    with SyncQueue(f"sqlite:///{file}", handlers=[ship]) as queue:
        apps = [start(sell), start(sell), start(sell_in_a_loop)]
        for number in itertools.count():
            queue.enqueue(ship, {"order": f"by hand {number}"})
            if not any(app.is_alive() for app in apps):
                break
        for app in apps:
            app.join()
    assert [app.exitcode for app in apps] == [0, 0, 0]
    ordered, shipped = _orders_and_shipments(file)
    assert len(ordered) == 600
    assert len(shipped - ordered) == number + 1


FORKING = """
import os, sys
from pathlib import Path
from sqlalchemy import create_engine, text
import edgeq
from edgeq.errors import StoreClosed
from edgeq.store.gate import Gate

engine = edgeq.attach(create_engine("sqlite:///" + sys.argv[1]))
gate = Gate(Path(sys.argv[1]))
idle = engine.connect()
idle.close()
connection = engine.connect()
connection.execute(text("CREATE TABLE orders (number INTEGER)"))
if os.fork() == 0:
    connection.close()
    try:
        engine.connect().execute(text("SELECT 1"))
    except StoreClosed as refused:
        print("dispose(close=False)" in str(refused))
    engine.dispose()
    sys.exit()
_, status = os.wait()
print(status, gate.acquire_at_once())
connection.commit()
print(gate.acquire_at_once())
"""


def test_a_child_of_an_application_leaves_its_parents_transaction_alone(file: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORKING, str(file)], capture_output=True, text=True, timeout=30
    )
    assert (ran.stdout, ran.stderr) == ("True\n0 False\nTrue\n", "")

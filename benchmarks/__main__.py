"""Measures edgeq against the floor, both in one run, and prints ratios: `make bench`."""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks import engine, floor, requests, step_engine, step_floor, ticks

ROUNDS = 3
MILLION = 1_000_000


def main() -> int:
    quick = "--quick" in sys.argv
    with tempfile.TemporaryDirectory(prefix="edgeq-bench-") as folder:
        rows = [*_against_the_floor(Path(folder)), _step(Path(folder)), _idle(Path(folder))]
        rows += _requests(Path(folder), idle_seconds=10 if quick else 60)
        if not quick:
            rows += _at_a_million(Path(folder))
    print(f"SQLite {sqlite3.sqlite_version}, Python {sys.version.split()[0]}, synchronous=FULL")
    for row in rows:
        verdict = "ok" if row["ok"] else "BELOW"
        print(f"{row['name']:<44} {row['shown']:<44} goal {row['goal']:<8} {verdict}")
    if "--json" in sys.argv:
        print(json.dumps(rows))
    return 0 if all(row["ok"] for row in rows) else 1


Row = dict[str, object]


def _against_the_floor(folder: Path) -> list[Row]:
    pairs: list[tuple[str, float, Callable[[Path], float], Callable[[Path], float]]] = [
        (
            "drain, concurrency 100 (batch 100)",
            0.35,
            lambda path: engine.drain(path, 10_000, 100),
            lambda path: floor.drain(path, 10_000, 100),
        ),
        (
            "drain, concurrency 8 (batch 8)",
            0.4,
            lambda path: engine.drain(path, 10_000, 8),
            lambda path: floor.drain(path, 10_000, 8),
        ),
        (
            "enqueue one after the other",
            0.4,
            lambda path: engine.enqueue_singly(path, 2_000),
            lambda path: floor.insert_singly(path, 2_000),
        ),
        (
            "64 concurrent enqueues / single inserts",
            2.0,
            lambda path: engine.enqueue_concurrently(path, 12_800, 64),
            lambda path: floor.insert_singly(path, 2_000),
        ),
        (
            "enqueue_many of 1,000",
            0.35,
            lambda path: engine.enqueue_many(path, 20_000, 1_000),
            lambda path: floor.insert_many(path, 20_000, 1_000),
        ),
        (
            "drain of 3 steps, concurrency 100",
            1.0,
            lambda path: step_engine.drain(path, 10_000, 100),
            lambda path: step_floor.drain(path, 2_000, 100),
        ),
        (
            "drain of 3 steps, concurrency 8",
            1.0,
            lambda path: step_engine.drain(path, 10_000, 8),
            lambda path: step_floor.drain(path, 2_000, 8),
        ),
    ]
    return [_compare(folder, *pair) for pair in pairs]


def _compare(
    folder: Path,
    name: str,
    goal: float,
    ours: Callable[[Path], float],
    theirs: Callable[[Path], float],
) -> Row:
    """Both sides in turn, each on a new file with the same jobs; the median of the ratios."""
    rates = []
    for number in range(ROUNDS):
        pair = []
        for side, measure in (("edgeq", ours), ("floor", theirs)):
            path = folder / f"{abs(hash(name))}-{number}-{side}.db"
            step_engine.create(path)
            if name.startswith("drain"):
                job_type = "in_steps" if "steps" in name else "noop"
                floor.insert_many(path, 12_000, 1_000, job_type)
            pair.append(measure(path))
            path.unlink()
        rates.append(pair)
    ratio = median(ours / theirs for ours, theirs in rates)
    mine, other = (median(rate[side] for rate in rates) for side in (0, 1))
    shown = f"{mine:>9,.0f}/s  floor {other:>9,.0f}/s  ratio {ratio:.2f}"
    return {"name": name, "shown": shown, "ratio": ratio, "goal": goal, "ok": ratio >= goal}


def _step(folder: Path) -> Row:
    """Both in turn in one process, so that they share whatever the machine does meanwhile."""
    pairs = []
    for number in range(ROUNDS):
        path = folder / f"step-{number}.db"
        step_engine.create(path)
        pairs.append(step_engine.step_and_enqueue(path, 2_000))
        path.unlink()
    ratio = median(step / enqueue for step, enqueue in pairs)
    step, enqueue = (median(pair[side] for pair in pairs) for side in (0, 1))
    shown = f"{step:.2f} ms  an enqueue {enqueue:.2f} ms  ratio {ratio:.2f}"
    name = "a step / a single enqueue"
    return {"name": name, "shown": shown, "ratio": ratio, "goal": 1.5, "ok": ratio <= 1.5}


def _idle(folder: Path) -> Row:
    path = folder / "idle.db"
    engine.create(path)
    tick, python = ticks.idle_tick(path)
    ratio = tick / python
    shown = f"{tick:.1f} ms  python+click+sqlite3 {python:.1f} ms  ratio {ratio:.2f}"
    return {"name": "idle tick", "shown": shown, "ratio": ratio, "goal": 2.0, "ok": ratio <= 2.0}


def _requests(folder: Path, *, idle_seconds: float) -> list[Row]:
    """An `edgeq worker` and a client, two processes on one file."""

    def new(name: str) -> Path:
        path = folder / f"requests-{name}.db"
        engine.create(path)
        return path

    pairs = [
        (
            requests.sequential(new(f"edgeq-{number}"), 200),
            requests.sequential_floor(new(f"floor-{number}"), 200),
        )
        for number in range(ROUNDS)
    ]
    ours = median(mine.median for mine, _ in pairs)
    theirs = median(other.median for _, other in pairs)
    p99 = median(mine.p99 for mine, _ in pairs)
    ratio = median(mine.median / other.median for mine, other in pairs)
    all_answered = requests.concurrent(new("many"), requests.WAITERS)
    idle = requests.idle_share(new("idle"), idle_seconds) * 100
    shown = f"{ours:.1f} ms  floor {theirs:.1f} ms  ratio {ratio:.2f}"
    return [
        _at_most("request and response, median", shown, ours, 10),
        _at_most("request and response, 99 of 100", f"{p99:.1f} ms", p99, 40),
        _at_most(
            f"{requests.WAITERS:,} concurrent waiters", f"{all_answered:.1f} s", all_answered, 10
        ),
        _at_most("an idle worker, of one core", f"{idle:.1f} %", idle, 2),
    ]


def _at_most(name: str, shown: str, value: float, goal: float) -> Row:
    return {"name": name, "shown": shown, "ratio": value, "goal": goal, "ok": value <= goal}


def _at_a_million(folder: Path) -> list[Row]:
    small, large = folder / "small.db", folder / "large.db"
    for path, count in ((small, 30_000), (large, MILLION)):
        engine.create(path)
        floor.insert_many(path, count, 10_000)
    rates = [(engine.drain(large, 10_000, 8), engine.drain(small, 10_000, 8)) for _ in range(3)]
    ratio = median(many / few for many, few in rates)
    shown = f"{rates[1][0]:>9,.0f}/s  at 10,000 {rates[1][1]:>9,.0f}/s  ratio {ratio:.2f}"
    megabytes = ticks.draining_megabytes(large)
    return [
        {
            "name": "drain with 1,000,000 pending",
            "shown": shown,
            "ratio": ratio,
            "goal": 0.8,
            "ok": ratio >= 0.8,
        },
        {
            "name": "memory while draining a million",
            "shown": f"{megabytes} MB",
            "ratio": megabytes,
            "goal": 80,
            "ok": megabytes < 80,
        },
    ]


if __name__ == "__main__":
    sys.exit(main())

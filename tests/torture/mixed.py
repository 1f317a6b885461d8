"""Mixed load: short jobs come all the time, long ones go on from run to run, slots are used."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from tests.torture import step_ledger
from tests.torture.checker import (
    every_job_completed,
    integrity_ok,
    none_stuck,
    nothing_accepted_is_lost,
    violations,
)
from tests.torture.finding import Finding
from tests.torture.processes import Child, Limits, Place
from tests.torture.slots import FAST, Stay, idle_seconds
from tests.torture.step_ledger import Line, Said, StepLedger

_SECOND = 1_000_000_000
_HANG_SECONDS = 60.0
_SHORT_SECONDS = (0.005, 0.015)
_ENDS = (Said.LEFT, Said.DONE)


def mixed_load(
    seed: int,
    folder: Path,
    *,
    short: int,
    long: int,
    steps: int,
    step_seconds: float,
    limits: Limits,
    has_fast_lane: bool,
    idle_at_most: float = 0.05,
) -> Finding:
    """One run after the other, as a cron job would start them, until all is done.

    The short jobs come in waves over the time that the long ones need at least.
    """
    chance = Random(seed)
    with Place(folder) as place:
        open_slots = limits.concurrency - limits.fast_slots
        needed = long * steps * step_seconds / open_slots
        most_runs = round(needed / limits.budget * 1.5) + 3
        long_ids = place.enqueue("long", [{"steps": steps, "seconds": step_seconds}] * long)
        due = _enqueue_short(place, chance, short, needed, has_fast_lane=has_fast_lane)
        due |= dict.fromkeys(long_ids, 0)
        runs: list[Child] = []
        while not place.database.is_drained() and len(runs) < most_runs:
            runs.append(place.start(limits))
            runs[-1].wait(_HANG_SECONDS)
        ledger = step_ledger.read(place.ledger)
        idle = _Idleness(place, ledger, due, set(long_ids), limits, has_fast_lane=has_fast_lane)
        wrong = violations(
            place.evidence(),
            (nothing_accepted_is_lost, none_stuck, every_job_completed, integrity_ok),
        )
        wrong += _overstays(runs, limits) + _starved(ledger, long_ids, steps)
        wrong += idle.violations(idle_at_most)
        figures: dict[str, Any] = {
            "runs": len(runs),
            "runs_at_most": most_runs,
            "slowest_run": round(max(run.seconds for run in runs), 2),
            "short": short,
            "long": long,
            "executions_of_long_at_most": max(
                sum(line.said is Said.START for line in ledger.by_job[job_id])
                for job_id in long_ids
            ),
            **idle.figures(),
        }
    return Finding("mixed_load", seed, figures, wrong)


def _enqueue_short(
    place: Place, chance: Random, count: int, over: float, *, has_fast_lane: bool
) -> dict[str, int]:
    """When each is due, in ns of the clock of the ledger: half of them at once."""
    due: dict[str, int] = {}
    waves = 10
    ahead = time.time_ns() - time.monotonic_ns()
    began = time.time()
    for wave in range(waves):
        at = began if wave < waves // 2 else began + chance.uniform(0, over)
        inputs = [
            {"seconds": chance.uniform(*_SHORT_SECONDS)}
            for _ in range(count * (wave + 1) // waves - count * wave // waves)
        ]
        moment = datetime.fromtimestamp(at, UTC)
        name = "short_and_fast" if has_fast_lane else "short"
        ids = place.enqueue(name, inputs, scheduled_for=moment)
        due |= dict.fromkeys(ids, round(at * _SECOND) - ahead)
    return due


def _overstays(runs: list[Child], limits: Limits) -> list[str]:
    most = limits.budget + limits.grace + 1
    return [
        f"{run.name} ended after {run.seconds:.2f} s with {run.exit_code}"
        for run in runs
        if run.seconds > most or run.exit_code != 0
    ]


def _starved(ledger: StepLedger, long_ids: list[str], steps: int) -> list[str]:
    """Who has begun gets on in every run until it is done, and does nothing twice."""
    wrong = [f"job {line.job_id} got a wrong result" for line in ledger.of(Said.WRONG)]
    roots = list(dict.fromkeys(line.root for line in ledger.lines))
    for job_id in long_ids:
        lines = ledger.by_job[job_id]
        took_part = [roots.index(root) for root in dict.fromkeys(line.root for line in lines)]
        if took_part != list(range(took_part[0], took_part[-1] + 1)):
            wrong.append(f"job {job_id} waited in between: it was in the runs {took_part}")
        for root in dict.fromkeys(line.root for line in lines):
            own = {line.place for line in lines if line.root == root and line.said is Said.KEPT}
            before = {
                line.place
                for line in lines
                if roots.index(line.root) < roots.index(root) and line.said is Said.KEPT
            }
            if not own - before and len(before) < steps:
                wrong.append(f"job {job_id} got nowhere in {root}")
    return wrong


class _Idleness:
    """Slot-seconds of all runs, and those that were wasted."""

    def __init__(
        self,
        place: Place,
        ledger: StepLedger,
        due: dict[str, int],
        long_ids: set[str],
        limits: Limits,
        *,
        has_fast_lane: bool,
    ) -> None:
        self._limits = limits
        ahead = time.time_ns() - time.monotonic_ns()
        self._began = {
            name: (started * 1_000_000 - ahead) / _SECOND
            for name, started in place.database.rows(
                "SELECT worker_name, started_at FROM worker_runs"
            )
        }
        lanes = {job: FAST if has_fast_lane and job not in long_ids else "general" for job in due}
        stays = [
            stay
            for job, since in due.items()
            for stay in _stays(lanes[job], since / _SECOND, ledger.by_job.get(job, []))
        ]
        self.by_run: dict[str, tuple[float, float]] = {}
        for root in dict.fromkeys(line.root for line in ledger.lines):
            since, until = self._window(root, ledger)
            idle = idle_seconds(
                stays,
                since=since,
                until=until,
                concurrency=limits.concurrency,
                fast_slots=limits.fast_slots,
            )
            self.by_run[root] = (idle, (until - since) * limits.concurrency)

    def _window(self, root: str, ledger: StepLedger) -> tuple[float, float]:
        """From the record of the run's start until its budget ends, or it has left before."""
        lines = [line for line in ledger.lines if line.root == root]
        first = next(line for line in lines if line.said is Said.START)
        budget_ends = first.at / _SECOND + first.remaining - self._limits.grace
        return self._began[root], min(budget_ends, lines[-1].at / _SECOND)

    def share(self) -> float:
        idle, all_of_it = (sum(each[n] for each in self.by_run.values()) for n in (0, 1))
        return idle / all_of_it

    def violations(self, at_most: float) -> list[str]:
        by_run = json.dumps({name: round(idle, 2) for name, (idle, _) in self.by_run.items()})
        return (
            [f"slots idled for {self.share():.1%} of the time, by run {by_run}"]
            if self.share() > at_most
            else []
        )

    def figures(self) -> dict[str, Any]:
        return {
            "slot_seconds": round(sum(each[1] for each in self.by_run.values()), 1),
            "idle_share": round(self.share(), 4),
            "idle_by_run": [round(idle, 2) for idle, _ in self.by_run.values()],
        }


def _stays(lane: str, due: float, lines: list[Line]) -> list[Stay]:
    """The waits and the executions of a job, in turn."""
    stays = []
    waits_since = due
    starts = (line for line in lines if line.said is Said.START)
    for start in starts:
        end = next(each for each in lines if each.fence == start.fence and each.said in _ENDS)
        began, ended = start.at / _SECOND, end.at / _SECOND
        stays += [Stay(lane, waits_since, began), Stay(lane, began, ended, is_running=True)]
        waits_since = ended
        if end.said is Said.DONE:
            return stays
    return [*stays, Stay(lane, waits_since, float("inf"))]

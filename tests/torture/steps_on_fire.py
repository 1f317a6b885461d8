"""Steps on fire: whoever is killed, stopped or asked to leave, each step is done once."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from tests.torture import step_ledger
from tests.torture.checker import integrity_ok, none_stuck, nothing_accepted_is_lost
from tests.torture.checker import violations as of_jobs
from tests.torture.finding import Finding
from tests.torture.processes import HANDLERS, Child, Limits, Place, wait_until
from tests.torture.step_checker import StepEvidence, violations
from tests.torture.step_ledger import Said
from tests.torture.step_plans import Plan, random_plan

_LIMITS = Limits(budget=6, grace=2, concurrency=4, fast_slots=0)
_TYPES = ("stepwise",) * 5 + ("stepwise_in_thread",) * 3 + ("stepwise_in_process",) * 2
_BLOWS = ("kill",) * 6 + ("ask",) * 3 + ("freeze",) * 2
_PATIENCE_SECONDS = 30.0
_DRAIN_SECONDS = 300.0


class _Fire:
    """Keeps processes and workers at work on one file, and strikes them."""

    def __init__(
        self, place: Place, chance: Random, processes: int, *, kills_workers: bool
    ) -> None:
        self._place = place
        self._kills_workers = kills_workers
        self._chance = chance
        self._processes = processes
        self._workers: list[Child] = []
        self.killed: dict[str, int] = {}
        self.asked: dict[str, int] = {}
        self.frozen: set[str] = set()

    def refill(self) -> None:
        """Always one worker among them, and never too few for the others to go on."""
        if not any(worker.is_alive() for worker in self._workers):
            self._workers.append(_start_worker(self._place))
        self._place.refill(self._processes, _LIMITS)

    def strike(self, blow: str) -> None:
        victim = self._at_work()
        if victim is None:
            return
        time.sleep(self._chance.uniform(0, 0.15))
        if not victim.is_alive():
            return
        match blow:
            case "kill" if self._kills_workers or victim not in self._workers:
                self.killed[victim.name] = time.monotonic_ns()
                self._place.kill(victim)
            case "freeze":
                self._freeze(victim)
            case _:
                self._ask(victim)

    def _ask(self, victim: Child) -> None:
        """The first time it may finish what it does; the second time it leaves at once."""
        cut = self.asked if victim.name not in self.asked else self.killed
        cut[victim.name] = time.monotonic_ns()
        victim.signal(signal.SIGTERM)

    def _freeze(self, victim: Child) -> None:
        """Stop it, let its locks expire, let others take its jobs, and wake it."""
        database = self._place.database
        try:
            victim.stop_outside_a_commit(database)
        except (RuntimeError, ChildProcessError):
            return  # it has just left
        self.frozen.add(victim.name)
        with database.gate():
            database.expire_locks(database.runs_of(victim.name))
        self._place.start(_LIMITS)
        time.sleep(self._chance.uniform(0.3, 1.2))
        victim.wake()

    def _at_work(self) -> Child | None:
        """Somebody who runs steps now."""
        ledger = self._place.ledger
        seen = step_ledger.size(ledger)
        working: list[Child] = []

        def somebody_works() -> bool:
            self.refill()
            roots = {line.root for line in step_ledger.read(ledger, seen).lines}
            working[:] = [child for child in self._place.living() if child.name in roots]
            return bool(working) or self._place.database.is_drained()

        wait_until(somebody_works, seconds=_PATIENCE_SECONDS)
        return self._chance.choice(working) if working else None

    def end(self) -> None:
        """Ask the workers to leave: nobody else would end them."""
        for worker in self._workers:
            if worker.is_alive() and worker.name not in self.asked:
                self._ask(worker)


def steps_on_fire(
    seed: int, folder: Path, *, jobs: int, blows: int, kills_workers: bool, processes: int = 3
) -> Finding:
    """A blow for each wave of jobs: more jobs than that would only wait.

    The locks of a killed worker live on for a minute, which not everybody has.
    """
    chance = Random(seed)
    with Place(folder) as place:
        plans: dict[str, Plan] = {}
        fire = _Fire(place, chance, processes, kills_workers=kills_workers)
        struck: Counter[str] = Counter()
        began = time.monotonic()
        for number in range(blows):
            plans |= _enqueue(place, chance, jobs * (number + 1) // blows - jobs * number // blows)
            blow = chance.choice(_BLOWS)
            struck[blow] += 1
            fire.strike(blow)
        fire.end()
        last_blow = time.monotonic()
        is_drained = place.drain(processes, _LIMITS, seconds=_DRAIN_SECONDS)
        recovered = time.monotonic() - last_blow
        evidence = StepEvidence(
            plans=plans,
            jobs=place.database.jobs(),
            rows=tuple(place.database.steps()),
            ledger=step_ledger.read(place.ledger),
            grace=_LIMITS.grace,
            killed=fire.killed,
            asked=fire.asked,
            frozen=frozenset(fire.frozen),
        )
        wrong = violations(evidence) + _complaints(place, fire)
        wrong += of_jobs(place.evidence(), (nothing_accepted_is_lost, none_stuck, integrity_ok))
        if not is_drained:
            wrong.append(f"not done {_DRAIN_SECONDS:g} s after it: {place.database.counts()}")
        figures = _figures(evidence) | {
            "blows": dict(struck),
            "storm_seconds": round(last_blow - began, 1),
            "recovered_seconds": round(recovered, 1),
        }
    return Finding("steps_on_fire", seed, figures, wrong)


def _start_worker(place: Place) -> Child:
    options = ["--grace", f"{_LIMITS.grace:g}", "--concurrency", "4", "--fast-slots", "0"]
    handlers = ["--handlers", str(HANDLERS)]
    return place.start_python(
        ["edgeq", "--db", place.database.url, *handlers, "worker", "--json", *options]
    )


def _enqueue(place: Place, chance: Random, jobs: int) -> dict[str, Plan]:
    plans: dict[str, Plan] = {}
    by_type: dict[str, list[Plan]] = {}
    for _ in range(jobs):
        job_type = chance.choice(_TYPES)
        by_type.setdefault(job_type, []).append(
            random_plan(chance, has_threads=job_type == "stepwise")
        )
    for job_type, own in by_type.items():
        ids = place.enqueue(job_type, [msgspec.to_builtins(plan) for plan in own])
        plans |= dict(zip(ids, own, strict=True))
    return plans


def _complaints(place: Place, fire: _Fire) -> list[str]:
    # Who is asked while Python itself begins or ends is not there to hear it.
    well = dict.fromkeys(fire.asked, (0, -signal.SIGTERM))
    return [
        f"{child.name} ended with {child.exit_code}: {child.complaint()[-300:]}"
        for child in place.children
        if child.name not in fire.killed and child.exit_code not in well.get(child.name, (0,))
    ]


def _figures(evidence: StepEvidence) -> dict[str, Any]:
    bodies = evidence.bodies
    starts = Counter(len(starts) for starts in evidence.starts.values())
    losses = Counter(job.losses for job in evidence.jobs.values())
    cut = [body for body in bodies if body.kept is None and body.raised is None]
    return {
        "jobs": len(evidence.plans),
        "steps": sum(row.kind != "sleep" for row in evidence.rows),
        "sleeps": sum(row.kind == "sleep" for row in evidence.rows),
        "bodies": len(bodies),
        "bodies_raised": sum(body.raised is not None for body in bodies),
        "bodies_cut": sum(body.end is None for body in cut),
        "bodies_ended_unheard": sum(body.end is not None for body in cut),
        "executions": len(evidence.ledger.of(Said.START)),
        "executions_at_most": max(starts, default=0),
        "jobs_by_losses": {str(count): losses[count] for count in sorted(losses)},
        "killed": len(evidence.killed),
        "asked": len(evidence.asked),
        "frozen": len(evidence.frozen),
    }

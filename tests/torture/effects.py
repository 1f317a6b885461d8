"""Effects: a row that is written with its step is there exactly when the step is, whoever dies."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.torture.checker import (
    every_job_completed,
    integrity_ok,
    nobody_innocent_failed,
    none_stuck,
    nothing_accepted_is_lost,
    violations,
)
from tests.torture.database import Database
from tests.torture.finding import Finding
from tests.torture.processes import Child, Limits, Place, wait_until

_LIMITS = Limits(budget=5, grace=1)
_TYPES = ("effect", "effect", "effect_in_thread")
_WAVE_SECONDS = 30.0
_DRAIN_SECONDS = 120.0
_TABLE = "CREATE TABLE effects (id INTEGER PRIMARY KEY, job_id TEXT NOT NULL)"
# One statement is one snapshot.
_BOTH = (
    "SELECT (SELECT count(*) FROM effects),"
    " (SELECT count(*) FROM background_job_steps WHERE kind = 'transaction'),"
    " (SELECT count(*) FROM effects e WHERE NOT EXISTS"
    " (SELECT 1 FROM background_job_steps s WHERE s.job_id = e.job_id)),"
    " (SELECT count(*) FROM background_jobs j WHERE j.status = 'completed' AND NOT EXISTS"
    " (SELECT 1 FROM effects e WHERE e.job_id = j.id))"
)
_WRONG_OUTPUTS = (
    "SELECT count(*) FROM background_jobs j JOIN effects e ON e.job_id = j.id"
    " WHERE j.output_data IS NOT e.id || ''"
)


class _Observer:
    """Compares rows and steps all the time, on a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_over = threading.Event()
        self.samples = 0
        self.in_between = 0
        self.wrong: list[str] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()

    def _watch(self) -> None:
        database = Database(self._path)
        last = -1
        try:
            while not self._is_over.wait(0.002):
                rows, steps, orphans, early = database.rows(_BOTH)[0]
                self.samples += 1
                self.in_between += rows != last
                last = rows
                if rows != steps or orphans or early:
                    self.wrong.append(
                        f"{rows} rows, {steps} steps, {orphans} rows without a step,"
                        f" {early} completions without a row"
                    )
        finally:
            database.close()


def effects(seed: int, folder: Path, *, jobs: int, kills: int, processes: int = 3) -> Finding:
    chance = Random(seed)
    with Place(folder) as place:
        with place.database.gate():
            place.database.rows(_TABLE)
        observer = _Observer(place.database.path)
        with observer.watching():
            for kill in range(kills):
                _enqueue(place, chance, jobs * (kill + 1) // kills - jobs * kill // kills)
                place.kill(_victim(place, chance, processes))
            is_drained = place.drain(processes, _LIMITS, seconds=_DRAIN_SECONDS)
        evidence = place.evidence()
        wrong = observer.wrong[:5] + violations(
            evidence,
            (
                nothing_accepted_is_lost,
                none_stuck,
                every_job_completed,
                nobody_innocent_failed,
                integrity_ok,
            ),
        )
        rows = Counter(job_id for (job_id,) in place.database.rows("SELECT job_id FROM effects"))
        completions = sum(evidence.completions.values())
        if rows != Counter(place.accepted) or completions != jobs:
            wrong.append(f"{rows.total()} rows and {completions} completions for {jobs} jobs")
        if place.database.rows(_WRONG_OUTPUTS) != [(0,)]:
            wrong.append("a handler was given the number of a row that is not its own")
        wrong += [] if is_drained else [f"not drained: {place.database.counts()}"]
        losses = Counter(job.losses for job in evidence.jobs.values())
        figures = {
            "jobs": jobs,
            "rows": rows.total(),
            "completions": completions,
            "kills": len(place.killed),
            "processes": len(place.children),
            "samples": observer.samples,
            "different_samples": observer.in_between,
            "jobs_by_losses": {str(count): losses[count] for count in sorted(losses)},
        }
    return Finding("effects", seed, figures, wrong)


def _enqueue(place: Place, chance: Random, jobs: int) -> None:
    types = Counter(chance.choice(_TYPES) for _ in range(jobs))
    for job_type, count in sorted(types.items()):
        inputs = [
            {"seconds": chance.uniform(0, 0.03), "fails": chance.choice((0, 0, 0, 0, 1))}
            for _ in range(count)
        ]
        place.enqueue(job_type, inputs)


def _victim(place: Place, chance: Random, processes: int) -> Child:
    """Somebody who is writing rows now, most of the time."""
    seen = place.database.rows("SELECT count(*) FROM effects")

    def rows_come() -> bool:
        place.refill(processes, _LIMITS)
        return place.database.rows("SELECT count(*) FROM effects") != seen

    wait_until(rows_come, seconds=_WAVE_SECONDS)
    time.sleep(chance.uniform(0, 0.06))
    place.refill(1, _LIMITS)
    runs = {
        run
        for (run,) in place.database.rows(
            "SELECT DISTINCT locked_by FROM background_jobs WHERE status = 'processing'"
        )
    }
    working = [c for c in place.living() if place.database.runs_of(c.name) & runs]
    return chance.choice(working or place.living())

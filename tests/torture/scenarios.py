"""The scenarios by name: what each has to show, small for every test run and full for itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.torture.budgets import budgets
from tests.torture.cancelled_awaits import cancelled_awaits
from tests.torture.contention import contention
from tests.torture.effects import effects
from tests.torture.finding import Finding
from tests.torture.mixed import mixed_load
from tests.torture.poison import poison
from tests.torture.processes import CommandFailed, Limits
from tests.torture.signals import signals
from tests.torture.steps_on_fire import steps_on_fire
from tests.torture.storm import kill_storm
from tests.torture.worker_kills import worker_kills
from tests.torture.worker_signals import worker_signals
from tests.torture.worker_zombies import worker_zombies
from tests.torture.zombies import woken_in_time, woken_too_late

Scenario = Callable[[int, Path], Finding]

_MIXED_LOAD = partial(mixed_load, short=1_000, long=20, steps=20, step_seconds=0.4)
SMALL: dict[str, Scenario] = {
    "kill_storm": partial(kill_storm, jobs=400, kills=10),
    "zombies_in_time": partial(woken_in_time, zombies=2, jobs=4, waits_for_locks=False),
    "zombies_too_late": partial(woken_too_late, zombies=2, jobs=4),
    "contention": partial(contention, processes=6, seconds=4),
    "budgets": partial(budgets, rounds=1, at_once=3),
    "signals": partial(signals, count=6),
    "poison_alone": partial(poison, how="alone", jobs=100),
    "worker_signals": partial(worker_signals, count=8),
    "worker_kills": partial(worker_kills, kills=3, waits_for_locks=0),
    "worker_zombies": partial(worker_zombies, zombies=2, waits_for_locks=False),
    "cancelled_awaits": partial(cancelled_awaits, count=150),
    "steps_on_fire": partial(steps_on_fire, jobs=40, blows=8, kills_workers=False),
    "effects": partial(effects, jobs=60, kills=5),
    "mixed_load": partial(
        mixed_load,
        short=200,
        long=6,
        steps=10,
        step_seconds=0.2,
        limits=Limits(budget=3, grace=1, concurrency=4, fast_slots=1),
        has_fast_lane=True,
        # Most of it is short jobs, on a machine that is busy with other tests.
        idle_at_most=0.25,
    ),
}
FULL: dict[str, Scenario] = {
    "kill_storm": partial(kill_storm, jobs=2_000, kills=50),
    "zombies_in_time": partial(woken_in_time, zombies=6, jobs=6, waits_for_locks=True),
    "zombies_too_late": partial(woken_too_late, zombies=4, jobs=4),
    "contention": partial(contention, processes=16, seconds=30),
    "budgets": partial(budgets, rounds=3, at_once=2),
    "signals": partial(signals, count=40),
    "poison_alone": partial(poison, how="alone", jobs=1_000),
    "poison_isolated": partial(poison, how="isolated", jobs=1_000),
    "worker_signals": partial(worker_signals, count=100),
    "worker_kills": partial(worker_kills, kills=20, waits_for_locks=1),
    "worker_zombies": partial(worker_zombies, zombies=6, waits_for_locks=True),
    "cancelled_awaits": partial(cancelled_awaits, count=2_000),
    "steps_on_fire": partial(steps_on_fire, jobs=400, blows=60, kills_workers=True),
    "effects": partial(effects, jobs=500, kills=50),
    "mixed_load": partial(_MIXED_LOAD, limits=Limits(budget=5, grace=1), has_fast_lane=True),
    "mixed_load_one_lane": partial(
        _MIXED_LOAD, limits=Limits(budget=5, grace=1, fast_slots=0), has_fast_lane=False
    ),
}


def play(name: str, scenario: Scenario, seed: int, folder: Path) -> Finding:
    """Run one; a command that failed by itself is a finding like any other."""
    try:
        return scenario(seed, folder / name)
    except CommandFailed as failed:
        return Finding(name, seed, {}, [str(failed)])

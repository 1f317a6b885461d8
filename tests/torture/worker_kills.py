"""Worker kills: a worker dies by kill -9 while others live, and they do its jobs in time."""

from __future__ import annotations

import signal
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from tests.torture import ledger
from tests.torture.checker import AFTER_A_STORM, Evidence, violations
from tests.torture.finding import Finding
from tests.torture.ledger import Event
from tests.torture.processes import Place, wait_until

_TYPES = ("work", "work", "work_in_thread", "quick")
_LOCK_LIFE_SECONDS = 60.0
# From the moment a lock has expired to that at which its job is pending again: at once, or, when
# the moment was set back behind the workers' backs, when they look by themselves.
_BACK_SECONDS = 1.0
_BACK_UNHEARD_SECONDS = 5.0
# Then it waits for a process of its own to start, and for its turn in it. Who is killed meanwhile
# takes such a process along, so the time is held against the limit only where nobody is.
_AGAIN_SECONDS = 10.0
# So often the victim is at work, so often it may just as well be starting.
_AT_WORK = 0.8
# So often the next kill does not wait until the jobs of the last victim run again.
_AT_ONCE = 0.5
_PATIENCE_SECONDS = 60.0
_DRAIN_SECONDS = 180.0


@dataclass(frozen=True)
class _Death:
    """What a worker held when it was killed, and when its locks expired or will have to."""

    name: str
    jobs: tuple[str, ...]
    killed: float
    expired: float
    is_followed_at_once: bool

    def is_undone(self, place: Place) -> bool:
        runs = place.database.runs_of(self.name)
        return bool(place.database.held_by(runs))


def worker_kills(
    seed: int, folder: Path, *, kills: int, waits_for_locks: int, workers: int = 2
) -> Finding:
    """So many kills; the locks of the last ones really expire, those of the others are set back."""
    chance = Random(seed)
    deaths: list[_Death] = []
    back: list[float] = []
    wrong: list[str] = []
    with Place(folder) as place:
        for number in range(kills):
            waits = number >= kills - waits_for_locks
            deaths.append(_kill_one(place, chance, workers, waits=waits))
            death = deaths[-1]
            late = _wait_for_take_back(place, death)
            back.append(late)
            if late > (_BACK_SECONDS if waits else _BACK_UNHEARD_SECONDS):
                wrong.append(f"{death.name}: jobs came back {late:.2f} s after their locks")
            if not death.is_followed_at_once:
                wait_until(partial(_all_ran_again, place, death), seconds=_PATIENCE_SECONDS)
        began = time.monotonic()
        is_drained = wait_until(place.database.is_drained, seconds=_DRAIN_SECONDS)
        drained = time.monotonic() - began
        wrong += _end(place)
        evidence = place.evidence()
        wrong += violations(evidence, AFTER_A_STORM) + _lost_without_cause(evidence, deaths)
        wrong += [] if is_drained else [f"not drained: {place.database.counts()}"]
        again = _run_again(place, [death for death in deaths if not death.is_followed_at_once])
        stormy = _run_again(place, [death for death in deaths if death.is_followed_at_once])
        wrong += [
            f"a job ran again {at:.1f} s after its lock" for at in again if at > _AGAIN_SECONDS
        ]
        losses = Counter(job.losses for job in evidence.jobs.values())
        figures = {
            "jobs": len(evidence.jobs),
            "kills": kills,
            "real_expiries": waits_for_locks,
            "held_at_death": [len(death.jobs) for death in deaths],
            "back_after_expiry_seconds": round(max(back), 2),
            "back_after_real_expiry_seconds": [
                round(at, 2) for at in back[kills - waits_for_locks :]
            ],
            "again_after_real_expiry_seconds": _spread(
                _run_again(place, deaths[kills - waits_for_locks :])
            ),
            "again_after_expiry_seconds": _spread(again),
            "again_while_others_die_seconds": _spread(stormy),
            "drained_seconds": round(drained, 1),
            "jobs_by_losses": {str(count): losses[count] for count in sorted(losses)},
            "executions": len(evidence.ledger.of(Event.START)),
        }
    return Finding("worker_kills", seed, figures, wrong)


def _kill_one(place: Place, chance: Random, workers: int, *, waits: bool) -> _Death:
    """Kill one of several busy workers at a random moment of its work."""
    while len(place.living()) < workers:
        place.start_worker()
    for job_type in _TYPES:
        seconds = [chance.uniform(0.005, 0.3) for _ in range(chance.randrange(5, 25))]
        place.enqueue(job_type, [{"seconds": each} for each in seconds])
    victim = chance.choice(place.living())
    if chance.random() < _AT_WORK:
        wait_until(lambda: place.has_started_work(victim), seconds=_PATIENCE_SECONDS)
    time.sleep(chance.uniform(0, 0.5))
    # Not behind the gate: it may die in the middle of a commit.
    place.kill(victim)
    killed = time.monotonic()
    with place.database.gate():
        runs = place.database.runs_of(victim.name)
        held = tuple(place.database.held_by(runs))
        if not waits:
            place.database.expire_locks(runs)
    expired = killed + _LOCK_LIFE_SECONDS if waits else time.monotonic()
    followed = not waits and chance.random() < _AT_ONCE
    return _Death(victim.name, held, killed, expired, followed)


def _wait_for_take_back(place: Place, death: _Death) -> float:
    """How long after the end of the locks the jobs were pending again, or more than that."""
    patience = max(0.0, death.expired - time.monotonic()) + _PATIENCE_SECONDS
    wait_until(lambda: not death.is_undone(place), seconds=patience)
    return max(0.0, time.monotonic() - death.expired)


def _lost_without_cause(evidence: Evidence, deaths: list[_Death]) -> list[str]:
    """A loss is counted for a job that a killed worker held, and only then."""
    held = Counter(job_id for death in deaths for job_id in death.jobs)
    return [
        f"{job.type} {job.id} was lost {job.losses} times, and held by {held[job.id]} who died"
        for job in evidence.jobs.values()
        if job.losses > held[job.id]
    ]


def _end(place: Place) -> list[str]:
    """The survivors are asked to stop, and have nothing to say."""
    living = place.living()
    for child in living:
        child.signal(signal.SIGTERM)
    return [f"{child.name} does not end" for child in living if not child.wait(10)] + [
        f"{child.name} ended with {child.exit_code}: {child.complaint()[-300:]}"
        for child in place.children
        if child.pid not in place.killed and (child.exit_code != 0 or child.complaint())
    ]


def _all_ran_again(place: Place, death: _Death) -> bool:
    return len(_run_again(place, [death])) == len(death.jobs)


def _run_again(place: Place, deaths: list[_Death]) -> list[float]:
    """For each job that died with a worker: how long after that it was started again."""
    by_job = ledger.read(place.ledger).by_job
    took = []
    for death in deaths:
        for job_id in death.jobs:
            entries = by_job.get(job_id, ())
            starts = [e.at / 1e9 for e in entries if e.event is Event.START]
            later = [at - death.expired for at in starts if at > death.killed]
            took += [min(later)] if later else []
    return took


def _spread(took: list[float]) -> dict[str, float]:
    ordered = sorted(took) or [0.0]
    return {
        "jobs": len(took),
        "median": round(ordered[len(ordered) // 2], 2),
        "most": round(ordered[-1], 2),
    }

"""What a run is given: everything that it touches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from edgeq.core.jobs import NewJob
from edgeq.core.runs import RunReport
from edgeq.events import Event
from edgeq.ports.clock import Chance, Clock
from edgeq.ports.store import Store
from edgeq.registry import Registry


@dataclass(frozen=True)
class ChildDied:
    """The process of an isolated job ended by itself: the job's doing."""


@dataclass(frozen=True)
class ChildRefused:
    """The process of an isolated job could not do its work: not the job's doing."""


@dataclass(frozen=True)
class LastChance:
    """What the process of isolated jobs is told: its run's id, and whose jobs it may take."""

    run_id: str
    from_losses: int


Isolate = Callable[[LastChance, float], Awaitable[RunReport | ChildDied | ChildRefused]]


@dataclass(frozen=True)
class Surroundings:
    """A store, handlers, time, chance, and who wants to hear of what happens."""

    store: Store
    registry: Registry
    clock: Clock
    chance: Chance
    announce: Callable[[Event], None]
    # Whether anybody would notice an ordinary move: at 20,000 jobs a second, not telling pays.
    has_listeners: Callable[[], bool]
    prepare_child: Callable[..., NewJob]
    new_id: Callable[[], str]
    worker_name: str = ""
    # Runs suspects, one at a time, in a process of its own and within so many seconds; answers
    # with that run's report, or how its process ended instead. Absent in a library.
    isolate: Isolate | None = None

"""What a run asks for next: free slots, types that still fit its time, and whether to wait."""

from __future__ import annotations

from collections.abc import Mapping

from edgeq.core.admission import (
    Admitted,
    AdmittedLong,
    Deferred,
    Verdict,
    admit,
    share,
)
from edgeq.core.durations import Histogram
from edgeq.core.job_types import JobType
from edgeq.core.lanes import (
    AHEAD_AT_MOST,
    claim_steps,
    claims_ahead,
    has_room,
    open_slots,
)
from edgeq.core.runs import RunLimits
from edgeq.core.steps import FIRST_PART, WHOLE
from edgeq.core.suspects import Quarantine, next_claim
from edgeq.crew import Crew
from edgeq.ports.commands import Claim, ClaimableType, CycleAnswer, RunStart
from edgeq.registry import AnyHandler
from edgeq.surroundings import LastChance
from edgeq.tally import RunTally

CHILD_START_SECONDS = 1.0


class ClaimPlanner:
    """Turns the state of a run into a claim, by the pure rules of the core."""

    def __init__(
        self,
        limits: RunLimits,
        handlers: Mapping[str, AnyHandler],
        start: RunStart,
        tally: RunTally,
        *,
        isolates_from: int | None,
        last_chance: LastChance | None,
    ) -> None:
        self._limits = limits
        self._tally = tally
        self._reserved = limits.reserved_slots()
        self._handlers = handlers
        self._types: list[tuple[JobType, AnyHandler]] = []
        self.learn(start)
        self._quarantine = Quarantine()
        # A job that was lost once waits to be run alone; one that was lost more often waits for
        # a process of its own.
        self.suspect_is_due = False
        self.last_chance_is_due = False
        # Where no child would have the time to start and to work, a suspect only runs alone.
        has_time = limits.budget >= 3 * CHILD_START_SECONDS
        self.isolates_from = isolates_from if has_time else None
        self._last_chance = last_chance
        self._is_first = True
        self.nothing_fits = False
        self._long: set[str] = set()
        self._turn = 0
        self.deferred: set[str] = set()

    def plan(self, crew: Crew, *, elapsed: float, now: int) -> Claim | None:
        """A claim, or None when there is no room or the run keeps quiet for a suspect."""
        steps = claim_steps(self._limits.concurrency, self._reserved, crew.by_lane)
        in_flight = len(crew.running) + crew.ahead
        if any(attempt.job.losses for attempt in crew.running.values()):
            return None
        if self._last_chance is not None:
            types = self._admitted(crew, elapsed)
            return Claim(
                types,
                steps,
                wants="last_chance",
                at_most=1,
                isolates_from=self._last_chance.from_losses,
            )
        self._quarantine, wants = next_claim(
            self._quarantine,
            suspect_is_due=self.suspect_is_due,
            in_flight=in_flight,
            now=now,
        )
        types = self._admitted(crew, elapsed)
        self.nothing_fits = not types and in_flight == 0
        ahead = self._ahead(types, crew)
        if wants == "nothing" or not types or not (steps or ahead):
            return None
        return Claim(
            types,
            steps,
            ahead=ahead,
            wants=wants,
            at_most=self._jobs_left(),
            sparing=crew.spared,
            isolates_from=self.isolates_from,
            asks_when=self._limits.is_resident,
        )

    def heard(self, answer: CycleAnswer) -> None:
        self._is_first = False
        # A child for last chances is not there for those who only have to run alone.
        self.suspect_is_due = answer.suspect_is_due and self._last_chance is None
        self.last_chance_is_due = answer.last_chance_is_due

    def learn(self, start: RunStart) -> None:
        """What the store knows by now of the types, and of how long their work takes."""
        self._known: Mapping[tuple[str, str], Histogram] = {
            **{(name, WHOLE): took for name, took in start.durations.items()},
            **start.step_durations,
        }
        self._types = [
            (stored, self._handlers[stored.policy.handler_name])
            for stored in start.types
            if stored.policy.handler_name in self._handlers and _is_wanted(stored, self._limits)
        ]

    def has_room(self, crew: Crew, sparing: int, lane: str) -> bool:
        """Whether one more job of a lane may start now."""
        return has_room(
            lane, self._limits.concurrency, self._reserved, crew.by_lane, sparing=sparing
        )

    def is_long(self, type_name: str) -> bool:
        return type_name in self._long

    def has_spent_its_jobs(self) -> bool:
        return self._jobs_left() == 0

    def _jobs_left(self) -> int | None:
        most = self._limits.max_jobs
        return None if most is None else max(0, most - self._tally.claimed)

    def _admitted(self, crew: Crew, elapsed: float) -> tuple[ClaimableType, ...]:
        long_running = sum(attempt.is_long for attempt in crew.running.values())
        took = {stored.name: self._first_part(stored.name) for stored, _ in self._types}
        verdicts = {
            name: admit(
                durations,
                self._limits,
                elapsed=elapsed,
                is_first_claim=self._is_first,
                long_running=long_running,
                open_slots=open_slots(self._limits.concurrency, self._reserved),
            )
            for name, durations in took.items()
        }
        at_most = self._heed(verdicts)
        return tuple(
            ClaimableType(
                stored.name,
                at_most[stored.name],
                handler.policy.version,
                ahead=claims_ahead(
                    self._durations(stored.name),
                    is_limited=stored.policy.max_concurrent is not None,
                ),
            )
            for stored, handler in self._types
            if at_most[stored.name] > 0
        )

    def _heed(self, verdicts: Mapping[str, Verdict]) -> dict[str, int]:
        """How many of each type may be claimed; all long types together share one room."""
        self.deferred = {name for name, verdict in verdicts.items() if verdict == Deferred()}
        rooms = {n: v.at_most for n, v in verdicts.items() if isinstance(v, AdmittedLong)}
        self._long = set(rooms)
        self._turn += 1
        shares = share(max(rooms.values(), default=0), sorted(rooms), self._turn)
        many = AHEAD_AT_MOST + self._limits.concurrency
        return {
            name: many if verdict == Admitted() else shares.get(name, 0)
            for name, verdict in verdicts.items()
        }

    def _durations(self, name: str, step: str = WHOLE) -> Histogram:
        # Asked several times for each claim: where there is only one of the two, nothing is added.
        known = self._known.get((name, step))
        here = self._tally.durations_of(name, step)
        if known is None:
            return here
        return known if here is Histogram.EMPTY else known.merge(here)

    def _first_part(self, name: str) -> Histogram:
        """What has to fit before a job can stop: its first step, or all of it."""
        first = self._durations(name, FIRST_PART)
        return self._durations(name) if first is Histogram.EMPTY else first

    def _ahead(self, types: tuple[ClaimableType, ...], crew: Crew) -> int:
        """A suspect runs alone, and what is claimed ahead of it would be in its company."""
        if self.suspect_is_due or not any(each.ahead for each in types):
            return 0
        return AHEAD_AT_MOST - crew.ahead


def _is_wanted(stored: JobType, limits: RunLimits) -> bool:
    return (limits.types is None or stored.name in limits.types) and (
        limits.lanes is None or stored.policy.lane in limits.lanes
    )

"""Plans: what the steps of a job do, and what they come to if nobody disturbs them."""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any, Literal

import msgspec


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A step of a name and a key that raises so many times before it succeeds, or a sleep."""

    kind: Literal["step", "def_step", "sleep"]
    name: str = ""
    key: int | None = None
    seconds: float = 0.0
    fails: int = 0


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seed: int
    parts: tuple[Part, ...]

    def attempt_of(self, place: int) -> int:
        """The attempt in which this part succeeds: each failure before it took one."""
        return 1 + sum(part.fails for part in self.parts[: place + 1])

    def value(self, place: int, before: Any) -> Any:
        """A step's result: it depends on the last one, so a wrong one shows at the end."""
        digest = hashlib.sha256(f"{self.seed}:{place}:{before!r}".encode()).hexdigest()
        shapes: tuple[Any, ...] = (
            digest,
            int(digest[:12], 16),
            {"of": digest, "place": place},
            [digest[:8], None, place],
        )
        return shapes[place % len(shapes)]

    def results(self) -> dict[int, Any]:
        """The results of all steps by their places in an uninterrupted run."""
        found: dict[int, Any] = {}
        before: Any = None
        for place, part in enumerate(self.parts):
            if part.kind != "sleep":
                before = found[place] = self.value(place, before)
        return found

    def output(self) -> Any:
        return list(self.results().values())[-1]

    def step_ids(self) -> dict[tuple[str, str], int]:
        """The places by the names and keys under which edgeq keeps them."""
        found = {}
        sleeps = 0
        for place, part in enumerate(self.parts):
            if part.kind == "sleep":
                sleeps += 1
                found["sleep", str(sleeps)] = place
            else:
                found[part.name, "" if part.key is None else str(part.key)] = place
        return found


def random_plan(chance: Random, *, has_threads: bool = True) -> Plan:
    """A handful of short steps, in loops and alone; some fail, some sleep."""
    parts: list[Part] = []
    for number in range(chance.randint(3, 12)):
        kind: Literal["step", "def_step"] = (
            "def_step" if has_threads and chance.random() < 0.25 else "step"
        )
        is_looped = chance.random() < 0.6
        parts.append(
            Part(
                kind,
                "page" if is_looped else f"part {number}",
                number if is_looped else None,
                round(chance.choice((0.0, 0.005, 0.03, 0.1)) * chance.uniform(0.5, 1.5), 4),
                chance.choice((0,) * 9 + (1, 2)),
            )
        )
        if chance.random() < 0.08:
            parts.append(Part("sleep", seconds=round(chance.uniform(0, 0.6), 3)))
    return Plan(chance.randrange(10**9), tuple(parts))

"""Suspects: jobs that were lost with a process run alone, so that poison takes no neighbours.

A job on its last chance runs in a process of its own where that is possible. Its death then tells
poison, which ends its own process, from bad luck, which ends the parent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LAST_CHANCE = 2
QUIET_MS = 2_000
BUSY_MS = 10_000


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Whether this run is keeping quiet (claiming nothing) to let a suspect run alone."""

    quiet_since: int | None = None
    not_before: int = 0


def next_claim(
    quarantine: Quarantine, *, suspect_is_due: bool, in_flight: int, now: int
) -> tuple[Quarantine, str]:
    """What to claim: 'suspect' (alone), 'others', or 'nothing' while the run falls quiet.

    Quiet is kept for two seconds at most: slots must not idle behind one long job that was
    already running. After that, others are claimed for ten seconds before the next try.
    """
    if not suspect_is_due:
        return replace(quarantine, quiet_since=None), "others"
    if in_flight == 0:
        return Quarantine(), "suspect"
    if now < quarantine.not_before:
        return quarantine, "others"
    since = quarantine.quiet_since if quarantine.quiet_since is not None else now
    if now - since >= QUIET_MS:
        return Quarantine(None, now + BUSY_MS), "others"
    return Quarantine(since, quarantine.not_before), "nothing"

"""The change feed as its readers see it: events in the order of their commits, each resumable."""

from __future__ import annotations

import msgspec

# A commit tells of fewer changes than this, so one integer names a commit and a place in it.
_PLACES = 1 << 20


class JobEvent(msgspec.Struct, frozen=True):
    """One thing that happened to a job; `position` resumes the feed right after it."""

    position: int
    event: str
    job_id: str
    type: str
    status: str
    attempt: int
    progress: int
    at: int
    tenant_id: str | None = None


class FeedReset(msgspec.Struct, frozen=True):
    """The feed no longer has what followed the position that was asked for.

    Whoever kept a picture of jobs has to look at them again; the feed goes on from `position`.
    """

    position: int


def position_of(commit: int, place: int) -> int:
    """The position before the change at `place` (from 0) of a commit."""
    return commit * _PLACES + place


def commit_and_place(position: int) -> tuple[int, int]:
    """The commit that a reader at this position reads next, and how much of it it has seen."""
    return divmod(position, _PLACES)

"""Findings: how one thing that was looked at is, and what to do about it."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

import msgspec


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Fine(msgspec.Struct, frozen=True):
    """Nothing has to be done; the message may still be worth reading."""

    message: str


class Doubtful(msgspec.Struct, frozen=True):
    """The queue works, but not for ever or not for everybody."""

    message: str
    fix: str


class Broken(msgspec.Struct, frozen=True):
    """The queue does not work, or may lose what it was given."""

    message: str
    fix: str


Verdict = Fine | Doubtful | Broken


class Finding(msgspec.Struct, frozen=True):
    """A verdict with the name of the check that came to it; `fix` is None when all is well."""

    check: str
    level: Level
    message: str
    fix: str | None = None


def finding(check: str, verdict: Verdict) -> Finding:
    match verdict:
        case Fine(message):
            return Finding(check, Level.OK, message)
        case Doubtful(message, fix):
            return Finding(check, Level.WARNING, message, fix)
        case Broken(message, fix):
            return Finding(check, Level.ERROR, message, fix)
        case _:
            assert_never(verdict)

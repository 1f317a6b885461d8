"""The facts that edgeq announces, and the one observer that turns them into log lines."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

_log = logging.getLogger("edgeq")


@dataclass(frozen=True, slots=True)
class JobMoved:
    """A job went from one state to another, by a run or by a person."""

    job_id: str
    type: str
    before: str | None
    after: str
    attempt: int
    run_id: str | None = None
    duration_ms: int | None = None
    error_class: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LockWasLost:
    """A run learned that a job it worked on belongs to somebody else."""

    job_id: str
    type: str
    run_id: str


@dataclass(frozen=True, slots=True)
class ClockJumped:
    """The wall clock moved by itself: locks are not taken back for a while."""

    run_id: str
    by_ms: int


@dataclass(frozen=True, slots=True)
class RunStarted:
    run_id: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    run_id: str
    stopped: str
    claimed: int
    duration_ms: int


Event = JobMoved | LockWasLost | ClockJumped | RunStarted | RunEnded
Observer = Callable[[Event], None]


def log_observer(event: Event) -> None:
    """One line for each event; `extra` carries the same as fields, for structured logs."""
    match event:
        case JobMoved():
            _log_move(event)
        case LockWasLost(job_id, type_name, run_id):
            _log.warning("%s %s lock lost run=%s", type_name, job_id, run_id, extra=_fields(event))
        case ClockJumped(run_id, by_ms):
            _log.warning(
                "the clock jumped by %d ms, locks are left alone for now run=%s",
                by_ms,
                run_id,
                extra=_fields(event),
            )
        case RunStarted(run_id):
            _log.debug("run %s started", run_id, extra=_fields(event))
        case RunEnded(run_id, stopped, claimed, duration_ms):
            _log.debug(
                "run %s ended: %s, %d jobs in %d ms",
                run_id,
                stopped,
                claimed,
                duration_ms,
                extra=_fields(event),
            )
        case _:
            assert_never(event)


def moves_are_logged() -> bool:
    return _log.isEnabledFor(logging.INFO)


def _log_move(event: JobMoved) -> None:
    level = logging.WARNING if event.after == "failed" else logging.INFO
    if not _log.isEnabledFor(level):
        return
    took = "" if event.duration_ms is None else f" duration_ms={event.duration_ms}"
    run = "" if event.run_id is None else f" run={event.run_id}"
    error = "" if event.error is None else f" error={event.error_class}: {event.error}"
    _log.log(
        level,
        "%s %s %s -> %s attempt=%d%s%s%s",
        event.type,
        event.job_id,
        event.before or "new",
        event.after,
        event.attempt,
        took,
        run,
        error,
        extra=_fields(event),
    )


def _fields(event: Event) -> dict[str, object]:
    """Under one name, so that no field can collide with those of a log record."""
    return {"edgeq": {name: getattr(event, name) for name in event.__slots__}}

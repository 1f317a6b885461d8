"""Verdicts about what is in the database: its schema, its switches, its locks and its times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from edgeq.core.findings import Broken, Doubtful, Fine, Verdict
from edgeq.core.times import format_time, human_duration, parse_time_ms

# A lock lasts a minute, and a run takes back what has expired: after one more, none has come by.
LOCK_OVERDUE_MS = 60_000
LONGEST_LOCK_MS = 61_000
# Less than that between two machines, or before and after a correction, harms nothing.
CLOCK_LEEWAY_MS = 60_000
RUN_SILENT_MS = 3_600_000
_NO_CLOCK_BEFORE = parse_time_ms("2020-01-01T00:00:00Z")
_MOST_NAMED = 5


class Latest(msgspec.Struct, frozen=True):
    """The latest times that the database knows; none of them should be far from now."""

    created_at: int | None
    started_at: int | None
    lock_expires_at: int | None


def judge_schema(
    version: str | None, known: Sequence[str], *, is_empty: bool, is_ours: bool
) -> Verdict:
    head = known[-1]
    if version == head:
        return Fine(f"The schema is {head}.")
    if version in known:
        return Doubtful(
            f"The schema is {version}, and this edgeq's is {head}.",
            "`edgeq migrate`; every other command does it too.",
        )
    if is_empty:
        return Doubtful(
            "The database is empty. If it was not, the disk that had it may be missing.",
            "Check --db; `edgeq migrate` makes the schema.",
        )
    if not is_ours:
        return Broken(
            "This is an SQLite database of another program.",
            "Name another file by --db: edgeq would add its tables to this one.",
        )
    return Broken(
        f"The schema is {version}, which this edgeq does not know (it knows up to {head}).",
        "Install the newer edgeq that made it.",
    )


def judge_guard(mode: str | None) -> Verdict:
    match mode:
        case "open":
            return Fine("Writes are let through.")
        case None:
            return Broken(
                "The guard row is missing: every write is refused.",
                "Restore the last backup; something else has written to this database.",
            )
        case "moved":
            return Broken(
                "The queue has moved: this database takes no writes.",
                "Use the database that it was moved to.",
            )
        case _:
            return Broken(
                f"The queue is {mode}: it takes no writes.",
                "When whoever set this is done, set queue_guard.mode back to 'open'.",
            )


def judge_unhandled(due: Mapping[str, int], counted_at_most: int) -> Verdict:
    """Due jobs by type, of the types that no handler here serves."""
    waiting = {name: count for name, count in due.items() if count}
    if not waiting:
        return Fine("Every due job has a handler here.")
    listed = ", ".join(
        f"{name} ({count:,}{'+' if count >= counted_at_most else ''})"
        for name, count in sorted(waiting.items())
    )
    return Doubtful(
        f"Due jobs that no handler here serves: {listed}.",
        "Add the handlers, or run `edgeq process` where they are.",
    )


def judge_expired(job_ids: Sequence[str]) -> Verdict:
    if not job_ids:
        return Fine("No lock is overdue.")
    return Doubtful(
        f"Nobody has taken back {_jobs(job_ids)}, whose lock expired more than "
        f"{human_duration(LOCK_OVERDUE_MS)} ago.",
        "Run `edgeq process`: it takes them back. Is the crontab line still there?",
    )


def judge_orphaned(job_ids: Sequence[str]) -> Verdict:
    if not job_ids:
        return Fine("No ended run holds a job.")
    return Doubtful(
        f"The run has ended, and still holds {_jobs(job_ids)}.",
        "The next run takes them back when the lock has expired; `edgeq jobs release ID` does it "
        "at once.",
    )


def judge_clock(now: int, latest: Latest) -> Verdict:
    if now < _NO_CLOCK_BEFORE:
        return Broken(
            f"The clock says {format_time(now)}: it was never set.", "Set the machine's clock."
        )
    ahead = {
        "a job was created": _beyond(latest.created_at, now),
        "a run was started": _beyond(latest.started_at, now),
        "a lock began": _beyond(latest.lock_expires_at, now + LONGEST_LOCK_MS),
    }
    what, most = max(ahead.items(), key=lambda item: item[1])
    if most <= CLOCK_LEEWAY_MS:
        return Fine("The clock agrees with the database.")
    return Doubtful(
        f"The clock is behind the database: {what} {human_duration(most)} in the future. It was "
        "set back, or another machine has written here.",
        "Set the machine's clock (NTP); until then new jobs sort before old ones.",
    )


def _beyond(at: int | None, limit: int) -> int:
    return 0 if at is None else max(0, at - limit)


def judge_silent_runs(count: int) -> Verdict:
    if not count:
        return Fine("Every run has ended, or is young.")
    runs = "run" if count == 1 else "runs"
    return Fine(
        f"{count} {runs} never said how they ended: killed, or still at it after "
        f"{human_duration(RUN_SILENT_MS)}."
    )


def judge_switch(*, is_enabled: bool) -> Verdict:
    if is_enabled:
        return Fine("Runs are allowed.")
    return Doubtful(
        "worker_enabled is false: no run starts a job.", "edgeq config unset worker_enabled"
    )


def judge_settings(*, is_durable: bool) -> Verdict:
    if is_durable:
        return Fine("Commits are on disk when they return.")
    return Fine(
        "EDGEQ_SYNCHRONOUS is normal: a power failure may lose the last commits, and nothing else."
    )


def _jobs(job_ids: Sequence[str]) -> str:
    named = ", ".join(job_ids[:_MOST_NAMED])
    more = len(job_ids) - _MOST_NAMED
    return f"{len(job_ids)} jobs: {named}, and {more} more" if more > 0 else f"job {named}"

"""The checks, in the order in which they are told."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from edgeq.core import file_health as file
from edgeq.core import queue_health as queue
from edgeq.core.findings import Broken, Fine, Verdict
from edgeq.core.mounts import judge_file_system
from edgeq.doctor.machine import Machine
from edgeq.errors import HandlerProblem
from edgeq.ports.queries import COUNTED_AT_MOST
from edgeq.registry import load
from edgeq.settings import Settings
from edgeq.store.gate import gate_of, held_by
from edgeq.store.inspection import KNOWN_REVISIONS, Inspection, beside, sqlite_version

GATE_SECONDS = 1.0
# Long enough to tell a read that lasts from one that happened to be there.
READ_SECONDS = 0.5
_READ_LOOKS = 10


@dataclass(frozen=True, slots=True)
class Subject:
    """What is examined: a database file, and how it would be used from here."""

    path: Path
    now: int
    settings: Settings
    machine: Machine
    handlers: str | None = None
    full: bool = False


class Reach(IntEnum):
    """How far a subject could be reached; a check needs at least its own."""

    NOTHING = 0
    FOLDER = 1
    FILE = 2
    OPENED = 3
    SCHEMA = 4


@dataclass(frozen=True, slots=True)
class SurroundingsCheck:
    """A check that needs no connection to the database."""

    name: str
    needs: Reach
    look: Callable[[Subject], Iterator[Verdict]]


@dataclass(frozen=True, slots=True)
class ContentCheck:
    """A check of what is in the database."""

    name: str
    needs: Reach
    look: Callable[[Subject, Inspection], Iterator[Verdict]]


def sqlite_build(_subject: Subject) -> Iterator[Verdict]:
    yield file.judge_build(sqlite_version())


def journal_mode(_subject: Subject, inside: Inspection) -> Iterator[Verdict]:
    # A file without any page has no mode yet; the first migration sets it.
    mode = "wal" if inside.is_empty() else inside.journal_mode()
    yield file.judge_journal(mode)


def file_system(subject: Subject) -> Iterator[Verdict]:
    yield judge_file_system(subject.machine.file_system(subject.path.parent))


def permissions(subject: Subject) -> Iterator[Verdict]:
    files = [subject.path, *beside(subject.path), gate_of(subject.path)]
    looks = [subject.machine.look_at(each) for each in files if each.exists()]
    problems = list(file.judge_files(looks, os.geteuid()))
    folder = subject.path.parent
    in_folder = file.judge_folder(str(folder), is_writable=subject.machine.is_writable(folder))
    yield from problems
    if not problems or not isinstance(in_folder, Fine):
        yield in_folder


def free_space(subject: Subject) -> Iterator[Verdict]:
    yield file.judge_space(subject.machine.free_bytes(subject.path.parent))


def wal_size(subject: Subject) -> Iterator[Verdict]:
    wal, _ = beside(subject.path)
    size = _size_of(wal)
    open_in = subject.machine.open_in(wal) if size > file.WAL_AT_MOST else ()
    yield file.judge_wal(size, open_in)


def schema(_subject: Subject, inside: Inspection) -> Iterator[Verdict]:
    yield queue.judge_schema(
        inside.schema_version(),
        KNOWN_REVISIONS,
        is_empty=inside.is_empty(),
        is_ours=inside.is_ours(),
    )


def guard(_subject: Subject, inside: Inspection) -> Iterator[Verdict]:
    yield queue.judge_guard(inside.guard_mode())


def gate(subject: Subject) -> Iterator[Verdict]:
    holder = held_by(subject.path, GATE_SECONDS)
    is_stopped = holder is not None and subject.machine.is_stopped(holder)
    yield file.judge_gate(holder, is_stopped=is_stopped, seconds=GATE_SECONDS)


def integrity(subject: Subject, inside: Inspection) -> Iterator[Verdict]:
    size = _size_of(subject.path)
    if file.is_checked(size, full=subject.full):
        yield file.judge_pages(inside.damaged_pages())
    else:
        yield Fine(f"Not looked at: the file has {file.format_bytes(size)}. `--full` does.")


def handlers(subject: Subject, inside: Inspection) -> Iterator[Verdict]:
    if subject.handlers is None:
        yield Fine("Not looked at: no handlers are given.")
        return
    try:
        served = load(subject.handlers).handlers
    except HandlerProblem as problem:
        yield Broken(str(problem), "Repair the file, or name another folder by --handlers.")
        return
    unserved = [each for each in inside.types() if each.policy.handler_name not in served]
    due = {each.name: inside.count_due(each) for each in unserved if each.is_claimable}
    yield queue.judge_unhandled(due, COUNTED_AT_MOST)


def stuck_locks(subject: Subject, inside: Inspection) -> Iterator[Verdict]:
    expired = inside.expired_locks(subject.now - queue.LOCK_OVERDUE_MS)
    orphaned = set(inside.locks_of_ended_runs()) - set(expired)
    yield queue.judge_expired(expired)
    if orphaned:
        yield queue.judge_orphaned(sorted(orphaned))


def long_readers(subject: Subject) -> Iterator[Verdict]:
    wal, index = beside(subject.path)
    staying = subject.machine.readers_of(index)
    for _ in range(_READ_LOOKS):
        if not staying:
            break
        time.sleep(READ_SECONDS / _READ_LOOKS)
        staying &= subject.machine.readers_of(index) or frozenset()
    named = None if staying is None else [subject.machine.describe(pid) for pid in sorted(staying)]
    yield file.judge_readers(named, _size_of(wal))


def clock(subject: Subject, inside: Inspection) -> Iterator[Verdict]:
    yield queue.judge_clock(subject.now, inside.latest())


def runs(subject: Subject, inside: Inspection) -> Iterator[Verdict]:
    yield queue.judge_silent_runs(inside.count_silent_runs(subject.now - queue.RUN_SILENT_MS))


def switch(_subject: Subject, inside: Inspection) -> Iterator[Verdict]:
    yield queue.judge_switch(is_enabled=inside.config().get("worker_enabled") is not False)


def settings(subject: Subject) -> Iterator[Verdict]:
    yield queue.judge_settings(is_durable=subject.settings.is_durable)


def _size_of(path: Path) -> int:
    """By `stat` alone: to open the file here would drop SQLite's locks on it in this process."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


Check = SurroundingsCheck | ContentCheck
SQLITE_CHECKS: tuple[Check, ...] = (
    SurroundingsCheck("sqlite", Reach.NOTHING, sqlite_build),
    ContentCheck("journal_mode", Reach.OPENED, journal_mode),
    SurroundingsCheck("file_system", Reach.FOLDER, file_system),
    SurroundingsCheck("permissions", Reach.FILE, permissions),
    SurroundingsCheck("free_space", Reach.FOLDER, free_space),
    SurroundingsCheck("wal_size", Reach.FILE, wal_size),
    ContentCheck("schema", Reach.OPENED, schema),
    ContentCheck("guard", Reach.SCHEMA, guard),
    SurroundingsCheck("gate", Reach.FILE, gate),
    ContentCheck("integrity", Reach.OPENED, integrity),
    ContentCheck("handlers", Reach.SCHEMA, handlers),
    ContentCheck("stuck_locks", Reach.SCHEMA, stuck_locks),
    SurroundingsCheck("long_readers", Reach.FILE, long_readers),
    ContentCheck("clock", Reach.SCHEMA, clock),
    ContentCheck("runs", Reach.SCHEMA, runs),
    ContentCheck("switch", Reach.SCHEMA, switch),
    SurroundingsCheck("settings", Reach.NOTHING, settings),
)

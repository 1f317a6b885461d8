"""The promises, each as a function from what is known to what is wrong with it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tests.torture.database import JobRow
from tests.torture.ledger import Entry, Event, Ledger

Promise = Callable[["Evidence"], list[str]]


@dataclass(frozen=True)
class Evidence:
    """The database and the ledger after everything has ended."""

    accepted: tuple[str, ...]
    jobs: Mapping[str, JobRow]
    completions: Counter[str]  # by job, from the change feed
    letters: Counter[str]
    ledger: Ledger
    killed: frozenset[int | str] = frozenset()  # pids, and the names of these processes
    integrity: str = "ok"
    poison: frozenset[str] = frozenset()

    def was_killed(self, entry: Entry) -> bool:
        """Whether the process that said this was killed, or the one that it dies with."""
        return not self.killed.isdisjoint((entry.pid, entry.parent, entry.worker))


def violations(evidence: Evidence, promises: Iterable[Promise]) -> list[str]:
    return [f"{promise.__name__}: {wrong}" for promise in promises for wrong in promise(evidence)]


def nothing_accepted_is_lost(evidence: Evidence) -> list[str]:
    return [f"job {job_id} is gone" for job_id in evidence.accepted if job_id not in evidence.jobs]


def every_job_completed(evidence: Evidence) -> list[str]:
    return [
        f"job {job.id} is {job.status} ({job.error_class}), {job.losses} losses"
        for job in evidence.jobs.values()
        if job.status != "completed" and job.id not in evidence.poison
    ]


def one_accepted_completion_each(evidence: Evidence) -> list[str]:
    """As often as a job is completed it was accepted: once, and from a handler that did end."""
    wrong = []
    for job in evidence.jobs.values():
        times = evidence.completions[job.id]
        if times != (job.status == "completed"):
            wrong.append(f"job {job.id} is {job.status} and was completed {times} times")
        if job.status == "completed" and not _was_done_by(job, evidence.ledger):
            wrong.append(f"job {job.id} has the output {job.output}, which no handler returned")
    return wrong


def _was_done_by(job: JobRow, ledger: Ledger) -> bool:
    ends = {(entry.pid, entry.fence) for entry in ledger.of(Event.END, job.id)}
    output = job.output
    return isinstance(output, dict) and (output["pid"], output["fence"]) in ends


def none_stuck(evidence: Evidence) -> list[str]:
    return [
        f"job {job.id} is processing, locked by {job.locked_by}"
        for job in evidence.jobs.values()
        if job.status == "processing"
    ]


def nobody_innocent_failed(evidence: Evidence) -> list[str]:
    return [
        f"job {job.id} failed as {job.error_class} after {job.losses} losses"
        for job in evidence.jobs.values()
        if job.status == "failed" and job.id not in evidence.poison
    ]


def executions_are_explained(evidence: Evidence) -> list[str]:
    """At most once in a process that was left alone, and once for each kill that hit it."""
    wrong = []
    for job_id, entries in evidence.ledger.by_job.items():
        starts = [entry for entry in entries if entry.event is Event.START]
        in_peace = [entry for entry in starts if not evidence.was_killed(entry)]
        if len(in_peace) > 1 and job_id not in evidence.poison:
            pids = [entry.pid for entry in in_peace]
            wrong.append(f"job {job_id} ran {len(pids)} times in living processes {pids}")
        if len({entry.fence for entry in starts}) != len(starts):
            wrong.append(f"job {job_id} was started twice under one fence")
    return wrong


def suspects_run_alone(evidence: Evidence) -> list[str]:
    """A job that was lost before has its process to itself."""
    by_process: defaultdict[int, list[_Span]] = defaultdict(list)
    for span in _spans(evidence.ledger):
        by_process[span.pid].append(span)
    return [
        f"job {span.job_id}, lost before, ran beside {other.job_id}"
        for spans in by_process.values()
        for span in spans
        for other in spans
        if span.losses and other is not span and other.overlaps(span)
    ]


@dataclass(frozen=True, slots=True)
class _Span:
    """One execution; one that neither ended nor learned that it was lost died with its process."""

    pid: int
    job_id: str
    losses: int
    began: int
    ended: float

    def overlaps(self, other: _Span) -> bool:
        return self.began < other.ended and other.began < self.ended


def _spans(ledger: Ledger) -> list[_Span]:
    ends = {_execution(e): e.at for e in ledger.entries if e.event is not Event.START}
    return [
        _Span(
            entry.pid,
            entry.job_id,
            entry.losses,
            entry.at,
            ends.get(_execution(entry), float("inf")),
        )
        for entry in ledger.of(Event.START)
    ]


def _execution(entry: Entry) -> tuple[int, str, int]:
    return entry.pid, entry.job_id, entry.fence


def poison_failed_after_three_losses(evidence: Evidence) -> list[str]:
    wrong = []
    for job_id in evidence.poison:
        job = evidence.jobs[job_id]
        outcome = (job.status, job.error_class, job.losses, evidence.letters[job_id])
        if outcome != ("failed", "worker_lost", 3, 1):
            wrong.append(f"poison {job_id}: {outcome}")
        starts = len(evidence.ledger.of(Event.START, job_id))
        if starts != 3:
            wrong.append(f"poison {job_id} was started {starts} times")
    return wrong


def integrity_ok(evidence: Evidence) -> list[str]:
    return [] if evidence.integrity == "ok" else [evidence.integrity]


AFTER_ANYTHING: tuple[Promise, ...] = (
    nothing_accepted_is_lost,
    none_stuck,
    one_accepted_completion_each,
    suspects_run_alone,
    integrity_ok,
)
AFTER_A_STORM: tuple[Promise, ...] = (
    *AFTER_ANYTHING,
    every_job_completed,
    nobody_innocent_failed,
    executions_are_explained,
)

"""Query plans: nothing that a run or a page does reads or sorts more rows as the queue grows.

A plan may scan and sort the two partial indexes that stay small: running jobs and suspects. It may
sort what was found one by one by a unique key, or what comes out of the arms of a page, because
each arm stops at the page's size. It may never sort what a range of another index has found.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import event

from edgeq.core.durations import Histogram
from edgeq.core.ids import unique_key, uuid7
from edgeq.core.job_types import TypePolicy
from edgeq.core.jobs import ClaimedJob, JobStatus, LogLevel, NewJob
from edgeq.core.lanes import ClaimStep
from edgeq.core.outcomes import Completed, NeedsReview, Outcome
from edgeq.core.runs import RunReport
from edgeq.ports import commands as c
from edgeq.ports import flow_commands as f
from edgeq.ports import queries as q
from edgeq.store import system_sql
from edgeq.store.executors import EXECUTORS
from edgeq.store.gate import Gate
from edgeq.store.jobs_sql import held_by
from edgeq.store.sqlite import SqliteStore
from edgeq.store.sqlite_readers import SqliteReaders
from edgeq.store.sqlite_session import SqliteSession, SqliteTransaction
from edgeq.testing import FakeChance, FakeClock
from tests.store.conformance.acts import BOSS, BROKEN, FLAKY, LOCK_MS, ended
from tests.store.conformance.test_steps import new_step

JOBS = 3000
GROWING = (
    "background_jobs",
    "background_job_logs",
    "background_job_attempts",
    "background_job_steps",
    "job_dependencies",
    "job_batches",
    "dead_letters",
)
TYPES = (
    TypePolicy(name="mail", category="out", lane="fast"),
    TypePolicy(name="scan", category="in", max_concurrent=500, max_pending=5000),
    TypePolicy(name="plain"),
)
CLAIM = c.Claim(
    tuple(c.ClaimableType(policy.name, 1000, 1, ahead=True) for policy in TYPES),
    (ClaimStep("fast", 3), ClaimStep(None, 5)),
    ahead=10,
)
Seen = tuple[str, Any]
# A job has as many steps as its handler asks for, however many jobs there are.
_OF_ONE_JOB = r"INDEX steps_by_job \(job_id=\?"


class RecordingConnection(sqlite3.Connection):
    """Remembers every statement with what was bound to it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.seen: list[Seen] = []

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.seen.append((sql, parameters))
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        rows = list(parameters)
        self.seen += [(sql, row) for row in rows[:1]]
        return super().executemany(sql, rows)


class Database:
    """A queue with a few thousand jobs in all states."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FakeClock()
        self._chance = FakeChance(3)
        self.claimed: list[ClaimedJob] = []
        self.ids: dict[JobStatus, str] = {}
        self.family = ""

    def new_job(self, n: int) -> NewJob:
        now = self.clock.now() - n
        kind = TYPES[n % 3].name
        key = f"k-{n}" if n % 4 == 0 else None
        return NewJob(
            id=uuid7(now, self._chance.bits(74)),
            type=kind,
            created_at=now,
            scheduled_for=now + (10**7 if n % 10 == 0 else 0),
            priority=1 + n % 20,
            tenant_id=f"t-{n % 5}" if n % 2 else None,
            correlation_id=f"c-{n % 50}" if n % 3 else None,
            parent_job_id=f"p-{n % 50}" if n % 7 == 0 else None,
            reference_type="order" if n % 5 == 0 else None,
            reference_id=f"{n}" if n % 5 == 0 else None,
            idempotency_key=key,
            unique_key=None if key is None else unique_key(None, kind, key),
        )

    def fill(self) -> None:
        store = SqliteStore(f"sqlite:///{self.path}", self.clock, durable=False)
        store.open_blocking()
        store.write_blocking(c.RegisterTypes(TYPES))
        store.write_blocking(c.InsertJobs(tuple(self.new_job(n) for n in range(JOBS))))
        many = c.Claim(CLAIM.types, (ClaimStep(None, 1000),))
        until = self.clock.now() + LOCK_MS
        claimed = store.write_blocking(c.Cycle("run-1", until, claim=many)).claimed
        outcomes: list[Outcome] = [Completed("1"), BROKEN, FLAKY, NeedsReview("look")]
        settled = [ended(job, outcomes[n % 4]) for n, job in enumerate(claimed[:900])]
        notes = tuple(note(job) for job in claimed[:900])
        store.write_blocking(c.Cycle("run-1", until, notes=notes, settled=tuple(settled)))
        # A few jobs are lost with their process, and one is running.
        self.clock.advance(61)
        store.write_blocking(c.Cycle("run-2", until, claim=c.Claim((), ())))
        until = self.clock.now() + LOCK_MS
        one = c.Claim(CLAIM.types, (ClaimStep(None, 4),))
        self.claimed += store.write_blocking(c.Cycle("run-2", until, claim=one)).claimed
        self._fill_flows(store)
        store.close_blocking()
        with closing(sqlite3.connect(self.path)) as connection:
            rows = connection.execute("SELECT status, min(id) FROM background_jobs GROUP BY 1")
            self.ids = {JobStatus(status): job_id for status, job_id in rows}

    def _fill_flows(self, store: SqliteStore) -> None:
        """Steps of a running job, jobs that wait, and a batch."""
        job = self.claimed[0]
        for n in range(50):
            store.write_blocking(f.RecordStep(new_step(job, "page", str(n))))
        for n in range(50):
            first = self.new_job(JOBS + n)
            then = replace(self.new_job(JOBS + n), after=(first.id,), parent_job_id=first.id)
            about = f.NewBatch(f"b-{n}", None, None, None, 1)
            last = self.new_job(JOBS + n)
            jobs = (replace(first, batch_id=about.id), replace(then, batch_id=about.id))
            keyless = {"idempotency_key": None, "unique_key": None}
            store.write_blocking(
                f.InsertBatch(
                    about,
                    tuple(replace(each, **keyless) for each in jobs),
                    replace(last, **keyless),
                )
            )
            self.family = first.id

    def analyze(self) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("ANALYZE")

    def seen_by_writer(self, *commands: c.Command[Any]) -> list[Seen]:
        """Every statement that these commands run, in one transaction that is undone."""
        connection = sqlite3.connect(self.path, isolation_level=None, factory=RecordingConnection)
        session = SqliteSession(connection, self.path, Gate(self.path), self.clock.now)
        transaction = session.begin()
        connection.seen.clear()
        for command in commands:
            EXECUTORS[type(command)](transaction, command)
        _keep_house(transaction)
        seen = list(connection.seen)
        session.rollback()
        session.close()
        return [each for each in seen if each[0].split()[0] in {"SELECT", "UPDATE", "DELETE"}]

    async def seen_by_reader(self, query: q.Query[Any]) -> list[Seen]:
        """Every statement that answers this query."""
        readers = SqliteReaders(self.path, self.clock)
        seen: list[Seen] = []

        def record(_c: Any, _cursor: Any, sql: str, bound: Any, *_more: Any) -> None:
            seen.append((sql, bound))

        event.listen(readers._engine.sync_engine, "before_cursor_execute", record)
        await readers.read(query)
        await readers.close()
        return seen

    def plan(self, sql: str, bound: Any) -> list[tuple[int, int, int, str]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(f"EXPLAIN QUERY PLAN {sql}", bound).fetchall()

    def bad_lines(self, seen: list[Seen]) -> list[str]:
        """What in the plans of these statements would grow with the queue."""
        return [
            f"{line}\n    {sql}"
            for sql, bound in seen
            # One row, whichever comes first, is found at once.
            if "WHERE" in sql or not re.search(r" LIMIT 1( OFFSET \?)?$", sql)
            for line in _bad(self.plan(sql, bound))
        ]

    async def walks_all_jobs(self, query: q.ListJobs) -> bool:
        """Whether a list looks at jobs by nothing but their id."""
        sql, bound = (await self.seen_by_reader(query))[-1]
        return any(
            re.search(r"SEARCH.* \(id[<>]\?( AND id[<>]\?)?\)", line)
            for *_, line in self.plan(sql, bound)
        )


def note(job: ClaimedJob) -> c.Note:
    return c.Note(job.seq, job.fence, job.id, LogLevel.INFO, "hello", 1, 0)


def _keep_house(transaction: SqliteTransaction) -> None:
    """What the writer runs beside commands."""
    held_by(transaction, "run-2")
    transaction.change(system_sql.TRIM_FEED, before=0)


def _bad(plan: list[tuple[int, int, int, str]]) -> Iterator[str]:
    siblings: defaultdict[int, list[str]] = defaultdict(list)
    for _, parent, _, line in plan:
        siblings[parent].append(line)
    for _, parent, _, line in plan:
        is_scan = line.startswith("SCAN") and not _is_bounded(line)
        is_sort = "TEMP B-TREE" in line and not all(map(_is_bounded, siblings[parent]))
        if is_scan or is_sort:
            yield line


def _is_bounded(line: str) -> bool:
    """Whether a line of a plan finds few rows, or only takes what others have found."""
    if not re.match(rf"(SCAN|SEARCH) (TABLE )?({'|'.join(GROWING)})\b", line):
        return True
    return bool(
        re.search(
            rf"INDEX jobs_(locked|suspect)\b|\((id|rowid|unique_key)=\?\)|{_OF_ONE_JOB}", line
        )
    )


@pytest.fixture(scope="module", params=["plain", "analyzed"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Database:
    """Without statistics, as a queue is, and with those that an operator's tool may add."""
    database = Database(tmp_path_factory.mktemp("plans") / "queue.db")
    database.fill()
    if request.param == "analyzed":
        database.analyze()
    return database


def commands_of(database: Database) -> dict[str, tuple[c.Command[Any], ...]]:
    now = database.clock.now()
    until = now + LOCK_MS
    first, second, third, fourth = database.claimed
    ids = database.ids
    return {
        "claim": (c.Cycle("run-3", until, claim=CLAIM),),
        "claim a suspect": (
            c.Cycle("run-3", until, claim=c.Claim(CLAIM.types, CLAIM.steps, wants="suspect")),
        ),
        "claim, and ask when there is more": (
            c.Cycle(
                "run-3",
                until,
                claim=c.Claim(CLAIM.types, (ClaimStep("nobody", 5),), asks_when=True),
            ),
        ),
        "claim a last chance": (
            c.Cycle(
                "run-3",
                until,
                claim=c.Claim(CLAIM.types, CLAIM.steps, wants="last_chance", isolates_from=1),
            ),
        ),
        "refresh": (c.RefreshRun("run-2", {("mail", ""): Histogram.EMPTY}),),
        "lose a run": (c.LoseRun("run-2"),),
        "take back": (c.ExtendLocks("run-2", 0), c.Cycle("run-3", until, claim=CLAIM)),
        "shorten": (c.ExtendLocks("run-2", 10**15), c.Cycle("run-3", until, claim=CLAIM)),
        "settle": (
            c.Cycle(
                "run-2",
                until,
                settled=(ended(first, Completed()), ended(second, BROKEN), ended(third, FLAKY)),
                notes=(note(fourth),),
                progress=(c.Progress(fourth.seq, fourth.fence, 5, None),),
            ),
        ),
        "extend": (c.ExtendLocks("run-2", until),),
        "run": (
            c.StartRun("run-3", "process", "", "{}"),
            c.FinishRun("run-3", RunReport(run_id="run-3", claimed=1), ()),
        ),
        "release a run": (c.ReleaseRun("run-2", by_budget=True),),
        "insert": (c.InsertJobs(tuple(database.new_job(n) for n in range(1, 30))),),
        "cancel": (
            c.CancelJob(ids[JobStatus.PENDING], BOSS),
            c.CancelJob(ids[JobStatus.PROCESSING], BOSS),
        ),
        "retry": (c.RetryJob(ids[JobStatus.FAILED], BOSS),),
        "cancel a family": (c.CancelJob(database.family, BOSS, descendants=True),),
        "step": (f.RecordStep(new_step(second)),),
        "retry from a step": (
            c.FailJob(first.id, BOSS, retry=False, unit=0.5),
            c.RetryJob(first.id, BOSS, from_step="page"),
        ),
        "retry afresh": (
            c.FailJob(first.id, BOSS, retry=False, unit=0.5),
            c.RetryJob(first.id, BOSS, fresh=True),
        ),
        "follow": (c.DeleteJob(database.family, BOSS),),
        "batch": (
            f.InsertBatch(
                f.NewBatch("b", None, None, None, 1),
                (replace(database.new_job(1), after=(first.id,), batch_id="b"),),
                database.new_job(2),
            ),
        ),
        "approve": (c.ApproveJob(ids[JobStatus.REVIEW_NEEDED], BOSS, note="fine"),),
        "reject": (c.RejectJob(ids[JobStatus.REVIEW_NEEDED], BOSS),),
        "fail": (c.FailJob(first.id, BOSS, retry=True, unit=0.5),),
        "release": (c.ReleaseJob(first.id, BOSS),),
        "delete": (c.DeleteJob(ids[JobStatus.FAILED], BOSS),),
        "update": (c.UpdateJob(ids[JobStatus.PENDING], BOSS, priority=3),),
    }


COMMANDS = (
    *("claim", "claim a suspect", "claim, and ask when there is more", "claim a last chance"),
    *("take back", "shorten", "settle", "extend", "run", "refresh", "release a run", "lose a run"),
    *("insert", "cancel", "retry", "approve", "reject", "fail", "release", "delete", "update"),
    *("cancel a family", "retry from a step", "retry afresh", "step", "follow", "batch"),
)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_reads_or_sorts_more_as_the_queue_grows(database: Database, name: str) -> None:
    seen = database.seen_by_writer(*commands_of(database)[name])

    assert seen
    assert database.bad_lines(seen) == []


def test_every_command_of_the_list_is_looked_at(database: Database) -> None:
    assert set(commands_of(database)) == set(COMMANDS)


def test_asking_when_there_is_more_looks_at_due_times_and_at_locks(database: Database) -> None:
    (name,) = (each for each in COMMANDS if "ask when" in each)
    statements = [sql for sql, _ in database.seen_by_writer(*commands_of(database)[name])]

    assert any("min(background_jobs.scheduled_for)" in sql for sql in statements)
    assert any("min(background_jobs.lock_expires_at)" in sql for sql in statements)


FILTERS: dict[str, Any] = {
    "status": JobStatus.FAILED,
    "type": "mail",
    "category": "out",
    "lane": "general",
    "tenant_id": "t-1",
    "correlation_id": "c-1",
    "parent_job_id": "p-7",
    "batch_id": "b-1",
    "idempotency_key": "k-4",
    "reference_type": "order",
    "reference_id": "5",
    "error_class": "non_retryable",
    "created_after": 1_767_225_600_000 - 500,
    "created_before": 1_767_225_600_000 - 500,
}


PAGES = [(name, also) for name in FILTERS for also in ("", "tenant_id", "status") if name != also]


@pytest.mark.parametrize(("name", "also"), PAGES)
async def test_no_page_of_a_list_reads_or_sorts_more_as_the_queue_grows(
    database: Database, name: str, also: str
) -> None:
    wanted = q.JobFilter(**{each: FILTERS[each] for each in (name, also) if each})
    cursor = database.ids[JobStatus.COMPLETED]

    for query in (q.ListJobs(wanted), q.ListJobs(wanted, cursor=cursor)):
        assert database.bad_lines(await database.seen_by_reader(query)) == []
        assert (await database.walks_all_jobs(query)) is (not also and name.startswith("created"))


async def test_a_reference_with_its_type_has_its_index(database: Database) -> None:
    query = q.ListJobs(q.JobFilter(reference_type="order", reference_id="5"))

    assert database.bad_lines(await database.seen_by_reader(query)) == []
    assert not await database.walks_all_jobs(query)


async def test_a_list_without_a_filter_is_walked_by_id(database: Database) -> None:
    seen = await database.seen_by_reader(q.ListJobs(q.JobFilter()))

    assert database.bad_lines(seen) == []


@pytest.mark.parametrize(
    "query",
    [
        q.GetJobs(("a", "b")),
        q.FindJob("a"),
        q.ListLogs("a", cursor="5"),
        q.ListAttempts("a"),
        q.ListSteps("a"),
        q.ListBlockers("a"),
        q.GetBatch("a"),
        q.GetDurations("mail", "a"),
        q.GetStats(),
        q.ListRunning(),
        q.GetChanges(after=1),
        q.ListRuns(),
        q.ListTypes(),
        q.GetConfig(),
    ],
    ids=lambda query: type(query).__name__,
)
async def test_no_other_query_reads_or_sorts_more_as_the_queue_grows(
    database: Database, query: q.Query[Any]
) -> None:
    seen = await database.seen_by_reader(query)

    assert seen
    assert database.bad_lines(seen) == []

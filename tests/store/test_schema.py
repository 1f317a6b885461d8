"""The schema: tables and migrations agree, and a migration happens once, whole, or not at all."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from edgeq.core.job_types import TypePolicy
from edgeq.core.jobs import NewJob
from edgeq.core.outcomes import Completed
from edgeq.errors import MigrationFailed, NewerSchema
from edgeq.ports.commands import InsertJobs, RegisterTypes
from edgeq.ports.flow_commands import RecordStep
from edgeq.ports.queries import ListTypes
from edgeq.store import idle, migrate
from edgeq.store.gate import Gate
from edgeq.store.sqlite import SqliteStore
from edgeq.store.sqlite_file import APPLICATION_ID, create_if_missing
from edgeq.store.sqlite_session import SCHEMA_VERSION
from edgeq.store.tables import metadata
from edgeq.testing import FakeClock
from tests.store.conformance.acts import claim, end, get
from tests.store.conformance.test_steps import new_step
from tests.store.programs import run_together

SECOND = "019b76da-a800-7119-b9fd-ef7c42930b34"
TYPE = RegisterTypes((TypePolicy(name="noop"),))
BROKEN_REVISION = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "0002"


def upgrade():
    op.create_table("half_done", sa.Column("id", sa.Integer()))
    op.execute("INSERT INTO half_done VALUES (1)")
    op.execute("UPDATE no_such_table SET a = 1")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
def store(path: Path) -> SqliteStore:
    return SqliteStore(f"sqlite:///{path}", FakeClock())


@pytest.fixture
def open_umask() -> Iterator[None]:
    """What a careless shell has set: files are for everyone unless a program says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def broken_folder(tmp_path: Path) -> Path:
    """A schema folder whose second revision fails half-way."""
    folder = tmp_path / "schema"
    shutil.copytree(migrate.schema_folder(), folder)
    (folder / "versions" / "9999_broken.py").write_text(BROKEN_REVISION)
    return folder


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Be the edgeq that came with these two revisions."""
    monkeypatch.setattr(migrate, "schema_folder", lambda: folder)
    monkeypatch.setattr(migrate, "REVISIONS", ("0001", "0002", "9999"))
    monkeypatch.setattr(migrate, "HEAD", "9999")


def definitions(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """What each table and index was made of, one part a line, whatever its order and spacing."""
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name != 'alembic_version'"
    )
    return {
        # A column that was added later stands on the last line, before the closing bracket.
        name: sorted(
            part
            for line in re.split(r"\n|,(?![^(]*\))", sql)
            if (part := _without_the_last_bracket(re.sub(r"[\s\"]+", " ", line).strip()))
        )
        for name, sql in rows
        if not name.startswith("sqlite_")
    }


def _without_the_last_bracket(part: str) -> str:
    return part[:-1].strip() if part.count(")") > part.count("(") else part


def tables_of(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def test_the_migrated_database_has_the_tables_that_the_code_knows(migrated_file: Path) -> None:
    engine = create_engine(f"sqlite:///{migrated_file}")

    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        differences = compare_metadata(context, metadata)

    engine.dispose()
    assert differences == []


def test_checks_partial_indexes_and_defaults_are_the_same_to_the_letter(
    migrated_file: Path, tmp_path: Path
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'declared.db'}")
    metadata.create_all(engine)
    engine.dispose()

    with (
        closing(sqlite3.connect(migrated_file)) as migrated,
        closing(sqlite3.connect(tmp_path / "declared.db")) as declared,
    ):
        assert definitions(migrated) == definitions(declared)


def test_the_code_knows_the_revisions_that_are_in_the_schema_folder() -> None:
    settings = Config()
    settings.set_main_option("script_location", str(migrate.schema_folder()))
    script = ScriptDirectory.from_config(settings)

    revisions = [revision.revision for revision in script.walk_revisions()]

    assert tuple(reversed(revisions)) == migrate.REVISIONS
    assert script.get_heads() == [migrate.HEAD]
    assert idle.KNOWN_REVISION == migrate.HEAD


def test_a_new_database_has_the_guard_row_of_this_version(migrated_file: Path) -> None:
    with closing(sqlite3.connect(migrated_file)) as connection:
        rows = connection.execute("SELECT id, schema_version, mode FROM queue_guard").fetchall()

    assert rows == [(1, SCHEMA_VERSION, "open")]


def open_with_0001(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a database as the edgeq before steps did."""
    folder = tmp_path / "older"
    shutil.copytree(migrate.schema_folder(), folder)
    for newer in folder.glob("versions/000[2-9]*"):
        newer.unlink()
    create_if_missing(path)
    gate = Gate(path)
    with monkeypatch.context() as older_edgeq:
        older_edgeq.setattr(migrate, "schema_folder", lambda: folder)
        older_edgeq.setattr(migrate, "REVISIONS", ("0001",))
        older_edgeq.setattr(migrate, "HEAD", "0001")
        migrate.bring_up_to_date(path, gate)
    gate.close()


async def test_a_database_of_the_edgeq_before_steps_goes_on_with_its_jobs(
    path: Path, tmp_path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_with_0001(path, tmp_path, monkeypatch)
    job_id = "019b76da-a800-7119-b9fd-ef7c42930b33"
    with closing(sqlite3.connect(path)) as older:
        assert "background_job_steps" not in tables_of(path)
        older.execute(
            "INSERT INTO background_job_types (id, name, handler_name, created_at, updated_at)"
            " VALUES (1, 'noop', 'noop', 1, 1)"
        )
        older.execute(
            "INSERT INTO background_jobs (id, job_type_id, status, input_data, scheduled_for,"
            " created_at, updated_at) VALUES (?, 1, 'pending', '{\"n\":1}', 1, 1, 1)",
            (job_id,),
        )
        older.commit()

    await store.open()
    await store.write(TYPE)
    (job,) = (await claim(store)).claimed
    await store.write(RecordStep(new_step(job)))
    behind = NewJob(id=SECOND, type="noop", created_at=2, scheduled_for=2, after=(job_id,))
    await store.write(InsertJobs((behind,)))
    done = await end(store, job, Completed("1"))
    second = await get(store, SECOND)
    await store.close()

    assert (job.id, job.input_data, job.steps) == (job_id, '{"n":1}', 0)
    assert (done.status, done.steps, second.status) == ("completed", 1, "pending")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT schema_version FROM queue_guard").fetchall() == [(2,)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_migrating_again_does_nothing(path: Path) -> None:
    create_if_missing(path)
    gate = Gate(path)

    did = [migrate.bring_up_to_date(path, gate) for _ in range(3)]

    gate.close()
    assert did == [True, False, False]


def test_a_revision_that_fails_leaves_nothing_in_a_new_file(
    path: Path, store: SqliteStore, broken_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, broken_folder)

    with pytest.raises(MigrationFailed, match="no_such_table"):
        store.open_blocking()

    assert tables_of(path) == set()


async def test_the_edgeq_that_used_a_database_before_can_go_on_after_a_failed_migration(
    path: Path, store: SqliteStore, broken_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.open()
    await store.write(TYPE)
    await store.close()
    before = tables_of(path)

    with monkeypatch.context() as newer_edgeq:
        install(newer_edgeq, broken_folder)
        with pytest.raises(MigrationFailed, match="Nothing was changed"):
            await store.open()
    await store.open()

    assert [t.name for t in await store.read(ListTypes())] == ["noop"]
    assert tables_of(path) == before
    await store.close()


def test_a_database_of_a_newer_edgeq_is_refused_and_not_touched(
    path: Path, store: SqliteStore
) -> None:
    store.open_blocking()
    store.close_blocking()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    before = path.read_bytes()

    with pytest.raises(NewerSchema, match="9999"):
        store.open_blocking()

    assert path.read_bytes() == before


def test_a_database_that_is_migrated_while_it_is_open_takes_no_more_writes(
    path: Path, store: SqliteStore
) -> None:
    store.open_blocking()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE queue_guard SET schema_version = schema_version + 1")

    with pytest.raises(NewerSchema):
        store.write_blocking(TYPE)

    store.close_blocking()


@pytest.mark.process
def test_of_four_processes_that_open_a_new_file_at_once_one_migrates_it(path: Path) -> None:
    assert sorted(run_together(4, "migrate", path)) == [False, False, False, True]


@pytest.mark.usefixtures("open_umask")
def test_all_files_of_a_queue_are_private(path: Path, store: SqliteStore) -> None:
    store.open_blocking()
    store.write_blocking(TYPE)

    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.glob("queue.db*")}

    store.close_blocking()
    names = ("queue.db", "queue.db-wal", "queue.db-shm", "queue.db.gate")
    assert modes == dict.fromkeys(names, 0o600)


@pytest.mark.parametrize(
    ("pragma", "expected"),
    [("auto_vacuum", 2), ("journal_mode", "wal"), ("application_id", APPLICATION_ID)],
)
def test_a_new_file_is_set_up_before_its_first_table(
    migrated_file: Path, pragma: str, expected: object
) -> None:
    with closing(sqlite3.connect(migrated_file)) as connection:
        ((value,),) = connection.execute(f"PRAGMA {pragma}").fetchall()

    assert value == expected


async def test_several_new_files_can_be_opened_at_once_in_one_process(
    tmp_path: Path, clock: FakeClock
) -> None:
    stores = [SqliteStore(f"sqlite:///{tmp_path / f'{n}.db'}", clock) for n in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    try:
        assert [migrate.read_version(store.path) for store in stores] == [migrate.HEAD] * 6
    finally:
        await asyncio.gather(*(store.close() for store in stores))

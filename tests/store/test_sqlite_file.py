"""The file: its address, who else may be in the way, and SQLite's errors in our words."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from edgeq.errors import (
    BadSetting,
    NotADatabase,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from edgeq.ports.commands import ExtendLocks
from edgeq.store import sqlite_session
from edgeq.store.sqlite import SqliteStore
from edgeq.store.sqlite_file import path_of, translated
from edgeq.testing import FakeClock
from tests.conftest import Backend, SqliteBackend

WRITE = ExtendLocks("nobody", 0)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Backend:
    return SqliteBackend(request)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////var/lib/edgeq.db", Path("/var/lib/edgeq.db")),
        ("sqlite:///edgeq.db", Path.cwd() / "edgeq.db"),
        ("sqlite:///my%20queue.db", Path.cwd() / "my queue.db"),
    ],
)
def test_an_address_names_a_file(url: str, path: Path) -> None:
    assert path_of(url) == path


@pytest.mark.parametrize(
    "url", ["edgeq.db", "sqlite://", "sqlite:///", "mysql:///x", "sqlite:///a.db?mode=ro"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(BadSetting):
        path_of(url)


def test_a_queue_in_memory_works_and_leaves_nothing_behind(clock: FakeClock) -> None:
    store = SqliteStore("sqlite:///:memory:", clock)
    store.open_blocking()
    store.write_blocking(WRITE)
    was_there = store.path.exists()
    store.close_blocking()

    assert was_there
    assert not store.path.parent.exists()


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path, clock: FakeClock) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/missing/queue.db", clock)

    with pytest.raises(StoreUnavailable, match="does not exist"):
        store.open_blocking()

    assert not (tmp_path / "missing").exists()


def test_a_file_that_is_something_else_is_refused_and_left_alone(
    tmp_path: Path, clock: FakeClock
) -> None:
    letter = "dear mother, this is not a database " * 100
    (tmp_path / "letter.txt").write_text(letter)

    with pytest.raises(NotADatabase):
        SqliteStore(f"sqlite:///{tmp_path}/letter.txt", clock).open_blocking()

    assert (tmp_path / "letter.txt").read_text() == letter


async def test_a_program_that_does_not_know_the_gate_is_waited_for(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_session, "_BUSY_TRIES", 2)

    with closing(sqlite3.connect(store.path, isolation_level=None)) as intruder:
        intruder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="not edgeq"):
            await store.write(WRITE)
        intruder.execute("ROLLBACK")

    await store.write(WRITE)


async def test_a_queue_that_has_lost_its_guard_takes_no_writes(
    store: SqliteStore, backend: Backend
) -> None:
    backend.sql("DELETE FROM queue_guard")

    with pytest.raises(StoreError, match="guard"):
        await store.write(WRITE)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreBusy),
        (sqlite3.SQLITE_LOCKED, StoreBusy),
        (sqlite3.SQLITE_FULL, StoreFull),
        (sqlite3.SQLITE_READONLY_DIRECTORY, StoreReadOnly),
        (sqlite3.SQLITE_NOTADB, NotADatabase),
        (sqlite3.SQLITE_CORRUPT_INDEX, StoreCorrupt),
        (sqlite3.SQLITE_IOERR_WRITE, StoreUnavailable),
        (sqlite3.SQLITE_CANTOPEN, StoreUnavailable),
        (sqlite3.SQLITE_ERROR, StoreUnavailable),
        (None, StoreUnavailable),
    ],
)
def test_errors_of_sqlite_are_known_by_their_code(
    code: int | None, expected: type[StoreError]
) -> None:
    error = sqlite3.OperationalError("some text")
    if code is not None:
        error.sqlite_errorcode = code

    assert type(translated(error, Path("queue.db"))) is expected

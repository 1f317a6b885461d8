"""An examination as a whole: what it repeats, and what it makes of a check that fails."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edgeq.core.file_health import WAL_AT_MOST, WAL_ORDINARY
from edgeq.core.findings import Fine, Level, Verdict
from edgeq.doctor.checks import (
    SQLITE_CHECKS,
    Check,
    ContentCheck,
    Reach,
    Subject,
    SurroundingsCheck,
    long_readers,
    wal_size,
)
from edgeq.doctor.examination import examine
from edgeq.doctor.machine import Machine
from edgeq.settings import Settings
from edgeq.store.inspection import Inspection
from edgeq.testing import FakeClock


@pytest.fixture
def subject(tmp_path: Path, migrated_file: Path, clock: FakeClock) -> Subject:
    path = Path(shutil.copy(migrated_file, tmp_path / "queue.db"))
    return Subject(path, clock.now(), Settings(), Machine(tmp_path / "proc"))


def failing(_subject: Subject) -> Iterator[Verdict]:
    yield Fine("so far")
    raise ZeroDivisionError("a fault of ours")


def test_a_check_that_fails_is_an_error_and_the_others_are_made(subject: Subject) -> None:
    checks: tuple[Check, ...] = (
        SurroundingsCheck("faulty", Reach.NOTHING, failing),
        *SQLITE_CHECKS,
    )

    diagnosis = examine(subject, checks)

    faulty = [each for each in diagnosis.findings if each.check == "faulty"]
    assert [each.level for each in faulty] == [Level.OK, Level.ERROR]
    assert "a fault of ours" in faulty[1].message
    assert len(diagnosis.findings) == len(SQLITE_CHECKS) + 3


class Visitor:
    """Somebody who opens, writes and closes the database while it is looked at."""

    def __init__(self, visits: int) -> None:
        self.visits = visits
        self.looks = 0

    def come_by(self, subject: Subject, inside: Inspection) -> Iterator[Verdict]:
        self.looks += 1
        if self.looks <= self.visits:
            with closing(sqlite3.connect(subject.path, isolation_level=None)) as connection:
                connection.execute("UPDATE queue_guard SET epoch = epoch + 1")
        yield Fine("looked")


@pytest.mark.parametrize(("visits", "looks"), [(0, 1), (1, 2), (9, 3)])
def test_a_file_that_changed_while_it_was_read_is_read_again_but_not_for_ever(
    subject: Subject, visits: int, looks: int
) -> None:
    visitor = Visitor(visits)

    diagnosis = examine(subject, [ContentCheck("visitor", Reach.SCHEMA, visitor.come_by)])

    assert visitor.looks == looks
    assert [each.check for each in diagnosis.findings] == ["database", "visitor"]


def test_a_file_that_vanishes_while_it_is_read_is_missing(subject: Subject) -> None:
    def remove(subject: Subject) -> Iterator[Verdict]:
        subject.path.unlink()
        yield Fine("removed")

    diagnosis = examine(subject, [SurroundingsCheck("remover", Reach.FILE, remove)])

    assert not diagnosis.is_reachable
    assert "no database" in diagnosis.findings[0].message


def test_a_log_that_has_grown_is_a_warning_with_who_has_it_open(
    subject: Subject, tmp_path: Path
) -> None:
    wal = tmp_path / "queue.db-wal"
    wal.touch()
    os.truncate(wal, WAL_AT_MOST + 1)
    fd = tmp_path / "proc" / "12" / "fd"
    fd.mkdir(parents=True)
    (fd / "3").symlink_to(wal)

    (verdict,) = wal_size(subject)

    assert "Open in process 12." in verdict.message


def test_a_reader_that_stays_is_named_when_the_log_has_grown(
    subject: Subject, tmp_path: Path
) -> None:
    wal, index = tmp_path / "queue.db-wal", tmp_path / "queue.db-shm"
    for file in (wal, index):
        file.touch()
    os.truncate(wal, WAL_ORDINARY + 1)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "locks").write_text(
        f"1: POSIX  ADVISORY  READ 12 fe:00:{index.stat().st_ino} 124 124\n"
    )

    (verdict,) = long_readers(subject)

    assert "while these read: 12." in verdict.message


def test_a_file_too_large_to_be_read_at_once_is_read_when_asked_for(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeq.core.file_health.CHECKED_AT_MOST", 1000)
    full = Subject(subject.path, subject.now, subject.settings, subject.machine, full=True)

    told = [
        next(each.message for each in examine(one).findings if each.check == "integrity")
        for one in (subject, full)
    ]

    assert told[0].startswith("Not looked at")
    assert told[1] == "Every page is in order."

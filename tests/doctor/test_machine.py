"""The machine's own view, on this one and on one made of files."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from edgeq.doctor.machine import Machine


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for pid, status in {"10": "10 (a) (b) T 1", "11": "11 (python3) S 1"}.items():
        (tmp_path / pid / "fd").mkdir(parents=True)
        (tmp_path / pid / "stat").write_text(status)
        (tmp_path / pid / "comm").write_text("python3\n")
    return tmp_path


def test_a_machine_without_proc_shows_nothing_and_fails_at_nothing(tmp_path: Path) -> None:
    blind = Machine(tmp_path / "missing")

    assert blind.file_system(tmp_path) is None
    assert blind.readers_of(tmp_path / "q.db-shm") is None
    assert blind.open_in(tmp_path / "q.db-wal") == ()
    assert blind.describe(12) == "12"
    assert not blind.is_stopped("12")


def test_the_file_system_is_that_of_the_resolved_folder(proc: Path, tmp_path: Path) -> None:
    (proc / "self").mkdir()
    (proc / "self" / "mountinfo").write_text(f"1 0 0:1 / {tmp_path.resolve()} rw - nfs4 x rw\n")
    (tmp_path / "link").symlink_to(tmp_path / "11")

    assert Machine(proc).file_system(tmp_path / "link") == "nfs4"


def test_a_process_is_described_by_its_pid_and_name(proc: Path) -> None:
    assert Machine(proc).describe(10) == "10 (python3)"


def test_a_stopped_process_is_told_from_a_sleeping_one(proc: Path) -> None:
    assert Machine(proc).is_stopped("10")
    assert not Machine(proc).is_stopped("11")
    assert not Machine(proc).is_stopped("unknown")


def test_processes_with_a_file_open_are_found(proc: Path, tmp_path: Path) -> None:
    wal = tmp_path / "q.db-wal"
    (proc / "11" / "fd" / "3").symlink_to(wal)
    (proc / "10" / "fd" / "3").symlink_to(tmp_path / "other")
    (proc / "12").mkdir()  # somebody else's: its files cannot be listed

    assert Machine(proc).open_in(wal) == (11,)


READ = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
connection.execute("SELECT * FROM t").fetchall()
print("reading", flush=True)
sys.stdin.readline()
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows locks in /proc")
def test_a_reader_is_seen_while_it_reads_and_the_own_process_is_not(tmp_path: Path) -> None:
    path, index = tmp_path / "q.db", tmp_path / "q.db-shm"
    with closing(sqlite3.connect(path, isolation_level=None)) as own:
        own.execute("PRAGMA journal_mode = WAL")
        own.execute("CREATE TABLE t (x)")
        own.execute("BEGIN")
        own.execute("SELECT * FROM t").fetchall()
        before = Machine().readers_of(index)
        reader = subprocess.Popen(
            [sys.executable, "-c", READ, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert reader.stdout is not None
        reader.stdout.readline()
        during = Machine().readers_of(index)
        open_in = Machine().open_in(tmp_path / "q.db-wal")
        reader.communicate(b"\n")

        assert before == frozenset()
        assert during == frozenset({reader.pid})
        assert set(open_in) == {os.getpid(), reader.pid}
        assert Machine().readers_of(index) == frozenset()


def test_nobody_reads_a_log_that_is_not_there(tmp_path: Path, proc: Path) -> None:
    (proc / "locks").write_text("")

    assert Machine(proc).readers_of(tmp_path / "q.db-shm") == frozenset()

from __future__ import annotations

import os
import pty
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgeq.doctor.checks import SQLITE_CHECKS, Reach
from edgeq.errors import NewerSchema
from tests.cli.command_line import CommandLine
from tests.cli.test_bad_surroundings import overwrite_pages_of

NOBODY = 65534
EVERY_CHECK = ["database", *(check.name for check in SQLITE_CHECKS)]


def diagnosed(edgeq: CommandLine, *words: str, code: int = 0) -> dict[str, Any]:
    """The findings of doctor by the name of their check; the last one where there are several."""
    ended = edgeq("doctor", *words, "--json")
    assert (ended.code, ended.err) == (code, "")
    document = ended.json
    levels = [each["level"] for each in document["findings"]]
    assert document["errors"] == levels.count("error")
    assert document["warnings"] == levels.count("warning")
    return {each["check"]: each for each in document["findings"]}


def folder_state(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Names, contents, times and modes; SQLite's index of the log is its own scratch paper."""
    files = {
        str(file.relative_to(folder)): file
        for file in folder.rglob("*")
        if file.is_file() and file.suffix != ".pyc" and not file.name.endswith("-shm")
    }
    return {
        name: (file.read_bytes(), file.stat().st_mtime_ns, file.stat().st_mode)
        for name, file in files.items()
    }


def test_a_healthy_queue_passes_every_check_in_a_stable_order(edgeq: CommandLine) -> None:
    edgeq.enqueue("echo", '{"text": "a"}')
    edgeq.process()

    ended = edgeq("doctor", "--json")

    assert ended.code == 0
    assert [each["check"] for each in ended.json["findings"]] == EVERY_CHECK
    assert ended.json["errors"] == 0
    assert all((each["fix"] is None) == (each["level"] == "ok") for each in ended.json["findings"])
    # These depend on the machine.
    doubtful = {each["check"] for each in ended.json["findings"] if each["level"] != "ok"}
    assert doubtful <= {"sqlite", "file_system"}


def test_people_get_a_mark_and_a_line_for_each_finding_with_its_fix_below(
    edgeq: CommandLine,
) -> None:
    edgeq("config", "set", "worker_enabled=false")

    lines = edgeq("doctor").out.splitlines()

    at = next(n for n, line in enumerate(lines) if line.startswith("! switch"))
    assert lines[at + 1].strip() == "edgeq config unset worker_enabled"
    assert lines[at + 1].startswith("    ")
    assert "✓ schema" in "\n".join(lines)
    assert lines[-1].startswith("0 errors, ")


@pytest.mark.process
def test_a_terminal_gets_colours_and_lines_that_fit(
    edgeq: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    edgeq("migrate")
    edgeq.path.chmod(0o644)
    monkeypatch.setenv("COLUMNS", "60")
    ours, theirs = pty.openpty()

    process = subprocess.Popen([sys.executable, "-m", "edgeq", "doctor"], stdout=theirs)
    os.close(theirs)
    shown = b""
    while chunk := _read(ours):
        shown += chunk
    os.close(ours)

    assert process.wait() == 0
    assert b"\x1b[33m\x1b[1m!\x1b[0m permissions" in shown
    plain = shown.decode().replace("\x1b[0m", "").replace("\x1b[1m", "")
    assert max(len(line) for line in plain.splitlines() if "\x1b" not in line) <= 60


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # how Linux says that the other end is closed
        return b""


@pytest.mark.process
def test_a_terminal_without_marks_gets_plain_ones(
    edgeq: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    edgeq("migrate")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")

    assert "+ schema" in edgeq.run("doctor").out


def test_a_missing_database_is_told_and_not_made(edgeq: CommandLine) -> None:
    before = folder_state(edgeq.folder)

    found = diagnosed(edgeq, code=3)

    assert "There is no database" in found["database"]["message"]
    assert set(found) == {"database", "sqlite", "file_system", "free_space", "settings"}
    assert folder_state(edgeq.folder) == before
    assert not list(edgeq.folder.glob("edgeq.db*"))


def test_a_missing_folder_is_told_and_not_made(edgeq: CommandLine) -> None:
    found = diagnosed(edgeq, "--db", "sqlite:///missing/edgeq.db", code=3)

    assert "The folder" in found["database"]["message"]
    assert not (edgeq.folder / "missing").exists()


def test_a_path_of_any_bytes_can_be_looked_at(
    edgeq: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = edgeq.folder / os.fsdecode(b"a b%20?#\xff")
    strange.mkdir()
    edgeq("migrate")
    shutil.copy(edgeq.path, strange)
    monkeypatch.chdir(strange)

    found = diagnosed(edgeq)

    assert found["integrity"]["level"] == "ok"
    assert edgeq("doctor").code == 0


def test_a_folder_is_no_database(edgeq: CommandLine) -> None:
    edgeq.path.mkdir()

    assert "is not a file" in diagnosed(edgeq, code=3)["database"]["message"]


def test_a_file_that_is_no_database_is_named_so(edgeq: CommandLine) -> None:
    edgeq.path.write_text("Dear diary, " * 100)
    before = folder_state(edgeq.folder)

    found = diagnosed(edgeq, code=3)

    assert "not an SQLite database" in found["database"]["message"]
    assert found["permissions"]["level"] == "warning"
    assert folder_state(edgeq.folder) == before


@pytest.mark.parametrize("url", ["edgeq.db", "mysql://host/db", "sqlite:///:memory:"])
def test_an_address_that_names_no_file_is_bad_input(edgeq: CommandLine, url: str) -> None:
    ended = edgeq("doctor", "--db", url, "--json")

    assert (ended.code, ended.out, ended.error["code"]) == (2, "", "bad_setting")


def test_a_database_of_another_program_is_told_apart_and_left_alone(edgeq: CommandLine) -> None:
    edgeq.sql("CREATE TABLE notes (text)")
    before = folder_state(edgeq.folder)

    found = diagnosed(edgeq, code=1)

    assert "another program" in found["schema"]["message"]
    assert "delete" in found["journal_mode"]["message"]
    assert "guard" not in found
    assert folder_state(edgeq.folder) == before


def test_an_empty_file_can_be_migrated(edgeq: CommandLine) -> None:
    edgeq.path.touch(mode=0o600)

    found = diagnosed(edgeq)

    assert (found["schema"]["level"], found["journal_mode"]["level"]) == ("warning", "ok")
    assert "edgeq migrate" in found["schema"]["fix"]
    assert edgeq.path.stat().st_size == 0


def test_a_newer_schema_is_an_error_and_its_rows_are_not_looked_at(edgeq: CommandLine) -> None:
    edgeq("migrate")
    edgeq.sql("UPDATE alembic_version SET version_num = '9999'")

    found = diagnosed(edgeq, code=1)

    assert "9999" in found["schema"]["message"]
    assert "guard" not in found
    assert edgeq("stats", "--json").error["code"] == NewerSchema.code


@pytest.mark.parametrize("mode", ["frozen", "moved"])
def test_a_queue_that_takes_no_writes_is_an_error(edgeq: CommandLine, mode: str) -> None:
    edgeq("migrate")
    edgeq.sql("UPDATE queue_guard SET mode = ?", mode)

    assert mode in diagnosed(edgeq, code=1)["guard"]["message"]


def test_a_missing_guard_row_is_an_error(edgeq: CommandLine) -> None:
    edgeq("migrate")
    edgeq.sql("DELETE FROM queue_guard")

    assert "missing" in diagnosed(edgeq, code=1)["guard"]["message"]


def test_a_damaged_database_is_an_error_without_a_traceback(edgeq: CommandLine) -> None:
    edgeq("enqueue", "anything", "--bulk", "-", stdin="{}\n" * 3_000)
    overwrite_pages_of(edgeq, "background_jobs")
    before = folder_state(edgeq.folder)

    found = diagnosed(edgeq, code=1)

    assert found["integrity"]["level"] == "error"
    assert found["clock"]["level"] == "error"
    assert "could not be looked at" in found["clock"]["message"]
    assert folder_state(edgeq.folder) == before


def test_a_schema_version_that_cannot_be_read_is_an_error(edgeq: CommandLine) -> None:
    edgeq("migrate")
    overwrite_pages_of(edgeq, "alembic_version")

    found = diagnosed(edgeq, code=1)

    assert "could not be looked at" in found["schema"]["message"]
    assert "guard" not in found


def test_a_table_that_is_gone_is_a_finding_of_the_check_that_needs_it(edgeq: CommandLine) -> None:
    edgeq("migrate")
    edgeq.sql("DROP TABLE worker_config")

    found = diagnosed(edgeq, code=1)

    assert "could not be looked at" in found["switch"]["message"]
    assert found["clock"]["level"] == "ok"


def test_a_closed_queue_stays_as_it_is_to_the_last_byte(edgeq: CommandLine) -> None:
    edgeq.enqueue("anything")
    before = folder_state(edgeq.folder)

    diagnosed(edgeq, "--full")

    assert folder_state(edgeq.folder) == before
    assert not list(edgeq.folder.glob("*-shm"))


def test_what_a_crash_has_left_is_read_and_not_checkpointed(edgeq: CommandLine) -> None:
    edgeq("migrate")
    crash(edgeq, "UPDATE queue_guard SET mode = 'frozen'")
    before = folder_state(edgeq.folder)

    found = diagnosed(edgeq, code=1)

    assert "frozen" in found["guard"]["message"]
    assert len(before["edgeq.db-wal"][0]) > 0
    assert folder_state(edgeq.folder) == before


def crash(edgeq: CommandLine, statement: str) -> None:
    """A commit that stays in the log, because its process ends without closing."""
    program = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute(sys.argv[2]); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, edgeq.path, statement], check=True)


def test_a_queue_that_is_in_use_can_be_looked_at(edgeq: CommandLine) -> None:
    edgeq("migrate")
    with closing(sqlite3.connect(edgeq.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM worker_config")
        before = folder_state(edgeq.folder)

        found = diagnosed(edgeq)

        assert [name for name in EVERY_CHECK if name not in found] == []
        assert folder_state(edgeq.folder) == before


def test_a_database_that_another_program_keeps_to_itself_is_out_of_reach(
    edgeq: CommandLine,
) -> None:
    edgeq("migrate")
    with closing(sqlite3.connect(edgeq.path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("DELETE FROM worker_config")
        found = diagnosed(edgeq, code=3)

    assert found["database"]["level"] == "error"


HOLD_GATE = """
import sys, time
from pathlib import Path
from edgeq.store.gate import Gate
gate = Gate(Path(sys.argv[1]))
gate.acquire()
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.process
def test_a_gate_held_by_a_stopped_process_is_told_within_seconds(edgeq: CommandLine) -> None:
    edgeq("migrate")
    holder = subprocess.Popen([sys.executable, "-c", HOLD_GATE, edgeq.path], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED)

        found = diagnosed(edgeq, code=1)["gate"]

        assert f"Process {holder.pid}" in found["message"]
        if sys.platform == "linux":
            assert f"kill -CONT {holder.pid}" in found["fix"]
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.parametrize("name", ["edgeq.db.gate", "edgeq.db-wal", "edgeq.db-shm"])
def test_nonsense_in_the_place_of_the_files_beside_it_is_no_crash(
    edgeq: CommandLine, name: str
) -> None:
    edgeq("migrate")
    crash(edgeq, "DELETE FROM worker_config")
    (edgeq.folder / name).unlink()
    os.mkfifo(edgeq.folder / name)

    ended = edgeq("doctor", "--json")

    assert ended.code in (0, 1, 3)
    assert ended.json["findings"][0]["check"] == "database"


def test_files_that_others_can_read_are_a_warning_for_each(edgeq: CommandLine) -> None:
    edgeq("migrate")
    edgeq.path.chmod(0o640)
    (edgeq.folder / "edgeq.db.gate").chmod(0o666)

    ended = edgeq("doctor", "--json").json
    fixes = [each["fix"] for each in ended["findings"] if each["check"] == "permissions"]

    assert fixes == ["chmod 600 edgeq.db", "chmod 600 edgeq.db.gate"]


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Root may write anything, so whoever runs the tests as root becomes somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public_folder(edgeq: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that anybody can enter, unlike pytest's own."""
    edgeq("doctor")  # imports what an ordinary user might not be able to read
    folder = Path(tempfile.mkdtemp(prefix="edgeq-public-"))
    folder.chmod(0o755)
    monkeypatch.chdir(folder)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_read_only_database_can_be_looked_at_and_is_an_error(
    edgeq: CommandLine, public_folder: Path
) -> None:
    edgeq("migrate", "--db", f"sqlite:///{edgeq.path}")
    shutil.copy(edgeq.path, public_folder / "edgeq.db")
    (public_folder / "edgeq.db").chmod(0o444)
    public_folder.chmod(0o555)
    before = folder_state(public_folder)

    with as_ordinary_user():
        ended = edgeq("doctor", "--db", f"sqlite:///{public_folder}/edgeq.db", "--json")

    told = [each["message"] for each in ended.json["findings"] if each["check"] == "permissions"]
    assert ended.code == 1
    assert any("edgeq.db cannot be written" in message for message in told)
    assert any("The folder" in message for message in told)
    assert folder_state(public_folder) == before


def test_a_database_that_may_not_be_read_is_out_of_reach(
    edgeq: CommandLine, public_folder: Path
) -> None:
    (public_folder / "edgeq.db").touch(mode=0o000)

    with as_ordinary_user():
        found = diagnosed(edgeq, "--db", f"sqlite:///{public_folder}/edgeq.db", code=3)

    assert (found["database"]["level"], found["permissions"]["level"]) == ("error", "error")


def test_a_folder_that_may_not_be_entered_is_out_of_reach(
    edgeq: CommandLine, public_folder: Path
) -> None:
    closed = public_folder / "closed"
    closed.mkdir(mode=0o000)

    with as_ordinary_user():
        found = diagnosed(edgeq, "--db", f"sqlite:///{closed}/edgeq.db", code=3)
    closed.chmod(0o700)

    assert "Permission denied" in found["database"]["message"]


def test_due_jobs_that_no_handler_here_serves_are_counted(edgeq: CommandLine) -> None:
    edgeq.enqueue("echo", '{"text": "a"}')
    edgeq("types", "create", "elsewhere")
    edgeq.enqueue("elsewhere")
    edgeq.enqueue("elsewhere")
    edgeq.enqueue("elsewhere", "--in", "1h")

    with_handlers = diagnosed(edgeq)["handlers"]
    shutil.rmtree(edgeq.handlers)
    without = diagnosed(edgeq)["handlers"]

    assert with_handlers["level"] == "warning"
    assert with_handlers["message"].endswith("serves: elsewhere (2).")
    assert (without["level"], "no handlers are given" in without["message"]) == ("ok", True)


def test_handlers_that_cannot_be_loaded_are_an_error(edgeq: CommandLine) -> None:
    edgeq("migrate")
    (edgeq.handlers / "broken.py").write_text("def broken(:\n")

    found = diagnosed(edgeq, code=1)

    assert "broken.py, line 1" in found["handlers"]["message"]
    assert found["switch"]["level"] == "ok"


def test_locks_that_expired_long_ago_are_a_warning(edgeq: CommandLine) -> None:
    job_id = edgeq.running()
    edgeq.sql("UPDATE background_jobs SET lock_expires_at = 1")

    found = diagnosed(edgeq)["stuck_locks"]

    assert (found["level"], job_id in found["message"]) == ("warning", True)


def test_jobs_held_by_a_run_that_has_ended_are_a_warning(edgeq: CommandLine) -> None:
    edgeq.enqueue("anything")
    run_id = edgeq.process().run_id
    job_id = edgeq.running()
    edgeq.sql(
        "UPDATE background_jobs SET locked_by = ?, lock_expires_at = updated_at + 50000"
        " WHERE id = ?",
        run_id,
        job_id,
    )

    found = diagnosed(edgeq)["stuck_locks"]

    assert found["level"] == "warning"
    assert f"still holds job {job_id}" in found["message"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE background_jobs SET created_at = 9999999999999",
        "UPDATE worker_runs SET started_at = 9999999999999",
    ],
)
def test_times_far_in_the_future_are_a_warning_about_the_clock(
    edgeq: CommandLine, statement: str
) -> None:
    edgeq.enqueue("anything")
    edgeq.process()
    edgeq.sql(statement)

    assert diagnosed(edgeq)["clock"]["level"] == "warning"


def test_a_lock_far_in_the_future_is_a_warning_about_the_clock(edgeq: CommandLine) -> None:
    edgeq.running()

    assert "a lock began" in diagnosed(edgeq)["clock"]["message"]


def test_runs_that_never_ended_are_noted(edgeq: CommandLine) -> None:
    edgeq.enqueue("anything")
    edgeq.process()
    edgeq.sql("UPDATE worker_runs SET ended_at = NULL, last_seen_at = 1")

    found = diagnosed(edgeq)["runs"]

    assert (found["level"], found["message"][:11]) == ("ok", "1 run never")


def test_the_switch_that_stops_all_runs_is_a_warning(edgeq: CommandLine) -> None:
    edgeq("config", "set", "worker_enabled=false")

    assert diagnosed(edgeq)["switch"]["level"] == "warning"


def test_commits_that_a_power_failure_may_lose_are_noted(
    edgeq: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    edgeq("migrate")
    normal = diagnosed(edgeq)["settings"]
    monkeypatch.setenv("EDGEQ_SYNCHRONOUS", "full")
    full = diagnosed(edgeq)["settings"]

    assert "power failure" in normal["message"]
    assert "power failure" not in full["message"]


def test_no_check_needs_more_than_can_be_reached() -> None:
    assert {check.needs for check in SQLITE_CHECKS} == set(Reach)

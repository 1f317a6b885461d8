from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import MISSING, CommandLine

pytestmark = pytest.mark.process

PROJECT = Path(__file__).resolve().parents[2]


def start(
    edgeq: CommandLine, *words: str, program: str = "-m edgeq", stdout: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *program.split(" ", 1), *words],
        cwd=edgeq.folder,
        env={"PYTHONWARNINGS": "error", **os.environ, "PYTHONPATH": str(PROJECT)},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("stats",), 0),
        (("jobs", "show", MISSING), 1),
        (("jobs", "cancel", MISSING), 1),
        (("enqueue", "nonsense"), 2),
        (("enqueue",), 2),
        (("stats", "--db", "sqlite:///missing/edgeq.db"), 3),
    ],
)
def test_the_exit_code_tells_what_kind_of_end_it_was(
    edgeq: CommandLine, words: tuple[str, ...], code: int
) -> None:
    process = start(edgeq, *words)
    _, err = process.communicate()

    assert process.returncode == code
    assert b"Traceback" not in err


def test_a_closed_pipe_ends_a_command_quietly(edgeq: CommandLine) -> None:
    edgeq("enqueue", "anything", "--bulk", "-", stdin="{}\n" * 200)
    reading, writing = os.pipe()
    os.close(reading)

    process = start(edgeq, "jobs", "list", "--limit", "200", stdout=writing)
    os.close(writing)
    _, err = process.communicate()

    assert err == b""
    assert process.returncode == 1


def test_ctrl_c_ends_a_command_quietly(edgeq: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    # It may come between the opening of a file and the `with` that would close it.
    monkeypatch.setenv("PYTHONWARNINGS", "ignore::ResourceWarning")
    os.mkfifo(edgeq.folder / "lines")
    process = start(edgeq, "enqueue", "anything", "--bulk", "lines")

    with (edgeq.folder / "lines").open("wb"):  # opens when the command has opened its end
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()

    assert process.returncode == 130
    assert b"Traceback" not in err
    assert edgeq.jobs() == []


def test_arguments_that_are_no_text_are_refused(edgeq: CommandLine) -> None:
    process = start(edgeq, "jobs", "show", os.fsdecode(b"\xff"))
    _, err = process.communicate()

    assert process.returncode == 2
    assert err == b"edgeq: Argument 3 is not UTF-8 text.\n"


def test_a_terminal_without_the_characters_gets_escapes(
    edgeq: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = edgeq.enqueue("anything", '{"a": "日"}')
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")

    process = start(edgeq, "jobs", "show", job_id)
    out, _ = process.communicate()

    assert process.returncode == 0
    assert b'"a": "\\u65e5"' in out


def test_process_jobs_is_edgeq_process(edgeq: CommandLine) -> None:
    edgeq.enqueue("echo", '{"text": "a"}')
    program = "-c import edgeq.cli; edgeq.cli.process_jobs_main()"

    process = start(edgeq, "--json", "--budget", "5", program=program)
    out, _ = process.communicate()
    wrong = start(edgeq, "--nonsense", "--json", program=program)
    _, err = wrong.communicate()

    assert (process.returncode, json.loads(out)["completed"]) == (0, 1)
    assert (wrong.returncode, json.loads(err)["error"]["code"]) == (2, "usage")


HELP_WITHOUT_IMPORTS = """
import sys
before = set(sys.modules)
from edgeq.cli import main

try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
heavy = {"sqlalchemy", "msgspec", "alembic", "asyncio", "sqlite3"} & (set(sys.modules) - before)
assert not heavy, heavy
"""


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("jobs", "--help")])
def test_help_imports_nothing_heavy(edgeq: CommandLine, words: tuple[str, ...]) -> None:
    process = start(edgeq, *words, program=f"-c {HELP_WITHOUT_IMPORTS}")
    out, err = process.communicate()

    assert (process.returncode, err) == (0, b"")
    assert out

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from tests.cli.command_line import CommandLine


def test_nothing_running_is_drained_at_once(edgeq: CommandLine) -> None:
    edgeq.enqueue("anything")

    plain = edgeq("drain")
    machine = edgeq("drain", "--json")

    assert (plain.code, plain.out, plain.err) == (0, "Nothing runs.\n", "")
    assert (machine.code, machine.json) == (0, {"running": 0, "jobs": []})


def test_what_still_runs_after_the_timeout_is_named(edgeq: CommandLine) -> None:
    job_id = edgeq.running()

    plain = edgeq("drain", "--timeout", "10ms")
    machine = edgeq("drain", "--timeout", "0", "--json")

    assert plain.code == 1
    assert plain.out.splitlines() == ["1 job still runs after 10 ms:", f"  {job_id}  anything"]
    assert (machine.code, machine.json["running"]) == (1, 1)
    assert [job["id"] for job in machine.json["jobs"]] == [job_id]


def test_a_job_whose_lock_has_expired_is_marked(edgeq: CommandLine) -> None:
    edgeq.running()
    edgeq.sql("UPDATE background_jobs SET lock_expires_at = 1")

    assert "anything, lock expired" in edgeq("drain", "--timeout", "0").out


def test_at_most_ten_are_listed(edgeq: CommandLine) -> None:
    for _ in range(12):
        edgeq.running()

    plain = edgeq("drain", "--timeout", "0").out.splitlines()
    machine = edgeq("drain", "--timeout", "0", "--json").json

    assert plain[0] == "12 jobs still run after 0 ms:"
    assert (len(plain), plain[-1]) == (12, "  and 2 more")
    assert (machine["running"], len(machine["jobs"])) == (12, 10)


def test_other_types_are_not_waited_for(edgeq: CommandLine) -> None:
    edgeq.running()

    assert edgeq("drain", "--types", "echo", "--types", "small").code == 0
    assert edgeq("drain", "--types", "echo", "--types", "anything", "--timeout", "0").code == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [(("--types", "nonsense"), "unknown_type"), (("--timeout", "soon"), "bad_setting")],
)
def test_what_makes_no_sense_is_bad_input(
    edgeq: CommandLine, words: tuple[str, ...], code: str
) -> None:
    ended = edgeq("drain", *words, "--json")

    assert (ended.code, ended.out, ended.error["code"]) == (2, "", code)


def test_new_claims_are_warned_of_once(edgeq: CommandLine) -> None:
    edgeq.running()
    edgeq.sql("UPDATE background_jobs SET locked_at = 9999999999999")

    ended = edgeq("drain", "--timeout", "500ms", "--json")

    assert (ended.code, json.loads(ended.out)["running"]) == (1, 1)
    assert ended.err.count("Workers go on claiming") == 1


@pytest.mark.process
def test_a_terminal_shows_how_many_are_left(edgeq: CommandLine) -> None:
    edgeq.running()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "edgeq", "drain", "--timeout", "0"],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    assert process.wait() == 1
    os.close(theirs)

    assert b"1 running" in os.read(ours, 1000)
    os.close(ours)

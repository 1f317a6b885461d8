"""`edgeq worker` as real processes: signals, children, and those who wait for its work."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import CommandLine
from tests.cli.test_real_process import start

pytestmark = pytest.mark.process

HANDLERS = '''
import asyncio, os, time
from pathlib import Path
from typing import Any

from edgeq import Context, handler


@handler("pid")
async def pid(ctx: Context, input: dict[str, Any]) -> list[int]:
    return [os.getpid(), os.getppid()]


@handler("hold")
async def hold(ctx: Context, input: dict[str, Any]) -> str:
    """Runs while there is a file of that name."""
    Path(f"running-{ctx.job.id}").write_text(f"{os.getpid()} {os.getppid()}")
    while Path("hold").exists():
        await asyncio.sleep(0.01)
    return "done"


@handler("spin", timeout=1, max_retries=1, retry_delay=600)
async def spin(ctx: Context, input: dict[str, Any]) -> None:
    Path(f"running-{ctx.job.id}").touch()
    time.sleep(60)


@handler("brief", timeout=2, max_retries=1, retry_delay=600)
async def brief(ctx: Context, input: dict[str, Any]) -> None:
    Path(f"running-{ctx.job.id}").touch()
    await asyncio.sleep(30)


@handler("poison")
async def poison(ctx: Context, input: dict[str, Any]) -> None:
    os._exit(7)
'''


class Workers:
    """Worker processes in the folder of a command line; all of them are gone afterwards."""

    def __init__(self, edgeq: CommandLine) -> None:
        self.edgeq = edgeq
        self._all: list[subprocess.Popen[bytes]] = []
        (edgeq.handlers / "work.py").write_text(HANDLERS)
        # So that there is a database that can be asked.
        edgeq("stats")

    def start(
        self, *words: str, is_ready: bool = True, program: str = "-m edgeq"
    ) -> subprocess.Popen[bytes]:
        process = start(self.edgeq, "worker", *words, program=program)
        self._all.append(process)
        if is_ready:
            until(lambda: self.alive() or process.poll() is not None)
        return process

    def alive(self) -> list[str]:
        rows = self.edgeq.sql(
            "SELECT id FROM worker_runs WHERE kind = 'worker' AND ended_at IS NULL"
        )
        return [run_id for (run_id,) in rows]

    def hold(self, job_type: str = "hold") -> str:
        """A job that some worker has begun."""
        (self.edgeq.folder / "hold").touch()
        job_id = self.edgeq.enqueue(job_type)
        until((self.edgeq.folder / f"running-{job_id}").exists)
        return job_id

    def let_go(self) -> None:
        (self.edgeq.folder / "hold").unlink()

    def who_runs(self, job_id: str) -> tuple[int, int]:
        """The process of a job, and that one's parent."""
        file = self.edgeq.folder / f"running-{job_id}"
        until(lambda: file.exists() and file.read_text())
        process, parent = map(int, file.read_text().split())
        return process, parent

    def job(self, job_id: str) -> Any:
        return self.edgeq("jobs", "show", job_id, "--json").json

    def end_all(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.let_go()
        for process in self._all:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def workers(edgeq: CommandLine) -> Iterator[Workers]:
    workers = Workers(edgeq)
    yield workers
    workers.end_all()


def until(is_so: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def children_of(process: subprocess.Popen[bytes]) -> set[int]:
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return {int(pid) for pid in listed.split()}


def stopped(process: subprocess.Popen[bytes], within: float) -> tuple[int, Any]:
    """How a process that was asked to stop has ended, and what it reported."""
    out, err = process.communicate(timeout=within)
    assert b"Traceback" not in err, err.decode()
    return process.returncode, json.loads(out) if out.strip() else None


class TestWaiting:
    def test_enqueue_wait_answers_with_the_result(self, workers: Workers) -> None:
        workers.start()

        plain = workers.edgeq("enqueue", "echo", '{"text": "ab"}', "--wait", "20")
        shown = workers.edgeq("enqueue", "echo", '{"text": "ab"}', "--wait", "20", "--json")

        assert (plain.code, shown.code) == (0, 0)
        assert "completed" in plain.out
        assert '"said": "ab"' in plain.out
        assert set(shown.json) == {"job_id", "status", "duplicate", "result"}
        assert (shown.json["status"], shown.json["duplicate"]) == ("completed", False)
        assert shown.json["result"] == {"said": "ab"}

    def test_enqueue_wait_of_a_failed_job_ends_with_1(self, workers: Workers) -> None:
        workers.start()

        plain = workers.edgeq("enqueue", "hopeless", "--wait", "20")
        shown = workers.edgeq("enqueue", "hopeless", "--wait", "20", "--json")

        assert (plain.code, shown.code) == (1, 1)
        assert "it cannot be done" in plain.err
        assert (shown.json["status"], shown.json["result"]) == ("failed", None)
        assert shown.json["error"]["message"] == "it cannot be done"

    def test_enqueue_wait_for_too_long_ends_with_1_and_leaves_the_job(
        self, workers: Workers
    ) -> None:
        ended = workers.edgeq("enqueue", "anything", "--wait", "0.05", "--json")

        assert (ended.code, ended.error["code"]) == (1, "wait_timeout")
        assert set(ended.json) == {"job_id", "status", "duplicate"}
        assert workers.job(ended.json["job_id"])["status"] == "pending"

    def test_enqueue_wait_of_a_key_answers_with_its_job(self, workers: Workers) -> None:
        workers.start()
        words = ("enqueue", "echo", '{"text": "a"}', "--key", "k", "--wait", "20", "--json")

        first, second = workers.edgeq(*words).json, workers.edgeq(*words).json

        assert second == first | {"duplicate": True}

    @pytest.mark.parametrize(
        "words",
        [
            ("enqueue", "anything", "--wait", "0"),
            ("enqueue", "anything", "--wait", "-1"),
            ("enqueue", "anything", "--wait", "nan"),
            ("enqueue", "anything", "--wait", "soon"),
            ("enqueue", "anything", "--bulk", "-", "--wait", "5"),
            ("worker", "--processes", "0"),
            ("--db", "sqlite:///:memory:", "worker", "--processes", "2"),
            ("worker", "--grace", "-1"),
            ("worker", "--budget", "5"),
            ("worker", "--types", "nonsense"),
        ],
    )
    def test_bad_options_end_with_2_and_leave_nothing_behind(
        self, workers: Workers, words: tuple[str, ...]
    ) -> None:
        assert workers.edgeq.run(*words).code == 2
        assert workers.edgeq.jobs() == []


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_an_idle_worker_ends_at_once_and_reports(self, workers: Workers, number: int) -> None:
        worker = workers.start("--json")
        workers.edgeq("enqueue", "echo", '{"text": "a"}', "--wait", "20")

        worker.send_signal(number)

        code, report = stopped(worker, within=3)
        assert code == 0
        assert (report["stopped"], report["completed"]) == ("signal", 1)
        (run,) = workers.edgeq("runs", "--json").json["items"]
        assert (run["kind"], run["run_id"]) == ("worker", report["run_id"])
        assert run["ended_at"] is not None
        assert "worker" in workers.edgeq("runs").out

    def test_a_running_job_ends_within_the_grace(self, workers: Workers) -> None:
        worker = workers.start("--json", "--grace", "20")
        job_id = workers.hold()

        worker.send_signal(signal.SIGTERM)
        late = workers.edgeq.enqueue("pid")
        workers.let_go()

        code, report = stopped(worker, within=5)
        assert (code, report["completed"], report["interrupted"]) == (0, 1, 0)
        assert workers.job(job_id)["output"] == "done"
        assert workers.job(late)["status"] == "pending"

    def test_a_job_that_outlasts_the_grace_is_put_back(self, workers: Workers) -> None:
        worker = workers.start("--json", "--grace", "0.5")
        job_id = workers.hold()

        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        code, report = stopped(worker, within=5)

        assert time.monotonic() - began < 2
        assert (code, report["interrupted"]) == (0, 1)
        job = workers.job(job_id)
        assert (job["status"], job["interruptions"], job["attempt"]) == ("pending", 0, 1)

    def test_a_second_signal_puts_everything_back_at_once(self, workers: Workers) -> None:
        worker = workers.start("--json", "--grace", "60")
        job_id = workers.hold()

        worker.send_signal(signal.SIGTERM)
        until(lambda: worker.poll() is None)
        time.sleep(0.2)
        worker.send_signal(signal.SIGINT)

        assert stopped(worker, within=3)[0] == 0
        assert workers.job(job_id)["status"] == "pending"

    @pytest.mark.parametrize("after", [0.05, 0.15, 0.3, 0.45, 0.6])
    def test_a_signal_in_the_first_moments_ends_it_in_good_order(
        self, workers: Workers, after: float
    ) -> None:
        workers.edgeq.enqueue("pid")
        worker = workers.start(is_ready=False)

        time.sleep(after)
        worker.send_signal(signal.SIGTERM)

        # Until Python runs our code, the system answers a signal.
        assert stopped_plainly(worker) in (0, -signal.SIGTERM)
        (job,) = workers.edgeq.jobs()
        assert job["status"] in ("pending", "completed")
        assert workers.alive() == []

    def test_a_handler_that_keeps_the_event_loop_does_not_keep_a_signal_away(
        self, workers: Workers
    ) -> None:
        worker = workers.start("--grace", "0.3")
        workers.edgeq.sql("UPDATE background_job_types SET timeout_ms = 60000")
        job_id = workers.hold("spin")

        worker.send_signal(signal.SIGTERM)

        assert stopped_plainly(worker) == 0
        assert workers.job(job_id)["status"] == "pending"


def stopped_plainly(process: subprocess.Popen[bytes]) -> int:
    _, err = process.communicate(timeout=10)
    assert b"Traceback" not in err, err.decode()
    return process.returncode


class TestStuck:
    def test_a_handler_that_blocks_beyond_its_timeout_has_timed_out_and_ends_its_worker(
        self, workers: Workers
    ) -> None:
        worker = workers.start()
        held = workers.hold()
        spinning = workers.hold("spin")

        _, err = worker.communicate(timeout=25)

        assert worker.returncode == 1
        assert b"keeps the event loop" in err
        blamed, other = workers.job(spinning), workers.job(held)
        assert (blamed["status"], blamed["attempt"]) == ("pending", 2)
        attempts = workers.edgeq.sql("SELECT outcome, error_class FROM background_job_attempts")
        assert ("retried", "timeout") in attempts or ("failed", "timeout") in attempts
        assert (other["status"], other["attempt"], other["interruptions"]) == ("pending", 1, 0)
        assert workers.alive() == []

    def test_a_worker_that_was_stopped_for_longer_than_a_timeout_goes_on(
        self, workers: Workers
    ) -> None:
        worker = workers.start()
        brief = workers.hold("brief")
        worker.send_signal(signal.SIGSTOP)
        time.sleep(6)  # longer than the watchdog naps, so that it looks when it wakes
        worker.send_signal(signal.SIGCONT)
        until(lambda: workers.job(brief)["status"] != "processing")
        workers.let_go()

        assert workers.edgeq("enqueue", "pid", "--wait", "10").code == 0
        assert worker.poll() is None


class TestSeveral:
    def test_a_file_of_the_users_hides_no_module_of_ours(self, workers: Workers) -> None:
        (workers.edgeq.folder / "queue.py").write_text("raise ImportError('hidden')")
        script = str(Path(sys.executable).with_name("edgeq"))
        workers.start("--processes", "2", program=script)
        assert workers.edgeq("enqueue", "pid", "--wait", "10").code == 0

    def test_all_of_them_work_and_end_together(self, workers: Workers) -> None:
        parent = workers.start("--processes", "2", "--concurrency", "1", "--json")
        until(lambda: len(workers.alive()) == 2)

        one, two = workers.hold(), workers.hold()
        pids = {workers.who_runs(one)[0], workers.who_runs(two)[0]}
        its_children = children_of(parent)
        workers.let_go()
        until(lambda: workers.job(one)["status"] == workers.job(two)["status"] == "completed")
        parent.send_signal(signal.SIGTERM)
        out, err = parent.communicate(timeout=10)

        assert (parent.returncode, err) == (0, b"")
        assert pids == its_children
        assert not any(map(is_alive, pids))
        assert sorted(json.loads(line)["completed"] for line in split_json(out)) == [1, 1]
        assert workers.alive() == []

    def test_one_that_dies_is_started_again(self, workers: Workers) -> None:
        parent = workers.start("--processes", "2")
        until(lambda: len(children_of(parent)) == 2)
        before = children_of(parent)

        killed = min(before)
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(children_of(parent) - {killed}) == 2)
        answered = workers.edgeq("enqueue", "pid", "--wait", "20")

        assert answered.code == 0
        assert len(children_of(parent) & before) == 1
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(10) == 0

    def test_they_end_with_their_parent_even_if_that_is_killed(self, workers: Workers) -> None:
        parent = workers.start("--processes", "2")
        until(lambda: len(workers.alive()) == 2)
        job_id = workers.hold()
        pids = children_of(parent)

        parent.kill()
        parent.wait()

        until(lambda: not any(map(is_alive, pids)))
        job = workers.job(job_id)
        assert (job["status"], job["attempt"]) == ("pending", 1)
        assert workers.edgeq.sql("SELECT max(losses) FROM background_jobs") == [(0,)]

    def test_a_signal_to_all_processes_at_once_leaves_jobs_their_grace(
        self, workers: Workers
    ) -> None:
        """As a service manager sends it: the parent passes it on, and it comes twice."""
        parent = workers.start("--processes", "2", "--grace", "20")
        until(lambda: len(workers.alive()) == 2)
        job_id = workers.hold()
        pid, _ = workers.who_runs(job_id)

        for each in (parent.pid, *children_of(parent)):
            os.kill(each, signal.SIGTERM)
        until(lambda: len(workers.alive()) == 1)
        time.sleep(0.7)
        goes_on = is_alive(pid)
        workers.let_go()

        assert goes_on
        assert parent.wait(10) == 0
        assert workers.job(job_id)["status"] == "completed"

    def test_a_second_signal_reaches_all_of_them(self, workers: Workers) -> None:
        parent = workers.start("--processes", "2", "--grace", "60")
        until(lambda: len(workers.alive()) == 2)
        job_id = workers.hold()
        pids = children_of(parent)

        parent.send_signal(signal.SIGTERM)
        until(lambda: len(workers.alive()) == 1)
        parent.send_signal(signal.SIGTERM)

        assert parent.wait(5) == 0
        assert not any(map(is_alive, pids))
        assert workers.job(job_id)["status"] == "pending"

    @pytest.mark.parametrize("processes", ["1", "2"])
    def test_handlers_that_cannot_be_loaded_end_it_with_2(
        self, workers: Workers, processes: str
    ) -> None:
        (workers.edgeq.handlers / "broken.py").write_text("this is no Python")

        worker = workers.start("--processes", processes, is_ready=False)
        _, err = worker.communicate(timeout=20)

        assert worker.returncode == 2
        assert b"broken.py" in err
        assert b"Traceback" not in err

    @pytest.mark.parametrize("processes", ["1", "2"])
    def test_a_database_that_cannot_be_reached_ends_it_with_3(
        self, workers: Workers, processes: str
    ) -> None:
        worker = workers.start(
            "--processes", processes, "--db", "sqlite:///missing/edgeq.db", is_ready=False
        )
        _, err = worker.communicate(timeout=20)

        assert worker.returncode == 3
        assert b"Traceback" not in err


def split_json(out: bytes) -> list[str]:
    """Documents that were printed one after the other, by several processes."""
    decoder, text, found = json.JSONDecoder(), out.decode().strip(), []
    while text:
        value, end = decoder.raw_decode(text)
        found.append(json.dumps(value))
        text = text[end:].lstrip()
    return found


class TestSuspects:
    def lost(self, workers: Workers, job_type: str, losses: int) -> str:
        """A job that was lost with a process before; nobody has seen it since."""
        workers.edgeq("types", "pause", job_type)
        job_id = workers.edgeq.enqueue(job_type)
        workers.edgeq.sql("UPDATE background_jobs SET losses = ? WHERE id = ?", losses, job_id)
        workers.edgeq("types", "resume", job_type)
        return job_id

    def test_a_suspect_runs_in_its_own_process_while_others_go_on(self, workers: Workers) -> None:
        worker = workers.start()
        (workers.edgeq.folder / "hold").touch()
        suspect = self.lost(workers, "hold", 1)
        child, its_parent = workers.who_runs(suspect)

        other = workers.edgeq("enqueue", "pid", "--wait", "20", "--json").json["result"]
        workers.let_go()
        until(lambda: workers.job(suspect)["status"] == "completed")

        assert its_parent == worker.pid
        assert other[0] == worker.pid
        assert child != worker.pid
        until(lambda: not is_alive(child))
        worker.send_signal(signal.SIGTERM)
        assert stopped_plainly(worker) == 0

    def test_poison_is_failed_and_its_worker_goes_on(self, workers: Workers) -> None:
        worker = workers.start("--json")
        poison = self.lost(workers, "poison", 2)

        until(lambda: workers.job(poison)["status"] == "failed")
        answered = workers.edgeq("enqueue", "pid", "--wait", "20", "--json").json

        assert workers.job(poison)["error"]["class"] == "worker_lost"
        assert answered["result"][0] == worker.pid
        worker.send_signal(signal.SIGTERM)
        code, report = stopped(worker, within=5)
        assert (code, report["failed"], report["completed"]) == (0, 1, 1)

    def test_a_signal_lets_an_isolated_job_end_within_the_grace(self, workers: Workers) -> None:
        worker = workers.start("--grace", "20", "--json")
        (workers.edgeq.folder / "hold").touch()
        suspect = self.lost(workers, "hold", 1)
        child, _ = workers.who_runs(suspect)

        worker.send_signal(signal.SIGTERM)
        time.sleep(1.2)
        goes_on = is_alive(child)
        workers.let_go()

        code, report = stopped(worker, within=5)
        assert (goes_on, code, report["completed"]) == (True, 0, 1)
        assert workers.job(suspect)["status"] == "completed"

    def test_an_isolated_job_that_outlasts_the_grace_is_put_back(self, workers: Workers) -> None:
        worker = workers.start("--grace", "1", "--json")
        (workers.edgeq.folder / "hold").touch()
        suspect = self.lost(workers, "hold", 1)
        child, _ = workers.who_runs(suspect)

        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        code, _ = stopped(worker, within=5)

        assert time.monotonic() - began < 2.5
        assert code == 0
        until(lambda: not is_alive(child))
        assert workers.job(suspect)["status"] == "pending"
        assert workers.edgeq.sql("SELECT losses FROM background_jobs") in ([(0,)], [(1,)])


class TestFollowing:
    def follow(self, workers: Workers, *words: str) -> subprocess.Popen[bytes]:
        process = start(workers.edgeq, "jobs", "--follow", *words)
        workers._all.append(process)
        return process

    def line(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().decode()

    def test_what_happens_is_printed_until_ctrl_c(self, workers: Workers) -> None:
        job_id = workers.edgeq.enqueue("pid")
        following = self.follow(workers, "--after", "0")
        assert job_id in self.line(following)
        other = workers.edgeq.enqueue("anything")

        line = self.line(following)
        following.send_signal(signal.SIGINT)
        _, err = following.communicate(timeout=10)

        assert (other in line, "anything" in line, "pending" in line) == (True, True, True)
        assert (following.returncode, err) == (0, b"")

    def test_json_is_one_document_a_line(self, workers: Workers) -> None:
        job_id = workers.edgeq.enqueue("pid")
        workers.edgeq.enqueue("anything")
        workers.edgeq("jobs", "cancel", job_id)
        following = self.follow(workers, "--after", "0", "--json", "--type", "pid")

        events = [json.loads(self.line(following)) for _ in range(2)]
        resumed = self.follow(
            workers, "--after", str(events[0]["position"]), "--job", job_id, "--json"
        )

        assert [event["event"] for event in events] == ["job.queued", "job.cancelled"]
        assert events[0]["at"].endswith("Z")
        assert json.loads(self.line(resumed)) == events[1]

    def test_a_position_that_is_gone_is_said(self, workers: Workers) -> None:
        job_id = workers.edgeq.enqueue("pid")
        following = self.follow(workers, "--after", str(1 << 40), "--json")

        event = json.loads(self.line(following))
        workers.edgeq("jobs", "cancel", job_id)

        assert (event["event"], event["position"] > 0) == ("reset", True)
        assert json.loads(self.line(following))["event"] == "job.cancelled"

    @pytest.mark.parametrize(
        "words",
        [
            ("jobs", "--follow", "list"),
            ("jobs", "--type", "pid"),
            ("jobs", "--after", "0", "list"),
            ("jobs", "--follow", "--after", "x"),
            ("jobs", "--follow", "--after", "-1"),
        ],
    )
    def test_bad_options_end_with_2(self, workers: Workers, words: tuple[str, ...]) -> None:
        assert workers.edgeq(*words).code == 2

    def test_who_no_longer_reads_ends_it_quietly(self, workers: Workers) -> None:
        following = self.follow(workers, "--after", "0")
        workers.edgeq.enqueue("pid")
        self.line(following)
        assert following.stdout is not None
        following.stdout.close()
        following.stdout = None

        workers.edgeq.enqueue("pid")
        workers.edgeq.enqueue("pid")

        assert following.wait(10) in (0, 1)
        assert following.stderr is not None
        assert following.stderr.read() == b""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine

DEEP = "[" * 33 + "]" * 33


def test_a_job_is_stored_and_named(edgeq: CommandLine) -> None:
    plain = edgeq("enqueue", "echo", '{"text": "hi"}')
    machine = edgeq("enqueue", "echo", '{"text": "hi"}', "--json")

    first, second = edgeq.jobs()[::-1]
    assert plain.out == f"{first['id']}  pending\n"
    assert machine.json == {"job_id": second["id"], "status": "pending", "duplicate": False}


def test_the_input_is_an_empty_object_unless_given(edgeq: CommandLine) -> None:
    edgeq.enqueue("anything")

    assert edgeq.jobs()[0]["input"] == {}


def test_the_input_can_come_from_stdin(edgeq: CommandLine) -> None:
    ended = edgeq("enqueue", "echo", "-", stdin='{"text": "from stdin"}')

    assert ended.code == 0
    assert edgeq.jobs()[0]["input"] == {"text": "from stdin"}


def test_every_option_becomes_a_field_of_the_job(edgeq: CommandLine) -> None:
    job_id = edgeq.enqueue(
        *("anything", "{}", "--key", "k", "--tenant", "t", "--correlation", "c"),
        *("--reference", "order:a:1", "--priority", "15", "--at", "2030-01-31T10:30:00+01:00"),
        *("--max-retries", "7", "--timeout", "90", "--result-ttl", "2h"),
        *("--expires-at", "2031-01-01T00:00:00Z", "--on-duplicate", "replace"),
    )

    (job,) = edgeq.jobs()
    assert (
        job.items()
        >= {
            "id": job_id,
            "idempotency_key": "k",
            "tenant_id": "t",
            "correlation_id": "c",
            "reference_type": "order",
            "reference_id": "a:1",
            "priority": 15,
            "scheduled_for": "2030-01-31T09:30:00.000Z",
            "max_retries": 7,
        }.items()
    )
    stored = edgeq.sql("SELECT timeout_ms, result_ttl_ms, expires_at FROM background_jobs")
    assert stored == [(90_000, 7_200_000, 1_924_992_000_000)]


def test_a_delay_is_written_as_people_do(edgeq: CommandLine) -> None:
    edgeq.enqueue("anything", "--in", "1h30m")

    ((created, due),) = edgeq.sql("SELECT created_at, scheduled_for FROM background_jobs")
    assert due - created == 5_400_000


def test_a_key_in_use_answers_with_its_job_and_its_result(edgeq: CommandLine) -> None:
    first = edgeq.enqueue("echo", '{"text": "hi"}', "--key", "k")
    early = edgeq("enqueue", "echo", '{"text": "hi"}', "--key", "k", "--json")
    edgeq.process()

    late = edgeq("enqueue", "echo", '{"text": "hi"}', "--key", "k", "--json")
    plain = edgeq("enqueue", "echo", '{"text": "hi"}', "--key", "k")

    assert early.json == {"job_id": first, "status": "pending", "duplicate": True}
    assert late.json == {
        "job_id": first,
        "status": "completed",
        "duplicate": True,
        "result": {"said": "hi"},
    }
    assert plain.out == f"{first}  completed  (duplicate)\n"


def test_the_same_key_with_another_input_is_a_conflict(edgeq: CommandLine) -> None:
    edgeq.enqueue("echo", '{"text": "hi"}', "--key", "k")

    ended = edgeq("enqueue", "echo", '{"text": "ho"}', "--key", "k", "--json")

    assert (ended.code, ended.error["code"]) == (2, "idempotency_conflict")
    assert len(edgeq.jobs()) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("echo", '{"text": 1}'), "$.text"),
        (("echo", "{}"), "text"),
        (("echo", '{"text": "a", "more": 1}'), "more"),
        (("echo", "[]"), "$"),
        (("echo", "null"), "is null"),
        (("echo", "{"), "is not JSON"),
        (("anything", ""), "is empty"),
        (("anything", '{"a": NaN}'), "NaN"),
        (("anything", '{"a": -Infinity}'), "-Infinity"),
        (("anything", '{"a": 1, "a": 2}'), '"a" twice'),
        (("anything", f'{{"a": {DEEP}}}'), "32 levels deep"),
        (("anything", '{"a": 9223372036854775808}'), "beyond 64 bits"),
        (("anything", '{"a": "\\ud800"}'), "surrogate"),
        (("anything", '{"a": "\\u0000"}'), "NUL"),
        (("anything", '{"user": {"apiKey": "s3cr3t"}}'), "$.user.apiKey"),
        (("small", '{"text": "%s"}' % ("x" * 40)), "the limit is 40"),
        (("anything", "{}", "--priority", "0"), "priority"),
        (("anything", "{}", "--priority", "21"), "priority"),
        (("anything", "{}", "--at", "tomorrow"), "scheduled_for"),
        (("anything", "{}", "--at", "2030-02-30T00:00:00Z"), "scheduled_for"),
        (("anything", "{}", "--at", "2030-01-01T00:00:00"), "scheduled_for"),
        (("anything", "{}", "--expires-at", "never"), "expires_at"),
        (("anything", "{}", "--in", "soon"), "delay"),
        (("anything", "{}", "--in", "5m", "--at", "2030-01-01T00:00:00Z"), "delay"),
        (("anything", "{}", "--max-retries", "-1"), "max_retries"),
        (("anything", "{}", "--timeout", "0"), "timeout"),
        (("anything", "{}", "--result-ttl", "0"), "result_ttl"),
        (("anything", "{}", "--key", ""), "idempotency_key"),
        (("anything", "{}", "--tenant", "a\nb"), "tenant_id"),
    ],
)
def test_bad_input_is_refused_with_its_reason_and_nothing_is_stored(
    edgeq: CommandLine, words: tuple[str, ...], says: str
) -> None:
    plain = edgeq("enqueue", *words)
    machine = edgeq("enqueue", *words, "--json")

    assert (plain.code, plain.out, machine.code, machine.out) == (2, "", 2, "")
    assert plain.err.startswith("edgeq: ")
    assert says in plain.err
    assert machine.error["code"] == "invalid_input"
    assert machine.error["problems"][0].keys() == {"path", "reason"}
    assert "s3cr3t" not in plain.err + machine.err
    assert edgeq.jobs() == []


def test_an_unknown_type_is_refused_with_the_nearest_name(edgeq: CommandLine) -> None:
    ended = edgeq("enqueue", "ecko", "--json")

    assert (ended.code, ended.error["code"]) == (2, "unknown_type")
    assert "Did you mean 'echo'?" in ended.error["message"]
    assert edgeq.jobs() == []


def test_a_disabled_type_takes_no_jobs(edgeq: CommandLine) -> None:
    edgeq("types", "list")
    edgeq("types", "disable", "anything")

    ended = edgeq("enqueue", "anything", "--json")

    assert (ended.code, ended.error["code"]) == (2, "type_disabled")
    assert edgeq.jobs() == []


def test_a_full_type_takes_no_jobs(edgeq: CommandLine) -> None:
    edgeq.enqueue("anything")
    edgeq("types", "set", "anything", "max_pending=1")

    ended = edgeq("enqueue", "anything", "--json")

    assert (ended.code, ended.error["code"]) == (2, "queue_full")
    assert len(edgeq.jobs()) == 1


def test_a_guard_may_refuse(edgeq: CommandLine) -> None:
    ended = edgeq("enqueue", "guarded", '{"poor": true}', "--json")

    assert (ended.code, ended.error["code"]) == (2, "guard_refused")
    assert edgeq.jobs() == []


def test_a_type_without_its_handler_is_checked_by_the_stored_schema(edgeq: CommandLine) -> None:
    edgeq("types", "list")
    (edgeq.handlers / "samples.py").unlink()

    refused = edgeq("enqueue", "echo", '{"text": 1}', "--json")
    accepted = edgeq("enqueue", "echo", '{"text": "hi"}', "--json")

    assert (refused.code, refused.error["code"]) == (2, "invalid_input")
    assert accepted.code == 0


class TestBulk:
    def test_each_line_becomes_a_job(self, edgeq: CommandLine) -> None:
        Path("in.jsonl").write_text('{"text": "a"}\n\n{"text": "b"}\r\n{"text": "c"}')

        ended = edgeq("enqueue", "echo", "--bulk", "in.jsonl", "--priority", "3", "--json")

        assert (ended.code, ended.json, ended.err) == (0, {"enqueued": 3}, "")
        stored = {(job["input"]["text"], job["priority"]) for job in edgeq.jobs()}
        assert stored == {("a", 3), ("b", 3), ("c", 3)}

    def test_lines_can_come_from_stdin(self, edgeq: CommandLine) -> None:
        ended = edgeq("enqueue", "echo", "--bulk", "-", stdin='{"text": "a"}\n{"text": "b"}\n')

        assert ended.out == "2 jobs enqueued\n"
        assert len(edgeq.jobs()) == 2

    def test_lines_can_come_from_a_pipe_with_a_name(self, edgeq: CommandLine) -> None:
        reading, writing = os.pipe()
        os.write(writing, b'{"text": "a"}\n')
        os.close(writing)

        ended = edgeq("enqueue", "echo", "--bulk", f"/dev/fd/{reading}", "--json")
        os.close(reading)

        assert ended.json == {"enqueued": 1}

    def test_more_than_one_commit_holds_is_stored_whole(self, edgeq: CommandLine) -> None:
        Path("in.jsonl").write_text("{}\n" * 2_500)

        ended = edgeq("enqueue", "anything", "--bulk", "in.jsonl", "--json")

        assert ended.json == {"enqueued": 2_500}
        assert edgeq.sql("SELECT count(*) FROM background_jobs") == [(2_500,)]

    def test_an_empty_file_is_no_job(self, edgeq: CommandLine) -> None:
        ended = edgeq("enqueue", "anything", "--bulk", "-", "--json", stdin="")

        assert ended.json == {"enqueued": 0}

    @pytest.mark.parametrize(
        "line",
        [
            b"{",
            b"5",
            b"null",
            b'{"text": 1}',
            b'{"text": "a", "text": "b"}',
            b'{"text": NaN}',
            b'{"text": "\xff"}',
        ],
    )
    def test_a_bad_line_refuses_all_with_its_number(self, edgeq: CommandLine, line: bytes) -> None:
        lines = b'{"text": "a"}\n' * 1_500 + b"\n" + line + b"\n"

        ended = edgeq("enqueue", "echo", "--bulk", "-", "--json", stdin=lines)

        assert (ended.code, ended.error["code"]) == (2, "invalid_input")
        assert ended.error["message"].startswith("line 1502: $")
        assert ended.error["problems"]
        assert edgeq.jobs() == []

    def test_what_was_stored_before_a_later_refusal_is_told(self, edgeq: CommandLine) -> None:
        edgeq("types", "list")
        edgeq("types", "set", "anything", "max_pending=1500")

        ended = edgeq("enqueue", "anything", "--bulk", "-", "--json", stdin="{}\n" * 2_000)

        assert (ended.code, ended.error["code"]) == (2, "queue_full")
        assert "The first 1,000 lines had been stored" in ended.error["message"]

    def test_lines_cannot_share_a_key(self, edgeq: CommandLine) -> None:
        ended = edgeq("enqueue", "echo", "--bulk", "-", "--key", "k", "--json", stdin="{}\n")

        assert (ended.code, ended.error["code"]) == (2, "usage")

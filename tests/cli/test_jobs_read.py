from __future__ import annotations

import pytest

from tests.cli.command_line import JOB_FIELDS, MISSING, CommandLine


class TestList:
    def test_shows_the_newest_first_in_a_table(self, edgeq: CommandLine) -> None:
        old, new = edgeq.enqueue("anything"), edgeq.enqueue("echo", '{"text": "a"}')

        ended = edgeq("jobs", "list")

        title, first, second = ended.out.splitlines()
        assert title.split()[:3] == ["ID", "TYPE", "STATUS"]
        assert first.split()[:4] == [new, "echo", "pending", "10"]
        assert second.split()[:4] == [old, "anything", "pending", "10"]
        assert " ago" in first
        assert ended.err == ""

    def test_is_a_page_of_jobs_in_json(self, edgeq: CommandLine) -> None:
        ids = [edgeq.enqueue("anything") for _ in range(3)]

        first = edgeq("jobs", "list", "--limit", "2", "--json").json
        second = edgeq("jobs", "list", "--cursor", first["next_cursor"], "--json").json

        assert first.keys() == {"items", "next_cursor"}
        assert tuple(first["items"][0]) == JOB_FIELDS
        assert [job["id"] for job in first["items"] + second["items"]] == ids[::-1]
        assert second["next_cursor"] is None

    def test_tells_how_to_go_on(self, edgeq: CommandLine) -> None:
        edgeq.enqueue("anything")
        newest = edgeq.enqueue("anything")

        assert f"--cursor {newest}" in edgeq("jobs", "list", "--limit", "1").err

    def test_says_so_when_there_is_nothing(self, edgeq: CommandLine) -> None:
        ended = edgeq("jobs", "list")

        assert (ended.code, ended.out, ended.err) == (0, "", "No jobs.\n")

    @pytest.mark.parametrize(
        "filters",
        [
            ("--status", "pending"),
            ("--type", "echo"),
            ("--category", "sample"),
            ("--lane", "fast"),
            ("--tenant", "t"),
            ("--correlation", "c"),
            ("--key", "k"),
            ("--reference-type", "order"),
            ("--reference-type", "order", "--reference-id", "1"),
            ("--type", "echo", "--created-after", "2020-01-01T00:00:00Z"),
            ("--type", "echo", "--created-before", "2100-01-01T00:00:00Z"),
        ],
    )
    def test_shows_only_what_fits_the_filters(
        self, edgeq: CommandLine, filters: tuple[str, ...]
    ) -> None:
        edgeq.failed()
        wanted = edgeq.enqueue(
            *("echo", '{"text": "a"}', "--tenant", "t", "--correlation", "c", "--key", "k"),
            *("--reference", "order:1"),
        )

        ended = edgeq("jobs", "list", *filters, "--json")

        assert [job["id"] for job in ended.json["items"]] == [wanted]

    @pytest.mark.parametrize(
        "filters",
        [
            ("--parent", MISSING),
            ("--batch", "b"),
            ("--error-class", "timeout"),
            ("--reference-id", "2"),
            ("--created-before", "1960-01-01T00:00:00Z"),
        ],
    )
    def test_shows_nothing_when_nothing_fits(
        self, edgeq: CommandLine, filters: tuple[str, ...]
    ) -> None:
        edgeq.enqueue("anything")

        assert edgeq("jobs", "list", *filters, "--json").json["items"] == []

    @pytest.mark.parametrize(
        "filters",
        [
            ("--status", "done"),
            ("--limit", "0"),
            ("--limit", "201"),
            ("--cursor", "x"),
            ("--created-after", "yesterday"),
        ],
    )
    def test_refuses_filters_that_make_no_sense(
        self, edgeq: CommandLine, filters: tuple[str, ...]
    ) -> None:
        ended = edgeq("jobs", "list", *filters, "--json")

        assert (ended.code, ended.error["code"]) == (2, "invalid_input")


class TestShow:
    def test_has_the_attempts_and_the_log(self, edgeq: CommandLine) -> None:
        job_id = edgeq.enqueue("echo", '{"text": "a"}')
        edgeq.process()

        shown = edgeq("jobs", "show", job_id, "--json").json

        assert tuple(shown) == (*JOB_FIELDS, "steps", "attempts", "logs")
        assert shown["output"] == {"said": "a"}
        assert shown["error"] is None
        assert (shown["correlation_id"], shown["idempotency_key"]) == (job_id, job_id)
        said = [entry for entry in shown["logs"] if entry["message"] == "said it"]
        assert said[0]["details"] == {"times": 1}
        assert shown["completed_at"].endswith("Z")

    def test_tells_why_a_job_failed(self, edgeq: CommandLine) -> None:
        job_id = edgeq.failed()

        shown = edgeq("jobs", "show", job_id, "--json").json
        plain = edgeq("jobs", "show", job_id).out

        error = {"class": "non_retryable", "message": "it cannot be done"}
        assert shown["error"] == error
        assert [(a["outcome"], a["error"]) for a in shown["attempts"]] == [("failed", error)]
        assert "error      non_retryable: it cannot be done" in plain
        assert "Attempts that did not simply succeed" in plain

    def test_is_readable(self, edgeq: CommandLine) -> None:
        job_id = edgeq.enqueue("echo", '{"text": "grüße"}')
        edgeq.process()

        plain = edgeq("jobs", "show", job_id).out

        assert f"id         {job_id}" in plain
        assert "status     completed" in plain
        assert '"said": "grüße"' in plain
        assert "said it" in plain

    def test_of_a_missing_job_fails(self, edgeq: CommandLine) -> None:
        ended = edgeq("jobs", "show", MISSING, "--json")

        assert (ended.code, ended.out, ended.error["code"]) == (1, "", "job_not_found")


class TestLogs:
    def test_are_pages_oldest_first(self, edgeq: CommandLine) -> None:
        job_id = edgeq.enqueue("echo", '{"text": "a"}')
        edgeq.process()

        page = edgeq("jobs", "logs", job_id, "--json").json
        plain = edgeq("jobs", "logs", job_id).out

        assert page.keys() == {"items", "next_cursor"}
        assert "said it" in [entry["message"] for entry in page["items"]]
        assert "said it" in plain

    def test_of_a_job_that_never_ran_are_empty(self, edgeq: CommandLine) -> None:
        ended = edgeq("jobs", "logs", edgeq.enqueue("anything"))

        assert (ended.out, ended.err) == ("", "The log is empty.\n")

    def test_of_a_missing_job_fail(self, edgeq: CommandLine) -> None:
        assert edgeq("jobs", "logs", MISSING, "--json").error["code"] == "job_not_found"


class TestResult:
    def test_of_a_completed_job_is_its_output(self, edgeq: CommandLine) -> None:
        job_id = edgeq.enqueue("echo", '{"text": "a"}')
        edgeq.process()

        plain = edgeq("jobs", "result", job_id)
        machine = edgeq("jobs", "result", job_id, "--json")

        assert plain.out == '{\n  "said": "a"\n}\n'
        assert machine.json == {"job_id": job_id, "status": "completed", "output": {"said": "a"}}

    def test_of_a_failed_job_is_its_error_and_a_failure(self, edgeq: CommandLine) -> None:
        job_id = edgeq.failed()

        plain = edgeq("jobs", "result", job_id)
        machine = edgeq("jobs", "result", job_id, "--json")

        assert (plain.code, plain.out) == (1, "")
        assert "it cannot be done" in plain.err
        assert machine.json == {
            "job_id": job_id,
            "status": "failed",
            "error": {"class": "non_retryable", "message": "it cannot be done"},
        }
        assert (machine.code, machine.error["code"]) == (1, "job_failed")

    def test_of_a_cancelled_job_is_a_failure(self, edgeq: CommandLine) -> None:
        job_id = edgeq.enqueue("anything")
        edgeq("jobs", "cancel", job_id)

        machine = edgeq("jobs", "result", job_id, "--json")

        assert machine.json == {"job_id": job_id, "status": "cancelled", "error": None}
        assert (machine.code, machine.error["code"]) == (1, "job_cancelled")

    def test_is_not_ready_before_the_end(self, edgeq: CommandLine) -> None:
        ended = edgeq("jobs", "result", edgeq.enqueue("anything"), "--json")

        assert (ended.code, ended.out, ended.error["code"]) == (1, "", "result_not_ready")

    def test_is_gone_after_its_time(self, edgeq: CommandLine) -> None:
        job_id = edgeq.enqueue("echo", '{"text": "a"}', "--result-ttl", "1ms")
        edgeq.process()
        edgeq.sql("UPDATE background_jobs SET result_expires_at = 1")

        ended = edgeq("jobs", "result", job_id, "--json")

        assert (ended.code, ended.error["code"]) == (1, "result_expired")
        assert edgeq("jobs", "show", job_id, "--json").json["output"] is None

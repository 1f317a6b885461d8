from __future__ import annotations

import pytest

from edgeq.core.ids import is_job_id
from tests.cli.command_line import CommandLine

FIELDS = (
    *("id", "type", "category", "status", "priority", "progress", "current_stage", "input"),
    *("output", "error", "attempt", "retry_count", "max_retries", "interruptions", "created_at"),
    *("scheduled_for", "started_at", "completed_at", "updated_at", "tenant_id", "correlation_id"),
    *("reference_type", "reference_id", "parent_job_id", "batch_id", "idempotency_key"),
    *("review_reason", "waiting_for"),
)
MISSING = "01900000-0000-7000-8000-000000000000"


def under_review(edgeq: CommandLine) -> str:
    job_id = edgeq.enqueue("doubtful")
    edgeq.process()
    return job_id


def failed(edgeq: CommandLine) -> str:
    job_id = edgeq.enqueue("hopeless")
    edgeq.process()
    return job_id


def running(edgeq: CommandLine) -> str:
    job_id = edgeq.enqueue("anything")
    edgeq.pretend_running(job_id)
    return job_id


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
        assert tuple(first["items"][0]) == FIELDS
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
        failed(edgeq)
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

        assert tuple(shown) == (*FIELDS, "steps", "attempts", "logs")
        assert shown["output"] == {"said": "a"}
        assert shown["error"] is None
        assert (shown["correlation_id"], shown["idempotency_key"]) == (job_id, job_id)
        said = [entry for entry in shown["logs"] if entry["message"] == "said it"]
        assert said[0]["details"] == {"times": 1}
        assert shown["completed_at"].endswith("Z")

    def test_tells_why_a_job_failed(self, edgeq: CommandLine) -> None:
        job_id = failed(edgeq)

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
        job_id = failed(edgeq)

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


class TestCancel:
    def test_of_a_waiting_job_ends_it(self, edgeq: CommandLine) -> None:
        job_id = edgeq.enqueue("anything")

        machine = edgeq("jobs", "cancel", job_id, "--json")

        assert (machine.code, machine.json) == (0, {"job_id": job_id, "result": "cancelled"})

    def test_of_a_running_job_is_a_request(self, edgeq: CommandLine) -> None:
        job_id = running(edgeq)

        plain = edgeq("jobs", "cancel", job_id)

        assert (plain.code, plain.out) == (0, f"{job_id}  requested\n")

    def test_of_an_ended_job_fails(self, edgeq: CommandLine) -> None:
        job_id = failed(edgeq)

        machine = edgeq("jobs", "cancel", job_id, "--json")

        assert (machine.code, machine.json) == (1, {"job_id": job_id, "result": "ended"})

    def test_of_a_missing_job_fails(self, edgeq: CommandLine) -> None:
        machine = edgeq("jobs", "cancel", MISSING, "--json")

        assert (machine.code, machine.json) == (1, {"job_id": MISSING, "result": "not_found"})


class TestActs:
    def test_a_failed_job_is_retried_with_another_input(self, edgeq: CommandLine) -> None:
        job_id = failed(edgeq)

        job = edgeq("jobs", "retry", job_id, "--input", '{"a": 1}', "--json").json

        assert tuple(job) == FIELDS
        assert (job["status"], job["input"], job["retry_count"]) == ("pending", {"a": 1}, 0)

    def test_a_retry_needs_no_handlers_without_another_input(self, edgeq: CommandLine) -> None:
        job_id = failed(edgeq)
        (edgeq.handlers / "broken.py").write_text("def")

        plain = edgeq("jobs", "retry", job_id)

        assert (plain.code, plain.out) == (0, f"{job_id}  pending\n")

    def test_a_retrys_input_has_to_fit(self, edgeq: CommandLine) -> None:
        job_id = edgeq.enqueue("echo", '{"text": "a"}')
        edgeq("jobs", "cancel", job_id)

        ended = edgeq("jobs", "retry", job_id, "--input", '{"text": 1}', "--json")

        assert (ended.code, ended.error["code"]) == (2, "invalid_input")
        assert edgeq.jobs()[0]["status"] == "cancelled"

    def test_a_job_under_review_is_approved_as_it_is(self, edgeq: CommandLine) -> None:
        job_id = under_review(edgeq)

        plain = edgeq("jobs", "approve", job_id, "--note", "looks fine")

        assert plain.out == f"{job_id}  completed\n"
        assert edgeq("jobs", "result", job_id, "--json").json["output"] == {"said": "maybe"}
        assert "approved: looks fine" in edgeq("jobs", "logs", job_id).out

    def test_a_job_under_review_is_approved_with_an_edited_output(self, edgeq: CommandLine) -> None:
        job_id = under_review(edgeq)

        refused = edgeq("jobs", "approve", job_id, "--output", '{"said": 1}', "--json")
        job = edgeq("jobs", "approve", job_id, "--output", '{"said": "yes"}', "--json").json

        assert (refused.code, refused.error["code"]) == (2, "invalid_input")
        assert (job["status"], job["output"]) == ("completed", {"said": "yes"})

    def test_a_job_under_review_is_rejected_with_a_reason(self, edgeq: CommandLine) -> None:
        job_id = under_review(edgeq)

        job = edgeq("jobs", "reject", job_id, "--reason", "it is not", "--json").json

        assert job["status"] == "failed"
        assert job["error"] == {"class": "rejected", "message": "it is not"}

    def test_a_job_is_failed_by_hand(self, edgeq: CommandLine) -> None:
        job_id = edgeq.enqueue("anything")

        job = edgeq("jobs", "fail", job_id, "--reason", "enough", "--json").json

        assert job["error"] == {"class": "operator", "message": "enough"}

    def test_only_the_attempt_of_a_running_job_is_failed_by_hand(self, edgeq: CommandLine) -> None:
        job_id = running(edgeq)

        job = edgeq("jobs", "fail", job_id, "--reason", "stuck", "--retry", "--json").json

        assert (job["status"], job["retry_count"]) == ("pending", 1)

    def test_a_stuck_job_is_released(self, edgeq: CommandLine) -> None:
        job_id = running(edgeq)

        assert edgeq("jobs", "release", job_id).out == f"{job_id}  pending\n"
        assert edgeq.jobs()[0]["retry_count"] == 0

    def test_a_job_is_deleted(self, edgeq: CommandLine) -> None:
        first, second = edgeq.enqueue("anything"), edgeq.enqueue("anything")

        machine = edgeq("jobs", "delete", first, "--json")
        plain = edgeq("jobs", "delete", second)

        assert machine.json == {"job_id": first, "result": "deleted"}
        assert plain.out == f"{second}  deleted\n"
        assert edgeq.jobs() == []

    def test_a_waiting_job_is_changed(self, edgeq: CommandLine) -> None:
        job_id = edgeq.enqueue("anything")

        job = edgeq(
            *("jobs", "update", job_id, "--priority", "20", "--at", "2030-01-01T00:00:00Z"),
            *("--input", '{"b": 2}', "--json"),
        ).json

        assert (job["priority"], job["input"]) == (20, {"b": 2})
        assert job["scheduled_for"] == "2030-01-01T00:00:00.000Z"

    def test_a_waiting_job_is_put_off(self, edgeq: CommandLine) -> None:
        job_id = edgeq.enqueue("anything")

        ended = edgeq("jobs", "update", job_id, "--in", "1d")

        assert ended.code == 0
        ((due, updated),) = edgeq.sql("SELECT scheduled_for, updated_at FROM background_jobs")
        assert 0 <= updated + 86_400_000 - due < 60_000

    @pytest.mark.parametrize(
        "words", [("--priority", "21"), ("--at", "later"), ("--input", "{"), ()]
    )
    def test_a_change_has_to_make_sense(self, edgeq: CommandLine, words: tuple[str, ...]) -> None:
        job_id = edgeq.enqueue("anything")
        before = edgeq.jobs()

        ended = edgeq("jobs", "update", job_id, *words, "--json")

        assert (ended.code, ended.error["code"]) == (2, "invalid_input")
        assert edgeq.jobs() == before

    def test_a_change_may_not_wait_for_no_time_at_all(self, edgeq: CommandLine) -> None:
        ended = edgeq("jobs", "update", edgeq.enqueue("anything"), "--in", "a bit", "--json")

        assert (ended.code, ended.error["code"]) == (2, "bad_setting")

    @pytest.mark.parametrize(
        "words",
        [
            ("retry", "{id}"),
            ("approve", "{id}"),
            ("reject", "{id}", "--reason", "r"),
            ("release", "{id}"),
            ("fail", "{id}", "--reason", "r", "--retry"),
        ],
    )
    def test_what_a_waiting_job_does_not_allow_fails(
        self, edgeq: CommandLine, words: tuple[str, ...]
    ) -> None:
        job_id = edgeq.enqueue("anything")

        ended = edgeq("jobs", *(word.format(id=job_id) for word in words), "--json")

        assert (ended.code, ended.out, ended.error["code"]) == (1, "", "illegal_move")

    @pytest.mark.parametrize(
        "words",
        [
            ("result",),
            ("retry",),
            ("retry", "--input", "{}"),
            ("approve",),
            ("approve", "--output", "{}"),
            ("reject", "--reason", "r"),
            ("fail", "--reason", "r"),
            ("release",),
            ("delete",),
            ("update", "--priority", "3"),
        ],
    )
    def test_what_is_done_to_a_missing_job_fails(
        self, edgeq: CommandLine, words: tuple[str, ...]
    ) -> None:
        ended = edgeq("jobs", words[0], MISSING, *words[1:], "--json")

        assert (ended.code, ended.out, ended.error["code"]) == (1, "", "job_not_found")

    def test_an_act_is_audited_under_the_users_name(self, edgeq: CommandLine) -> None:
        edgeq("jobs", "cancel", edgeq.enqueue("anything"))

        ((actor,),) = edgeq.sql("SELECT actor FROM audit_events WHERE action = 'job_cancel'")
        assert actor.startswith("cli:")
        assert len(actor) > len("cli:")


def test_the_missing_id_is_one_that_could_be() -> None:
    assert is_job_id(MISSING)

from __future__ import annotations

import pytest

from edgeq.core.ids import is_job_id
from tests.cli.command_line import JOB_FIELDS, MISSING, CommandLine


class TestCancel:
    def test_of_a_waiting_job_ends_it(self, edgeq: CommandLine) -> None:
        job_id = edgeq.enqueue("anything")

        machine = edgeq("jobs", "cancel", job_id, "--json")

        assert (machine.code, machine.json) == (0, {"job_id": job_id, "result": "cancelled"})

    def test_of_a_running_job_is_a_request(self, edgeq: CommandLine) -> None:
        job_id = edgeq.running()

        plain = edgeq("jobs", "cancel", job_id)

        assert (plain.code, plain.out) == (0, f"{job_id}  requested\n")

    def test_of_an_ended_job_fails(self, edgeq: CommandLine) -> None:
        job_id = edgeq.failed()

        machine = edgeq("jobs", "cancel", job_id, "--json")

        assert (machine.code, machine.json) == (1, {"job_id": job_id, "result": "ended"})

    def test_of_a_missing_job_fails(self, edgeq: CommandLine) -> None:
        machine = edgeq("jobs", "cancel", MISSING, "--json")

        assert (machine.code, machine.json) == (1, {"job_id": MISSING, "result": "not_found"})


class TestActs:
    def test_a_failed_job_is_retried_with_another_input(self, edgeq: CommandLine) -> None:
        job_id = edgeq.failed()

        job = edgeq("jobs", "retry", job_id, "--input", '{"a": 1}', "--json").json

        assert tuple(job) == JOB_FIELDS
        assert (job["status"], job["input"], job["retry_count"]) == ("pending", {"a": 1}, 0)

    def test_a_retry_needs_no_handlers_without_another_input(self, edgeq: CommandLine) -> None:
        job_id = edgeq.failed()
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
        job_id = edgeq.under_review()

        plain = edgeq("jobs", "approve", job_id, "--note", "looks fine")

        assert plain.out == f"{job_id}  completed\n"
        assert edgeq("jobs", "result", job_id, "--json").json["output"] == {"said": "maybe"}
        assert "approved: looks fine" in edgeq("jobs", "logs", job_id).out

    def test_a_job_under_review_is_approved_with_an_edited_output(self, edgeq: CommandLine) -> None:
        job_id = edgeq.under_review()

        refused = edgeq("jobs", "approve", job_id, "--output", '{"said": 1}', "--json")
        job = edgeq("jobs", "approve", job_id, "--output", '{"said": "yes"}', "--json").json

        assert (refused.code, refused.error["code"]) == (2, "invalid_input")
        assert (job["status"], job["output"]) == ("completed", {"said": "yes"})

    def test_a_job_under_review_is_rejected_with_a_reason(self, edgeq: CommandLine) -> None:
        job_id = edgeq.under_review()

        job = edgeq("jobs", "reject", job_id, "--reason", "it is not", "--json").json

        assert job["status"] == "failed"
        assert job["error"] == {"class": "rejected", "message": "it is not"}

    def test_a_job_is_failed_by_hand(self, edgeq: CommandLine) -> None:
        job_id = edgeq.enqueue("anything")

        job = edgeq("jobs", "fail", job_id, "--reason", "enough", "--json").json

        assert job["error"] == {"class": "operator", "message": "enough"}

    def test_only_the_attempt_of_a_running_job_is_failed_by_hand(self, edgeq: CommandLine) -> None:
        job_id = edgeq.running()

        job = edgeq("jobs", "fail", job_id, "--reason", "stuck", "--retry", "--json").json

        assert (job["status"], job["retry_count"]) == ("pending", 1)

    def test_a_stuck_job_is_released(self, edgeq: CommandLine) -> None:
        job_id = edgeq.running()

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

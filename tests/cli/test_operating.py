from __future__ import annotations

import pytest

from tests.cli.command_line import CommandLine


class TestConfig:
    def test_is_set_listed_and_unset(self, edgeq: CommandLine) -> None:
        edgeq("config", "set", "worker_enabled=false", "process.budget=50", "app.greeting=hello")

        listed = edgeq("config", "list", "--json").json
        plain = edgeq("config", "list").out
        left = edgeq("config", "unset", "process.budget", "worker_enabled", "--json").json

        assert listed == {
            "worker_enabled": False,
            "process.budget": 50,
            "app.greeting": "hello",
        }
        assert "worker_enabled  false" in plain
        assert left == {"app.greeting": "hello"}

    def test_says_so_when_nothing_is_set(self, edgeq: CommandLine) -> None:
        ended = edgeq("config", "list")

        assert (ended.code, ended.out) == (0, "")
        assert ended.err.startswith("Nothing is set")

    def test_answers_for_one_key(self, edgeq: CommandLine) -> None:
        edgeq("config", "set", 'app.limits={"a": [1]}')

        assert edgeq("config", "get", "app.limits").out == '{"a": [1]}\n'
        assert edgeq("config", "get", "app.limits", "--json").json == {"app.limits": {"a": [1]}}

    def test_fails_for_a_key_that_is_not_set(self, edgeq: CommandLine) -> None:
        ended = edgeq("config", "get", "app.limits", "--json")

        assert (ended.code, ended.out, ended.error["code"]) == (1, "", "key_not_set")

    @pytest.mark.parametrize(
        "pair",
        [
            "worker_enabled=maybe",
            "process.concurrency=0",
            "process.budget=long",
            "nonsense=1",
            "app.x=NaN",
            'app.x={"a": 1, "a": 2}',
            f"app.x={'[' * 33}{']' * 33}",
            f"app.x={'[' * 9_999}{']' * 9_999}",
            "llm.api_key=s3cr3t",
        ],
    )
    def test_refuses_what_makes_no_sense_and_secrets(self, edgeq: CommandLine, pair: str) -> None:
        ended = edgeq("config", "set", "app.a=1", pair, "--json")

        assert (ended.code, ended.error["code"]) == (2, "invalid_input")
        assert "s3cr3t" not in ended.err
        assert edgeq("config", "list", "--json").json == {}


class TestStats:
    def test_count_jobs_by_type_and_state(self, edgeq: CommandLine) -> None:
        edgeq.enqueue("hopeless")
        edgeq.process()
        edgeq.enqueue("hopeless", "--at", "2030-01-01T00:00:00Z")

        machine = edgeq("stats", "--json").json
        plain = edgeq("stats").out

        (hopeless,) = [each for each in machine["types"] if each["type"] == "hopeless"]
        assert hopeless["counts"]["failed"] == 1
        assert hopeless["counts"]["pending"] == 1
        assert hopeless["capped"] is False
        assert hopeless["p50_ms"] >= 0
        assert machine["next_due_at"] == "2030-01-01T00:00:00.000Z"
        assert plain.splitlines()[0].split()[:2] == ["TYPE", "PENDING"]

    def test_of_an_empty_queue_say_so(self, edgeq: CommandLine) -> None:
        ended = edgeq("stats")

        assert (ended.code, ended.out, ended.err) == (0, "", "No job types.\n")


class TestRuns:
    def test_are_listed_with_what_they_did(self, edgeq: CommandLine) -> None:
        edgeq.enqueue("anything")
        edgeq.enqueue("anything", "--at", "2030-01-01T00:00:00Z")
        report = edgeq.process()

        (run,) = edgeq("runs", "--json").json["items"]
        plain = edgeq("runs").out

        assert (run["run_id"], run["kind"]) == (report.run_id, "process")
        assert (run["report"]["completed"], run["report"]["stopped"]) == (1, "empty")
        assert run["report"]["next_due_at"] == "2030-01-01T00:00:00.000Z"
        assert run["started_at"].endswith("Z")
        assert report.run_id in plain

    def test_are_shown_before_the_first_as_none(self, edgeq: CommandLine) -> None:
        assert edgeq("runs").err == "No runs yet.\n"

    def test_are_at_most_as_many_as_wanted(self, edgeq: CommandLine) -> None:
        for _ in range(2):
            edgeq.enqueue("anything")
            edgeq.process()

        assert len(edgeq("runs", "--limit", "1", "--json").json["items"]) == 1
        assert edgeq("runs", "--limit", "0", "--json").error["code"] == "invalid_input"

    def test_of_idle_ticks_are_listed_whoever_counted_them(self, edgeq: CommandLine) -> None:
        edgeq.enqueue("anything", "--at", "2030-01-01T00:00:00Z")
        edgeq.process()
        edgeq.run("process", "--budget", "1")

        (run,) = edgeq("runs", "--json").json["items"]

        assert (run["kind"], run["ticks"]) == ("idle", 2)
        assert run["report"]["next_due_at"] == "2030-01-01T00:00:00.000Z"


class TestMigrate:
    def test_creates_the_schema_and_names_it(self, edgeq: CommandLine) -> None:
        plain = edgeq("migrate")
        machine = edgeq("migrate", "--json")

        ((version,),) = edgeq.sql("SELECT version_num FROM alembic_version")
        assert plain.out == f"schema {version}\n"
        assert machine.json == {"schema_version": version}

from __future__ import annotations

import click
import pytest

from edgeq import __version__
from edgeq.cli.lazy import LazyGroup
from edgeq.cli.root import root
from tests.cli.command_line import CommandLine


def lazy_groups() -> list[LazyGroup]:
    nested = [root.get_command(click.Context(root), name) for name in root.places]
    return [root, *(group for group in nested if isinstance(group, LazyGroup))]


def test_the_help_lists_every_command_with_one_line(edgeq: CommandLine) -> None:
    ended = edgeq("--help")

    assert ended.code == 0
    for name, (_, line) in root.places.items():
        assert f"  {name}" in ended.out
        assert line in ended.out


@pytest.mark.parametrize("group", lazy_groups(), ids=lambda group: group.name)
def test_a_listed_command_is_where_the_list_says(group: LazyGroup) -> None:
    for name in group.places:
        command = group.get_command(click.Context(group), name)

        assert isinstance(command, click.Command)
        assert command.name == name


@pytest.mark.parametrize("group", lazy_groups(), ids=lambda group: group.name)
def test_the_line_in_the_list_is_the_first_of_the_commands_own_help(group: LazyGroup) -> None:
    for name, (_, line) in group.places.items():
        command = group.get_command(click.Context(group), name)

        assert command is not None
        assert (command.help or "").splitlines()[0] == line


def test_the_version_is_the_packages(edgeq: CommandLine) -> None:
    assert edgeq("--version").out == f"edgeq {__version__}\n"


def test_without_a_command_the_help_is_shown_and_the_usage_is_wrong(edgeq: CommandLine) -> None:
    ended = edgeq()

    assert (ended.code, ended.out) == (2, "")
    assert "Commands:" in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ("--json", "stats"),
        ("stats", "--json"),
        ("--json", "jobs", "list"),
        ("jobs", "--json", "list"),
        ("jobs", "list", "--json"),
    ],
)
def test_json_may_stand_anywhere(edgeq: CommandLine, words: tuple[str, ...]) -> None:
    assert isinstance(edgeq(*words).json, dict)


def test_a_database_named_after_the_command_wins_over_one_named_before_and_the_environment(
    edgeq: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEQ_DATABASE_URL", "sqlite:///environment.db")

    edgeq("migrate")
    edgeq("--db", "sqlite:///before.db", "migrate")
    edgeq("--db", "sqlite:///unused.db", "migrate", "--db", "sqlite:///after.db")

    made = {file.name for file in edgeq.folder.glob("*.db")}
    assert made == {"environment.db", "before.db", "after.db"}


def test_handlers_can_be_a_module_of_this_folder(edgeq: CommandLine) -> None:
    (edgeq.handlers / "samples.py").rename(edgeq.folder / "cli_sample_module.py")

    ended = edgeq("types", "list", "--handlers", "cli_sample_module", "--json")

    assert "echo" in [each["name"] for each in ended.json["items"]]


def test_without_a_handlers_folder_only_stored_types_are_known(edgeq: CommandLine) -> None:
    (edgeq.handlers / "samples.py").unlink()
    edgeq.handlers.rmdir()

    assert edgeq("types", "list", "--json").json["items"] == []


def test_logs_go_to_stderr_one_line_each(edgeq: CommandLine) -> None:
    edgeq("migrate")

    ended = edgeq("enqueue", "anything", "--log-level", "info", "--json")

    (line,) = ended.err.splitlines()
    assert ended.json["job_id"] in line
    assert " INFO edgeq: anything " in line


def test_a_bad_level_in_the_environment_is_named(
    edgeq: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEQ_LOG_LEVEL", "loud")

    ended = edgeq("stats", "--json")

    assert (ended.code, ended.error["code"]) == (2, "bad_setting")
    assert "EDGEQ_LOG_LEVEL" in ended.error["message"]


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("jobs", "nonsense"),
        ("stats", "--nonsense"),
        ("jobs", "show"),
        ("jobs", "reject", "x"),
        ("jobs", "list", "--limit", "many"),
        ("stats", "--db", ""),
        ("enqueue", "anything", "--reference", "order"),
        ("enqueue", "anything", "--bulk", "missing.jsonl"),
        ("enqueue", "anything", "{}", "--bulk", "-"),
        ("types", "set", "echo", "lane"),
        ("types", "set", "echo", "lane=a", "lane=b"),
        ("jobs", "update", "x", "--at", "2030-01-01T00:00:00Z", "--in", "5m"),
        ("jobs", "show", "\udcff"),
    ],
)
def test_a_wrong_usage_exits_with_2_and_says_where_help_is(
    edgeq: CommandLine, words: tuple[str, ...]
) -> None:
    plain = edgeq(*words)
    machine = edgeq(*words, "--json")

    assert (plain.code, plain.out) == (2, "")
    assert plain.err.startswith("edgeq: ")
    assert (machine.code, machine.out, machine.error["code"]) == (2, "", "usage")

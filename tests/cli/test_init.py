from __future__ import annotations

from tests.cli.command_line import CommandLine


def test_what_was_made_is_listed_with_the_next_commands(edgeq: CommandLine) -> None:
    ended = edgeq("init", "queue")

    lines = ended.out.splitlines()
    assert (ended.code, ended.err) == (0, "")
    assert "  queue/handlers/welcome.py" in lines
    assert lines[-4] == "  cd queue"
    assert lines[-3].startswith("  edgeq enqueue welcome")


def test_the_next_commands_are_those_of_the_projects_readme(edgeq: CommandLine) -> None:
    lines = edgeq("init").out.splitlines()

    readme = (edgeq.folder / "README.md").read_text()
    commands = lines[lines.index("Try it:") + 2 :]
    assert len(commands) == 3
    assert all(f"    {command.strip()}\n" in readme for command in commands)


def test_what_is_in_the_way_fails_the_command_and_stays(edgeq: CommandLine) -> None:
    (edgeq.folder / "README.md").write_text("mine")

    ended = edgeq("init", "--json")

    assert (ended.code, ended.out, ended.error["code"]) == (1, "", "project_not_made")
    assert "README.md" in ended.error["message"]
    assert not (edgeq.folder / "tests").exists()


def test_no_database_is_made(edgeq: CommandLine) -> None:
    edgeq("init", "queue")

    assert not list(edgeq.folder.rglob("*.db"))

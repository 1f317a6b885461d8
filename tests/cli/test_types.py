from __future__ import annotations

import pytest

from tests.cli.command_line import CommandLine


@pytest.fixture
def registered(edgeq: CommandLine) -> CommandLine:
    edgeq("types", "list")
    return edgeq


def test_types_are_listed(edgeq: CommandLine) -> None:
    plain = edgeq("types", "list")
    machine = edgeq("types", "list", "--json")

    assert plain.out.splitlines()[0].split()[:3] == ["NAME", "LANE", "STATE"]
    assert "echo" in plain.out
    assert "Say a text again." in plain.out
    assert machine.json.keys() == {"items", "next_cursor"}
    names = [each["name"] for each in machine.json["items"]]
    assert names == ["anything", "doubtful", "echo", "guarded", "hopeless", "small"]


def test_an_empty_list_says_what_to_do(edgeq: CommandLine) -> None:
    (edgeq.handlers / "samples.py").unlink()

    ended = edgeq("types", "list")

    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith("No job types.")


def test_a_type_is_shown(edgeq: CommandLine) -> None:
    plain = edgeq("types", "show", "echo")
    machine = edgeq("types", "show", "echo", "--json").json

    assert "lane                fast" in plain.out
    assert "stages              say" in plain.out
    assert machine.items() >= {"name": "echo", "lane": "fast", "stages": ["say"]}.items()
    assert machine["input_schema"]["$ref"].endswith("EchoInput")
    assert machine["overrides"] == []
    assert machine["created_at"].endswith("Z")


def test_an_unknown_type_is_not_shown_but_the_nearest_is_named(edgeq: CommandLine) -> None:
    ended = edgeq("types", "show", "eco", "--json")

    assert (ended.code, ended.error["code"]) == (2, "unknown_type")
    assert "'echo'" in ended.error["message"]


def test_a_type_is_created_by_hand(edgeq: CommandLine) -> None:
    plain = edgeq("types", "create", "later", "lane=fast", "max_retries=1")
    machine = edgeq("types", "create", "bare", "--json").json

    assert "lane*" in plain.out
    assert (machine["name"], machine["lane"], machine["max_retries"]) == ("bare", "general", 3)
    assert edgeq("enqueue", "later", "{}").code == 0


def test_a_type_is_not_created_twice(registered: CommandLine) -> None:
    ended = registered("types", "create", "echo", "--json")

    assert (ended.code, ended.error["code"]) == (2, "type_exists")


def test_fields_are_set_and_given_back_to_the_code(registered: CommandLine) -> None:
    changed = registered(
        *("types", "set", "echo", "max_concurrent=4", "description=louder: a=b"),
        *("required_fields=[]", "lane=slow", "--json"),
    ).json
    registered("types", "unset", "echo", "lane", "--json")
    after = registered("types", "show", "echo", "--json").json

    assert (changed["max_concurrent"], changed["lane"]) == (4, "slow")
    assert changed["description"] == "louder: a=b"
    assert set(changed["overrides"]) == {
        "description",
        "lane",
        "max_concurrent",
        "required_fields",
    }
    assert (after["lane"], after["max_concurrent"]) == ("fast", 4)


@pytest.mark.parametrize(
    "field",
    [
        "timeout_ms=0",
        "timeout_ms=soon",
        "lane=",
        "nonsense=1",
        "handler_name=x",
        "version=2",
        # These would reach the queue as something else than a field.
        "actor=x",
        "reason=x",
        "name=x",
        "unset=x",
    ],
)
@pytest.mark.parametrize("command", [("set", "echo"), ("create", "fresh")])
def test_fields_that_make_no_sense_are_refused(
    registered: CommandLine, command: tuple[str, str], field: str
) -> None:
    before = registered("types", "list", "--json").json

    ended = registered("types", *command, field, "--json")

    assert (ended.code, ended.error["code"]) == (2, "invalid_input")
    assert registered("types", "list", "--json").json == before


def test_only_known_fields_are_given_back(registered: CommandLine) -> None:
    ended = registered("types", "unset", "echo", "nonsense", "--json")

    assert (ended.code, ended.error["code"]) == (2, "invalid_input")


@pytest.mark.parametrize(
    ("command", "enabled", "paused", "state"),
    [("pause", True, True, "paused"), ("disable", False, False, "disabled")],
)
def test_a_type_is_switched_off_and_on(
    registered: CommandLine, *, command: str, enabled: bool, paused: bool, state: str
) -> None:
    back = {"pause": "resume", "disable": "enable"}[command]

    off = registered("types", command, "echo", "--json").json
    listed = registered("types", "list").out
    on = registered("types", back, "echo", "--json").json

    assert (off["is_enabled"], off["is_paused"]) == (enabled, paused)
    assert state in listed
    assert (on["is_enabled"], on["is_paused"]) == (True, False)


@pytest.mark.parametrize("command", ["pause", "resume", "disable", "enable", "unset", "set"])
def test_an_unknown_type_is_not_changed(edgeq: CommandLine, command: str) -> None:
    more = {"unset": ["lane"], "set": ["lane=fast"]}.get(command, [])

    ended = edgeq("types", command, "nonsense", *more, "--json")

    assert (ended.code, ended.error["code"]) == (2, "unknown_type")


def test_an_operator_can_pause_a_type_whose_handlers_are_broken(registered: CommandLine) -> None:
    (registered.handlers / "broken.py").write_text("def")

    plain = registered("types", "pause", "echo")

    assert plain.code == 0
    assert "is_paused           yes" in plain.out

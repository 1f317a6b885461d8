from __future__ import annotations

import pytest

from edgeq.cli import output


def test_a_tables_columns_are_as_wide_as_their_widest_cell() -> None:
    shown = output.table(("name", "n"), [("a", 1), ("longer", None)])

    assert shown == "NAME    N\na       1\nlonger  -"


def test_a_state_has_its_colour_and_keeps_its_column() -> None:
    shown = output.table(("status", "n"), [("failed", 1), ("pending", 2)])

    assert "\x1b[31mfailed \x1b[0m  1" in shown
    assert "\npending  2" in shown


def test_what_a_job_wrote_cannot_reach_the_terminal() -> None:
    shown = output.table(("message",), [("\x1b[2Jgone\nnew line",)])

    assert shown == "MESSAGE\n\\x1b[2Jgone\\nnew line"


@pytest.mark.parametrize(("number", "shown"), [(0, "0"), (9_999, "9,999"), (10_000, "10,000+")])
def test_a_count_says_when_it_was_capped(number: int, shown: str) -> None:
    assert output.count(number) == shown


@pytest.mark.parametrize(
    ("ms", "shown"), [(None, "-"), (820_000, "3 min ago"), (1_060_000, "in 1 min")]
)
def test_an_age_is_told_from_now(ms: int | None, shown: str) -> None:
    assert output.age(ms, 1_000_000) == shown


def test_colours_are_never_shown_with_no_color(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    output.say(output.paint("failed"))

    assert capsys.readouterr().out == "failed\n"

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.command_line import CommandLine

COMMANDS = [
    ("enqueue", "anything"),
    ("jobs", "list"),
    ("types", "pause", "anything"),
    ("config", "set", "app.a=1"),
    ("stats",),
    ("migrate",),
]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_database_in_a_missing_folder_is_out_of_reach(
    edgeq: CommandLine, words: tuple[str, ...]
) -> None:
    ended = edgeq(*words, "--db", "sqlite:///missing/edgeq.db", "--json")

    assert (ended.code, ended.out, ended.error["code"]) == (3, "", "store_unavailable")
    assert str(edgeq.folder / "missing") in ended.error["message"]
    assert not (edgeq.folder / "missing").exists()


@pytest.mark.parametrize("words", COMMANDS)
def test_a_file_that_is_no_database_is_left_alone(
    edgeq: CommandLine, words: tuple[str, ...]
) -> None:
    text = "Dear diary, " * 100
    edgeq.path.write_text(text)

    ended = edgeq(*words, "--json")

    assert (ended.code, ended.out, ended.error["code"]) == (3, "", "not_a_database")
    assert edgeq.path.read_text() == text


@pytest.mark.parametrize("words", COMMANDS)
def test_a_folder_is_no_database(edgeq: CommandLine, words: tuple[str, ...]) -> None:
    edgeq.path.mkdir()

    ended = edgeq(*words, "--json")

    assert (ended.code, ended.out, ended.error["code"]) == (3, "", "store_unavailable")


@pytest.mark.parametrize("words", COMMANDS)
def test_a_newer_schema_is_refused(edgeq: CommandLine, words: tuple[str, ...]) -> None:
    edgeq("types", "list")
    edgeq.sql("UPDATE alembic_version SET version_num = '9999'")

    ended = edgeq(*words, "--json")

    assert (ended.code, ended.out, ended.error["code"]) == (3, "", "newer_schema")
    assert edgeq.sql("SELECT count(*) FROM background_jobs") == [(0,)]


@pytest.mark.parametrize("words", [("enqueue", "anything"), ("jobs", "list"), ("stats",)])
def test_a_damaged_database_is_named_so(edgeq: CommandLine, words: tuple[str, ...]) -> None:
    edgeq("enqueue", "anything", "--bulk", "-", stdin="{}\n" * 3_000)
    overwrite_pages_of(edgeq, "background_jobs")

    ended = edgeq(*words, "--json")

    assert (ended.code, ended.out, ended.error["code"]) == (3, "", "store_corrupt")


def overwrite_pages_of(edgeq: CommandLine, table: str) -> None:
    """Noise instead of the roots of a table and of all its indexes, in the middle of the file."""
    roots = edgeq.sql("SELECT rootpage FROM sqlite_master WHERE tbl_name = ?", table)
    ((page_bytes,),) = edgeq.sql("PRAGMA page_size")
    edgeq.sql("PRAGMA wal_checkpoint(TRUNCATE)")
    with edgeq.path.open("r+b") as file:
        for (page,) in roots:
            file.seek((page - 1) * page_bytes)
            file.write(b"\xa5" * page_bytes)


@pytest.mark.parametrize(
    "url", ["edgeq.db", "sqlite:///", "mysql://host/db", "sqlite:///edgeq.db?mode=ro"]
)
def test_an_address_that_is_none_is_bad_input(edgeq: CommandLine, url: str) -> None:
    ended = edgeq("stats", "--db", url, "--json")

    assert (ended.code, ended.error["code"]) == (2, "bad_setting")


def syntax_error(edgeq: CommandLine) -> str:
    (edgeq.handlers / "broken.py").write_text("def broken(:\n")
    return "broken.py, line 1"


def failing_import(edgeq: CommandLine) -> str:
    (edgeq.handlers / "broken.py").write_text("import no_such_module_anywhere\n")
    return "no_such_module_anywhere"


def two_of_one_name(edgeq: CommandLine) -> str:
    sample = (edgeq.handlers / "samples.py").read_text()
    (edgeq.handlers / "second.py").write_text(sample)
    return "Two handlers are named 'echo'"


def wrong_declaration(edgeq: CommandLine) -> str:
    (edgeq.handlers / "broken.py").write_text(
        "from edgeq import handler\n@handler('9', timeout=5)\nasync def nine(ctx, input): ...\n"
    )
    return "handler of '9'"


@pytest.mark.parametrize(
    "break_handlers", [syntax_error, failing_import, two_of_one_name, wrong_declaration]
)
class TestBrokenHandlers:
    @pytest.mark.parametrize(
        "words", [("enqueue", "anything"), ("types", "list"), ("types", "show", "anything")]
    )
    def test_stop_who_needs_them_and_are_named(
        self,
        edgeq: CommandLine,
        break_handlers: Callable[[CommandLine], str],
        words: tuple[str, ...],
    ) -> None:
        says = break_handlers(edgeq)

        ended = edgeq(*words, "--json")

        assert (ended.code, ended.out, ended.error["code"]) == (2, "", "handler_problem")
        assert says in ended.error["message"]
        assert edgeq.jobs() == []

    @pytest.mark.parametrize("words", [("jobs", "list"), ("stats",), ("config", "list")])
    def test_do_not_stop_an_operator(
        self,
        edgeq: CommandLine,
        break_handlers: Callable[[CommandLine], str],
        words: tuple[str, ...],
    ) -> None:
        break_handlers(edgeq)

        assert edgeq(*words).code == 0


@pytest.mark.parametrize("handlers", ["./missing", "no_such_module_anywhere"])
def test_handlers_that_are_nowhere_are_named(edgeq: CommandLine, handlers: str) -> None:
    ended = edgeq("enqueue", "anything", "--handlers", handlers, "--json")

    assert (ended.code, ended.error["code"]) == (2, "handler_problem")
    assert handlers in ended.error["message"]

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from edgeq import Context, handler
from edgeq.errors import HandlerProblem
from edgeq.handler_files import fingerprint_of
from edgeq.registry import load
from edgeq.testing import drain, queue_for_test

GOOD = """
from edgeq import Context, handler

@handler("greet")
async def greet(ctx: Context, input: dict) -> str:
    from ._words import HELLO
    return f"{HELLO} {input['name']}"
"""


DECLARE = "from edgeq import handler\n"


def _folder(path: Path, **files: str) -> Path:
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        (path / f"{name}.py").write_text(text)
    return path


async def test_a_folder_of_files_becomes_handlers_that_may_share_code(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "jobs", greet=GOOD, _words="HELLO = 'hello'")
    async with queue_for_test(folder) as queue:
        job_id = (await queue.enqueue("greet", {"name": "you"})).job_id
        await drain(queue)
        assert await queue.result(job_id) == "hello you"


async def test_the_lifespan_of_a_folder_is_found_in_any_of_its_files(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path / "jobs",
        __init__="""
from contextlib import asynccontextmanager

@asynccontextmanager
async def lifespan():
    yield "shared"
""",
        use="""
from edgeq import Context, handler

@handler("use")
async def use(ctx: Context, input: dict) -> str:
    return ctx.state
""",
    )
    async with queue_for_test(str(folder)) as queue:
        job_id = (await queue.enqueue("use", {})).job_id
        await drain(queue)
        assert await queue.result(job_id) == "shared"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"bad": "def broken(:\n"}, r"bad\.py, line 1"),
        ({"bad": "import nothing_like_this"}, "nothing_like_this"),
        ({"bad": "1 / 0"}, "ZeroDivisionError"),
        ({"a": GOOD, "b": GOOD}, "Two handlers are named 'greet'"),
        ({"a": "lifespan = print", "b": "def lifespan(): ..."}, "`lifespan` is defined twice"),
        ({"a": DECLARE + "@handler('1')\ndef f(c, i): ..."}, "letter"),
        ({"a": DECLARE + "@handler('a', timeout=0)\ndef f(c, i): ..."}, "timeout"),
        (
            {"a": DECLARE + "@handler('a', executor='async')\ndef f(c, i): ..."},
            "executor",
        ),
        (
            {"a": DECLARE + "@handler('a', errors={OSError: 'x'})\ndef f(c, i): ..."},
            "transient",
        ),
    ],
)
def test_a_folder_that_cannot_be_loaded_says_which_file_and_why(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    with pytest.raises(HandlerProblem, match=message):
        load(_folder(tmp_path / "jobs", **files)).policies()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(ctx): ...", "exactly two arguments"),
        ("def f(ctx, input: 'Nowhere'): ...", "cannot be resolved"),
        ("def f(ctx, input: complex): ...", "cannot be read from JSON"),
    ],
)
def test_a_handler_whose_signature_makes_no_sense_is_refused(
    tmp_path: Path, source: str, message: str
) -> None:
    text = f"{DECLARE}@handler('a')\n{source}\n"
    with pytest.raises(HandlerProblem, match=message):
        load(_folder(tmp_path / "jobs", a=text)).policies()


def test_a_module_or_a_list_can_be_a_source_too() -> None:
    @handler("inline")
    async def inline(ctx: Context, input: dict[str, Any]) -> None:
        return None

    module = types.ModuleType("made_up_handlers")
    module.__dict__["inline"] = inline
    sys.modules["made_up_handlers"] = module
    try:
        assert set(load(module).handlers) == {"inline"}
        assert set(load("made_up_handlers").handlers) == {"inline"}
    finally:
        del sys.modules["made_up_handlers"]
    assert set(load([inline]).handlers) == {"inline"}
    assert load(None).handlers == {}


@pytest.mark.parametrize(
    "source", [Path("no/such/folder"), "./no/such/folder", "no_such_module", [print]]
)
def test_a_source_that_is_not_there_is_refused(source: Any) -> None:
    with pytest.raises(HandlerProblem):
        load(source)


def test_a_module_that_breaks_while_importing_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_handlers.py").write_text("import nothing_like_this")
    (tmp_path / "wrong_handlers.py").write_text("def (")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("broken_handlers", "wrong_handlers"):
        with pytest.raises(HandlerProblem, match="cannot be imported"):
            load(name)


async def test_a_decorated_function_stays_callable() -> None:
    @handler("double")
    async def double(ctx: Context | None, input: dict[str, int]) -> int:
        """Doubles a number.

        And more that is not for the list of types."""
        return input["n"] * 2

    assert await double(None, {"n": 4}) == 8
    assert double.policy.description == "Doubles a number."
    assert "double" in repr(double)


def test_the_fingerprint_changes_when_a_file_does(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "jobs", a="x = 1")
    before = fingerprint_of(folder)
    assert fingerprint_of(folder) == before
    (folder / "__pycache__").mkdir()
    (folder / "notes.txt").write_text("not code")
    assert fingerprint_of(folder) == before
    (folder / "a.py").write_text("x = 22")
    changed = fingerprint_of(folder)
    (folder / "sub").mkdir()
    (folder / "sub" / "b.py").write_text("y = 1")
    assert len({before, changed, fingerprint_of(folder)}) == 3

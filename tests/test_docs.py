"""The documentation names everything that there is, and its example runs."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest

import edgeq
from edgeq.cli.root import root
from edgeq.core.jobs import JobStatus
from edgeq.core.runs import RunReport, Stop
from edgeq.declaration import handler
from edgeq.doctor.checks import SQLITE_CHECKS
from edgeq.errors import EdgeqError
from edgeq.settings import Settings
from edgeq.store.tables import metadata
from edgeq.wiring import Queue

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS.glob("*.md")]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def _missing(page: str, wanted: Iterable[str]) -> set[str]:
    """Which of these a page does not name in code style."""
    text = (DOCS / page).read_text()
    named = set(re.findall(r"`([^`\n]+)`", FENCED.sub("", text)))
    words = {word for code in named for word in re.findall(r"[\w.*-]+", code)}
    return {name for name in wanted if name not in named and name not in words}


def _error_classes(base: type[EdgeqError] = EdgeqError) -> Iterator[type[EdgeqError]]:
    yield base
    for each in base.__subclasses__():
        yield from _error_classes(each)


def test_every_error_and_its_code_is_explained() -> None:
    for module in pkgutil.walk_packages(edgeq.__path__, "edgeq."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = [each for each in _error_classes() if each.__module__.startswith("edgeq.")]
    rows = {f"| `{each.__name__}` | `{each.code}` |" for each in ours}
    text = (DOCS / "operations.md").read_text()
    assert {row for row in rows if row not in text} == set()


def test_every_setting_is_explained() -> None:
    wanted = {f"EDGEQ_{name.upper()}" for name in Settings.__slots__}
    assert _missing("operations.md", wanted) == set()


def _commands(
    command: click.Command, ctx: click.Context, words: tuple[str, ...]
) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    for name in command.list_commands(ctx):
        below = command.get_command(ctx, name)
        assert below is not None
        yield from _commands(below, ctx, (*words, name))


def test_every_command_and_its_options_are_explained() -> None:
    rows = (DOCS / "operations.md").read_text().splitlines()
    common = {"--db", "--handlers", "--json", "--log-level"}
    with click.Context(root) as ctx:
        for words, command in _commands(root, ctx, ("edgeq",)):
            row = next((row for row in rows if re.match(rf"\| `{words}[ `]", row)), None)
            assert row is not None, f"`{words}` has no row"
            for parameter in command.params:
                if isinstance(parameter, click.Option) and not parameter.hidden:
                    longest = max(parameter.opts, key=len)
                    assert longest in common or longest in row, f"`{words}`: {longest}"


def test_every_check_of_the_doctor_is_explained_in_their_order() -> None:
    text = (DOCS / "operations.md").read_text()
    table = text.partition("| check | warning | error |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert named == ["database", *(check.name for check in SQLITE_CHECKS)]


def test_every_state_is_explained() -> None:
    assert _missing("states.md", JobStatus) == set()


def test_every_field_of_a_report_and_every_reason_to_stop_is_explained() -> None:
    assert _missing("runs.md", RunReport.__struct_fields__) == set()
    assert _missing("runs.md", Stop) == set()


def test_every_option_of_the_decorator_is_explained() -> None:
    options = set(inspect.signature(handler).parameters) - {"name"}
    text = (DOCS / "handlers.md").read_text()
    assert {name for name in options if f"| `{name}` |" not in text} == set()


def test_every_method_of_the_queue_and_every_public_name_is_explained() -> None:
    text = (DOCS / "python.md").read_text()
    methods = {name for name, _ in inspect.getmembers(Queue) if not name.startswith("_")}
    assert {name for name in methods if f"queue.{name}" not in text} == set()
    assert _missing("python.md", set(edgeq.__all__) - {"__version__"}) == set()


def test_every_table_column_and_index_is_explained() -> None:
    tables = metadata.tables.values()
    names = {table.name for table in tables}
    columns = {column.name for table in tables for column in table.columns}
    indexes = {str(index.name) for table in tables for index in table.indexes}
    assert _missing("schema.md", names | columns | indexes) == set()


def _anchors(page: Path) -> set[str]:
    """As the usual renderers make them from headings."""
    titles = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCED.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        assert not anchor or anchor in _anchors(file), target


def test_every_page_can_be_found_from_the_readme() -> None:
    linked = set(LINK.findall((ROOT / "README.md").read_text()))
    assert {f"docs/{page.name}" for page in DOCS.glob("*.md")} <= linked


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.process
def test_the_example_of_the_readme_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    example = next(
        code
        for code in re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
        if "asyncio.run" in code
    )
    (tmp_path / "example.py").write_text(example)

    printed = []
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-W", "error", "example.py"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        printed.append(ran.stdout.strip())

    assert printed == ["1 Hello, Ada!", "0 Hello, Ada!"]
    assert all(f"`{line}`" in readme for line in printed)

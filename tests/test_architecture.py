"""The rules about the shape of the code that no linter knows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import edgeq

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "edgeq").rglob("*.py"))
MOST_LINES = 400
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "common", "misc", "manager"}


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(params=MODULES, ids=_name)
def module(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_a_module_has_at_most_400_lines(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= MOST_LINES


def test_a_module_says_in_one_sentence_what_it_is(module: Path) -> None:
    docstring = ast.get_docstring(ast.parse(module.read_text()))
    assert docstring, "write the module's one sentence as its docstring"
    assert docstring.splitlines()[0].endswith(".")


def test_a_module_is_named_by_what_it_is_about(module: Path) -> None:
    assert not NAMES_THAT_SAY_NOTHING & {module.stem.strip("_"), module.parent.name}


def test_a_module_imports_from_the_home_of_a_name(module: Path) -> None:
    """`from edgeq import X` would go through the lazy names, which are for users."""
    imported = {
        alias.name
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "edgeq"
        for alias in node.names
    }
    # The version is at home there.
    assert imported <= {"__version__"}


def test_no_pattern_is_possessive(module: Path) -> None:
    """Python before 3.11.5 matches `*+`, `++` and `(?>` at random, and may never come back."""
    tree = ast.parse(module.read_text())
    has_patterns = any(
        alias.name == "re"
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    )
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and has_patterns
    ]
    assert not [text for text in texts if re.search(r"[*+?}][+]|\(\?>", text)]


def test_nothing_is_left_for_later(module: Path) -> None:
    assert not re.findall(r"TODO|FIXME|XXX|NotImplementedError", module.read_text())


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == edgeq.__version__


def test_every_folder_of_tests_is_explained() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    folders = {
        f"tests/{path.parent.relative_to(ROOT / 'tests')}"
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.parent != ROOT / "tests"
    }
    assert folders
    assert {folder for folder in folders if f"`{folder}`" not in contributing} == set()

"""What `import edgeq` offers, and what it does not cost."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import edgeq

ROOT = Path(__file__).resolve().parent.parent


def test_the_public_names_are_sorted_and_all_have_a_home() -> None:
    assert edgeq.__all__ == sorted(edgeq.__all__)
    assert set(edgeq.__all__) == {*edgeq._HOMES, "__version__"}


@pytest.mark.parametrize("name", edgeq.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    value = getattr(edgeq, name)
    if name in edgeq._HOMES:
        assert value is getattr(importlib.import_module(edgeq._HOMES[name]), name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = edgeq.no_such_name


@pytest.mark.process
@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import edgeq", ["sqlalchemy", "msgspec", "asyncio", "click"]),
        ("from edgeq import Context, handler", ["sqlalchemy", "alembic", "jsonschema", "click"]),
    ],
)
def test_an_import_does_not_pay_for_what_it_does_not_use(
    statement: str, unwanted: list[str]
) -> None:
    # Only what the statement adds: coverage, for one, imports things before it.
    program = (
        "import sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    loaded = ran.stdout.split()
    assert "edgeq" in loaded
    assert not set(unwanted) & set(loaded)

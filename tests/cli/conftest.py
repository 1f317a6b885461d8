"""A command line in a folder of its own, for each test."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine


@pytest.fixture
def edgeq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("EDGEQ_SYNCHRONOUS", "normal")
    for name in ("EDGEQ_DATABASE_URL", "EDGEQ_HANDLERS", "EDGEQ_LOG_LEVEL", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    level = logging.getLogger().level
    yield CommandLine(tmp_path)
    logging.getLogger().setLevel(level)

"""Closing a store whose gate is held by somebody else."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from edgeq.ports.commands import RegisterTypes
from edgeq.store import sqlite_session
from edgeq.store.gate import Gate
from edgeq.store.sqlite import SqliteStore
from edgeq.testing import FakeClock


def test_a_connection_that_cannot_close_behind_the_gate_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_session, "CLOSING_SECONDS", 0.01)
    store = SqliteStore(f"sqlite:///{tmp_path / 'queue.db'}", FakeClock())
    store.open_blocking()
    store.write_blocking(RegisterTypes(()))
    gate = Gate(store.path)
    gate.acquire()
    store.close_blocking()
    gc.collect()
    # Closing would have checkpointed, and the log would be gone.
    assert (tmp_path / "queue.db-wal").exists()
    gate.close()

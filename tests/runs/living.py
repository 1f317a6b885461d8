"""Which processes are alive, and waiting for what they do."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether it runs: one that is dead and was not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(pid: int) -> set[int]:
    found = set()
    for folder in Path("/proc").iterdir():
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if folder.name.isdigit() and int(parent) == pid and state not in "ZX":
            found.add(int(folder.name))
    return found


async def written(name: str) -> int:
    """The pid that a handler has written to a file."""
    await wait_until(Path(name).exists)
    return pid_in(name)


def pid_in(name: str) -> int:
    return int(Path(name).read_text())


async def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in process {os.getpid()}"
        await asyncio.sleep(0.01)

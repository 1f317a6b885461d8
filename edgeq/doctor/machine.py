"""What the machine tells of files and processes, as far as it lets this user see."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from edgeq.core.file_health import FileLook
from edgeq.core.mounts import file_system_of
from edgeq.core.wal_locks import readers_in

_STOPPED = ("T", "t")


class Machine:
    """The system's own view; what it does not have or does not show is None or left out."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def file_system(self, folder: Path) -> str | None:
        mounts = self._text("self/mountinfo")
        return None if mounts is None else file_system_of(folder.resolve(), mounts)

    def free_bytes(self, folder: Path) -> int:
        room = os.statvfs(folder)
        return room.f_bavail * room.f_frsize

    def look_at(self, file: Path) -> FileLook:
        stat = file.stat()
        return FileLook(file.name, stat.st_mode, stat.st_uid, _may(file, os.R_OK | os.W_OK))

    def is_writable(self, folder: Path) -> bool:
        return _may(folder, os.W_OK | os.X_OK)

    def readers_of(self, log_index: Path) -> frozenset[int] | None:
        """The processes, other than this one, that are inside a read transaction now."""
        locks = self._text("locks")
        if locks is None:
            return None
        try:
            return readers_in(locks, log_index.stat().st_ino) - {os.getpid()}
        except FileNotFoundError:
            return frozenset()

    def open_in(self, file: Path) -> tuple[int, ...]:
        """The processes that have a file open."""
        wanted = str(file.resolve())
        return tuple(sorted(pid for pid in self._pids() if wanted in self._open_files(pid)))

    def describe(self, pid: int) -> str:
        name = self._text(f"{pid}/comm")
        return str(pid) if name is None else f"{pid} ({name.strip()})"

    def is_stopped(self, pid: str) -> bool:
        """Whether a process was told to stand still, as by Ctrl-Z."""
        status = self._text(f"{pid}/stat")
        # The name, in brackets, may hold anything, brackets included.
        return status is not None and status.rpartition(")")[2].split()[:1] in (
            [state] for state in _STOPPED
        )

    def _pids(self) -> Iterable[int]:
        try:
            return [int(entry.name) for entry in self._proc.iterdir() if entry.name.isdigit()]
        except OSError:
            return []

    def _open_files(self, pid: int) -> set[str]:
        found = set()
        with suppress(OSError):  # it belongs to somebody else, or is gone
            for entry in (self._proc / f"{pid}/fd").iterdir():
                with suppress(OSError):  # closed meanwhile
                    found.add(str(entry.readlink()))
        return found

    def _text(self, name: str) -> str | None:
        try:
            return (self._proc / name).read_text(errors="replace")
        except OSError:
            return None


def _may(path: Path, access: int) -> bool:
    """As SQLite would be asked: by the user whose rights this process has now."""
    return os.access(path, access, effective_ids=os.access in os.supports_effective_ids)

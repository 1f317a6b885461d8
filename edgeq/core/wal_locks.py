"""Who reads: the locks that SQLite's readers hold on the index of the write-ahead log."""

from __future__ import annotations

# From SQLite's file format: the locks are on bytes from 120 on, and the fourth to the eighth are
# those of readers, each with its own end of the log.
_READ_BYTES = range(123, 128)


def readers_in(locks: str, inode: int) -> frozenset[int]:
    """The processes inside a read transaction, from the text of /proc/locks."""
    return frozenset(
        pid
        for line in locks.splitlines()
        if (pid := _reader(line.split(), inode)) is not None and pid > 0
    )


def _reader(fields: list[str], inode: int) -> int | None:
    """A line is `1: POSIX ADVISORY READ PID MAJOR:MINOR:INODE FIRST LAST`."""
    if len(fields) != 8 or fields[1] != "POSIX" or not fields[5].endswith(f":{inode}"):
        return None
    return int(fields[4]) if fields[6].isdigit() and int(fields[6]) in _READ_BYTES else None

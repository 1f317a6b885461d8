"""File systems: which one a path is on, and whether a write-ahead log may be."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import PurePath, PurePosixPath

from edgeq.core.findings import Broken, Doubtful, Fine, Verdict

# They share no memory between machines, or lie about locks: a write-ahead log is lost there
# without an error.
SHARED = (
    *("nfs", "nfs4", "cifs", "smb*", "fuse.*", "9p", "virtiofs", "vboxsf", "prl_fs"),
    *("afs", "ceph", "lustre", "gpfs"),
)
VANISHING = ("tmpfs", "ramfs")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def file_system_of(path: PurePath, mountinfo: str) -> str | None:
    """The type of the file system that holds a path, from the text of /proc/self/mountinfo."""
    found: tuple[int, str] | None = None
    for line in mountinfo.splitlines():
        mounted, separator, source = line.partition(" - ")
        fields = mounted.split(" ")
        if not separator or len(fields) < 5:
            continue
        place = PurePosixPath(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), fields[4]))
        # Of two at the same place the later one hides the earlier.
        if path.is_relative_to(place) and (found is None or len(place.parts) >= found[0]):
            found = (len(place.parts), source.split(" ")[0])
    return None if found is None else found[1]


def judge_file_system(name: str | None) -> Verdict:
    if name is None:
        return Fine("The kind of file system cannot be seen on this system.")
    if any(fnmatchcase(name, pattern) for pattern in SHARED):
        return Broken(
            f"The file system is {name}: SQLite's write-ahead log is not safe on it.",
            "Move the database to a local disk, with all edgeq processes stopped.",
        )
    if name in VANISHING:
        return Doubtful(
            f"The file system is {name}: the queue is gone after a reboot.",
            "Move the database to a disk, unless that is what you want.",
        )
    return Fine(f"The file system is {name}.")

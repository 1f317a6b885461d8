from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from edgeq.core.findings import Broken, Doubtful, Fine
from edgeq.core.mounts import file_system_of, judge_file_system

MOUNTINFO = r"""
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:30 / /srv rw shared:1 master:2 - nfs4 server:/srv rw,vers=4.2
31 30 0:31 / /srv/local\040disk rw - xfs /dev/vdb rw
32 27 0:32 / /run rw - tmpfs tmpfs rw
33 27 0:33 / /run rw - ext4 /dev/vdc rw
half a line
1 2 3 - too few
"""


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/var/lib", "ext4"),
        ("/srv", "nfs4"),
        ("/srv/queue", "nfs4"),
        ("/srvother", "ext4"),
        ("/srv/local disk/queue", "xfs"),
        ("/run/queue", "ext4"),
    ],
)
def test_a_path_is_on_the_file_system_mounted_nearest_above_it(path: str, name: str) -> None:
    assert file_system_of(PurePosixPath(path), MOUNTINFO) == name


def test_a_path_that_is_nowhere_is_on_none() -> None:
    assert file_system_of(PurePosixPath("/a"), "") is None


@pytest.mark.parametrize(
    "name", ["nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "virtiofs"]
)
def test_network_and_shared_file_systems_are_broken(name: str) -> None:
    assert isinstance(judge_file_system(name), Broken)


def test_a_file_system_in_memory_is_doubtful() -> None:
    assert isinstance(judge_file_system("tmpfs"), Doubtful)


@pytest.mark.parametrize("name", ["ext4", "xfs", "overlay", "fuseblk", None])
def test_all_others_and_unknown_ones_are_fine(name: str | None) -> None:
    assert isinstance(judge_file_system(name), Fine)

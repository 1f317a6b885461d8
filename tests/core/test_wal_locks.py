from __future__ import annotations

from edgeq.core.wal_locks import readers_in

LOCKS = """
1: POSIX  ADVISORY  READ 10 fe:00:77 123 123
2: POSIX  ADVISORY  READ 11 fe:00:77 127 127
3: POSIX  ADVISORY  WRITE 12 fe:00:77 120 120
4: POSIX  ADVISORY  READ 13 fe:00:77 128 128
5: POSIX  ADVISORY  READ 14 fe:00:78 124 124
6: FLOCK  ADVISORY  WRITE 15 fe:00:77 0 EOF
6: -> FLOCK  ADVISORY  WRITE 16 fe:00:77 0 EOF
7: POSIX  ADVISORY  READ -1 fe:00:77 124 124
8: OFDLCK ADVISORY  READ -1 00:06:77 0 EOF
"""


def test_readers_are_who_locks_a_read_mark_of_the_logs_index() -> None:
    assert readers_in(LOCKS, inode=77) == {10, 11}
    assert readers_in(LOCKS, inode=7) == frozenset()
    assert readers_in("", inode=77) == frozenset()

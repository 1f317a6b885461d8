from __future__ import annotations

import pytest

from edgeq.core.file_health import (
    CHECKED_AT_MOST,
    FREE_AT_LEAST,
    FREE_BETTER,
    MEGABYTE,
    WAL_AT_MOST,
    WAL_ORDINARY,
    FileLook,
    Version,
    format_bytes,
    is_checked,
    is_safe_build,
    judge_build,
    judge_files,
    judge_folder,
    judge_gate,
    judge_journal,
    judge_pages,
    judge_readers,
    judge_space,
    judge_wal,
)
from edgeq.core.findings import Broken, Doubtful, Fine, Verdict


@pytest.mark.parametrize(
    "version", [(3, 51, 3), (3, 51, 4), (3, 52, 0), (4, 0, 0), (3, 50, 7), (3, 50, 9), (3, 44, 6)]
)
def test_builds_with_the_repaired_wal_reset_are_safe(version: Version) -> None:
    assert is_safe_build(version)
    assert isinstance(judge_build(version), Fine)


@pytest.mark.parametrize(
    "version", [(3, 51, 2), (3, 51, 0), (3, 50, 6), (3, 49, 9), (3, 45, 6), (3, 44, 5), (3, 35, 0)]
)
def test_builds_without_it_are_doubtful_and_the_gate_is_named(version: Version) -> None:
    verdict = judge_build(version)

    assert not is_safe_build(version)
    assert isinstance(verdict, Doubtful)
    assert "gate" in verdict.message
    assert "no other program" in verdict.fix


def test_a_build_without_returning_is_too_old() -> None:
    assert isinstance(judge_build((3, 34, 1)), Broken)


def test_any_journal_but_a_write_ahead_log_is_broken() -> None:
    assert isinstance(judge_journal("wal"), Fine)
    assert isinstance(judge_journal("delete"), Broken)


def look(name: str = "q.db", mode: int = 0o100600, owner: int = 7, **more: bool) -> FileLook:
    return FileLook(name, mode, owner, more.get("is_writable", True))


def test_private_files_of_one_owner_raise_no_question() -> None:
    assert list(judge_files([look(), look("q.db-wal")], user=7)) == []


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o602])
def test_a_file_that_is_open_to_others_is_doubtful(mode: int) -> None:
    (verdict,) = judge_files([look(mode=0o100000 | mode)], user=7)

    assert isinstance(verdict, Doubtful)
    assert f"{mode:04o}" in verdict.message
    assert verdict.fix == "chmod 600 q.db"


def test_a_file_that_cannot_be_written_is_broken() -> None:
    (verdict,) = judge_files([look(is_writable=False)], user=8)

    assert isinstance(verdict, Broken)
    assert "user (8; its owner is 7)" in verdict.message


def test_a_file_beside_it_of_another_owner_is_doubtful() -> None:
    (verdict,) = judge_files([look(), look("q.db-shm", owner=0)], user=0)

    assert verdict == Doubtful("q.db-shm belongs to user 0, the database to 7.", "chown 7 q.db-shm")


def test_a_folder_has_to_be_writable() -> None:
    assert isinstance(judge_folder("/x", is_writable=True), Fine)
    assert isinstance(judge_folder("/x", is_writable=False), Broken)


@pytest.mark.parametrize(
    ("free", "kind"),
    [
        (FREE_AT_LEAST - 1, Broken),
        (FREE_AT_LEAST, Doubtful),
        (FREE_BETTER - 1, Doubtful),
        (FREE_BETTER, Fine),
    ],
)
def test_a_disk_is_judged_by_what_is_left(free: int, kind: type[Verdict]) -> None:
    assert isinstance(judge_space(free), kind)


def test_a_log_that_has_grown_names_who_has_it_open() -> None:
    grown = judge_wal(WAL_AT_MOST + 1, [12, 34])

    assert isinstance(judge_wal(WAL_AT_MOST, []), Fine)
    assert isinstance(grown, Doubtful)
    assert "12, 34" in grown.message
    assert "process" not in judge_wal(WAL_AT_MOST + 1, []).message


def test_a_long_reader_matters_only_when_the_log_has_grown() -> None:
    held = judge_readers(["12 (python3)"], WAL_ORDINARY + 1)

    assert isinstance(judge_readers(["12 (python3)"], WAL_ORDINARY), Fine)
    assert isinstance(held, Doubtful)
    assert "12 (python3)" in held.message


@pytest.mark.parametrize("readers", [None, []])
def test_readers_that_are_not_there_or_cannot_be_seen_are_fine(readers: list[str] | None) -> None:
    assert isinstance(judge_readers(readers, WAL_AT_MOST * 2), Fine)


def test_a_gate_that_stays_shut_is_broken_and_says_who_and_what_to_do() -> None:
    hanging = judge_gate("12", is_stopped=False, seconds=1)
    stopped = judge_gate("12", is_stopped=True, seconds=1)

    assert isinstance(judge_gate(None, is_stopped=False, seconds=1), Fine)
    assert isinstance(hanging, Broken)
    assert "Process 12" in hanging.message
    assert isinstance(stopped, Broken)
    assert "kill -CONT 12" in stopped.fix


def test_damaged_pages_are_broken() -> None:
    assert isinstance(judge_pages([]), Fine)
    assert judge_pages(["page 3", "page 4"]).message == "The file is damaged: page 3; page 4."


def test_large_files_are_read_only_when_that_is_asked_for() -> None:
    assert is_checked(CHECKED_AT_MOST, full=False)
    assert not is_checked(CHECKED_AT_MOST + 1, full=False)
    assert is_checked(CHECKED_AT_MOST + 1, full=True)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (2048, "2.0 KB"), (3 * MEGABYTE // 2, "1.5 MB"), (2**31, "2.0 GB")],
)
def test_sizes_are_told_in_the_largest_unit_that_fits(count: int, text: str) -> None:
    assert format_bytes(count) == text

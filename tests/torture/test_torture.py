"""The promises under torture, in short; `make torture` takes more time and more of everything.

A failure names its seed: `python -m tests.torture --small --seed N --scenario NAME` repeats it.
"""

from __future__ import annotations

from pathlib import Path
from random import SystemRandom

import pytest

from tests.torture.scenarios import SMALL, play

pytestmark = [pytest.mark.torture, pytest.mark.timeout(120)]


def _finds_nothing(name: str, folder: Path) -> None:
    finding = play(name, SMALL[name], SystemRandom().randrange(10**6), folder)

    assert finding.violations == [], finding.to_json()


def test_every_job_is_done_once_however_often_its_process_is_killed(tmp_path: Path) -> None:
    _finds_nothing("kill_storm", tmp_path)


def test_a_process_that_lost_its_locks_in_its_sleep_changes_nothing_and_learns_it(
    tmp_path: Path,
) -> None:
    _finds_nothing("zombies_in_time", tmp_path)


def test_a_process_that_slept_beyond_its_own_end_only_reports_what_it_lost(tmp_path: Path) -> None:
    _finds_nothing("zombies_too_late", tmp_path)


def test_many_processes_on_one_file_are_never_refused_and_never_starve(tmp_path: Path) -> None:
    _finds_nothing("contention", tmp_path)


def test_a_run_ends_in_time_whatever_its_handlers_do(tmp_path: Path) -> None:
    _finds_nothing("budgets", tmp_path)


def test_a_run_that_is_asked_to_stop_puts_everything_back_and_leaves(tmp_path: Path) -> None:
    _finds_nothing("signals", tmp_path)


def test_a_job_that_kills_its_process_fails_after_three_losses_and_the_others_finish(
    tmp_path: Path,
) -> None:
    _finds_nothing("poison_alone", tmp_path)


def test_a_worker_that_is_asked_to_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    _finds_nothing("worker_signals", tmp_path)


def test_the_jobs_of_a_worker_that_was_killed_are_done_by_another(tmp_path: Path) -> None:
    _finds_nothing("worker_kills", tmp_path)


def test_nothing_is_accepted_from_a_worker_that_lost_its_locks_in_its_sleep(
    tmp_path: Path,
) -> None:
    _finds_nothing("worker_zombies", tmp_path)


def test_a_call_that_is_cancelled_happened_or_not_and_leaves_nothing_open(tmp_path: Path) -> None:
    _finds_nothing("cancelled_awaits", tmp_path)


def test_every_step_is_done_once_however_its_process_ends(tmp_path: Path) -> None:
    _finds_nothing("steps_on_fire", tmp_path)


def test_what_is_written_with_a_step_is_there_exactly_when_the_step_is(tmp_path: Path) -> None:
    _finds_nothing("effects", tmp_path)


def test_long_jobs_get_on_in_every_run_and_short_ones_fill_the_slots(tmp_path: Path) -> None:
    _finds_nothing("mixed_load", tmp_path)

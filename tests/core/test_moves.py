from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.core.backoff import RETRYABLE, Backoff, ErrorClass
from edgeq.core.jobs import ENDED, JobStatus
from edgeq.core.moves import LEGAL, LOSSES_UNTIL_FAILED, Standing, lose, settle
from edgeq.core.outcomes import (
    Completed,
    Failed,
    Interrupted,
    NeedsReview,
    NotStarted,
    Outcome,
    Snoozed,
    Stopped,
)

NOW = 1_000_000
STANDING = Standing(
    retry_count=0,
    max_retries=3,
    interruptions=0,
    max_interruptions=20,
    losses=0,
    scheduled_for=500,
    cancel_requested=False,
    backoff=Backoff(base_ms=5_000, cap_ms=300_000),
)

standings = st.builds(
    Standing,
    retry_count=st.integers(0, 5),
    max_retries=st.integers(0, 5),
    interruptions=st.integers(0, 5),
    max_interruptions=st.integers(0, 5),
    losses=st.integers(0, 4),
    scheduled_for=st.integers(0, NOW),
    cancel_requested=st.booleans(),
    backoff=st.just(Backoff()),
)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Completed("1")),
    st.builds(Failed, st.sampled_from(ErrorClass), st.just("why")),
    st.just(NeedsReview("why")),
    st.builds(Snoozed, st.integers(0, 1000)),
    st.builds(Interrupted, st.booleans()),
    st.just(NotStarted()),
    st.just(Stopped()),
)


@given(outcomes, standings, st.floats(0, 0.999))
def test_every_outcome_is_a_legal_move_of_a_running_job(
    outcome: Outcome, standing: Standing, unit: float
) -> None:
    settled = settle(outcome, standing, now=NOW, unit=unit)
    assert settled.status in LEGAL[JobStatus.PROCESSING]


@given(outcomes, standings, st.floats(0, 0.999))
def test_a_job_never_runs_more_often_than_once_and_its_retries(
    outcome: Outcome, standing: Standing, unit: float
) -> None:
    settled = settle(outcome, standing, now=NOW, unit=unit)
    assert settled.retry_count <= max(standing.retry_count, standing.max_retries)
    assert settled.retry_count - standing.retry_count in (0, 1)


@given(outcomes, standings, st.floats(0, 0.999))
def test_after_a_cancel_request_nothing_runs_again(
    outcome: Outcome, standing: Standing, unit: float
) -> None:
    asked = replace(standing, cancel_requested=True)
    settled = settle(outcome, asked, now=NOW, unit=unit)
    assert settled.status is not JobStatus.PENDING


@given(standings)
def test_a_failed_settlement_always_names_its_class(standing: Standing) -> None:
    for error_class in ErrorClass:
        settled = settle(Failed(error_class, "why"), standing, now=NOW, unit=0.5)
        if settled.status is JobStatus.FAILED:
            assert settled.error_class is not None


def test_success_after_a_cancel_request_is_still_a_success() -> None:
    asked = replace(STANDING, cancel_requested=True)
    assert settle(Completed("1"), asked, now=NOW, unit=0).status is JobStatus.COMPLETED


def test_a_retryable_failure_is_tried_again_after_its_delay() -> None:
    settled = settle(Failed(ErrorClass.TRANSIENT, "why"), STANDING, now=NOW, unit=0.5)
    assert (settled.status, settled.retry_count) == (JobStatus.PENDING, 1)
    assert settled.scheduled_for == NOW + 5_000
    assert settled.attempt_outcome == "retried"


def test_an_explicit_delay_overrides_backoff_and_cap() -> None:
    failure = Failed(ErrorClass.TRANSIENT, "why", after_ms=9_999_999)
    assert settle(failure, STANDING, now=NOW, unit=0.9).scheduled_for == NOW + 9_999_999


def test_the_last_attempt_fails_for_good() -> None:
    spent = replace(STANDING, retry_count=3)
    settled = settle(Failed(ErrorClass.TIMEOUT, "slow"), spent, now=NOW, unit=0)
    assert (settled.status, settled.error_class) == (JobStatus.FAILED, ErrorClass.TIMEOUT)


@pytest.mark.parametrize("error_class", sorted(set(ErrorClass) - RETRYABLE))
def test_a_class_that_is_not_retryable_fails_at_once(error_class: ErrorClass) -> None:
    settled = settle(Failed(error_class, "why"), STANDING, now=NOW, unit=0)
    assert settled.status is JobStatus.FAILED


def test_a_final_failure_after_a_cancel_request_is_a_failure() -> None:
    asked = replace(STANDING, cancel_requested=True)
    settled = settle(Failed(ErrorClass.NON_RETRYABLE, "why"), asked, now=NOW, unit=0)
    assert settled.status is JobStatus.FAILED


def test_an_interruption_by_the_budget_counts_and_keeps_the_due_time() -> None:
    settled = settle(Interrupted(by_budget=True), STANDING, now=NOW, unit=0)
    assert (settled.status, settled.interruptions) == (JobStatus.PENDING, 1)
    assert (settled.scheduled_for, settled.retry_count) == (500, 0)


def test_an_interruption_by_a_signal_counts_nothing() -> None:
    settled = settle(Interrupted(by_budget=False), STANDING, now=NOW, unit=0)
    assert (settled.status, settled.interruptions) == (JobStatus.PENDING, 0)


def test_too_many_interruptions_fail_the_job_as_over_its_budget() -> None:
    worn = replace(STANDING, interruptions=20)
    settled = settle(Interrupted(by_budget=True), worn, now=NOW, unit=0)
    assert (settled.status, settled.error_class) == (
        JobStatus.FAILED,
        ErrorClass.BUDGET_EXCEEDED,
    )


def test_an_interruption_after_a_cancel_request_is_cancelled_even_at_the_limit() -> None:
    worn = replace(STANDING, interruptions=20, cancel_requested=True)
    settled = settle(Interrupted(by_budget=True), worn, now=NOW, unit=0)
    assert settled.status is JobStatus.CANCELLED


def test_a_snooze_counts_nothing() -> None:
    settled = settle(Snoozed(250), STANDING, now=NOW, unit=0)
    assert (settled.status, settled.scheduled_for) == (JobStatus.PENDING, NOW + 250)
    assert (settled.retry_count, settled.attempt_outcome) == (0, None)


def test_a_review_keeps_the_output_that_was_proposed() -> None:
    settled = settle(NeedsReview("look", '{"a":1}'), STANDING, now=NOW, unit=0)
    assert (settled.status, settled.output) == (JobStatus.REVIEW_NEEDED, '{"a":1}')


def test_an_orderly_end_clears_the_losses_of_a_job_that_runs_again() -> None:
    suspect = replace(STANDING, losses=2)
    for outcome in (Interrupted(by_budget=True), Snoozed(1), Failed(ErrorClass.TRANSIENT, "w")):
        assert settle(outcome, suspect, now=NOW, unit=0).losses == 0


def test_a_job_that_never_started_is_put_back_as_it_was() -> None:
    suspect = replace(STANDING, losses=1)
    settled = settle(NotStarted(), suspect, now=NOW, unit=0)
    assert (settled.status, settled.losses, settled.attempt_outcome) == (
        JobStatus.PENDING,
        1,
        None,
    )


def test_a_stopped_handler_makes_a_cancelled_job() -> None:
    assert settle(Stopped(), STANDING, now=NOW, unit=0).status is JobStatus.CANCELLED


def test_two_losses_put_a_job_back_and_the_third_fails_it() -> None:
    states = [lose(replace(STANDING, losses=n)).status for n in range(LOSSES_UNTIL_FAILED)]
    assert states == [JobStatus.PENDING, JobStatus.PENDING, JobStatus.FAILED]


def test_a_lost_job_that_was_to_be_cancelled_is_cancelled() -> None:
    for losses in (0, 2):
        asked = replace(STANDING, cancel_requested=True, losses=losses)
        assert lose(asked).status is JobStatus.CANCELLED


def test_a_loss_of_parent_and_child_together_hardly_blames_an_isolated_job() -> None:
    states = [lose(replace(STANDING, losses=n), was_isolated=True).status for n in (2, 8, 9)]
    assert states == [JobStatus.PENDING, JobStatus.PENDING, JobStatus.FAILED]


def test_a_loss_is_not_a_retry() -> None:
    assert lose(STANDING).retry_count == 0


def test_terminal_states_are_left_only_by_a_retry() -> None:
    assert {state: LEGAL[state] for state in ENDED} == {
        JobStatus.COMPLETED: frozenset(),
        JobStatus.FAILED: {JobStatus.PENDING},
        JobStatus.CANCELLED: {JobStatus.PENDING},
    }

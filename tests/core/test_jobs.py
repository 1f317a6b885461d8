from __future__ import annotations

import msgspec
import pytest

from edgeq.core.jobs import ClaimedJob, Job, JobStatus
from edgeq.core.outcomes import Fail, RateLimited, Retry, Review, Skip, Snooze
from edgeq.errors import StoreCorrupt

FIELDS: dict[str, object] = dict.fromkeys(Job.__struct_fields__, None) | {
    "id": "job-1",
    "status": JobStatus.COMPLETED,
    "retry_count": 2,
    "result_expires_at": 100,
}
JOB = Job(**FIELDS)  # type: ignore[arg-type]


def test_the_attempt_is_one_more_than_the_retries() -> None:
    assert JOB.attempt == 3
    claimed = dict.fromkeys(ClaimedJob.__struct_fields__, None) | {"retry_count": 0}
    assert ClaimedJob(**claimed).attempt == 1  # type: ignore[arg-type]


def test_an_absent_key_or_correlation_reads_as_the_id() -> None:
    assert (JOB.idempotency_key, JOB.correlation_id) == ("job-1", "job-1")
    named = msgspec.structs.replace(
        JOB, stored_idempotency_key="key", stored_correlation_id="trace"
    )
    assert (named.idempotency_key, named.correlation_id) == ("key", "trace")


def test_input_and_output_are_decoded_on_demand() -> None:
    full = msgspec.structs.replace(JOB, input_data='{"a":1}', output_data="[2]")
    assert (full.input, full.output) == ({"a": 1}, [2])
    assert (JOB.input, JOB.output) == (None, None)


def test_stored_data_that_is_not_json_says_that_the_database_is_damaged() -> None:
    damaged = msgspec.structs.replace(JOB, input_data='{"a":')
    with pytest.raises(StoreCorrupt, match="job-1"):
        _ = damaged.input


@pytest.mark.parametrize(("now", "gone"), [(99, False), (100, True), (101, True)])
def test_a_result_is_gone_when_its_time_is_over(now: int, *, gone: bool) -> None:
    assert JOB.result_is_gone(now) is gone
    assert not msgspec.structs.replace(JOB, result_expires_at=None).result_is_gone(now)


def test_answers_of_handlers_carry_their_reason() -> None:
    assert repr(Skip("no mail today")) == "Skip('no mail today')"
    assert str(Review("look", output={"a": 1})) == "look"
    assert (Retry().after, Retry(after=3).after) == (None, 3)
    assert isinstance(RateLimited(after=1), Retry)
    assert str(Fail("never")) == "never"
    assert str(Snooze(1.5)) == "snoozed for 1.5 s"

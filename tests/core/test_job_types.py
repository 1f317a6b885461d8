from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.core.job_types import (
    JobType,
    TypePolicy,
    changed_by_operator,
    declared_again,
    differing_fields,
    type_id,
)
from edgeq.errors import InvalidInput


def _stored(policy: TypePolicy, overrides: frozenset[str] = frozenset()) -> JobType:
    return JobType(
        id="jt_1",
        policy=policy,
        is_enabled=True,
        is_paused=False,
        overrides=overrides,
        created_at=0,
        updated_at=0,
    )


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"name": "1st"}, r"\$\.name"),
        ({"name": "a" * 101}, r"\$\.name"),
        ({"name": "a b"}, r"\$\.name"),
        ({"name": "ok", "lane": ""}, r"\$\.lane"),
        ({"name": "ok", "timeout_ms": 0}, r"\$\.timeout_ms"),
        ({"name": "ok", "max_concurrent": 0}, r"\$\.max_concurrent"),
        ({"name": "ok", "max_retries": -1}, r"\$\.max_retries"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_with_its_field(
    fields: dict[str, object], path: str
) -> None:
    with pytest.raises(InvalidInput, match=path):
        msgspec.convert(fields, TypePolicy)
    with pytest.raises(InvalidInput, match=path):
        TypePolicy(**fields)  # type: ignore[arg-type]


def test_code_decides_what_no_operator_has_set() -> None:
    stored = _stored(TypePolicy(name="t", max_retries=9, timeout_ms=1), frozenset({"max_retries"}))
    after = declared_again(stored, TypePolicy(name="t", max_retries=1, timeout_ms=2))
    assert (after.max_retries, after.timeout_ms) == (9, 2)


def test_an_operator_changes_policy_but_not_facts_of_the_code() -> None:
    policy = TypePolicy(name="t")
    assert changed_by_operator(policy, {"max_retries": 7}).max_retries == 7
    with pytest.raises(InvalidInput, match="cannot be set"):
        changed_by_operator(policy, {"executor": "thread"})


@pytest.mark.parametrize("changes", [{"max_retries": "many"}, {"max_retries": -1}])
def test_a_change_of_the_wrong_kind_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="max_retries"):
        changed_by_operator(TypePolicy(name="t"), changes)


def test_only_what_differs_from_the_defaults_is_an_operators_word() -> None:
    assert differing_fields(TypePolicy(name="t", max_retries=5, version=2)) == {"max_retries"}


def test_a_type_is_claimable_when_enabled_and_not_paused() -> None:
    stored = _stored(TypePolicy(name="t"))
    assert stored.is_claimable
    assert not msgspec.structs.replace(stored, is_paused=True).is_claimable
    assert not msgspec.structs.replace(stored, is_enabled=False).is_claimable


def test_the_policy_carries_its_backoff() -> None:
    backoff = TypePolicy(name="t", retry_delay_ms=1, retry_max_delay_ms=2).backoff
    assert (backoff.base_ms, backoff.cap_ms) == (1, 2)


@given(st.lists(st.text(min_size=1), min_size=2, max_size=50, unique=True))
def test_different_names_have_different_ids(names: list[str]) -> None:
    assert len({type_id(name) for name in names}) == len(names)

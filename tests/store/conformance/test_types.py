"""Job types: code declares them, operators override them, and both remember their part."""

from __future__ import annotations

import pytest

from edgeq.core.job_types import JobType, TypePolicy
from edgeq.errors import InvalidInput, TypeExists, UnknownType
from edgeq.ports.commands import ChangeType, CreateType, InsertJobs, RegisterTypes
from edgeq.ports.queries import ListTypes
from edgeq.ports.store import Store
from edgeq.testing import FakeClock
from tests.conftest import Backend, JobBuilder, Register
from tests.store.conformance.acts import BOSS

WHOLE = TypePolicy(
    name="noop",
    description="does nothing",
    category="mail",
    handler_name="do_nothing",
    lane="fast",
    max_retries=1,
    retry_delay_ms=2,
    retry_max_delay_ms=3,
    timeout_ms=4,
    max_concurrent=5,
    max_pending=6,
    result_ttl_ms=7,
    max_interruptions=8,
    input_max_bytes=9,
    output_max_bytes=10,
    required_fields=("a", "b"),
    allowed_fields=("c",),
    stages=("one", "two"),
    executor="thread",
    version=11,
    input_schema='{"type":"object"}',
)


async def stored(store: Store, name: str = "noop") -> JobType:
    return next(t for t in await store.read(ListTypes()) if t.name == name)


async def test_a_registered_type_is_stored_whole(
    store: Store, registered: Register, clock: FakeClock
) -> None:
    answer = await registered(store, WHOLE)

    job_type = await stored(store)
    assert (answer.changed, answer.types) == (1, (job_type,))
    assert job_type.policy == WHOLE
    assert (job_type.is_enabled, job_type.is_paused, job_type.overrides) == (
        True,
        False,
        frozenset(),
    )
    assert (job_type.created_at, job_type.updated_at) == (clock.now(), clock.now())


async def test_registering_the_same_again_changes_nothing(
    store: Store, registered: Register, clock: FakeClock
) -> None:
    await registered(store, WHOLE)
    before = await stored(store)
    clock.advance(1)

    answer = await registered(store, WHOLE)

    assert answer.changed == 0
    assert await stored(store) == before


async def test_a_changed_declaration_is_taken_over_and_types_that_left_the_code_stay(
    store: Store, registered: Register
) -> None:
    await registered(store, TypePolicy(name="noop", max_retries=1), "other")

    answer = await registered(store, TypePolicy(name="noop", max_retries=2, lane="fast"))

    assert answer.changed == 1
    assert [t.name for t in answer.types] == ["noop", "other"]
    assert (await stored(store)).policy.max_retries == 2


async def test_what_an_operator_has_set_survives_registration(
    store: Store, registered: Register
) -> None:
    await registered(store, TypePolicy(name="noop", max_retries=1, timeout_ms=10))
    changed = await store.write(ChangeType("noop", BOSS, changes={"max_retries": 9}))

    await registered(store, TypePolicy(name="noop", max_retries=2, timeout_ms=20))

    policy = (await stored(store)).policy
    assert changed.overrides == {"max_retries"}
    assert (policy.max_retries, policy.timeout_ms) == (9, 20)


async def test_an_operator_can_set_a_field_to_nothing(store: Store, registered: Register) -> None:
    await registered(store, TypePolicy(name="noop", max_concurrent=2))
    await store.write(ChangeType("noop", BOSS, changes={"max_concurrent": None}))

    await registered(store, TypePolicy(name="noop", max_concurrent=3))

    assert (await stored(store)).policy.max_concurrent is None


async def test_unset_gives_a_field_back_to_the_code(store: Store, registered: Register) -> None:
    await registered(store, TypePolicy(name="noop", max_retries=1))
    await store.write(ChangeType("noop", BOSS, changes={"max_retries": 9, "lane": "fast"}))

    changed = await store.write(ChangeType("noop", BOSS, unset=frozenset({"max_retries"})))
    await registered(store, TypePolicy(name="noop", max_retries=2))

    policy = (await stored(store)).policy
    assert changed.overrides == {"lane"}
    assert (policy.max_retries, policy.lane) == (2, "fast")


@pytest.mark.parametrize(
    "changes",
    [{"handler_name": "x"}, {"version": 2}, {"nonsense": 1}, {"max_retries": -1}, {"lane": 5}],
)
async def test_a_change_that_makes_no_sense_is_refused_whole(
    store: Store, registered: Register, backend: Backend, changes: dict[str, object]
) -> None:
    await registered(store, "noop")
    before = await stored(store)

    with pytest.raises(InvalidInput):
        await store.write(ChangeType("noop", BOSS, {"timeout_ms": 5, **changes}))

    assert await stored(store) == before
    assert backend.sql("SELECT count(*) FROM audit_events") == [(0,)]


async def test_switches_are_kept_through_registration_and_change(
    store: Store, registered: Register
) -> None:
    await registered(store, "noop")
    await store.write(ChangeType("noop", BOSS, is_paused=True, is_enabled=False))

    await registered(store, TypePolicy(name="noop", max_retries=1))
    after = await store.write(ChangeType("noop", BOSS, changes={"timeout_ms": 5}))
    on = await store.write(ChangeType("noop", BOSS, is_paused=False, is_enabled=True))

    assert (after.is_paused, after.is_enabled) == (True, False)
    assert (on.is_paused, on.is_enabled) == (False, True)


async def test_a_type_can_be_made_before_its_handler_and_what_it_says_is_the_operators(
    store: Store, registered: Register, new_job: JobBuilder
) -> None:
    made = await store.write(CreateType(TypePolicy(name="noop", max_retries=9), BOSS))
    await store.write(InsertJobs((new_job(),)))

    await registered(store, TypePolicy(name="noop", handler_name="h", max_retries=1, timeout_ms=2))

    policy = (await stored(store)).policy
    assert made.overrides == {"max_retries"}
    assert (policy.max_retries, policy.timeout_ms, policy.handler_name) == (9, 2, "h")


async def test_a_type_that_is_there_is_not_made_again(store: Store, registered: Register) -> None:
    await registered(store, WHOLE)

    with pytest.raises(TypeExists):
        await store.write(CreateType(TypePolicy(name="noop"), BOSS))

    assert (await stored(store)).policy == WHOLE


async def test_a_type_that_is_not_there_cannot_be_changed(store: Store) -> None:
    with pytest.raises(UnknownType):
        await store.write(ChangeType("nobody", BOSS, is_paused=True))


async def test_what_operators_do_to_types_is_audited(store: Store, backend: Backend) -> None:
    await store.write(CreateType(TypePolicy(name="noop"), BOSS))
    await store.write(ChangeType("noop", BOSS, {"max_retries": 9}, frozenset({"lane"})))

    rows = backend.sql("SELECT actor, action, subject, reason FROM audit_events ORDER BY id")

    assert rows == [
        ("boss", "type_create", "type:noop", "because"),
        ("boss", "type_change", "type:noop", "because"),
    ]


async def test_types_are_listed_by_name(store: Store, registered: Register) -> None:
    await registered(store, "b", "c", "a")

    assert [t.name for t in await store.read(ListTypes())] == ["a", "b", "c"]


async def test_the_look_of_a_handlers_folder_is_remembered(store: Store, backend: Backend) -> None:
    for fingerprint in ("1", "1", "2"):
        await store.write(RegisterTypes((WHOLE,), source="/h", fingerprint=fingerprint))

    rows = backend.sql("SELECT source, fingerprint FROM handler_sources")

    assert rows == [("/h", "2")]

"""The worker's configuration: merged, removed by None, seen by everyone at once."""

from __future__ import annotations

from edgeq.ports.commands import RegisterTypes, SetConfig, StartRun
from edgeq.ports.queries import GetConfig
from edgeq.ports.store import Store
from tests.conftest import Backend
from tests.store.conformance.acts import BOSS, claim


async def test_a_new_queue_has_no_configuration(store: Store) -> None:
    assert await store.read(GetConfig()) == {}


async def test_keys_are_merged_and_none_removes_one(store: Store) -> None:
    await store.write(SetConfig({"process.budget": 25, "app.list": [1, {"a": None}]}, BOSS))

    answer = await store.write(SetConfig({"process.budget": None, "app.name": "x"}, BOSS))

    expected = {"app.list": [1, {"a": None}], "app.name": "x"}
    assert dict(answer) == expected
    assert dict(await store.read(GetConfig())) == expected


async def test_the_switch_is_on_unless_it_was_set_to_false(store: Store) -> None:
    seen = []
    for value in (None, False, True, False, None):
        await store.write(SetConfig({"worker_enabled": value}, BOSS))
        seen.append((await claim(store)).is_enabled)

    assert seen == [True, False, True, False, True]


async def test_runs_and_registrations_are_told_the_configuration(store: Store) -> None:
    await store.write(SetConfig({"worker_enabled": False, "app.name": "x"}, BOSS))

    start = await store.write(StartRun("run-1", "process", "box", "{}"))
    registered = await store.write(RegisterTypes(()))

    assert dict(start.config) == {"worker_enabled": False, "app.name": "x"}
    assert not start.is_enabled
    assert registered.config == start.config


async def test_the_audit_tells_which_keys_were_set_and_not_to_what(
    store: Store, backend: Backend
) -> None:
    await store.write(SetConfig({"app.name": "hush"}, BOSS))

    rows = backend.sql("SELECT actor, action, subject, reason, details FROM audit_events")

    assert rows == [("boss", "config_set", "worker_config", "because", '["app.name"]')]

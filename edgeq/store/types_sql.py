"""Job types: reading them, registering what code declares, and operators' changes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.dialects import sqlite

from edgeq.core.job_types import (
    POLICY_FIELDS,
    JobType,
    TypePolicy,
    changed_by_operator,
    declared_again,
    differing_fields,
    type_id,
)
from edgeq.errors import TypeExists, UnknownType
from edgeq.ports.commands import ChangeType, CreateType, Registered, RegisterTypes
from edgeq.store.session import Row, Transaction, TypeBook
from edgeq.store.system_sql import Reader, record
from edgeq.store.tables import handler_sources, job_types

_LISTS = {"required_fields", "allowed_fields", "stages"}
_COLUMN_OF = {name: "stages_config" if name == "stages" else name for name in POLICY_FIELDS}
_HEAD = ("id", "is_enabled", "is_paused", "overrides", "created_at", "updated_at", "name")

_READ = select(
    *(job_types.c[name] for name in _HEAD), *(job_types.c[_COLUMN_OF[f]] for f in POLICY_FIELDS)
).order_by(job_types.c.name)
_WRITTEN: dict[str, Any] = {
    column: bindparam(column)
    for column in (
        *_COLUMN_OF.values(),
        "is_enabled",
        "is_paused",
        "overrides",
        "updated_at",
    )
}
_INSERT = insert(job_types).values(
    id=bindparam("id"), name=bindparam("name"), created_at=bindparam("created_at"), **_WRITTEN
)
_UPDATE = update(job_types).where(job_types.c.id == bindparam("type_id")).values(**_WRITTEN)
_REMEMBER_SOURCE = (
    sqlite.insert(handler_sources)
    .values(
        source=bindparam("source"),
        fingerprint=bindparam("fingerprint"),
        updated_at=bindparam("now"),
    )
    .on_conflict_do_update(
        index_elements=["source"],
        set_={"fingerprint": bindparam("fingerprint"), "updated_at": bindparam("now")},
    )
)
_READ_SOURCE = select(handler_sources.c.fingerprint).where(
    handler_sources.c.source == bindparam("source")
)


def read_all(reader: Reader) -> tuple[JobType, ...]:
    return tuple(_from_row(row) for row in reader.rows(_READ))


def read_types(reader: Reader, version: int) -> TypeBook:
    found = read_all(reader)
    return TypeBook(version, {t.name: t for t in found}, {t.id: t for t in found})


def known(tx: Transaction, name: str) -> JobType:
    found = tx.types.by_name.get(name)
    if found is None:
        raise UnknownType(name, tx.types.by_name)
    return found


def register(tx: Transaction, command: RegisterTypes) -> Registered:
    """Bring the stored types in line with the code, leaving what operators have set."""
    changed = 0
    for declared in command.policies:
        stored = tx.types.by_name.get(declared.name)
        if stored is None:
            _insert(tx, declared)
            changed += 1
        else:
            policy = declared_again(stored, declared)
            if policy != stored.policy:
                _write(tx, msgspec.structs.replace(stored, policy=policy))
                changed += 1
    if changed:
        tx.types_changed()
    if command.source is not None:
        seen = tx.row(_READ_SOURCE, source=command.source)
        if seen is None or seen[0] != command.fingerprint:
            tx.change(
                _REMEMBER_SOURCE,
                source=command.source,
                fingerprint=command.fingerprint,
                now=tx.now,
            )
    return Registered(changed, tuple(tx.types.by_name.values()), tx.config)


def create(tx: Transaction, command: CreateType) -> JobType:
    """Add a type that no handler has declared yet; all that it says is the operator's."""
    name = command.policy.name
    if name in tx.types.by_name:
        raise TypeExists(name)
    _insert(tx, command.policy, differing_fields(command.policy))
    record(tx, command.actor, "type_create", f"type:{name}")
    tx.types_changed()
    return known(tx, name)


def change(tx: Transaction, command: ChangeType) -> JobType:
    """An operator's change: fields become overrides, `unset` gives them back to the code."""
    stored = known(tx, command.name)
    policy = changed_by_operator(stored.policy, command.changes)
    after = JobType(
        id=stored.id,
        policy=policy,
        is_enabled=stored.is_enabled if command.is_enabled is None else command.is_enabled,
        is_paused=stored.is_paused if command.is_paused is None else command.is_paused,
        overrides=(stored.overrides | set(command.changes)) - command.unset,
        created_at=stored.created_at,
        updated_at=tx.now,
    )
    _write(tx, after)
    switches = {
        name: value
        for name, value in (("enabled", command.is_enabled), ("paused", command.is_paused))
        if value is not None
    }
    details = {**command.changes, **switches, "unset": sorted(command.unset)}
    record(tx, command.actor, "type_change", f"type:{command.name}", details=details)
    tx.types_changed()
    return known(tx, command.name)


def _insert(tx: Transaction, policy: TypePolicy, overrides: frozenset[str] = frozenset()) -> None:
    new = JobType(
        id=type_id(policy.name),
        policy=policy,
        is_enabled=True,
        is_paused=False,
        overrides=overrides,
        created_at=tx.now,
        updated_at=tx.now,
    )
    tx.change(_INSERT, id=new.id, name=policy.name, created_at=tx.now, **_columns(tx, new))


def _write(tx: Transaction, job_type: JobType) -> None:
    tx.change(_UPDATE, type_id=job_type.id, **_columns(tx, job_type))


def _columns(tx: Transaction, job_type: JobType) -> dict[str, Any]:
    values = {
        _COLUMN_OF[field]: _to_column(field, getattr(job_type.policy, field))
        for field in POLICY_FIELDS
    }
    return values | {
        "is_enabled": int(job_type.is_enabled),
        "is_paused": int(job_type.is_paused),
        "overrides": json.dumps(sorted(job_type.overrides)),
        "updated_at": tx.now,
    }


def _to_column(field: str, value: Any) -> Any:
    return json.dumps(list(value)) if field in _LISTS else value


def _from_row(row: Row) -> JobType:
    head = dict(zip(_HEAD, row, strict=False))
    fields: dict[str, Any] = {
        field: tuple(json.loads(value or "[]")) if field in _LISTS else value
        for field, value in zip(POLICY_FIELDS, row[len(_HEAD) :], strict=True)
    }
    return JobType(
        id=head["id"],
        policy=TypePolicy(name=head["name"], **fields),
        is_enabled=bool(head["is_enabled"]),
        is_paused=bool(head["is_paused"]),
        overrides=frozenset(json.loads(head["overrides"])),
        created_at=head["created_at"],
        updated_at=head["updated_at"],
    )

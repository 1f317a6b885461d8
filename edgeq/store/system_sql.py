"""Guard row, change feed, configuration and audit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.expression import Executable

from edgeq.ports.commands import Actor, SetConfig
from edgeq.store.session import Row, Transaction
from edgeq.store.tables import audit, changes, config, guard


class Reader(Protocol):
    """What reading needs: statements in, rows out."""

    @property
    def now(self) -> int: ...

    def rows(self, statement: Executable, **parameters: Any) -> list[Row]: ...


# Read first in every write transaction, so that a frozen, moved or newer database stops a process
# that has had it open for days.
READ_GUARD = select(
    guard.c.schema_version, guard.c.mode, guard.c.types_version, guard.c.config_version
)
COUNT_TYPES_VERSION = update(guard).values(types_version=guard.c.types_version + 1)
COUNT_CONFIG_VERSION = update(guard).values(config_version=guard.c.config_version + 1)

WRITE_FEED = insert(changes).values(at=bindparam("at"), changes=bindparam("changes"))
# The feed is ordered by id and almost by time: only its oldest end is looked at. Its newest row
# stays, so that a reader who is far behind can be told so.
_oldest = select(changes.c.id).order_by(changes.c.id).limit(256).subquery()
TRIM_FEED = delete(changes).where(
    changes.c.id.in_(select(_oldest.c.id)),
    changes.c.at < bindparam("before"),
    changes.c.id < select(func.max(changes.c.id)).scalar_subquery(),
)

_READ_CONFIG = select(config.c.key, config.c.value)
_SET_CONFIG = (
    sqlite.insert(config)
    .values(key=bindparam("key"), value=bindparam("value"), updated_at=bindparam("now"))
    .on_conflict_do_update(
        index_elements=["key"],
        set_={"value": bindparam("value"), "updated_at": bindparam("now")},
    )
)
_UNSET_CONFIG = delete(config).where(config.c.key == bindparam("key"))

_AUDIT = insert(audit).values(
    at=bindparam("at"),
    actor=bindparam("actor"),
    action=bindparam("action"),
    subject=bindparam("subject"),
    reason=bindparam("reason"),
    details=bindparam("details"),
)


def read_config(reader: Reader) -> Mapping[str, object]:
    return {key: json.loads(value) for key, value in reader.rows(_READ_CONFIG)}


def is_enabled(settings: Mapping[str, object]) -> bool:
    """The switch that stops every run; on unless it was set to false."""
    return settings.get("worker_enabled") is not False


def set_config(tx: Transaction, command: SetConfig) -> Mapping[str, object]:
    for key, value in command.changes.items():
        if value is None:
            tx.change(_UNSET_CONFIG, key=key)
        else:
            tx.change(_SET_CONFIG, key=key, value=json.dumps(value), now=tx.now)
    record(tx, command.actor, "config_set", "worker_config", details=sorted(command.changes))
    tx.config_changed()
    return tx.config


def record(
    tx: Transaction, actor: Actor, action: str, subject: str, *, details: object = None
) -> None:
    """Keep who did what, when and why."""
    tx.change(
        _AUDIT,
        at=tx.now,
        actor=actor.name,
        action=action,
        subject=subject,
        reason=actor.reason,
        details=None if details is None else json.dumps(details),
    )

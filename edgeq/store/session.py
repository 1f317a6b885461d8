"""What the writer needs from a database, and what a command sees of it inside a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sqlalchemy.sql.expression import Executable

from edgeq.core.job_types import JobType
from edgeq.ports.queries import Change
from edgeq.store.prepared import Parameters

Row = Sequence[Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TypeBook:
    """All job types, as of one `types_version`."""

    version: int
    by_name: Mapping[str, JobType]
    by_id: Mapping[str, JobType]


class Transaction(Protocol):
    """One write transaction: statements with named parameters, and what they changed."""

    @property
    def now(self) -> int: ...

    @property
    def types(self) -> TypeBook: ...

    @property
    def config(self) -> Mapping[str, object]: ...

    def rows(self, statement: Executable, **parameters: Any) -> list[Row]: ...

    def row(self, statement: Executable, **parameters: Any) -> Row | None: ...

    def change(self, statement: Executable, **parameters: Any) -> int:
        """Run a statement that writes; answers how many rows it touched."""
        ...

    def change_many(self, statement: Executable, rows: Sequence[Parameters]) -> int: ...

    def tell(self, change: Change) -> None:
        """Put a job into the change feed of this commit."""
        ...

    def types_changed(self) -> None: ...

    def config_changed(self) -> None: ...

    def savepoint(self) -> Savepoint: ...

    def lend(self, work: Callable[[Any], T]) -> T:
        """Call it with a SQLAlchemy connection to this transaction, for a few seconds at most."""
        ...


class Savepoint(Protocol):
    """A part of a transaction that can be undone by itself."""

    def keep(self) -> None: ...

    def undo(self) -> None: ...


class Session(Protocol):
    """A connection that only the writer's thread uses."""

    def begin(self) -> Transaction:
        """Wait for the gate, start a transaction and read the guard row."""
        ...

    def commit(self) -> bool:
        """Make it durable; answers whether anything was changed at all."""
        ...

    def rollback(self) -> None: ...

    def look(self) -> Transaction:
        """A view for reading only, outside of any transaction."""
        ...

    def has_changed(self) -> bool:
        """Whether another connection has committed since this was last asked."""
        ...

    def close(self) -> None: ...

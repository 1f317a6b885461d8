"""SQLAlchemy Core statements, compiled once and run on the driver's own cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy.dialects.sqlite.base import SQLiteCompiler, SQLiteDialect
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.sql.expression import Executable

Parameters = Mapping[str, Any]


class IndexedByCompiler(SQLiteCompiler):
    """Writes a select's hint into its FROM clause, so that INDEXED BY can be said."""

    def get_from_hint_text(self, table: Any, text: str | None) -> str | None:  # noqa: ARG002
        return text


class PlainSqlite(SQLiteDialect):
    statement_compiler = IndexedByCompiler

    def __init__(self) -> None:
        super().__init__(paramstyle="qmark")


class Prepared:
    """SQL text, and how to lay named parameters out for it."""

    __slots__ = ("_constants", "_pick", "names", "sql")

    def __init__(self, statement: Executable, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)  # type: ignore[attr-defined]
        self.sql = str(compiled)
        self.names: tuple[str, ...] = tuple(compiled.positiontup or ())
        self._constants = {
            name: bind.value for name, bind in compiled.binds.items() if not bind.required
        }
        self._pick = itemgetter(*self.names) if len(self.names) > 1 else None

    def lay_out(self, parameters: Parameters) -> Sequence[Any]:
        if self._constants:
            parameters = {**self._constants, **parameters}
        if self._pick is not None:
            return self._pick(parameters)  # type: ignore[no-any-return]
        return [parameters[name] for name in self.names]

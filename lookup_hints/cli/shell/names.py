"""The tables and columns that the shell completes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from lookup_hints.sql.lexer import quoted

if TYPE_CHECKING:
    from lookup_hints.session import LookupSession


class CompletionNames(Protocol):
    """What there is to name in a statement."""

    def tables(self) -> Sequence[str]:
        """The names of tables and views."""

    def columns(self, table: str) -> Sequence[str]:
        """The columns of a table; none where there is no such table."""


class SessionNames:
    """The tables of a session and their columns: asked for once, until a statement may have changed them."""

    def __init__(self, session: LookupSession) -> None:
        self._session = session
        self._tables: list[str] | None = None
        self._columns: dict[str, list[str]] = {}

    def forget(self) -> None:
        """A statement has run: ask again."""
        self._tables = None
        self._columns.clear()

    def tables(self) -> Sequence[str]:
        """The lookup tables, and the tables and views of Spark's current namespace."""
        if self._tables is None:
            ours = [table.name for table in self._session.tables()]
            self._tables = sorted({*ours, *self._of_spark()})
        return self._tables

    def columns(self, table: str) -> Sequence[str]:
        """The columns of ``table``, in their order."""
        key = table.lower()
        if key not in self._columns:
            self._columns[key] = self._columns_of(table)
        return self._columns[key]

    def _of_spark(self) -> list[str]:
        try:
            return [row["tableName"] for row in self._session.spark.sql("SHOW TABLES").collect()]
        except Exception:  # a catalog that cannot be listed: nothing to complete is no reason to stop typing
            return []

    def _columns_of(self, table: str) -> list[str]:
        for ours in self._session.tables():
            if ours.name.lower() == table.lower():
                return list(ours.schema.names)
        try:
            return self._session.spark.table(".".join(map(quoted, table.split(".")))).columns
        except Exception:  # no such table: a name of a CTE, or one that is not typed to its end
            return []

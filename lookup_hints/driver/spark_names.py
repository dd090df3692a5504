"""Lookup tables under Spark's own names: temporary views, for ``spark.table``, lists and DataFrame code.

SQL of an enabled session never reads these views: the planner writes its own over the tables. They are for
whatever goes to Spark past the planner.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING, TypeVar

from lookup_hints.driver.scan_views import SCAN_PREFIX, frame_of_table
from lookup_hints.errors import DdlError, Problem
from lookup_hints.plan.decide.scan_and_filters import ReadRule, read_rule
from lookup_hints.spi import Connector
from lookup_hints.spi.option_values import Conf
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.lexer import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lookup_hints.driver.statement_scope import StatementScope

Dropped = TypeVar("Dropped")

_READER = "lookup_table"


# A view of its own for each table, whose guards are in the function that reads it: any client of the Spark
# session may name it. (docs/decisions/0251)
class SparkNames:
    """The temporary views that an enabled session has for its lookup tables."""

    def __init__(self) -> None:
        self.is_enabled = False
        self._made: dict[str, tuple[LookupTable, ReadRule, str]] = {}
        """By name in lower case: the table, whether it may be read, and what reads it in Spark's plans."""
        self._lock = RLock()

    def has(self, name: str) -> bool:
        """Whether there is a view for the lookup table of that name."""
        return name.lower() in self._made

    def update(self, scope: StatementScope) -> None:
        """Let each lookup table of an enabled session have its view, and no other one have any.

        Raises:
            DdlError: the user has a temporary view of that name.
        """
        tables = {table.name.lower(): table for table in scope.state.catalog.tables()}
        with self._lock:
            for name in [each for each in self._made if not self.is_enabled or each not in tables]:
                if self._is_ours(scope, name):
                    catalog = scope.spark.catalog
                    type(catalog).dropTempView(catalog, self._made[name][0].name)
                del self._made[name]
            for name, table in tables.items() if self.is_enabled else ():
                connector = scope.connector_of(table)
                rule = read_rule(connector, scope.conf)
                if name in self._made and self._made[name][:2] == (table, rule):
                    continue
                self.refuse_other_view(scope, table.name)
                reader = scope.state.functions.name(_READER, connector, rule)
                frame = frame_of_table(scope.spark, connector, reader, rule)
                frame.createOrReplaceTempView(quoted(table.name))
                self._made[name] = table, rule, reader

    def drop_view(self, scope: StatementScope, name: str, drop: Callable[[], Dropped]) -> Dropped:
        """Run ``drop``, which drops the view of that name; the lookup table goes with its own view.

        Where the user had put another view in its place, the table gets its view back.
        """
        if not self.has(name):
            return drop()
        was_ours = self._is_ours(scope, name)
        dropped = drop()
        if was_ours and not _is_temporary_view(scope, name):
            scope.state.catalog.drop(name)
        self._made.pop(name.lower(), None)
        with suppress(DdlError):  # a view of the user's that is still there
            self.update(scope)
        return dropped

    def refuse_other_view(self, scope: StatementScope, name: str) -> None:
        """Refuse a name that a temporary view of the user has.

        Raises:
            DdlError: names both.
        """
        if not self.is_enabled or not _is_temporary_view(scope, name) or self._is_ours(scope, name):
            return
        raise DdlError(
            Problem(
                f"There is a temporary view {name!r}, and spark.table and SHOW TABLES would show the lookup"
                f" table {name!r} in its place.",
                tip=f"Give one of them another name, or drop the view: DROP VIEW {quoted(name)}.",
            )
        )

    def refresh(self, scope: StatementScope, name: str) -> None:
        """Let Spark read again what it has cached of the view of that table."""
        if self.has(name):
            catalog = scope.spark.catalog
            type(catalog).refreshTable(catalog, quoted(name))

    def _is_ours(self, scope: StatementScope, name: str) -> bool:
        """Whether Spark's view of that name is still the one that was made here."""
        from pyspark.errors import AnalysisException

        if not self.has(name):
            return False
        try:
            plan = scope.explained(f"SELECT * FROM {quoted(name)}", None, "extended")  # noqa: S608
        except AnalysisException:  # it was dropped
            return False
        return self._made[name.lower()][2] in plan


def why_not_read_by_frames(connector: Connector, conf: Conf) -> str:
    """Why code of DataFrames may not read the table of ``connector`` whole; empty if it may."""
    return read_rule(connector, conf).refusal


def _is_temporary_view(scope: StatementScope, name: str) -> bool:
    catalog = scope.spark.catalog
    if not catalog.tableExists(quoted(name)):
        return False
    try:
        return bool(catalog.getTable(quoted(name)).isTemporary)
    except Exception:  # a table of another catalog, say
        return False


def without_own_views(listed: DataFrame) -> DataFrame:
    """Rows of SHOW TABLES or SHOW VIEWS, without the private views that statements read."""
    return listed.where(~listed[1].startswith(SCAN_PREFIX))

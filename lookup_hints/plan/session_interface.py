"""The planner's interface to the session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from lookup_hints.lookup_spec import Invalidation, LookupSpec
from lookup_hints.plan.cost import LeftRows
from lookup_hints.plan.parse.lookup_use import LookThrough
from lookup_hints.plan.spark_analysis import Analyse
from lookup_hints.retry import RowPredicate
from lookup_hints.spi import Connector, Filter, TableSize
from lookup_hints.spi.request_and_answer import LookupTable


class Context(Protocol):
    """One statement's session as the planner sees it. Every answer is a value; those here know no Spark."""

    @property
    def predicates(self) -> Mapping[str, RowPredicate]:
        """Registered retry predicates."""
        return {}

    @property
    def few_rows(self) -> bool:
        """Whether the first rows of the statement alone will be taken."""
        return False

    @property
    def line(self) -> int:
        """Where the statement begins in its file, from 1."""
        return 1

    @property
    def read_because(self) -> str:
        """Why all tables must be read whole; empty if lookups are allowed."""
        return ""

    def conf(self, key: str) -> str | None:
        """The value of a key of the session's configuration."""
        ...

    # --- tables ------------------------------------------------------------------------------------

    def tables(self) -> Sequence[LookupTable]:
        """All lookup tables of the session."""
        return ()

    def find_table(self, name: str) -> LookupTable | None:
        """The lookup table of a name."""
        ...

    def find_view(self, name: str) -> LookThrough | None:
        """The query over one lookup table that a view is; None for other views."""
        return None

    def is_lookup_view(self, name: str) -> bool:
        """Whether a view of that name reads a lookup table."""
        return False

    def connector(self, table: LookupTable) -> Connector:
        """The connector of a lookup table, built and checked."""
        ...

    def table_size(self, connector: Connector) -> TableSize:
        """How large the table of a connector is, as far as its source says it in time."""
        return TableSize(None, source="nothing was asked")

    def invalidations(self, table: LookupTable, seconds: float) -> tuple[Invalidation, ...]:
        """The invalidations of a table in the last ``seconds``."""
        return ()

    # --- Spark -------------------------------------------------------------------------------------

    @property
    def analyse(self) -> Analyse | None:
        """A function that gives a query's output columns by Spark's analysis, and raises Spark's errors.

        None means planning without Spark: keys are then assumed to have their column's type.
        """
        return None

    def left_rows(self, sql: str) -> LeftRows:
        """How many rows a query has at least."""
        return LeftRows(None, "unknown: Spark was not asked")

    def is_stream(self, sql: str) -> bool:
        """Whether the rows of a query are a stream."""
        return False

    def analysed_plan(self, sql: str) -> str:
        """Spark's analysed plan of a query, as EXPLAIN shows it; empty if unknown."""
        return ""

    def has_function(self, name: str) -> bool:
        """Whether Spark has a function of that name, of the user's or its own."""
        return False

    # --- names and text of the rewritten statement -------------------------------------------------

    def name_function(self, spec: LookupSpec, repeated: bool) -> str:
        """A name for a lookup function, derived from everything that determines its result."""
        ...

    def name_scan(
        self,
        table: LookupTable,
        columns: tuple[str, ...],
        filters: tuple[Filter, ...],
        match_key: tuple[str, ...],
    ) -> str:
        """A name for the relation that reads these columns of a whole table, filtered, one row a key."""
        ...

    def wrapping(self, kind: pa.DataType) -> tuple[str, str]:
        """Text to write before and after a key of this type, so that it reaches Python unchanged."""
        return "", ""

    def unwritable(self, folder: str) -> str | None:
        """Why a folder for dead letters cannot be written to from here; None where it can."""
        return None

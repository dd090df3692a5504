"""The sizes of a session's lookup tables, requested from the driver; unknown if that takes over a second."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import unwrap
from io import StringIO
from itertools import takewhile
from types import FunctionType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from lookup_hints.plan.cost import LeftRows, certain_rows, files_of
from lookup_hints.process.open_connectors import call_with_timeout
from lookup_hints.spi import Connector, LookupTable, Statistics, TableSize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ASKING_SECONDS = 1.0
"""A source that takes longer counts as not knowing the size."""

REMEMBERED_SECONDS = 60.0
"""For so long a notebook that runs one statement after the other asks for the size of a table once."""


@dataclass(frozen=True)
class _RememberedSize:
    table: LookupTable
    at: float
    size: TableSize


class TableSizes:
    """The sizes of tables, cached for a minute each; exact sizes are requested each time."""

    def __init__(self, seconds: float = ASKING_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._told: dict[str, _RememberedSize] = {}

    def of(self, connector: Connector) -> TableSize:
        """The size of the table of ``connector``; if unknown, without rows and with the reason."""
        if not isinstance(connector, Statistics):
            return TableSize(None, source=f"connector {connector.table.connector!r} has no statistics")
        table, now = connector.table, self._clock()
        told = self._told.get(table.name.lower())
        # A table that was dropped and created again is another object.
        if told is not None and told.table is table and now - told.at < REMEMBERED_SECONDS:
            return told.size
        try:
            size = call_with_timeout(connector.statistics, self._seconds, "statistics")
        except TimeoutError:
            size = TableSize(None, source=f"the source did not say it within {self._seconds:g} s")
        except Exception as error:
            # The error's text may hold secrets; the type of its cause is enough.
            why = type(error.__cause__ or error).__name__
            size = TableSize(None, source=f"the source did not say it ({why})")
        if not size.exact:
            self._told[table.name.lower()] = _RememberedSize(table, now, size)
        return size


MOST_REMEMBERED = 100
"""A session forgets the left sides before."""

MOST_FILES = 100
"""To open this many files on the driver's disk takes a tenth of a second."""

MOST_CHUNKS = 5000
"""Footers of this many column chunks are read in tens of milliseconds; beyond it only rows are counted."""

MOST_BYTES = 4 * 2**30
"""Larger tables have enough rows at one for each KiB, and may have more files than should be listed."""

_NAMED = re.compile(r"Relation ([\w.]+)\[")
_WIDTHS = {"boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "float": 4, "date": 4}
_WIDTHS |= {"bigint": 8, "double": 8, "timestamp_ntz": 8, "timestamp": 12}
"""The most bytes of a value in a file of columns, which compression makes fewer; other types have no most."""

_ENTRY_BYTES = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 5}
# Numbers in a dictionary are hardly ever compressed by more than this factor.
_COMPRESSED = 4

_ANALYSED = re.compile(r"\b(\d+) rows\b")


# Figures of EXPLAIN COST are upper bounds; only lower bounds may decide. (docs/decisions/0153)
class LeftCosts:
    """The rows of left sides, each remembered for a minute under the hash of Spark's analysed plan.

    A view that was replaced, or a file that is another one, is another plan. One that only grew is not.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[int, tuple[float, LeftRows]] = {}

    def of(self, query: DataFrame) -> LeftRows:
        """How many rows ``query`` has at least, or had less than a minute ago."""
        plan, now = query.semanticHash(), self._clock()
        if plan in self._told and now - self._told[plan][0] < REMEMBERED_SECONDS:
            return self._told[plan][1]
        rows = least_rows(query)
        kept = {each: told for each, told in self._told.items() if now - told[0] < REMEMBERED_SECONDS}
        self._told = dict([*kept.items(), (plan, (now, rows))][-MOST_REMEMBERED:])
        return rows


def least_rows(query: DataFrame) -> LeftRows:
    """How many rows ``query`` has at least."""
    explained = explained_cost(query)
    return certain_rows(explained, partial(_rows_of_files, query, files_of(explained)))


def _rows_of_files(query: DataFrame, files: Mapping[str, float], relation: str) -> LeftRows | None:
    """The rows of one of the ``files`` of a query, from footers or from the catalog's statistics."""
    if len(files) == 1 and relation.endswith(" parquet") and files[relation] <= MOST_BYTES:
        counted = _rows_of_footers(query.inputFiles())
        if counted is not None:
            return counted
    name = _NAMED.match(relation)
    return None if name is None else _rows_of_table(query, name[1], relation, files[relation])


def _rows_of_footers(files: list[str]) -> LeftRows | None:
    """The rows of Parquet files, where they are few and on a disk of the driver."""
    if len(files) > MOST_FILES or any(urlsplit(file).scheme != "file" for file in files):
        return None
    from pyarrow.parquet import read_metadata  # it takes a while, and most sessions have no need of it

    try:
        footers = [read_metadata(url2pathname(urlsplit(file).path)) for file in files]
    except Exception:  # a Connect server's disk, say
        return None
    rows = sum(footer.num_rows for footer in footers)
    return LeftRows(rows, f"footers of {len(files)} file{'s'[: len(files) != 1]}", _most_values(footers))


def _most_values(footers: Sequence[Any]) -> dict[str, int]:
    """How many different values each column has at most: by its range, or by its dictionaries."""
    if sum(footer.num_row_groups * footer.num_columns for footer in footers) > MOST_CHUNKS:
        return {}
    groups = [footer.row_group(number) for footer in footers for number in range(footer.num_row_groups)]
    columns: dict[str, list[Any]] = defaultdict(list)
    for group in groups:
        for number in range(group.num_columns):
            chunk = group.column(number)
            columns[chunk.path_in_schema].append(chunk)
    known = {
        name: (_range_of_integers(chunks), _dictionary_entries(chunks)) for name, chunks in columns.items()
    }
    return {name: min(filter(None, each)) for name, each in known.items() if any(each)}


def _range_of_integers(chunks: Sequence[Any]) -> int | None:
    """How many whole numbers there are from the least to the greatest value of a column."""
    statistics = [chunk.statistics for chunk in chunks]
    if not all(each is not None and each.has_min_max and type(each.min) is int for each in statistics):
        return None
    return int(max(each.max for each in statistics) - min(each.min for each in statistics) + 1)


def _dictionary_entries(chunks: Sequence[Any]) -> int | None:
    """Upper bound of a column's dictionary entries, by their bytes; None if values are outside of them."""
    if not all("PLAIN_DICTIONARY" in each.encodings and "PLAIN" not in each.encodings for each in chunks):
        return None
    width = _ENTRY_BYTES.get(chunks[0].physical_type, 1)
    sizes = [int(each.data_page_offset - each.dictionary_page_offset) for each in chunks]
    return sum(size * _COMPRESSED // width for size in sizes)


def _rows_of_table(query: DataFrame, table: str, relation: str, size: float) -> LeftRows | None:
    """Rows by ANALYZE TABLE, which Spark uses only if configured; else the fewest that its bytes can be."""
    name = ".".join(f"`{part}`" for part in table.split("."))
    try:
        described = query.sparkSession.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except Exception:  # a relation that has a name and is no table
        return None
    told = next((row["data_type"] for row in described if row["col_name"] == "Statistics"), "")
    counted = _ANALYSED.search(told)
    if counted is not None:
        return LeftRows(int(counted[1]), "ANALYZE TABLE")
    columns = takewhile(lambda row: row["col_name"] and not row["col_name"].startswith("#"), described)
    widths = [_WIDTHS.get(row["data_type"], 0) for row in columns]
    if not all(widths) or not widths or not relation.endswith((" parquet", " orc")):
        return None
    return LeftRows(int(size) // sum(widths), f"bytes of its files, at most {sum(widths)} for each row")


# (docs/decisions/0153)
def explained_cost(query: DataFrame) -> str:
    """The text of EXPLAIN COST of ``query``; empty if PySpark's ``explain`` has changed.

    ``DataFrame.explain`` prints it, and EXPLAIN as a command makes Spark plan and run two more queries. So
    the function is called with a ``print`` of its own; output of other threads is not captured.
    """
    explain = unwrap(type(query).explain)
    if not isinstance(explain, FunctionType) or "print" not in explain.__code__.co_names:
        return ""
    text = StringIO()
    names = {**explain.__globals__, "print": partial(print, file=text)}
    own = FunctionType(explain.__code__, names, None, explain.__defaults__, explain.__closure__)
    own.__kwdefaults__ = explain.__kwdefaults__
    own(query, mode="cost")
    return text.getvalue()

"""The statements that a table is asked with: lookups, partitions and filters of a read, and changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa
from pyarrow import types

from lookup_connectors.shared.sql_parts import (
    FEWEST_ROWS,
    NULLS,
    condition_of,
    even_ends,
    joined_rows,
    quoted,
    value_names,
)
from lookup_connectors.shared.sql_parts import can_filter as can_filter_exactly
from lookup_connectors.shared.sqlite_types import as_stored, asked_keys, equality
from lookup_hints.spi import Filter, OrderCondition

MAX_VARIABLES = 999  # what every build of SQLite takes


def parts(keys: pa.Table) -> Iterator[pa.Table]:
    """``keys`` in parts that a statement has room for; a key of no columns is one."""
    if not keys.num_columns:
        return iter((keys,))
    size = MAX_VARIABLES // keys.num_columns
    return (keys.slice(start, size) for start in range(0, keys.num_rows, size))


def ranges(number: str, first: int, last: int, wanted: int) -> tuple[str, ...]:
    """Conditions on ``number``, which goes from ``first`` to ``last``; rows that come later meet one, too.

    >>> ranges("rowid", 1, 150_000, 2)
    (' WHERE rowid < 75001', ' WHERE rowid >= 75001')
    >>> ranges("rowid", 1, 99_999, 8)
    ('',)
    """
    ends = even_ends(first, last + 1, wanted, FEWEST_ROWS)
    if not ends:
        return ("",)
    between = (f" WHERE {number} >= {begin} AND {number} < {end}" for begin, end in pairwise(ends))
    return (f" WHERE {number} < {ends[0]}", *between, f" WHERE {number} >= {ends[-1]}")


# CROSS JOIN fixes the order of the search. IN (VALUES ...) read the whole table once statistics had been
# gathered. (docs/decisions/0007)
def lookup_query(source: str, columns: Sequence[str], keys: pa.Table, nulls: Sequence[str] = ()) -> str:
    """The query for ``columns`` of all rows whose key columns equal one of the bound ``keys``.

    Their columns ``nulls`` are NULL.

    ``CROSS JOIN`` makes SQLite go through the keys and search the table for each: with ``IN`` it may choose
    to read the whole table, index or not. Without an index it builds one for the statement. The bound
    values have no affinity, so the column's own is applied to them, as in a comparison with a literal.
    """
    wanted = ", ".join(f"found.{quoted(name)}" for name in columns)
    are_null = [f"found.{quoted(name)} IS NULL" for name in nulls]
    conditions = " AND ".join((*_key_equalities(keys.schema), *are_null))
    if not keys.num_columns:
        return f"SELECT {wanted} FROM {quoted(source)} AS found WHERE {conditions}"  # noqa: S608  quoted
    asked = asked_keys(_key_names(keys.num_columns), keys.num_rows)
    return f"{asked} SELECT {wanted} FROM asked CROSS JOIN {quoted(source)} AS found WHERE {conditions}"  # noqa: S608  quoted


def ordered_query(source: str, columns: Sequence[str], keys: pa.Table, order: OrderCondition) -> str:
    """The query for the position of a key, and ``columns`` of each row that answers its value.

    The last columns of ``keys`` are the values and the positions.
    """
    moments = value_names(order)
    by = pa.schema([*keys.schema][: -len(moments) - 1])
    names = [*_key_names(len(by)), *moments, "position"]
    asked = asked_keys(names, keys.num_rows, is_distinct=False)
    wanted = ", ".join(f"found.{quoted(name)}" for name in columns)
    rows = joined_rows(
        quoted(source), lambda of: _key_equalities(by, of), order, lambda of, name: f"{of}.{quoted(name)}"
    )
    return f"{asked} SELECT asked.position, {wanted} {rows}"


def _key_names(count: int) -> list[str]:
    return [f"k{number}" for number in range(count)]


def _key_equalities(keys: pa.Schema, of: str = "found") -> list[str]:
    return [
        equality(f"{of}.{quoted(field.name)}", f"asked.k{number}", field.type)
        for number, field in enumerate(keys)
    ]


def bound_keys(keys: pa.Table) -> list[Any]:
    """The values to bind in the statement for ``keys``, key by key."""
    columns = [as_stored(column).to_pylist() for column in keys.columns]
    return list(chain.from_iterable(zip(*columns, strict=True)))


def listed(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)


# --- filters --------------------------------------------------------------------------------------


def can_filter(kind: pa.DataType, wanted: Filter) -> bool:
    """Whether a column of the declared type can be filtered so; not by a DECIMAL, which may be a float."""
    return wanted.op in NULLS or (not types.is_decimal(kind) and can_filter_exactly(kind, wanted))


def fits(affinity: str, wanted: Filter) -> bool:
    """Whether a column of that affinity keeps the values of ``wanted`` as they are.

    A text that looks like a number becomes one where it meets a column of numbers.
    """
    is_of_texts = any(isinstance(value, str) for value in wanted.values)
    return affinity == "TEXT" or not is_of_texts


def where_of(partition: str, filters: Sequence[Filter]) -> str:
    """The WHERE of a partition, which has its own already, and ``filters``; empty for all rows.

    >>> where_of(" WHERE rowid < 5", [Filter("a", "IN", (1, 2))])
    ' WHERE rowid < 5 AND "a" IN (?, ?)'
    """
    filtered = (condition_of(quoted(each.column), each, ["?"] * len(each.values)) for each in filters)
    conditions = [*filter(None, [partition.removeprefix(" WHERE ")]), *filtered]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def bound_of(filters: Sequence[Filter]) -> list[object]:
    """The values of ``filters`` as SQLite keeps them."""
    return [str(value) if isinstance(value, date) else value for each in filters for value in each.values]


# --- changes --------------------------------------------------------------------------------------

# A moment has several spellings, which do not sort as texts. So SQL compares its seconds, and lets pass
# what it cannot read; the rows that it finds are compared again in full.


def latest_query(source: str, column: str, kind: pa.DataType) -> str:
    """The query for values of ``column`` among which its greatest one is; names are quoted."""
    if not types.is_timestamp(kind):
        return f"SELECT max({column}) FROM {source}"  # noqa: S608  quoted
    seconds = _sql_of_seconds(column)
    last = f"(SELECT max({seconds}) FROM {source})"  # noqa: S608  quoted
    is_last = f"({seconds} IS NULL OR {seconds} = {last})"
    return f"SELECT DISTINCT {column} FROM {source} WHERE {column} IS NOT NULL AND {is_last}"  # noqa: S608  quoted


def changed_since(column: str, since: pa.Scalar) -> tuple[str, object]:
    """A condition that all rows meet where ``column`` is greater than ``since``, and what to bind in it."""
    if types.is_timestamp(since.type):
        seconds = _sql_of_seconds(column)
        condition = f"{column} IS NOT NULL AND ({seconds} IS NULL OR {seconds} >= ?)"
        return condition, since.value // 10**6 - 1  # SQLite rounds to milliseconds
    bound = since.as_py()
    return f"{column} > ?", str(bound) if types.is_date(since.type) else bound


def _sql_of_seconds(column: str) -> str:
    of_text = f"CAST(strftime('%s', {column}) AS INTEGER)"
    return f"CASE typeof({column}) WHEN 'integer' THEN {column} WHEN 'text' THEN {of_text} END"

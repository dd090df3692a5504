"""Filters of a read as conditions of SQLite, where it compares as Spark does or drops fewer rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date

import pyarrow as pa
from pyarrow import types

from lookup_hints.spi import Filter, FilterValue

_NULLS = ("IS NULL", "IS NOT NULL")


def can_filter(kind: pa.DataType, wanted: Filter) -> bool:
    """Whether a column of the declared type can be filtered so.

    Texts by ``=`` and IN alone, as a collation of the column decides their order.
    """
    if wanted.op in _NULLS or types.is_boolean(kind) or types.is_integer(kind) or types.is_date(kind):
        return True
    return bool(types.is_string(kind)) and wanted.op in ("=", "IN")


def fits(affinity: str, wanted: Filter) -> bool:
    """Whether a column of that affinity keeps the values of ``wanted`` as they are.

    A text that looks like a number becomes one where it meets a column of numbers.
    """
    is_of_texts = any(isinstance(value, str) for value in wanted.values)
    return affinity == "TEXT" or not is_of_texts


def where_of(partition: str, filters: Sequence[Filter], quoted: Callable[[str], str]) -> str:
    """The WHERE of a partition, which has its own already, and ``filters``; empty for all rows.

    >>> where_of(" WHERE rowid < 5", [Filter("a", "IN", (1, 2))], str)
    ' WHERE rowid < 5 AND a IN (?, ?)'
    """
    conditions = [*filter(None, [partition.removeprefix(" WHERE ")]), *_conditions(filters, quoted)]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _conditions(filters: Sequence[Filter], quoted: Callable[[str], str]) -> Iterator[str]:
    for each in filters:
        marks = ", ".join("?" * len(each.values))
        values = f" ({marks})" if each.op == "IN" else f" {marks}".rstrip()
        yield f"{quoted(each.column)} {each.op}{values}"


def bound_of(filters: Sequence[Filter]) -> list[object]:
    """The values of ``filters`` as SQLite keeps them."""
    return [_kept(value) for each in filters for value in each.values]


def _kept(value: FilterValue) -> object:
    return str(value) if isinstance(value, date) else value

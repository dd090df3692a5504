"""Which rows of SQLite have changed: conditions on a column of numbers, dates or moments.

A moment has several spellings, which do not sort as texts. So SQL compares its seconds, and lets pass what it
cannot read; the rows that it finds are compared again in full.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types


def latest_query(source: str, column: str, kind: pa.DataType) -> str:
    """The query for values of ``column`` among which its greatest one is; names are quoted."""
    if not types.is_timestamp(kind):
        return f"SELECT max({column}) FROM {source}"  # noqa: S608  quoted
    seconds = _seconds(column)
    last = f"(SELECT max({seconds}) FROM {source})"  # noqa: S608  quoted
    is_last = f"({seconds} IS NULL OR {seconds} = {last})"
    return f"SELECT DISTINCT {column} FROM {source} WHERE {column} IS NOT NULL AND {is_last}"  # noqa: S608  quoted


def changed_since(column: str, since: pa.Scalar) -> tuple[str, object]:
    """A condition that all rows meet where ``column`` is greater than ``since``, and what to bind in it."""
    if types.is_timestamp(since.type):
        seconds = _seconds(column)
        condition = f"{column} IS NOT NULL AND ({seconds} IS NULL OR {seconds} >= ?)"
        return condition, since.value // 10**6 - 1  # SQLite rounds to milliseconds
    bound = since.as_py()
    return f"{column} > ?", str(bound) if types.is_date(since.type) else bound


def _seconds(column: str) -> str:
    of_text = f"CAST(strftime('%s', {column}) AS INTEGER)"
    return f"CASE typeof({column}) WHEN 'integer' THEN {column} WHEN 'text' THEN {of_text} END"

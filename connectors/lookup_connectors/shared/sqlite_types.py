"""What is told of SQLite itself, whichever driver asks it: its types, and what ANALYZE found.

What a column declared so may hold, how its values are read, and how large a table is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_connectors.shared.conversion import ToArrow, as_floats, from_json, is_nested, readable_as_json
from lookup_connectors.shared.text_values import from_texts, moments
from lookup_hints.spi import TableSize
from lookup_hints.spi.arrow_types import TIMESTAMP_NTZ, cast, sql_type


def has_one_spelling(kind: pa.DataType) -> bool:
    """Whether equal values of ``kind`` are stored alike in SQLite, and can be bound by its driver."""
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_float64(kind)
        or types.is_string(kind)
        or types.is_binary(kind)
        or types.is_date(kind)
    )


def affinity(declared: str) -> str:
    """What SQLite makes of values stored in a column declared so: https://sqlite.org/datatype3.html, 3.1."""
    upper = declared.upper()
    rules = (
        ("INTEGER", ("INT",)),
        ("TEXT", ("CHAR", "CLOB", "TEXT")),
        ("BLOB", ("BLOB",)),
        ("REAL", ("REAL", "FLOA", "DOUB")),
    )
    found = next((name for name, parts in rules if any(part in upper for part in parts)), "NUMERIC")
    return found if upper else "BLOB"


def never_fits(declared: str, kind: pa.DataType) -> str:
    """Why values of a column that SQLite declares so can never be read as ``kind``; empty when they can."""
    kept = affinity(declared)
    if not readable_as_json(kind) and not types.is_binary(kind):
        return f"SQLite has no value that can be read as {sql_type(kind)}."
    numeric = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    whole = types.is_boolean(kind) or types.is_integer(kind)
    if kept == "TEXT" and numeric:
        return _kept_as("text", "STRING", declared, kind)
    if kept == "REAL" and whole:
        return _kept_as("floats", "DOUBLE", declared, kind)
    if kept in ("INTEGER", "REAL") and types.is_string(kind):
        return _kept_as("numbers", "BIGINT" if kept == "INTEGER" else "DOUBLE", declared, kind)
    return ""


def _kept_as(what: str, told: str, declared: str, kind: pa.DataType) -> str:
    return f"SQLite keeps numbers of a {declared} column as {what}. Declare it {told}, not {sql_type(kind)}."


_WORDS: tuple[tuple[str, Callable[[], pa.DataType]], ...] = (
    (r"BOOL(EAN)?", pa.bool_),
    (r"DATE", pa.date32),
    (r"(DATETIME|TIMESTAMP)", lambda: TIMESTAMP_NTZ),
    (r"(DECIMAL|NUMERIC)", lambda: pa.decimal128(38, 18)),
    (r"JSON", pa.string),
)
_EXACT_NUMBER = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def arrow_type(declared: str) -> pa.DataType | None:
    """The type of a column declared so; None when it does not say."""
    upper = declared.strip().upper()
    sized = _EXACT_NUMBER.fullmatch(upper)
    if sized and int(sized[2] or 0) <= int(sized[1]) <= 38:
        return pa.decimal128(int(sized[1]), int(sized[2] or 0))
    named = next((kind() for words, kind in _WORDS if re.fullmatch(words, upper)), None)
    by_affinity = {"INTEGER": pa.int64(), "TEXT": pa.string(), "REAL": pa.float64()}
    blob = pa.binary() if upper == "BLOB" else None
    return named or by_affinity.get(affinity(upper)) or blob


# --- values ---------------------------------------------------------------------------------------


def reader(kind: pa.DataType) -> ToArrow:
    """How values of SQLite's storage classes become a column of ``kind``."""
    if types.is_boolean(kind):
        return _check_storage(_to_booleans, int)
    if types.is_integer(kind):
        return _check_storage(partial(pa.array, type=kind), int)
    if types.is_floating(kind):
        return _check_storage(partial(as_floats, kind=kind), int, float)
    if types.is_decimal(kind):
        return _check_storage(partial(_to_decimals, kind=kind), int, float, str)
    if types.is_timestamp(kind):
        return _check_storage(partial(_to_timestamps, kind=kind), int, str)
    if types.is_date(kind):
        return _check_storage(partial(from_texts, kind=kind), str)
    if is_nested(kind):
        return _check_storage(partial(from_json, target=kind), str)
    return _check_storage(partial(pa.array, type=kind), bytes if types.is_binary(kind) else str)


def _check_storage(to_arrow: ToArrow, *storage: type) -> ToArrow:
    """``to_arrow``, for values of the ``storage`` types alone: pyarrow also takes bytes for text."""
    allowed = {*storage, type(None)}

    def checked(values: Sequence[Any]) -> pa.Array:
        if not set(map(type, values)) <= allowed:
            raise TypeError
        return to_arrow(values)

    return checked


def _to_booleans(values: Sequence[int | None]) -> pa.Array:
    if not set(values) <= {0, 1, None}:
        raise ValueError
    return pa.array(values, pa.int8()).cast(pa.bool_())


def _to_decimals(values: Sequence[int | float | str | None], kind: pa.DataType) -> pa.Array:
    # The shortest text that stands for a float is the number that was written into the REAL column.
    return from_texts([None if value is None else str(value) for value in values], kind)


def _to_timestamps(values: Sequence[int | str | None], kind: pa.DataType) -> pa.Array:
    seconds = pa.array([value if isinstance(value, int) else None for value in values], pa.timestamp("s"))
    texts = [value if isinstance(value, str) else None for value in values]
    return pc.coalesce(cast(seconds, TIMESTAMP_NTZ).cast(kind), moments(texts, kind))


def as_stored(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """``values`` as SQLite keeps them: dates are texts, in their order.

    A year after 9999, which no row has, is above all.
    """
    if not types.is_date(values.type):
        return values
    texts = values.cast(pa.string())
    return pc.if_else(pc.match_substring_regex(texts, r"^\d{5}"), ":", texts)


# --- keys in SQL ----------------------------------------------------------------------------------


def equality(compared: str, key: str, kind: pa.DataType) -> str:
    """SQL that is true where a column of ``kind`` equals a key, as Spark compares them."""
    condition = f"{compared} = {key}"
    if types.is_string(kind):
        # The column's collation may find a row by two keys ('a' and 'A'): the row belongs to its own alone.
        # The first condition is there for the index, which has the column's collation.
        return f"{condition} AND {condition} COLLATE BINARY"
    return condition


def asked_keys(names: Sequence[str], count: int, *, is_distinct: bool = True) -> str:
    """The head of a statement that has so many bound keys in its table ``asked``.

    Distinct: 0.0 and -0.0 are one value to SQLite, and a row must come once.
    """
    values = ", ".join([f"({', '.join('?' * len(names))})"] * count)
    rows = f"SELECT DISTINCT * FROM (VALUES {values})" if is_distinct else f"VALUES {values}"  # noqa: S608
    return f"WITH asked({', '.join(names)}) AS ({rows})"


# --- sizes ----------------------------------------------------------------------------------------

ANALYSED = """
SELECT stat, (SELECT name FROM pragma_index_info(idx) WHERE seqno = 0) AS first
FROM sqlite_stat1 WHERE tbl = ? COLLATE NOCASE AND stat IS NOT NULL
"""


def analysed_size(told: Iterable[tuple[str, str | None]]) -> TableSize:
    """What the rows that ``ANALYSED`` gives say: a line for each index, and its first column.

    Behind the number of rows is how many of them have one value of that column, on average. An index over a
    part of the rows has fewer.
    """
    counts = [([int(each) for each in stat.split() if each.isdigit()], first) for stat, first in told]
    rows = max(count for (count, *_), _ in counts)
    distinct = {
        first: round(rows / each)
        for (count, *of_one), first in counts
        for each in of_one[:1]
        if first and count == rows
    }
    return TableSize(rows, source="sqlite_stat1", distinct=distinct)

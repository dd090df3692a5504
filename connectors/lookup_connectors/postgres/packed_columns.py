"""Columns that the server packs: what comes are the buffers of Arrow's arrays, so no value is decoded here.

A column is two values of the answer. Of a fixed width: its values one after the other, and a byte for each
that says whether it is one. Of texts and bytes: the length of each, and all of them as one.
"""

from __future__ import annotations

import sys
from array import array
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_connectors.postgres.columns import PostgresColumn
from lookup_connectors.text_values import from_texts
from lookup_hints.spi.arrow_types import cast, checked

# By type of the wire: the function that writes a value as PostgreSQL sends it, a value in the place of NULL,
# the code of Python's arrays for that width, and what it is here. Days and microseconds count from 2000.
_FIXED: dict[str, tuple[str, str, str, pa.DataType]] = {
    "bigint": ("int8send", "int8send(0)", "q", pa.int64()),
    "float8": ("float8send", "int8send(0)", "q", pa.float64()),
    "boolean": ("boolsend", "boolsend(false)", "b", pa.uint8()),
    "date": ("date_send", "int4send(0)", "i", pa.int32()),
    "timestamp": ("timestamp_send", "int8send(0)", "q", pa.int64()),
    "timestamptz": ("timestamptz_send", "int8send(0)", "q", pa.int64()),
}

_SINCE_2000 = {
    "date": pa.scalar(10_957, pa.int32()),
    "timestamp": pa.scalar(946_684_800_000_000, pa.int64()),
    "timestamptz": pa.scalar(946_684_800_000_000, pa.int64()),
}
"""What 2000 is in Arrow's counts of days and microseconds, which begin in 1970."""


def packed(wire: str, value: str, *, is_unicode: bool, limit: str = "") -> tuple[list[str], str]:
    """The two aggregates that a column is packed into, and their size, as SQL.

    Args:
        wire: the type of ``value``.
        value: SQL for a value.
        is_unicode: whether the server's encoding is UTF-8: a text has as many bytes here then.
        limit: SQL for the bytes that an answer may have: a larger value is not read at all, only counted.
    """
    if wire in _FIXED:
        send, nothing, _, _ = _FIXED[wire]
        values = f"string_agg(coalesce({send}({value}), {nothing}), '')"
        parts = [values, f"string_agg(boolsend({value} IS NOT NULL), '')"]
        return parts, " + ".join(f"coalesce(pg_column_size({part}), 0)" for part in parts)
    # In the encoding of the client, which is UTF-8.
    sent = value if wire == "bytea" else f"textsend({value})"
    length = f"octet_length({value if is_unicode else sent})"
    lengths = f"string_agg(int4send(coalesce({length}, -1)), '')"
    fitting = f" FILTER (WHERE {length} <= {limit})" if limit else ""
    size = f"coalesce(pg_column_size({lengths}) + sum({length}), 0)"
    return [lengths, f"string_agg({sent}, ''){fitting}"], size


def unpacked(wire: str, first: bytes, second: bytes, *, is_unicode: bool) -> pa.Array:
    """The column, in its type of the wire, of the two values that it was packed into.

    Raises:
        pyarrow.ArrowException: a server that knows no encoding has sent what is no text.
    """
    if wire in _FIXED:
        _, _, code, kind = _FIXED[wire]
        values = _numbers(code, first)
        is_there = None if 0 not in second else _bits(second)
        column = pa.Array.from_buffers(kind, len(values), [is_there, pa.py_buffer(values)])
        return column.cast(pa.bool_()) if wire == "boolean" else column
    numbers = _numbers("i", first)
    lengths = pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
    nothing = pa.scalar(0, pa.int32())
    ends = pc.cumulative_sum(pc.max_element_wise(lengths, nothing))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    is_there = pc.greater_equal(lengths, nothing).buffers()[1]
    kind = pa.binary() if wire == "bytea" else pa.string()
    column = pa.Array.from_buffers(kind, len(lengths), [is_there, offsets.buffers()[1], pa.py_buffer(second)])
    column.validate(full=not is_unicode)
    return column


def in_declared_type(column: pa.Array, plan: PostgresColumn) -> pa.Array:
    """``column``, in its type of the wire, as the type that is declared.

    Raises:
        REFUSALS: a value does not fit; ``values_of`` has it.
    """
    kind = plan.field.type
    if column.type == kind and plan.wire != "json":
        return column
    if plan.wire == "json":
        return plan.to_arrow(column.to_pylist())
    if types.is_string(column.type):
        return from_texts(column, kind)
    if plan.wire in _SINCE_2000:
        return checked(pc.add_checked(column, _SINCE_2000[plan.wire]).view(kind))
    return cast(column, kind)


def values_of(column: pa.Array, plan: PostgresColumn) -> list[Any]:
    """The values of ``column`` one by one, as ``to_arrow`` of ``plan`` takes them: days as texts."""
    if types.is_string(column.type):
        return [_decoded(value) for value in column.view(pa.binary()).to_pylist()]
    values: list[Any] = column.to_pylist()
    if plan.wire not in _SINCE_2000:
        return values
    spell = _spelled_day if plan.wire == "date" else _spelled_moment
    zone = "+00" if plan.wire == "timestamptz" else ""
    infinity = 2 ** (column.type.bit_width - 1) - 1
    words = {infinity: "infinity", -infinity - 1: "-infinity", None: None}
    return [words[value] if value in words else spell(value) + zone for value in values]


def _decoded(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


_DAYS_OF_400_YEARS = 146_097


def _spelled_day(days: int) -> str:
    """The day so many days after 2000-01-01, as PostgreSQL spells it.

    >>> _spelled_day(0), _spelled_day(-730_000), _spelled_day(3_700_000)
    ('2000-01-01', '0002-04-28 BC', '12130-04-12')
    """
    eras, rest = divmod(days, _DAYS_OF_400_YEARS)
    day = date(2000, 1, 1) + timedelta(days=rest)
    year = day.year + 400 * eras
    return f"{year if year > 0 else 1 - year:04}{day:-%m-%d}{'' if year > 0 else ' BC'}"


def _spelled_moment(microseconds: int) -> str:
    days, rest = divmod(microseconds, 86_400_000_000)
    day, _, era = _spelled_day(days).partition(" ")
    return f"{day} {(datetime.min + timedelta(microseconds=rest)).time()}{era and ' ' + era}"


def _numbers(code: str, sent: bytes) -> array[int]:
    numbers = array(code, sent)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _bits(flags: bytes) -> pa.Buffer:
    return (
        pa.Array.from_buffers(pa.uint8(), len(flags), [None, pa.py_buffer(flags)])
        .cast(pa.bool_())
        .buffers()[1]
    )

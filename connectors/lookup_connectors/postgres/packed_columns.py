"""Columns that the server packs: what comes are the buffers of Arrow's arrays, so no value is decoded here.

A column is two values of the answer. Of a fixed width: its values one after the other, and a byte for each
that says whether it is one. Of texts and bytes: the length of each, and all of them as one.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_connectors.postgres.columns import PostgresColumn
from lookup_connectors.shared.text_values import from_texts
from lookup_hints.errors import counted
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

BYTES = ("bytea", "floats")
"""Types of the wire that are bytes; four of them are a float."""

# What 2000 is in Arrow's counts of days and microseconds, which begin in 1970.
_SINCE_2000 = {
    "date": pa.scalar(10_957, pa.int32()),
    "timestamp": pa.scalar(946_684_800_000_000, pa.int64()),
    "timestamptz": pa.scalar(946_684_800_000_000, pa.int64()),
}


@dataclass(frozen=True)
class PackedColumn:
    """What a column is packed from.

    Args:
        wire: its type of the wire.
        value: SQL for a value.
        is_never_null: whether no row has NULL in it.
    """

    wire: str
    value: str
    is_never_null: bool = False


NO_LIMIT = "1073741823"
"""More than a value can have in PostgreSQL."""


def packed_query(
    head: str,
    columns: Sequence[PackedColumn],
    rows: str,
    *,
    is_unicode: bool,
    is_wide: bool = False,
    limit: str = NO_LIMIT,
) -> str:
    """The query for ``head``, for how many bytes the packed ``columns`` of ``rows`` have, and for them.

    PostgreSQL makes equal aggregates once, and a value has its size in its head. OFFSET 0 lets it make each
    value once, too.

    Args:
        head: SQL; ``rows`` is how many there are.
        columns: what is packed.
        rows: what stands in FROM.
        is_unicode: whether the server's encoding is UTF-8: a text has as many bytes here then.
        is_wide: whether there may be large values. They are counted first, and not read where they are more.
        limit: SQL for the bytes that all may have; no column is sent where they are more.
    """
    values = ", ".join(f"{column.value} AS v{number}" for number, column in enumerate(columns))
    parts = [
        part for number, each in enumerate(columns) for part in _aggregates_of(each, f"v{number}", is_unicode)
    ]
    named = "".join(f", {part} AS p{number}" for number, (part, _) in enumerate(parts))
    size = " + ".join(f"coalesce(pg_column_size({part}), 0)::bigint" for part, _ in parts) or "0"
    kept = "".join(
        f", CASE WHEN size <= {limit} THEN {sent.format(f'p{number}')} END"
        for number, (_, sent) in enumerate(parts)
    )
    found, before, condition = f"(SELECT {values} FROM {rows} OFFSET 0) AS found", "", ""  # noqa: S608  quoted
    long = [f"v{number}" for number, column in enumerate(columns) if column.wire not in _FIXED]
    if is_wide and long:
        width = " + ".join(f"coalesce(sum(octet_length({value})), 0)" for value in long)
        before = (
            f"WITH found AS MATERIALIZED (SELECT {values} FROM {rows}), "  # noqa: S608  quoted
            f"counted AS (SELECT {width} AS bytes FROM found) "
        )
        size = f"greatest((SELECT bytes FROM counted), {size})"  # noqa: S608  quoted
        found, condition = "found", f" WHERE (SELECT bytes FROM counted) <= {limit}"  # noqa: S608  quoted
    answer = f"SELECT count(*) AS rows, {size} AS size{named} FROM {found}{condition}"  # noqa: S608  quoted
    return f"{before}SELECT {head}, size{kept} FROM ({answer}) AS answer"  # noqa: S608  quoted


def _aggregates_of(column: PackedColumn, value: str, is_unicode: bool) -> list[tuple[str, str]]:
    """The two aggregates of a column, and how each is sent."""
    if column.wire in _FIXED:
        send, nothing, _, _ = _FIXED[column.wire]
        if column.is_never_null:
            return [(f"string_agg({send}({value}), '')", "{}"), ("NULL::bytea", "{}")]
        values = f"string_agg(coalesce({send}({value}), {nothing}), '')"
        return [(values, "{}"), (f"string_agg(boolsend({value} IS NOT NULL), '')", "{}")]
    # textsend writes UTF-8, which is the client's encoding: all texts at once, if it is the server's, too.
    sent = value if is_unicode or column.wire in BYTES else f"textsend({value})"
    lengths = f"string_agg(int4send(coalesce(octet_length({sent}), -1)), '')"
    is_text_still = sent == value and column.wire not in BYTES
    return [(lengths, "{}"), (f"string_agg({sent}, '')", "textsend({})" if is_text_still else "{}")]


def unpacked(wire: str, first: bytes, second: bytes) -> pa.Array:
    """The column, in its type of the wire, of the two values that it was packed into.

    Raises:
        ValueError: they do not fit together.
    """
    if wire in _FIXED:
        _, _, code, kind = _FIXED[wire]
        values = _unpack_numbers(code, first)
        if second and len(second) != len(values):
            raise ValueError(f"{counted(len(values), 'value')} came with {counted(len(second), 'flag')}")
        is_there = None if 0 not in second else _unpack_bits(second)
        column = pa.Array.from_buffers(kind, len(values), [is_there, pa.py_buffer(values)])
        return column.cast(pa.bool_()) if wire == "boolean" else column
    numbers = _unpack_numbers("i", first)
    lengths = pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
    nothing = pa.scalar(0, pa.int32())
    sizes = pc.max_element_wise(lengths, nothing)
    if (size := pc.sum(sizes).as_py() or 0) != len(second):
        raise ValueError(f"values of {size} bytes came as {len(second)}")
    ends = pc.cumulative_sum(sizes)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    is_there = pc.greater_equal(lengths, nothing).buffers()[1]
    kind = pa.binary() if wire in BYTES else pa.string()
    buffers = [is_there, offsets.buffers()[1], pa.py_buffer(second)]
    # No text is looked at: the server has seen to it that it is UTF-8.
    found = pa.Array.from_buffers(kind, len(lengths), buffers)
    return floats_in(found) if wire == "floats" else found


def floats_in(sent: pa.Array) -> pa.Array:
    """The lists of floats that binaries are, which have no offset."""
    is_there, ends, data = sent.buffers()
    numbers = _unpack_numbers("i", data.to_pybytes() if data else b"")
    floats = pa.Array.from_buffers(pa.float32(), len(numbers), [None, pa.py_buffer(numbers)])
    counted = pa.Array.from_buffers(pa.int32(), len(sent) + 1, [None, ends])
    offsets = pc.divide(counted, pa.scalar(4, pa.int32())).buffers()[1]
    return pa.Array.from_buffers(pa.list_(floats.type), len(sent), [is_there, offsets], children=[floats])


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
    values: list[Any] = column.to_pylist()
    if plan.wire not in _SINCE_2000 or types.is_string(column.type):
        return values
    spell = _spelled_day if plan.wire == "date" else _spelled_moment
    zone = "+00" if plan.wire == "timestamptz" else ""
    infinity = 2 ** (column.type.bit_width - 1) - 1
    words = {infinity: "infinity", -infinity - 1: "-infinity", None: None}
    return [words[value] if value in words else spell(value) + zone for value in values]


_DAYS_OF_400_YEARS = 146_097


def _spelled_day(days: int) -> str:
    """The day so many days after 2000-01-01, as PostgreSQL spells it.

    >>> _spelled_day(0), _spelled_day(-760_000), _spelled_day(3_700_000)
    ('2000-01-01', '0082-03-12 BC', '12130-04-04')
    """
    eras, rest = divmod(days, _DAYS_OF_400_YEARS)
    day = date(2000, 1, 1) + timedelta(days=rest)
    year = day.year + 400 * eras
    return f"{year if year > 0 else 1 - year:04}{day:-%m-%d}{'' if year > 0 else ' BC'}"


def _spelled_moment(microseconds: int) -> str:
    days, rest = divmod(microseconds, 86_400_000_000)
    day, _, era = _spelled_day(days).partition(" ")
    return f"{day} {(datetime.min + timedelta(microseconds=rest)).time()}{era and ' ' + era}"


def _unpack_numbers(code: str, sent: bytes) -> array[int]:
    numbers = array(code, sent)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _unpack_bits(flags: bytes) -> pa.Buffer:
    octets = pa.Array.from_buffers(pa.uint8(), len(flags), [None, pa.py_buffer(flags)])
    return octets.cast(pa.bool_()).buffers()[1]

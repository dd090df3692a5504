"""Column types: how Spark SQL writes an Arrow type, and how columns are cast: by value or not at all.

Arrow's own casts can change a value: they rescale decimals modulo 2^128, turn a double that is too large for
a float into infinity, miss the nearest double of a decimal, and do not check Spark's range of years.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_hints.sql.lexer import quoted

_PLAIN: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    # TIMESTAMP is another type where spark.sql.timestampType says so.
    pa.timestamp("us", tz="UTC"): "TIMESTAMP_LTZ",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.duration("us"): "INTERVAL DAY TO SECOND",
}

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")


# TIMESTAMP means one type or another by a setting; TIMESTAMP_LTZ and TIMESTAMP_NTZ always mean the same.
# (docs/decisions/0172)
def sql_type(kind: pa.DataType) -> str:
    """The Spark SQL type that crosses Arrow as ``kind``, in words that mean it under every setting.

    >>> sql_type(pa.list_(pa.struct([("a b", pa.decimal128(10, 2))])))
    'ARRAY<STRUCT<`a b`: DECIMAL(10,2)>>'

    Raises:
        ValueError: no Spark type is carried as ``kind``.
    """
    if kind in _PLAIN:
        return _PLAIN[kind]
    if types.is_decimal128(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if types.is_map(kind):
        return f"MAP<{sql_type(kind.key_type)}, {sql_type(kind.item_type)}>"
    if types.is_list(kind):
        return f"ARRAY<{sql_type(kind.value_type)}>"
    if types.is_struct(kind):
        fields = ", ".join(f"{quoted(column.name)}: {sql_type(column.type)}" for column in kind)
        return f"STRUCT<{fields}>"
    raise ValueError(f"no Spark column type is carried as Arrow's {kind}")


def type_name(kind: pa.DataType) -> str:
    """What Spark itself calls the type that crosses Arrow as ``kind``: its ``simpleString``.

    >>> type_name(pa.list_(pa.struct([("at", TIMESTAMP)])))
    'array<struct<at:timestamp>>'

    Raises:
        ValueError: no Spark type is carried as ``kind``.
    """
    if kind == TIMESTAMP:
        return "timestamp"
    if types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if types.is_struct(kind):
        return f"struct<{','.join(f'{column.name}:{type_name(column.type)}' for column in kind)}>"
    return sql_type(kind).lower()


def written_type(name: str) -> str:
    """How SQL writes the type that Spark calls ``name``, which is not nested.

    >>> written_type("timestamp"), written_type("decimal(10,2)")
    ('TIMESTAMP_LTZ', 'DECIMAL(10,2)')
    """
    return sql_type(TIMESTAMP) if name == type_name(TIMESTAMP) else name.upper()


_DAYS = [(day - date(1970, 1, 1)).days for day in (date.min, date.max)]
_MICROSECONDS = [
    (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1) for moment in (datetime.min, datetime.max)
]
_WIDEST = 38
_ANY_INTEGER = pa.decimal128(20, 0)


def cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """``values`` as ``kind``; fractions of a second are cut to microseconds, as Spark's CAST does.

    Raises:
        pyarrow.ArrowException: a value does not fit, or no value of the one type can be one of the other.
        ValueError: a date or a moment is not in the years from 1 to 9999, which Spark has.
    """
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if types.is_nested(kind):
        return _cast_nested(values, kind)
    return checked(_cast_flat(values, kind))


def _cast_flat(values: pa.Array, kind: pa.DataType) -> pa.Array:
    source = values.type
    if source == kind:
        return values
    if types.is_decimal(kind) and (types.is_integer(source) or types.is_decimal(source)):
        return _rescale_decimals(values, kind)
    if types.is_decimal(source) and types.is_floating(kind):
        return values.cast(pa.string()).cast(kind)
    if types.is_timestamp(source) and types.is_timestamp(kind) and source.unit == "ns" != kind.unit:
        return pc.floor_temporal(values, unit="microsecond").cast(kind)
    converted = values.cast(kind)
    if types.is_float32(kind) and pc.sum(pc.is_inf(converted)) != pc.sum(pc.is_inf(values)):
        raise ValueError("more than a FLOAT holds")
    return converted


def _rescale_decimals(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Rescale where the digits fit, so that nothing is lost before the value is checked."""
    if types.is_integer(values.type):
        values = values.cast(_ANY_INTEGER)
    more = kind.scale - values.type.scale
    if types.is_decimal128(values.type) and values.type.precision + max(more, 0) <= _WIDEST:
        return values.cast(kind)
    if values.type.scale < 0:
        values = values.cast(pa.decimal256(2 * _WIDEST, 0))
    if more >= 0:
        values = values.cast(pa.decimal128(_WIDEST, values.type.scale))
    return values.cast(pa.decimal256(2 * _WIDEST, kind.scale)).cast(kind)


def _cast_nested(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if types.is_null(values.type):
        return values.cast(kind)
    if types.is_fixed_size_list(values.type) or types.is_large_list(values.type):
        values = values.cast(pa.list_(values.type.value_type))
    if values.offset or values.null_count:
        values = values.take(pa.array(range(len(values)), pa.int64()))  # NULL rows without items, from 0 on
    if types.is_struct(kind):
        members = [cast(*pair) for pair in zip(values.flatten(), (field.type for field in kind), strict=True)]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=values.is_null())
    is_there = pa.concat_arrays([values.is_valid(), pa.array([True])])
    offsets = pc.if_else(is_there, values.offsets, None)
    if types.is_map(kind):
        keys, items = cast(values.keys, kind.key_type), cast(values.items, kind.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items).cast(kind)
    return pa.ListArray.from_arrays(offsets, cast(values.values, kind.value_type)).cast(kind)


def checked(values: pa.Array) -> pa.Array:
    """``values``, none of which is beyond what its type can be in Spark.

    Drivers give 'infinity' as some far day, and 128 bits as a decimal of 38 digits.

    Raises:
        pyarrow.ArrowException: a decimal has more digits than its type.
        ValueError: a date or a moment is not in the years from 1 to 9999.
    """
    kind = values.type
    if types.is_date32(kind):
        _check_years(values.cast(pa.int32()), *_DAYS)
    elif types.is_timestamp(kind) and kind.unit == "us":
        _check_years(values.cast(pa.int64()), *_MICROSECONDS)
    elif types.is_decimal(kind):
        values.validate(full=True)
    return values


def _check_years(numbers: pa.Array, least: int, greatest: int) -> None:
    found = pc.min_max(numbers).as_py()
    if found["min"] is not None and not (least <= found["min"] and found["max"] <= greatest):
        raise ValueError("not a year from 1 to 9999")

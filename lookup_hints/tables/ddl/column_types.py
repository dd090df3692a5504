"""The type of a column, as Spark SQL writes it -> the Arrow type that carries it.

Spellings of Flink SQL are taken where they mean the same (``BYTES``, ``TIMESTAMP(3)``); the others are
refused with what to write.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from lookup_hints.errors import nearest
from lookup_hints.spi.options import Conf
from lookup_hints.spi.types import TIMESTAMP, TIMESTAMP_NTZ
from lookup_hints.tables.ddl.reader import DdlReader

_SIMPLE: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    **dict.fromkeys(("TINYINT", "BYTE"), pa.int8()),
    **dict.fromkeys(("SMALLINT", "SHORT"), pa.int16()),
    **dict.fromkeys(("INT", "INTEGER"), pa.int32()),
    **dict.fromkeys(("BIGINT", "LONG"), pa.int64()),
    **dict.fromkeys(("FLOAT", "REAL"), pa.float32()),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    **dict.fromkeys(("BINARY", "BYTES"), pa.binary()),
    "DATE": pa.date32(),
}
_TIMESTAMPS = {"TIMESTAMP_LTZ": TIMESTAMP, "TIMESTAMP_NTZ": TIMESTAMP_NTZ}
_INSTEAD = {
    "VARBINARY": "BINARY",
    "TEXT": "STRING",
    "JSON": "STRING",
    "UUID": "STRING",
    "DATETIME": "TIMESTAMP_NTZ",
    "TIMESTAMPTZ": "TIMESTAMP_LTZ",
    "BOOL": "BOOLEAN",
    "INT8": "BIGINT",
    "NUMBER": "DECIMAL(38, 0)",
    "ROW": "STRUCT<name: TYPE, ...>",
    "MULTISET": "ARRAY<TYPE>",
}
_NEVER = ("VARIANT", "TIME", "VOID", "NULL", "GEOMETRY", "GEOGRAPHY", "OBJECT", "RAW")
_MOST_DIGITS = 38
_MICROSECONDS = 6
_MOST_NESTED = 100


def plain_timestamp(conf: Conf) -> pa.DataType:
    """The type that TIMESTAMP is: the one that Spark's own CREATE TABLE gives it under the same settings."""
    chosen = conf("spark.sql.timestampType") or ""
    return TIMESTAMP_NTZ if chosen.upper() == "TIMESTAMP_NTZ" else TIMESTAMP


def read_type(reader: DdlReader, depth: int = 0) -> pa.DataType:
    """Read the type that comes next; ``depth`` types hold it.

    Raises:
        Unreadable: it is not a type, or none that a lookup column can have.
    """
    if depth > _MOST_NESTED:
        reader.fail(f"Types are nested here more than {_MOST_NESTED} deep.", tip="Write STRING for it.")
    name = reader.rest[0].text.upper() if reader.rest else ""
    if name in _NEVER:
        reader.fail(f"{name} cannot be the type of a lookup column.")
    if name in _INSTEAD:
        reader.fail(f"There is no type {name}.", tip=f"Write {_INSTEAD[name]}.")
    if not (name in _SIMPLE or name in _COMPOSED or name in _NESTING):
        known = (*_SIMPLE, *_COMPOSED, *_NESTING)
        reader.fail_missing("The type", tip=nearest(name, known) if name.isidentifier() else "")
    reader.words(name)
    if name in _NESTING:
        return _NESTING[name](reader, name, depth + 1)
    kind = _SIMPLE[name] if name in _SIMPLE else _COMPOSED[name](reader, name)
    before = reader.rest
    if reader.words("COLLATE"):
        tip = f"Write {name}, as sources compare texts by their bytes; COLLATE belongs into the query."
        reader.fail("A column of a lookup table has no collation.", before, tip)
    return kind


def _characters(reader: DdlReader, name: str) -> pa.DataType:
    reader.expect("(", f"after {name}, as in {name}(10)")
    reader.integer("the length")
    reader.expect(")", "after the length")
    return pa.string()


def _decimal(reader: DdlReader, name: str) -> pa.DataType:
    size = reader.rest
    if not reader.symbol("("):
        return pa.decimal128(10, 0)
    precision = reader.integer("the precision")
    scale = reader.integer("the scale") if reader.symbol(",") else 0
    reader.expect(")", f"after the size of the {name}")
    if not (1 <= precision <= _MOST_DIGITS and scale <= precision):
        tip = f"The precision is 1 to {_MOST_DIGITS}, the scale at most the precision."
        reader.fail(f"{name}({precision}, {scale}) is impossible.", size[:2], tip)
    return pa.decimal128(precision, scale)


def _timestamp(reader: DdlReader, name: str) -> pa.DataType:
    size = reader.rest
    if reader.symbol("("):
        precision = reader.integer("the precision")
        reader.expect(")", "after the precision")
        if precision > _MICROSECONDS:
            reader.fail(f"{name}({precision}) is finer than microseconds.", size[:3], tip=f"Write {name}.")
    return _TIMESTAMPS.get(name, reader.timestamp)


def _interval(reader: DdlReader, name: str) -> pa.DataType:
    if not reader.words("DAY", "TO", "SECOND"):
        reader.fail(
            f"This {name} cannot be the type of a lookup column.", tip="Write INTERVAL DAY TO SECOND."
        )
    return pa.duration("us")


def _array(reader: DdlReader, name: str, depth: int) -> pa.DataType:
    reader.expect("<", f"after {name}, as in ARRAY<INT>")
    element = read_type(reader, depth)
    reader.expect(">", "after the type of the elements")
    return pa.list_(element)


def _map(reader: DdlReader, name: str, depth: int) -> pa.DataType:
    reader.expect("<", f"after {name}, as in MAP<STRING, INT>")
    key = read_type(reader, depth)
    reader.expect(",", "after the type of the keys")
    value = read_type(reader, depth)
    reader.expect(">", "after the type of the values")
    return pa.map_(key, value)


def _struct(reader: DdlReader, name: str, depth: int) -> pa.DataType:
    reader.expect("<", f"after {name}, as in STRUCT<name: TYPE>")
    fields = [_field(reader, depth)]
    while reader.symbol(","):
        fields.append(_field(reader, depth))
    reader.expect(">", "after the last field")
    return pa.struct(fields)


def _field(reader: DdlReader, depth: int) -> pa.Field:
    name = reader.name("the name of a field").name
    reader.symbol(":")
    kind = read_type(reader, depth)
    # Promises about content, checked by nobody: Spark sees every looked-up column as nullable.
    reader.words("NOT", "NULL")
    if reader.words("COMMENT"):
        reader.string("the text of the comment")
    return pa.field(name, kind)


_COMPOSED: dict[str, Callable[[DdlReader, str], pa.DataType]] = {
    **dict.fromkeys(("CHAR", "CHARACTER", "VARCHAR"), _characters),
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), _decimal),
    **dict.fromkeys(("TIMESTAMP", *_TIMESTAMPS), _timestamp),
    "INTERVAL": _interval,
}
_NESTING: dict[str, Callable[[DdlReader, str, int], pa.DataType]] = {
    "ARRAY": _array,
    "MAP": _map,
    "STRUCT": _struct,
}

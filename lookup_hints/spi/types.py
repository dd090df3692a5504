"""Column types: how Spark SQL writes an Arrow type, and what Spark calls it."""

from __future__ import annotations

import pyarrow as pa
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

"""Column types: the Spark SQL name of an Arrow type."""

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
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.duration("us"): "INTERVAL DAY TO SECOND",
}

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")


def sql_type(kind: pa.DataType) -> str:
    """The Spark SQL type that crosses Arrow as ``kind``.

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

"""Column types: each Spark type that can cross Arrow, as Spark itself reads it."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
import pytest

from lookup_hints.errors import DdlError
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ, checked, sql_type
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.tables.ddl import CreateLookupTable, parse_ddl


def arrow_type(text: str) -> pa.DataType:
    statement = parse_ddl(SqlText(f"CREATE TEMPORARY TABLE t (c {text}) WITH ('connector'='x')"))
    assert isinstance(statement, CreateLookupTable)
    assert statement.columns is not None
    return statement.columns.field("c").type


SPARK_TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "bigint": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "DECIMAL": pa.decimal128(10, 0),
    "DEC(5)": pa.decimal128(5, 0),
    "NUMERIC( 38 , 38 )": pa.decimal128(38, 38),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_LTZ": TIMESTAMP,
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
    "INTERVAL DAY TO SECOND": pa.duration("us"),
    "ARRAY<INT>": pa.list_(pa.int32()),
    "MAP<STRING, ARRAY<DATE>>": pa.map_(pa.string(), pa.list_(pa.date32())),
    "STRUCT<a: INT, `b c` STRING COMMENT 'x'>": pa.struct([("a", pa.int32()), ("b c", pa.string())]),
    "ARRAY<STRUCT<m: MAP<INT, STRUCT<d: DECIMAL(4,1)>>>>": pa.list_(
        pa.struct([("m", pa.map_(pa.int32(), pa.struct([("d", pa.decimal128(4, 1))])))])
    ),
}

OTHER_TYPES = {
    "CHAR(3)": pa.string(),
    "CHARACTER(3)": pa.string(),
    "VARCHAR(10)": pa.string(),
    "BYTES": pa.binary(),
    "TIMESTAMP(3)": TIMESTAMP,
    "TIMESTAMP_LTZ(6)": TIMESTAMP,
    "STRUCT<a: INT NOT NULL>": pa.struct([("a", pa.int32())]),
}


@pytest.mark.parametrize(("text", "expected"), [*SPARK_TYPES.items(), *OTHER_TYPES.items()])
def test_a_type_becomes_the_arrow_type_that_carries_it(text: str, expected: pa.DataType) -> None:
    assert arrow_type(text) == expected
    assert arrow_type(sql_type(expected)) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("VARIANT", "VARIANT cannot be the type of a lookup column."),
        ("TIME", "TIME cannot be the type of a lookup column."),
        ("TIME(3)", "TIME cannot be the type of a lookup column."),
        ("VOID", "VOID cannot be the type of a lookup column."),
        (
            "INTERVAL YEAR TO MONTH",
            "This INTERVAL cannot be the type of a lookup column. Write INTERVAL DAY TO SECOND.",
        ),
        ("VARBINARY(10)", "There is no type VARBINARY. Write BINARY."),
        ("ROW<a INT>", "There is no type ROW. Write STRUCT<name: TYPE, ...>."),
        ("TIMESTAMP(9)", "TIMESTAMP(9) is finer than microseconds. Write TIMESTAMP."),
        (
            "DECIMAL(39, 2)",
            "DECIMAL(39, 2) is impossible. The precision is 1 to 38, the scale at most the precision.",
        ),
        (
            "DECIMAL(2, 3)",
            "DECIMAL(2, 3) is impossible. The precision is 1 to 38, the scale at most the precision.",
        ),
        ("INTT", "The type is missing before INTT. Did you mean 'INT'?"),
        ("5", "The type is missing before 5."),
        ("VARCHAR", "'(' after VARCHAR, as in VARCHAR(10) is missing."),
        ("ARRAY", "'<' after ARRAY, as in ARRAY<INT> is missing."),
        ("ARRAY<INT", "'>' after the type of the elements is missing."),
        ("MAP<INT>", "',' after the type of the keys is missing before >."),
        ("STRUCT<a>", "The type is missing before >."),
        ("STRUCT<a: ARRAY<TIME>>", "TIME cannot be the type of a lookup column."),
        (
            "STRING COLLATE UNICODE",
            "A column of a lookup table has no collation. Write STRING, as sources compare texts by their bytes;"
            " COLLATE belongs into the query.",
        ),
        (
            "ARRAY<STRING COLLATE UTF8_LCASE>",
            "A column of a lookup table has no collation. Write STRING, as sources compare texts by their bytes;"
            " COLLATE belongs into the query.",
        ),
        ("STRING COLATE UNICODE", "This is not understood after the type. Is a comma missing?"),
    ],
)
def test_a_type_that_cannot_be_names_its_column_and_what_to_write(text: str, sentence: str) -> None:
    with pytest.raises(DdlError) as caught:
        arrow_type(text)
    (problem,) = caught.value.problems
    assert f"{problem.message} {problem.tip}".rstrip() == f"Column 'c': {sentence}"
    assert problem.at is not None


@pytest.mark.parametrize(
    ("kind", "number", "ends"),
    [
        (pa.date32(), pa.int32(), (date.min, date.max)),
        (TIMESTAMP_NTZ, pa.int64(), (datetime.min, datetime.max)),
        (TIMESTAMP, pa.int64(), (datetime.min, datetime.max)),
    ],
)
def test_the_years_of_spark_are_1_to_9999(
    kind: pa.DataType, number: pa.DataType, ends: tuple[date, date]
) -> None:
    values = pa.array([*ends, None], kind)
    assert checked(values) is values
    first, last, _ = values.cast(number).to_pylist()
    for beyond in (first - 1, last + 1):
        with pytest.raises(ValueError, match="not a year from 1 to 9999"):
            checked(pa.array([0, beyond], number).cast(kind))

"""PostgreSQL's types and Spark's: what is read, what is asked by, what is refused."""

from __future__ import annotations

import contextlib
import itertools
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.postgres import PostgresConnector

from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ
from lookup_hints.spi.request_and_answer import LookupTable
from tests.servers.pooler import strict_pooler
from tests.servers.postgres import PostgresServer
from tests.unit.connectors.asking import ask, failure_of

UTC = timezone.utc
UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
STRUCT = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.decimal128(10, 2)))])

_numbers = itertools.count(1)


@pytest.fixture(scope="module", autouse=True)
def _types(postgres_server: PostgresServer) -> None:
    postgres_server.execute("""
        CREATE TYPE mood AS ENUM ('sad', 'ok', 'very happy');
        CREATE DOMAIN positive AS int CHECK (VALUE > 0);
        CREATE DOMAIN more_positive AS positive;
        CREATE DOMAIN price AS numeric(8,2);
        CREATE DOMAIN grid AS int8[][];
        CREATE TYPE place AS (street text, number int);
        CREATE EXTENSION hstore; CREATE EXTENSION citext;
    """)


def stored(server: PostgresServer, sql_type: str, *literals: str) -> str:
    """A new table with the columns n (1, 2, ...) and v (of ``sql_type``), indexed by v where possible."""
    name = f"typed_{next(_numbers)}"
    rows = ", ".join(f"({number}, {literal})" for number, literal in enumerate(literals, start=1))
    server.execute(f"CREATE TABLE {name} (n int PRIMARY KEY, v {sql_type}); INSERT INTO {name} VALUES {rows}")
    return name


def table_of(server: PostgresServer, name: str, kind: pa.DataType) -> LookupTable:
    schema = pa.schema([("n", pa.int32()), ("v", kind)])
    return LookupTable(name, schema, ("n",), {"connector": "postgres", "url": server.url()})


VALUES: list[tuple[str, str, pa.DataType, Any]] = [
    ("bool", "true", pa.bool_(), True),
    ("int2", "-32768", pa.int16(), -32768),
    ("int4", "5", pa.int64(), 5),
    ("int8", "5", pa.int8(), 5),
    ("positive", "5", pa.int32(), 5),
    ("more_positive", "5", pa.int32(), 5),
    ("numeric(18,0)", "123456789012345678", pa.int64(), 123456789012345678),
    ("numeric(10,2)", "5.00", pa.int32(), 5),
    ("float4", "1.5", pa.float32(), 1.5),
    ("float4", "0.5", pa.float64(), 0.5),
    ("float8", "0.1", pa.float64(), 0.1),
    ("float8", "'Infinity'", pa.float64(), float("inf")),
    ("numeric", "0.1", pa.float64(), 0.1),
    ("numeric(12,2)", "-1234567890.12", pa.decimal128(12, 2), Decimal("-1234567890.12")),
    ("numeric", "1e-18", pa.decimal128(38, 18), Decimal("1e-18")),
    ("int8", "12", pa.decimal128(20, 2), Decimal("12.00")),
    ("text", "'it''s'", pa.string(), "it's"),
    ("varchar(10)", "'x'", pa.string(), "x"),
    ("char(5)", "'ab'", pa.string(), "ab"),
    ("uuid", f"'{UUID.upper()}'", pa.string(), UUID),
    ("mood", "'very happy'", pa.string(), "very happy"),
    ("citext", "'Ab'", pa.string(), "Ab"),
    ("inet", "'10.0.0.1/8'", pa.string(), "10.0.0.1/8"),
    ("int4", "7", pa.string(), "7"),
    ("json", """'{"a" :1}'""", pa.string(), '{"a" :1}'),
    ("jsonb", """'{"a" :1}'""", pa.string(), '{"a": 1}'),
    ("time", "'12:30'", pa.string(), "12:30:00"),
    ("bytea", r"'\x00ff'", pa.binary(), b"\x00\xff"),
    ("date", "'2024-02-29'", pa.date32(), date(2024, 2, 29)),
    ("date", "'9999-12-31'", pa.date32(), date(9999, 12, 31)),
    ("date", "'0001-01-01'", pa.date32(), date(1, 1, 1)),
    ("timestamp", "'2024-02-29 12:00:00.123456'", TIMESTAMP_NTZ, datetime(2024, 2, 29, 12, 0, 0, 123456)),
    ("timestamp", "'9999-12-31 23:59:59.999999'", TIMESTAMP_NTZ, datetime.max),
    ("timestamptz", "'2024-02-29 12:00:00+05:30'", TIMESTAMP, datetime(2024, 2, 29, 6, 30, tzinfo=UTC)),
    ("interval", "'-2 days 3 hours'", pa.duration("us"), timedelta(days=-2, hours=3)),
    ("interval", "'0.000001 s'", pa.duration("us"), timedelta(microseconds=1)),
]
UNASKABLE: list[tuple[str, str, pa.DataType, Any]] = [
    ("int[]", "'{1,NULL,3}'", pa.list_(pa.int32()), [1, None, 3]),
    ("int[]", "'{}'", pa.list_(pa.int64()), []),
    ("int[]", "'{{1,2},{3,4}}'", pa.list_(pa.list_(pa.int64())), [[1, 2], [3, 4]]),
    ("text[]", """'{"a,b","it''s"}'""", pa.list_(pa.string()), ["a,b", "it's"]),
    ("numeric(10,2)[]", "'{1.50}'", pa.list_(pa.decimal128(10, 2)), [Decimal("1.50")]),
    ("date[]", "'{2024-02-29}'", pa.list_(pa.date32()), [date(2024, 2, 29)]),
    ("timestamp[]", "'{2024-02-29 12:00}'", pa.list_(TIMESTAMP_NTZ), [datetime(2024, 2, 29, 12)]),
    ("timestamptz[]", "'{2024-02-29 12:00+01}'", pa.list_(TIMESTAMP),
     [datetime(2024, 2, 29, 11, tzinfo=UTC)]),
    ("hstore", "'x=>1, y=>NULL'", pa.map_(pa.string(), pa.string()), [("x", "1"), ("y", None)]),
    ("float8[]", "'{0.1,Infinity}'", pa.list_(pa.float64()), [0.1, float("inf")]),
    ("mood[]", "'{ok}'", pa.list_(pa.string()), ["ok"]),
    ("jsonb[]", """ARRAY['{"a": 1}', '[2]', '"x"', 'null']::jsonb[]""", pa.list_(pa.string()),
     ['{"a": 1}', "[2]", '"x"', "null"]),
    ("positive[]", "'{1,2}'", pa.list_(pa.int32()), [1, 2]),
    ("positive[]", "'{1,2}'", pa.list_(pa.string()), ["1", "2"]),
    ("numeric[]", "'{NaN,1.50}'", pa.list_(pa.string()), ["NaN", "1.50"]),
    ("numeric[]", "'{NaN,1.50}'", pa.list_(pa.float64()), [pytest.approx(float("nan"), nan_ok=True), 1.5]),
    ("int[][]", "'{{1,NULL}}'", pa.list_(pa.list_(pa.string())), [["1", None]]),
    ("place[]", "ARRAY[ROW('Main', 5)]::place[]", pa.list_(pa.string()), ["(Main,5)"]),
    ("place", "ROW('Main', 5)", pa.struct([("street", pa.string()), ("number", pa.int32())]),
     {"street": "Main", "number": 5}),
    ("jsonb", """'{"a": 9007199254740993, "b": [1.5, null]}'""", STRUCT,
     {"a": 9007199254740993, "b": [Decimal("1.50"), None]}),
    ("json", """'{"b": null, "c": "ignored"}'""", STRUCT, {"a": None, "b": None}),
    ("jsonb", """'{"x": 1, "y": null}'""", pa.map_(pa.string(), pa.int64()), [("x", 1), ("y", None)]),
]  # fmt: skip


def _named(case: tuple[str, str, pa.DataType, Any]) -> str:
    return f"{case[0]} {case[1]} as {case[2]}"


@pytest.mark.parametrize("case", [*VALUES, *UNASKABLE], ids=_named)
def test_a_value_is_read_as_declared_and_null_stays_null(
    postgres_server: PostgresServer, case: tuple[str, str, pa.DataType, Any]
) -> None:
    sql_type, literal, kind, expected = case
    table = table_of(postgres_server, stored(postgres_server, sql_type, literal, "NULL"), kind)
    rows = ask(table, {"n": [1, 2]})
    assert sorted(rows, key=lambda row: row["n"]) == [{"n": 1, "v": expected}, {"n": 2, "v": None}]


@pytest.mark.parametrize("case", [*VALUES, *UNASKABLE], ids=_named)
def test_a_scan_reads_a_value_as_declared_and_null_stays_null(
    postgres_server: PostgresServer, case: tuple[str, str, pa.DataType, Any]
) -> None:
    sql_type, literal, kind, expected = case
    table = table_of(postgres_server, stored(postgres_server, sql_type, literal, "NULL"), kind)
    assert scanned(table) == [{"n": 1, "v": expected}, {"n": 2, "v": None}]
    alone = pa.schema([("v", kind)])
    assert scanned(table, alone) == [{"v": expected}, {"v": None}], "a line of NULL is empty"


def scanned(table: LookupTable, schema: pa.Schema | None = None) -> list[dict[str, Any]]:
    schema = schema or table.schema
    rows: list[dict[str, Any]] = pa.Table.from_batches(
        PostgresConnector(table).scan(schema), schema
    ).to_pylist()
    return rows


TEXTS = [
    "",
    " ",
    '"',
    '""',
    ",",
    "a,b",
    "\n",
    "a\nb\r\nc\r",
    "\\.",
    "\\N",
    "NULL",
    "null",
    "NaN",
    "t",
    "Grüße 👋",
    "'",
]


def test_a_scan_reads_any_text(postgres_server: PostgresServer) -> None:
    literals = ["'" + text.replace("'", "''") + "'" for text in TEXTS]
    table = table_of(postgres_server, stored(postgres_server, "text", *literals, "NULL"), pa.string())
    assert [row["v"] for row in scanned(table)] == [*TEXTS, None]
    assert [row["v"] for row in scanned(table, pa.schema([("v", pa.string())]))] == [*TEXTS, None]


@pytest.mark.parametrize("literal", ["'NaN'", "'-Infinity'", "1e-323", "0.1", "-0.0", "1e308"])
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_a_scan_reads_a_float_as_a_lookup_does(
    postgres_server: PostgresServer, literal: str, kind: pa.DataType
) -> None:
    sql_type = "float8" if kind == pa.float64() else "float4"
    literal = literal if sql_type == "float8" or len(literal) < 5 or "'" in literal else "1e-45"
    table = table_of(postgres_server, stored(postgres_server, sql_type, literal), kind)
    assert repr(scanned(table)) == repr(ask(table, {"n": [1]}))


@pytest.mark.parametrize("case", VALUES, ids=_named)
def test_a_value_is_asked_by_alone_and_among_others(
    postgres_server: PostgresServer, case: tuple[str, str, pa.DataType, Any]
) -> None:
    sql_type, literal, kind, expected = case
    table = table_of(postgres_server, stored(postgres_server, sql_type, literal, "NULL"), kind)
    assert ask(table, {"v": [expected]}) == [{"n": 1, "v": expected}]
    assert ask(table, {"v": [expected, expected], "n": [1, 2]}) == [{"n": 1, "v": expected}]


@pytest.mark.parametrize(
    ("sql_type", "literal", "kind", "shown"),
    [
        ("numeric", "'NaN'", pa.decimal128(38, 18), "'NaN'"),
        ("numeric", "'1.005'", pa.decimal128(10, 2), "'1.005'"),
        ("numeric", "12345678901", pa.decimal128(10, 0), "'12345678901'"),
        ("numeric(10,2)", "5.50", pa.int64(), "'5.5'"),
        ("int4", "300", pa.int8(), "300"),
        ("date", "'infinity'", pa.date32(), "'infinity'"),
        ("date", "'0044-03-15 BC'", pa.date32(), "BC"),
        ("date", "'12024-01-01'", pa.date32(), "'12024-01-01'"),
        ("timestamp", "'-infinity'", TIMESTAMP_NTZ, "'-infinity'"),
        ("timestamptz", "'infinity'", TIMESTAMP, "'infinity'"),
        ("interval", "'1 month 2 days'", pa.duration("us"), "'1 mon 2 days'"),
        ("int[]", "'{{1,2},{3,4}}'", pa.list_(pa.int64()), "[[1,2],[3,4]]"),
        ("int[][]", "'{1,2}'", pa.list_(pa.list_(pa.int64())), "[1,2]"),
        ("numeric[]", "'{NaN}'", pa.list_(pa.decimal128(38, 18)), "NaN"),
        (
            "numeric(78,0)",
            "340282366920938463463374607431768211456",
            pa.decimal128(38, 0),
            "340282366920938463463374607431768211456",
        ),
        ("numeric", "1e30", pa.decimal128(38, 18), "1000000000000000000000000000000"),
        ("date[]", "'{infinity}'", pa.list_(pa.date32()), "infinity"),
        ("jsonb", """'{"a": "text"}'""", STRUCT, "text"),
        ("jsonb", """'{"a": true}'""", STRUCT, "true"),
        ("jsonb", "'[1]'", STRUCT, "[1]"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_that_names_it(
    postgres_server: PostgresServer, sql_type: str, literal: str, kind: pa.DataType, shown: str
) -> None:
    name = stored(postgres_server, sql_type, "NULL", literal)
    error = failure_of(lambda: ask(table_of(postgres_server, name, kind), {"n": [1, 2]}))
    assert error.permanent
    for part in (name, "column 'v'", "n = 2", shown):
        assert part in str(error)


@pytest.mark.parametrize(
    ("sql_type", "literal", "kind", "keys", "expected"),
    [
        ("int2", "1", pa.int64(), [1, 2**40], [1]),
        ("varchar(3)", "'abc'", pa.string(), ["abc", "abcdef" * 1000], ["abc"]),
        ("text", "'a'", pa.string(), ["a", "a\0", "\0"], ["a"]),
        ("uuid", f"'{UUID}'", pa.string(), [UUID, "no uuid", "", UUID.upper(), f"{{{UUID}}}"], [UUID]),
        ("mood", "'ok'", pa.string(), ["ok", "OK", "no label", "", "a\0"], ["ok"]),
        ("numeric(4,2)", "1.5", pa.decimal128(38, 2), [Decimal("1.5"), Decimal(10) ** 35], [Decimal("1.5")]),
        ("char(3)", "'a'", pa.string(), ["a", "ab", "abcdef"], ["a"]),
        ("inet", "'10.0.0.1'", pa.string(), ["10.0.0.1/32", "10.0.0.1", "no address"], ["10.0.0.1/32"]),
    ],
)
def test_a_key_that_the_source_cannot_hold_is_a_miss_for_itself_alone(
    postgres_server: PostgresServer,
    sql_type: str, literal: str, kind: pa.DataType, keys: list[Any], expected: list[Any],
) -> None:  # fmt: skip
    table = table_of(postgres_server, stored(postgres_server, sql_type, literal), kind)
    assert [row["v"] for row in ask(table, {"v": keys})] == expected
    assert [row["v"] for row in ask(table, {"n": [1] * len(keys), "v": keys})] == expected


def test_dates_beyond_the_common_calendar_are_misses(postgres_server: PostgresServer) -> None:
    table = table_of(postgres_server, stored(postgres_server, "date", "'2024-01-01'"), pa.date32())
    days = pa.array([19723, 10_000_000, -10_000_000], pa.int32()).cast(pa.date32())
    assert [row["v"] for row in ask(table, {"v": days})] == [date(2024, 1, 1)]


def test_nan_is_found_by_nan(postgres_server: PostgresServer) -> None:
    table = table_of(postgres_server, stored(postgres_server, "float8", "'NaN'", "1"), pa.float64())
    assert [row["n"] for row in ask(table, {"v": [float("nan")]})] == [1]


def test_a_row_that_two_keys_find_comes_once(postgres_server: PostgresServer) -> None:
    table = table_of(postgres_server, stored(postgres_server, "char(3)", "'a'"), pa.string())
    keys = ["a", "a ", "a  "]
    assert len(ask(table, {"v": keys})) == 1
    assert len(ask(table, {"v": keys, "n": [1, 1, 1]})) == 1


@pytest.mark.parametrize(
    ("sql_type", "kind", "told"),
    [
        ("timestamp", TIMESTAMP, "TIMESTAMP_NTZ"),
        ("timestamptz", TIMESTAMP_NTZ, "TIMESTAMP_LTZ"),
        ("text", pa.int64(), "STRING"),
        ("float8", pa.float32(), "DOUBLE"),
        ("float8", pa.decimal128(10, 2), "DOUBLE"),
        ("int4", pa.list_(pa.int32()), "INT"),
        ("bytea[]", pa.list_(pa.binary()), "ARRAY<STRING>"),
    ],
)
def test_a_type_that_cannot_stand_for_another_is_refused_at_opening(
    postgres_server: PostgresServer, sql_type: str, kind: pa.DataType, told: str
) -> None:
    name = stored(postgres_server, sql_type, "NULL")
    error = failure_of(lambda: ask(table_of(postgres_server, name, kind), {"n": [1]}))
    assert error.permanent
    assert str(error).endswith(f"Declare it {told}.")


def test_the_schema_is_told_from_the_catalog(postgres_server: PostgresServer) -> None:
    postgres_server.execute("""
        CREATE TABLE told (
            b bool, i2 int2, i4 int4, i8 bigserial, f4 real, f8 float8, n numeric, n2 numeric(10,2),
            n3 numeric(3,5), n4 numeric(5,-2), t text, v varchar(3), u uuid, j jsonb, m mood, p positive,
            by bytea, d date, ts timestamp, tz timestamptz, iv interval, a int[], na numeric(6,1)[],
            ma mood[], pl place, ja jsonb[], pa more_positive[], pn price[], ii int[][], d2 grid, dv positive[],
            PRIMARY KEY (v, i4)
        )""")
    table = LookupTable("t", pa.schema([]), options={"url": postgres_server.url(), "table-name": "told"})
    schema, key = PostgresConnector(table).discover()
    assert key == ("v", "i4")
    string = pa.string()
    assert dict(zip(schema.names, schema.types, strict=True)) == {
        "b": pa.bool_(), "i2": pa.int16(), "i4": pa.int32(), "i8": pa.int64(), "f4": pa.float32(),
        "f8": pa.float64(), "n": pa.decimal128(38, 18), "n2": pa.decimal128(10, 2), "n3": pa.decimal128(5, 5),
        "n4": pa.decimal128(7, 0), "t": string, "v": string, "u": string, "j": string, "m": string,
        "p": pa.int32(), "by": pa.binary(), "d": pa.date32(), "ts": TIMESTAMP_NTZ, "tz": TIMESTAMP,
        "iv": pa.duration("us"), "a": pa.list_(pa.int32()), "na": pa.list_(pa.decimal128(6, 1)),
        "ma": pa.list_(string), "pl": string, "ja": pa.list_(string), "pa": pa.list_(pa.int32()),
        "pn": pa.list_(pa.decimal128(8, 2)), "ii": pa.list_(pa.list_(pa.int32())),
        "d2": pa.list_(pa.list_(pa.int64())), "dv": pa.list_(pa.int32()),
    }  # fmt: skip


def test_texts_of_moments_do_not_depend_on_the_roles_settings(postgres_server: PostgresServer) -> None:
    postgres_server.execute("""
        CREATE ROLE german LOGIN PASSWORD 'pw' SUPERUSER;
        ALTER ROLE german SET datestyle = 'German, DMY'; ALTER ROLE german SET timezone = 'Asia/Tokyo';
        ALTER ROLE german SET intervalstyle = 'iso_8601'""")
    # Tokyo's offset of 1850 has seconds, which ISO 8601 has not.
    name = stored(postgres_server, "timestamptz", "'2024-03-04 05:06:07+00'", "'1850-01-01 00:00:00+00'")
    schema = pa.schema([("n", pa.int32()), ("v", TIMESTAMP)])
    url = postgres_server.url(user="german", password="pw")
    table = LookupTable(name, schema, options={"url": url})
    values = [datetime(2024, 3, 4, 5, 6, 7, tzinfo=UTC), datetime(1850, 1, 1, tzinfo=UTC)]
    assert [row["v"] for row in ask(table, {"n": [1, 2]})] == values


SHOWN: list[tuple[str, str, pa.DataType, Any]] = [
    ("float8[]", "'{0.30000000000000004}'", pa.list_(pa.float64()), [0.30000000000000004]),
    ("float8", "0.30000000000000004", pa.float64(), 0.30000000000000004),
    ("float8", "0.30000000000000004", pa.string(), "0.30000000000000004"),
    ("float4", "1.17549435e-38", pa.float32(), 1.1754943508222875e-38),
    ("measured", "ROW(0.30000000000000004)", pa.struct([("x", pa.float64())]), {"x": 0.30000000000000004}),
    ("bytea", "'ab'", pa.binary(), b"ab"),
    ("bytea", r"'hello'", pa.binary(), b"hello"),
    ("bytea", "'ab'", pa.string(), r"\x6162"),
    ("interval", "'1 mon 2 days'", pa.string(), "1 mon 2 days"),
    ("date", "'2024-02-29'", pa.string(), "2024-02-29"),
    ("timestamptz", "'2024-02-29 12:00+00'", pa.string(), "2024-02-29 12:00:00+00"),
    ("timestamptz[]", "'{2024-02-29 12:00+00}'", pa.list_(pa.string()), ["2024-02-29 12:00:00+00"]),
]


@pytest.fixture(scope="module")
def odd_role(postgres_server: PostgresServer) -> str:
    """A role whose sessions write values in other ways."""
    postgres_server.execute("""
        CREATE TYPE measured AS (x float8);
        CREATE ROLE odd LOGIN PASSWORD 'pw' SUPERUSER;
        ALTER ROLE odd SET extra_float_digits = 0; ALTER ROLE odd SET bytea_output = escape;
        ALTER ROLE odd SET intervalstyle = iso_8601; ALTER ROLE odd SET datestyle = 'German, DMY';
        ALTER ROLE odd SET timezone = 'Asia/Tokyo'; ALTER ROLE odd SET standard_conforming_strings = off;
        ALTER ROLE odd SET xmlbinary = hex; ALTER ROLE odd SET array_nulls = off;
        ALTER ROLE odd SET transform_null_equals = on; ALTER ROLE odd SET client_encoding = LATIN1""")
    return "odd"


@pytest.mark.parametrize("way", ["straight", "refusing", "silent"])
def test_how_a_value_is_written_does_not_depend_on_the_roles_settings(
    postgres_server: PostgresServer, odd_role: str, way: str
) -> None:
    names = [stored(postgres_server, case[0], case[1]) for case in SHOWN]
    with contextlib.ExitStack() as open_fronts:
        port = postgres_server.port
        if way != "straight":
            port = open_fronts.enter_context(strict_pooler(port, passes_over=way == "silent"))
        url = postgres_server.url(user=odd_role, password="pw", port=port)
        for name, (_, _, kind, expected) in zip(names, SHOWN, strict=True):
            schema = pa.schema([("n", pa.int32()), ("v", kind)])
            table = LookupTable(name, schema, ("n",), {"url": url, "statement-cache-size": "0"})
            row = {"n": 1, "v": expected}
            assert (ask(table, {"n": [1]}), scanned(table)) == ([row], [row])
            if not pa.types.is_nested(kind):
                assert ask(table, {"v": [expected]}) == [row]


@pytest.mark.parametrize(("encoding", "known"), [("LATIN1", "é"), ("EUC_JP", "漢")])
def test_a_key_that_the_servers_encoding_has_not_is_a_miss_for_itself_alone(
    postgres_server: PostgresServer, encoding: str, known: str
) -> None:
    database = f"in_{encoding.lower()}"
    postgres_server.execute(f"CREATE DATABASE {database} ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'")
    postgres_server.execute(
        f"CREATE TABLE t (n int, v text); INSERT INTO t VALUES (1, '{known}'), (2, 'a')", database
    )
    schema = pa.schema([("n", pa.int32()), ("v", pa.string())])
    table = LookupTable("t", schema, ("n",), {"url": postgres_server.url(database=database)})
    rows = [{"n": 1, "v": known}, {"n": 2, "v": "a"}]
    assert ask(table, {"v": ["€", known, "a€", "👋", "a", "]👋", "𝄞"]}) == rows
    assert ask(table, {"v": ["€"]}) == []
    assert ask(table, {"n": [1, 1, 2], "v": ["€", known, "a"]}) == rows

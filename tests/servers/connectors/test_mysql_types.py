"""Each type of MariaDB, asked and read: the exact value, or an error, and nothing in between."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.mysql import MysqlConnector

from lookup_hints.errors import ConnectorError
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ
from lookup_hints.spi.request_and_answer import Filter, LookupTable
from tests.servers.mariadb import MariaDbServer
from tests.unit.connectors import asking
from tests.unit.connectors.asking import failure_of, request_for, rows_of

ask = partial(asking.ask, connector_type=MysqlConnector)
_numbers = itertools.count()


def table_of(
    server: MariaDbServer,
    column: str,
    values: Sequence[str],
    kind: pa.DataType,
    *,
    mode: str = "",
    rest: str = "",
    **options: str,
) -> LookupTable:
    """A table with a column ``c`` of the type ``column`` that holds ``values``, which SQL spells, by numbers."""
    name = f"typed_{next(_numbers)}"
    rows = ", ".join(f"({number}, {value})" for number, value in enumerate(values))
    server.execute(
        f"SET sql_mode = '{mode}'; CREATE TABLE {name} (id INT PRIMARY KEY, c {column}, KEY (c)) {rest};"
        f"INSERT INTO {name} VALUES {rows}"
    )
    given = {"connector": "mysql", **server.options(), **{k.replace("_", "-"): v for k, v in options.items()}}
    return LookupTable(name, pa.schema([("id", pa.int32()), ("c", kind)]), ("id",), given)


def by_number(table: LookupTable, count: int) -> list[Any]:
    """The values, asked by their numbers; the same must be read with the whole table."""
    asked = sorted(ask(table, {"id": [*range(count)]}), key=lambda row: row["id"])
    read = pa.Table.from_batches(MysqlConnector(table).scan(table.schema), table.schema).to_pylist()
    assert sorted(read, key=lambda row: row["id"]) == asked
    return [row["c"] for row in asked]


def found_by(table: LookupTable, *keys: Any) -> list[int]:
    """The numbers of the rows that have one of ``keys``, as Spark compares them."""
    found = ask(table, {"c": [*keys]})
    return sorted(row["id"] for row in found if row["c"] in keys)


EXACT: list[tuple[str, list[str], pa.DataType, list[Any]]] = [
    ("TINYINT", ["-128", "127", "NULL"], pa.int8(), [-128, 127, None]),
    ("TINYINT(1)", ["-128", "2", "127"], pa.int8(), [-128, 2, 127]),
    ("TINYINT(1)", ["0", "1", "NULL"], pa.bool_(), [False, True, None]),
    ("TINYINT UNSIGNED", ["255"], pa.int16(), [255]),
    ("SMALLINT UNSIGNED", ["65535"], pa.int32(), [65535]),
    ("MEDIUMINT UNSIGNED", ["16777215"], pa.int32(), [16777215]),
    ("MEDIUMINT", ["-8388608"], pa.int32(), [-8388608]),
    ("INT UNSIGNED", ["4294967295"], pa.int64(), [4294967295]),
    ("BIGINT", ["-9223372036854775808"], pa.int64(), [-(2**63)]),
    ("BIGINT UNSIGNED", ["18446744073709551615", "5"], pa.decimal128(20, 0), [Decimal(2**64 - 1), Decimal(5)]),
    ("BIGINT UNSIGNED ZEROFILL", ["5"], pa.int64(), [5]),
    ("BIT(1)", ["b'1'", "b'0'"], pa.bool_(), [True, False]),
    ("BIT(9)", ["b'100000001'", "0"], pa.int64(), [257, 0]),
    ("BIT(64)", ["18446744073709551615"], pa.decimal128(20, 0), [Decimal(2**64 - 1)]),
    ("YEAR", ["0", "1901", "2155"], pa.int16(), [0, 1901, 2155]),
    ("DECIMAL(38,10)", ["1234567890123456789012345678.0123456789"], pa.decimal128(38, 10),
     [Decimal("1234567890123456789012345678.0123456789")]),
    ("DECIMAL(65,30)", ["-0.5", "99999999"], pa.decimal128(38, 30), [Decimal("-0.5"), Decimal(99999999)]),
    ("DECIMAL(20,0)", ["12345"], pa.int64(), [12345]),
    ("FLOAT", ["0.1", "16777217", "1e-40"], pa.float32(),
     [0.10000000149011612, 16777216.0, pa.scalar(1e-40, pa.float32()).as_py()]),
    ("DOUBLE", ["0.1", "1e308", "-0.0", "2.2250738585072014e-308"], pa.float64(),
     [0.1, 1e308, -0.0, 2.2250738585072014e-308]),
    ("DATE", ["'2024-02-29'", "'9999-12-31'"], pa.date32(), [date(2024, 2, 29), date(9999, 12, 31)]),
    ("DATETIME(6)", ["'2024-03-10 02:30:00.123456'"], TIMESTAMP_NTZ, [datetime(2024, 3, 10, 2, 30, 0, 123456)]),
    ("DATETIME", ["'1000-01-01 00:00:00'"], TIMESTAMP_NTZ, [datetime(1000, 1, 1)]),
    ("TIMESTAMP(3)", ["'2038-01-19 03:14:07.999'", "'1970-01-01 00:00:01'"], TIMESTAMP,
     [datetime(2038, 1, 19, 3, 14, 7, 999000, timezone.utc), datetime(1970, 1, 1, 0, 0, 1, 0, timezone.utc)]),
    ("TIME(6)", ["'838:59:59'", "'-838:59:59'", "'-00:00:00.5'", "'00:00:00'", "NULL"], pa.duration("us"),
     [timedelta(hours=838, minutes=59, seconds=59), -timedelta(hours=838, minutes=59, seconds=59),
      -timedelta(microseconds=500_000), timedelta(0), None]),
    ("TIME", ["'838:59:59'"], pa.string(), ["838:59:59"]),
    ("ENUM('a','b','1')", ["'b'", "2", "'1'", "NULL", "'no label'"], pa.string(), ["b", "b", "1", None, ""]),
    ("SET('x','y')", ["'y,x'", "''"], pa.string(), ["x,y", ""]),
    ("JSON", ["""'{"a": [1, 2.5]}'"""], pa.string(), ['{"a": [1, 2.5]}']),
    ("JSON", ["""'{"a": [1, 2]}'""", "NULL"], pa.struct([("a", pa.list_(pa.int64()))]), [{"a": [1, 2]}, None]),
    ("VARCHAR(20) CHARACTER SET latin1", ["'€é'", "'it''s \\\\n'"], pa.string(), ["€é", "it's \\n"]),
    ("VARCHAR(20) CHARACTER SET utf8mb4", ["'𝒳日'", "''"], pa.string(), ["𝒳日", ""]),
    ("CHAR(5)", ["'a '"], pa.string(), ["a"]),
    ("BINARY(4)", ["'ab'"], pa.binary(), [b"ab\0\0"]),
    ("VARBINARY(9)", ["x'00ff'"], pa.binary(), [b"\0\xff"]),
    ("UUID", ["'123e4567-e89b-12d3-a456-426655440000'"], pa.string(), ["123e4567-e89b-12d3-a456-426655440000"]),
    ("INET6", ["'2001:db8::ff00:42:8329'"], pa.string(), ["2001:db8::ff00:42:8329"]),
    ("BIGINT UNSIGNED", ["18446744073709551615"], pa.string(), ["18446744073709551615"]),
    ("DATE", ["'0000-00-00'", "'2024-01-01'"], pa.string(), ["0000-00-00", "2024-01-01"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "values", "kind", "expected"), EXACT, ids=[f"{c} {k}" for c, _, k, _ in EXACT]
)
def test_values_are_exact_asked_and_read(
    mariadb_server: MariaDbServer, column: str, values: list[str], kind: pa.DataType, expected: list[Any]
) -> None:
    table = table_of(mariadb_server, column, values, kind)
    assert by_number(table, len(values)) == expected
    if not pa.types.is_nested(kind):
        for value in {each for each in expected if each is not None}:
            assert found_by(table, value) == [at for at, each in enumerate(expected) if each == value]


REFUSED: list[tuple[str, str, pa.DataType, str]] = [
    ("TINYINT(1)", "2", pa.bool_(), "does not fit BOOLEAN."),
    ("BIGINT UNSIGNED", "9223372036854775808", pa.int64(), "does not fit BIGINT."),
    ("DECIMAL(65,30)", "123456789.5", pa.decimal128(38, 30), "does not fit DECIMAL(38,30)."),
    ("DECIMAL(10,2)", "1.5", pa.int32(), "'1.50' (str) does not fit INT."),
    ("DATE", "'0000-00-00'", pa.date32(), "'0000-00-00' (str) does not fit DATE."),
    ("DATE", "'2024-00-10'", pa.date32(), "'2024-00-10' (str) does not fit DATE."),
    ("DATE", "'0000-01-01'", pa.date32(), "'0000-01-01' (str) does not fit DATE."),
    ("DATETIME", "'2024-02-00 01:02:03'", TIMESTAMP_NTZ, "'2024-02-00 01:02:03' (str) does not fit TIMESTAMP_NTZ."),
    ("TIMESTAMP NULL", "'0000-00-00'", TIMESTAMP, "'0000-00-00 00:00:00' (str) does not fit TIMESTAMP_LTZ."),
    ("JSON", "'[1]'", pa.struct([("a", pa.int64())]), "does not fit STRUCT<`a`: BIGINT>."),
]  # fmt: skip


@pytest.mark.parametrize(("column", "value", "kind", "text"), REFUSED)
def test_a_value_that_does_not_fit_is_an_error_that_names_it(
    mariadb_server: MariaDbServer, column: str, value: str, kind: pa.DataType, text: str
) -> None:
    table = table_of(mariadb_server, column, [value], kind)
    for action in (lambda: ask(table, {"id": [0]}), lambda: [*MysqlConnector(table).scan(table.schema)]):
        error = failure_of(action)
        assert text in str(error)
        assert f"table {table.name}: column 'c' of the row id = " in str(error)
        assert error.permanent
        is_zero = "-00" in value or value.endswith("-00'")
        assert ("'zero-dates' = 'null' reads zero dates as NULL." in str(error)) == (
            is_zero and column != "JSON"
        )


def test_zero_dates_are_null_where_that_is_wished_and_years_of_0_are_errors_still(
    mariadb_server: MariaDbServer,
) -> None:
    values = ["'0000-00-00'", "'2024-00-10'", "'2024-01-00'", "'2024-01-10'", "NULL"]
    for column, kind, real in (
        ("DATE", pa.date32(), date(2024, 1, 10)),
        ("DATETIME(3)", TIMESTAMP_NTZ, datetime(2024, 1, 10)),
    ):
        table = table_of(mariadb_server, column, values, kind, zero_dates="null")
        assert by_number(table, 5) == [None, None, None, real, None]
        assert found_by(table, real) == [3]
        # The server takes them for NULL in one question and for none in another: Spark asks.
        read = MysqlConnector(table).scan_filtered(table.schema, "", [Filter("c", "IS NULL")])
        assert sum(batch.num_rows for batch in read) == 5
    early = table_of(mariadb_server, "DATE", ["'0000-01-01'"], pa.date32(), zero_dates="null")
    assert "'0000-01-01' (str) does not fit DATE" in str(failure_of(lambda: ask(early, {"id": [0]})))


def test_keys_are_equal_as_in_spark_whatever_the_collation(mariadb_server: MariaDbServer) -> None:
    values = ["'a'", "'A'", "'a '", "'á'", "'ß'", "'ss'", "''"]
    for column in (
        "VARCHAR(9)",
        "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
        "TEXT",
        "VARBINARY(9)",
    ):
        if column == "TEXT":
            name = f"typed_{next(_numbers)}"
            mariadb_server.execute(
                f"CREATE TABLE {name} (id INT PRIMARY KEY, c TEXT) COLLATE latin1_german2_ci"
            )
            mariadb_server.execute(
                f"INSERT INTO {name} VALUES " + ", ".join(f"({at}, {each})" for at, each in enumerate(values))
            )
            schema = pa.schema([("id", pa.int32()), ("c", pa.string())])
            table = LookupTable(name, schema, ("id",), {"connector": "mysql", **mariadb_server.options()})
        elif column.startswith("VARBINARY"):
            table = table_of(mariadb_server, column, values, pa.binary())
            assert found_by(table, b"a") == [0]
            continue
        else:
            table = table_of(mariadb_server, column, values, pa.string())
        for at, key in enumerate(["a", "A", "a ", "á", "ß", "ss", ""]):
            assert found_by(table, key) == [at], (column, key)
        assert found_by(table, "b", "1abc", "à") == []


def test_a_key_that_the_character_set_cannot_hold_is_a_miss_and_fails_no_other(
    mariadb_server: MariaDbServer,
) -> None:
    table = table_of(mariadb_server, "VARCHAR(9) CHARACTER SET latin1", ["'?'", "'é'", "'€'"], pa.string())
    assert found_by(table, "日", "é", "\U0001d4b3", "?") == [0, 1]
    assert found_by(table, "日") == []
    assert found_by(table, "€", "\x81") == [2]
    old = table_of(mariadb_server, "VARCHAR(9) CHARACTER SET utf8mb3", ["'?'", "'日'"], pa.string())
    assert found_by(old, "\U0001d4b3", "日") == [1]
    cyrillic = table_of(mariadb_server, "VARCHAR(9) CHARACTER SET koi8r", ["'?'", "'ж'"], pa.string())
    assert found_by(cyrillic, "é", "ж") == [1]


def test_a_column_that_gets_another_character_set_holds_more_keys_at_once(
    mariadb_server: MariaDbServer,
) -> None:
    table = table_of(mariadb_server, "VARCHAR(9) CHARACTER SET latin1", ["'?'"], pa.string())
    connector = MysqlConnector(table)

    async def run() -> list[int]:
        await connector.aopen()
        try:
            request = request_for(table.schema, {"c": ["日"]})
            before = rows_of(await connector.alookup(request)).num_rows
            await asyncio.to_thread(
                mariadb_server.execute,
                f"ALTER TABLE {table.name} MODIFY c VARCHAR(9) CHARACTER SET utf8mb4;"
                f"INSERT INTO {table.name} VALUES (5, '日')",
            )
            return [before, rows_of(await connector.alookup(request)).num_rows]
        finally:
            await connector.aclose()

    assert asyncio.run(run()) == [0, 1]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("INT", "VARCHAR(9)", pa.int64()),
        ("TIMESTAMP NULL", "DATETIME", TIMESTAMP),
        ("VARCHAR(9)", "INT", pa.string()),
        ("DOUBLE", "DECIMAL(9,2)", pa.float64()),
    ],
)
def test_a_column_that_gets_another_type_is_read_by_it_or_refused(
    mariadb_server: MariaDbServer, before: str, after: str, kind: pa.DataType
) -> None:
    value = "'2024-01-01'" if "TIME" in before else "5"
    table = table_of(mariadb_server, before, [value], kind)
    connector = MysqlConnector(table)

    async def run() -> list[Any]:
        await connector.aopen()
        try:
            request = request_for(table.schema, {"id": [0]})
            first = rows_of(await connector.alookup(request)).column("c").to_pylist()
            await asyncio.to_thread(mariadb_server.execute, f"ALTER TABLE {table.name} MODIFY c {after}")
            try:
                return [*first, *rows_of(await connector.alookup(request)).column("c").to_pylist()]
            except ConnectorError as error:
                return [*first, str(error)]
        finally:
            await connector.aclose()

    first, second = asyncio.run(run())
    if kind in (pa.string(), pa.float64()):
        assert second == first
    else:
        told = {"VARCHAR(9)": "varchar(9) cannot be read as BIGINT. Declare it STRING."}
        told["DATETIME"] = "datetime cannot be read as TIMESTAMP_LTZ. Declare it TIMESTAMP_NTZ."
        assert second == f"table {table.name}: column 'c': {told[after]}"


def test_numbers_beyond_a_type_are_misses(mariadb_server: MariaDbServer) -> None:
    unsigned = table_of(
        mariadb_server, "BIGINT UNSIGNED", ["18446744073709551615", "0"], pa.decimal128(38, 1)
    )
    beyond = [Decimal(2**64), Decimal(-1), Decimal("0.5"), Decimal(-(2**64)), Decimal(0)]
    assert found_by(unsigned, *beyond) == [1]
    years = table_of(mariadb_server, "YEAR", ["1970", "2001", "0"], pa.int16())
    assert found_by(years, 70, 1) == []
    assert found_by(years, 0, 2001) == [1, 2]
    doubles = table_of(mariadb_server, "DOUBLE", ["1.5"], pa.float64())
    assert found_by(doubles, float("nan"), float("inf"), 1.5) == [0]
    times = table_of(mariadb_server, "TIME", ["'838:59:59'"], pa.duration("us"))
    assert found_by(times, timedelta(days=400), timedelta(hours=839)) == []


def test_moments_are_those_of_utc_whatever_the_zone_of_the_server(mariadb_server: MariaDbServer) -> None:
    mariadb_server.execute("SET GLOBAL time_zone = '+05:30'")
    try:
        table = table_of(mariadb_server, "TIMESTAMP NULL", ["'2024-07-01 12:00:00'"], TIMESTAMP)
        noon = datetime(2024, 7, 1, 12, tzinfo=timezone.utc)
        assert by_number(table, 1) == [noon]
        assert found_by(table, noon) == [0]
        assert (
            found_by(
                table, datetime(2100, 1, 1, tzinfo=timezone.utc), datetime(1960, 1, 1, tzinfo=timezone.utc)
            )
            == []
        )
    finally:
        mariadb_server.execute("SET GLOBAL time_zone = 'SYSTEM'")


@pytest.mark.parametrize(
    "mode", ["ANSI,NO_BACKSLASH_ESCAPES", "TRADITIONAL,PAD_CHAR_TO_FULL_LENGTH", "ORACLE", "MSSQL"]
)
def test_no_mode_of_the_server_changes_what_is_found(mariadb_server: MariaDbServer, mode: str) -> None:
    (before,) = mariadb_server.fetch("SELECT @@GLOBAL.sql_mode")[0]
    mariadb_server.execute(f"SET GLOBAL sql_mode = '{mode}'")
    try:
        table = table_of(mariadb_server, "CHAR(9)", ["'a\"`'", "'it''s'", "'\\\\\\\\'"], pa.string())
        assert by_number(table, 3)[:2] == ['a"`', "it's"]
        assert found_by(table, 'a"`', "it's") == [0, 1]
        read = MysqlConnector(table).scan_filtered(table.schema, "", [Filter("c", "IN", ("it's", "x"))])
        assert [each["c"] for each in pa.Table.from_batches(read, table.schema).to_pylist()] == ["it's"]
    finally:
        mariadb_server.execute(f"SET GLOBAL sql_mode = '{before}'")


def test_views_generated_columns_partitions_and_odd_names_are_read(mariadb_server: MariaDbServer) -> None:
    mariadb_server.execute(
        """
        CREATE TABLE made (id INT PRIMARY KEY, n INT, twice INT AS (n * 2) STORED, thrice INT AS (n * 3) VIRTUAL)
            PARTITION BY HASH (id) PARTITIONS 4;
        INSERT INTO made (id, n) SELECT seq, seq FROM seq_1_to_100;
        CREATE VIEW `view of "made"` AS SELECT id, twice + thrice AS `odd ``name` FROM made;
        """
    )
    given = {"connector": "mysql", **mariadb_server.options()}
    made = LookupTable(
        "made", pa.schema([(each, pa.int32()) for each in ("id", "twice", "thrice")]), (), given
    )
    assert ask(made, {"thrice": [30], "id": [10]}) == [{"id": 10, "twice": 20, "thrice": 30}]
    schema = pa.schema([("ID", pa.int32()), ("odd `name", pa.int64())])
    for name in ('`view of "made"`', '"view of ""made"""', 'shop.`view of "made"`'):
        view = LookupTable("v", schema, (), {**given, "table-name": name})
        assert ask(view, {"ID": [10, 11]}) == [{"ID": 10, "odd `name": 50}, {"ID": 11, "odd `name": 55}]
        assert MysqlConnector(view).partitions(8) == ("",)
        assert MysqlConnector(view).statistics().rows is None


def test_what_is_discovered_holds_each_value(mariadb_server: MariaDbServer) -> None:
    mariadb_server.execute(
        """
        CREATE TABLE told (a TINYINT(1), b BIGINT UNSIGNED COMMENT 'many', c BIT(1), d BIT(64), e DECIMAL(65,30), f FLOAT,
            g DATETIME, h TIMESTAMP NULL, i TIME, j YEAR, k ENUM('x') NOT NULL, l JSON, m BLOB, n UUID, o POINT,
            p INT UNSIGNED NOT NULL, UNIQUE (p, k), UNIQUE (a))
        """
    )
    table = LookupTable("told", pa.schema([]), (), {"connector": "mysql", **mariadb_server.options()})
    schema, key = MysqlConnector(table).discover()
    kinds = [pa.int8(), pa.decimal128(20, 0), pa.bool_(), pa.decimal128(20, 0), pa.decimal128(38, 30), pa.float32(),
             TIMESTAMP_NTZ, TIMESTAMP, pa.duration("us"), pa.int16(), pa.string(), pa.string(), pa.binary(),
             pa.string(), pa.binary(), pa.int64()]  # fmt: skip
    assert [each.type for each in schema] == kinds
    assert key == ("p", "k")
    assert schema.field("b").metadata == {b"comment": b"many"}
    assert "shop.told" in MysqlConnector(table).tables()


def test_several_columns_of_a_key_and_many_keys_are_asked_in_few_statements(
    mariadb_server: MariaDbServer,
) -> None:
    mariadb_server.execute(
        "CREATE TABLE pairs (a INT, b VARCHAR(9), n INT, PRIMARY KEY (a, b)) CHARACTER SET latin1;"
        "INSERT INTO pairs SELECT seq, CONCAT('n', seq), seq FROM seq_1_to_9000"
    )
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("n", pa.int64())])
    table = LookupTable("pairs", schema, ("a", "b"), {"connector": "mysql", **mariadb_server.options()})
    numbers = [*range(1, 5001)]
    found = ask(table, {"a": numbers, "b": [f"n{each}" if each % 2 else "日" for each in numbers]})
    assert sorted(row["n"] for row in found) == numbers[::2]
    assert len(ask(table, {"b": [f"n{each}" for each in numbers]})) == 5000

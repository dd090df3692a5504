"""The sqlite connector: SQLite's own ideas of types and equality, files, locks and time."""

from __future__ import annotations

import sqlite3
from collections import Counter
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lookup_connectors.sqlite import SqliteConnector

from lookup_hints.errors import LookupTimeout, OptionError
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ
from lookup_hints.spi.request_and_answer import LookupTable
from tests.unit.connectors.asking import failure_of, request_for, rows_of

UTC = timezone.utc


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


def run(file: Path, *statements: str) -> None:
    connection = sqlite3.connect(file)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def table_of(file: Path, columns: dict[str, pa.DataType], **options: str) -> LookupTable:
    given = {"path": str(file), **{key.replace("_", "-"): value for key, value in options.items()}}
    return LookupTable("t", pa.schema(list(columns.items())), options=given)


def ask(table: LookupTable, keys: dict[str, list[Any]]) -> list[dict[str, Any]]:
    connector = SqliteConnector(table)
    connector.open()
    try:
        rows: list[dict[str, Any]] = rows_of(connector.lookup(request_for(table.schema, keys))).to_pylist()
        return rows
    finally:
        connector.close()


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "literal", "kind", "expected"),
    [
        ("INTEGER", "9223372036854775807", pa.int64(), 2**63 - 1),
        ("INT", "-128", pa.int8(), -128),
        ("BOOLEAN", "1", pa.bool_(), True),
        ("BOOLEAN", "0", pa.bool_(), False),
        ("REAL", "0.1", pa.float64(), 0.1),
        ("INTEGER", "5", pa.float64(), 5.0),
        ("TEXT", "'it''s'", pa.string(), "it's"),
        ("STRING", "'abc'", pa.string(), "abc"),
        ("BLOB", "x'00ff'", pa.binary(), b"\x00\xff"),
        ("DATE", "'2024-02-29'", pa.date32(), date(2024, 2, 29)),
        ("TIMESTAMP", "'2024-02-29 12:00:00.123456'", TIMESTAMP_NTZ, datetime(2024, 2, 29, 12, 0, 0, 123456)),
        ("TIMESTAMP", "'2024-02-29T12:00'", TIMESTAMP_NTZ, datetime(2024, 2, 29, 12)),
        ("TIMESTAMP", "'2024-02-29'", TIMESTAMP, datetime(2024, 2, 29, tzinfo=UTC)),
        ("TIMESTAMP", "'2024-02-29 12:00:00'", TIMESTAMP, datetime(2024, 2, 29, 12, tzinfo=UTC)),
        ("TIMESTAMP", "'2024-02-29 12:00:00+05:30'", TIMESTAMP, datetime(2024, 2, 29, 6, 30, tzinfo=UTC)),
        ("TIMESTAMP", "'2024-02-29T12:00:00Z'", TIMESTAMP, datetime(2024, 2, 29, 12, tzinfo=UTC)),
        ("INTEGER", "1709208000", TIMESTAMP, datetime(2024, 2, 29, 12, tzinfo=UTC)),
        ("INTEGER", "1709208000", TIMESTAMP_NTZ, datetime(2024, 2, 29, 12)),
        ("TEXT", "'12.50'", pa.decimal128(10, 2), Decimal("12.50")),
        ("REAL", "12.1", pa.decimal128(10, 2), Decimal("12.10")),
        ("NUMERIC", "7", pa.decimal128(10, 2), Decimal("7.00")),
        ("TEXT", "'[1, null]'", pa.list_(pa.int64()), [1, None]),
        ("JSON", """'{"a": "2024-02-29"}'""", pa.struct([("a", pa.date32())]), {"a": date(2024, 2, 29)}),
        ("", "5", pa.int64(), 5),
    ],
)
def test_a_value_is_read_as_declared_and_null_stays_null(
    file: Path, declared: str, literal: str, kind: pa.DataType, expected: Any
) -> None:
    run(file, f"CREATE TABLE t (n INTEGER, v {declared})", f"INSERT INTO t VALUES (1, {literal}), (2, NULL)")
    rows = ask(table_of(file, {"n": pa.int32(), "v": kind}), {"n": [1, 2]})
    assert sorted(rows, key=lambda row: row["n"]) == [{"n": 1, "v": expected}, {"n": 2, "v": None}]


@pytest.mark.parametrize(
    ("declared", "literal", "kind", "storage"),
    [
        ("INTEGER", "'x'", pa.int64(), "'x' (str)"),
        ("INTEGER", "1.5", pa.int64(), "1.5 (float)"),
        ("INTEGER", "300", pa.int8(), "300 (int)"),
        ("BOOLEAN", "2", pa.bool_(), "2 (int)"),
        ("TEXT", "x'41'", pa.string(), "b'A' (bytes)"),
        ("STRING", "'007'", pa.string(), "7 (int)"),
        ("BLOB", "'A'", pa.binary(), "'A' (str)"),
        ("DATE", "'2024-02-30'", pa.date32(), "'2024-02-30' (str)"),
        ("DATE", "'2024-02-29 00:00:00'", pa.date32(), "(str)"),
        ("TIMESTAMP", "'2024-02-29 12:00:00Z'", TIMESTAMP_NTZ, "(str)"),
        ("TIMESTAMP", "1.5", TIMESTAMP, "1.5 (float)"),
        ("TEXT", "'12.505'", pa.decimal128(10, 2), "'12.505' (str)"),
        ("INTEGER", "9007199254740993", pa.float64(), "9007199254740993 (int)"),
        ("TEXT", "'{'", pa.list_(pa.int64()), "'{' (str)"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_that_names_it(
    file: Path, declared: str, literal: str, kind: pa.DataType, storage: str
) -> None:
    run(file, f"CREATE TABLE t (n INTEGER, v {declared})", f"INSERT INTO t VALUES (1, NULL), (2, {literal})")
    error = failure_of(lambda: ask(table_of(file, {"n": pa.int32(), "v": kind}), {"n": [1, 2]}))
    assert error.permanent
    for part in ("table t", "column 'v'", "n = 2", storage):
        assert part in str(error)


@pytest.mark.parametrize(
    ("declared", "kind", "told"),
    [
        ("TEXT", pa.int64(), "STRING"),
        ("VARCHAR(5)", pa.bool_(), "STRING"),
        ("TEXT", pa.float64(), "STRING"),
        ("REAL", pa.int64(), "DOUBLE"),
        ("INTEGER", pa.string(), "BIGINT"),
        ("DOUBLE", pa.string(), "DOUBLE"),
    ],
)
def test_a_column_whose_values_sqlite_itself_converts_away_is_refused_at_opening(
    file: Path, declared: str, kind: pa.DataType, told: str
) -> None:
    run(file, f"CREATE TABLE t (v {declared})")
    error = failure_of(lambda: SqliteConnector(table_of(file, {"v": kind})).open())
    assert error.permanent
    assert f"Declare it {told}, not" in str(error)


def test_an_interval_is_refused_at_opening(file: Path) -> None:
    run(file, "CREATE TABLE t (v INTEGER)")
    assert failure_of(lambda: SqliteConnector(table_of(file, {"v": pa.duration("us")})).open()).permanent


# --- keys -----------------------------------------------------------------------------------------


def test_it_is_asked_by_columns_whose_equal_values_have_one_spelling(file: Path) -> None:
    asked = {"i": pa.int64(), "b": pa.bool_(), "s": pa.string(), "x": pa.binary(), "d": pa.date32()}
    asked["f"] = pa.float64()
    residual = {"t": TIMESTAMP, "n": TIMESTAMP_NTZ, "c": pa.decimal128(5, 2), "g": pa.float32()}
    nested = {"l": pa.list_(pa.int64())}
    connector = SqliteConnector(table_of(file, {**asked, **residual, **nested}))
    assert connector.key_columns() == asked.keys()


@pytest.mark.parametrize("keys", [{"v": ["a", "A", "b"]}, {"v": ["a", "A", "b"], "n": [1, 1, 1]}])
def test_a_row_that_a_collation_finds_by_two_keys_comes_once(file: Path, keys: dict[str, list[Any]]) -> None:
    run(file, "CREATE TABLE t (n INT, v TEXT COLLATE NOCASE)", "INSERT INTO t VALUES (1, 'a')")
    assert ask(table_of(file, {"n": pa.int64(), "v": pa.string()}), keys) == [{"n": 1, "v": "a"}]


def test_a_row_that_two_zeros_find_comes_once(file: Path) -> None:
    run(file, "CREATE TABLE t (v REAL)", "INSERT INTO t VALUES (0)")
    assert ask(table_of(file, {"v": pa.float64()}), {"v": [0.0, -0.0]}) == [{"v": 0.0}]


@pytest.mark.parametrize(
    ("index", "keys", "plan"),
    [
        ("id", {"id": [1]}, "(id=?)"),
        ("id", {"id": [1], "kind": ["a"]}, "(id=?)"),
        ("kind, id", {"id": [1], "kind": ["a"]}, "(kind=? AND id=?)"),
        ("kind, id", {"kind": ["a"]}, "(kind=?)"),
        ("abs(id)", {"id": [1], "kind": ["a"]}, "AUTOMATIC COVERING INDEX (id=? AND kind=?)"),
    ],
)
def test_keys_are_found_by_index(file: Path, index: str, keys: dict[str, list[Any]], plan: str) -> None:
    run(
        file,
        "CREATE TABLE t (id BIGINT, kind TEXT)",
        "INSERT INTO t WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 10000)"
        " SELECT n, 'k' || (n % 10) FROM s",
        f"CREATE INDEX by_key ON t ({index})",
        "ANALYZE",
    )
    connector = SqliteConnector(table_of(file, {"id": pa.int64(), "kind": pa.string()}))
    connector.open()
    connection = connector._connection
    assert connection is not None
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    many = {name: values * 300 for name, values in keys.items()}
    connector.lookup(request_for(connector.table.schema, many))
    connection.set_trace_callback(None)
    query = max(statements, key=len)
    shown = "\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}"))
    connector.close()
    assert plan in shown
    assert "SCAN t" not in shown


_keys = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(lambda value: ("i", value)),
    st.text(st.characters(codec="utf-8"), max_size=5).map(lambda value: ("s", value)),
    st.floats(allow_nan=False).map(lambda value: ("f", value)),
    st.binary(max_size=4).map(lambda value: ("x", value)),
    st.dates().map(lambda value: ("d", value)),
)
_KINDS = {"i": pa.int64(), "s": pa.string(), "f": pa.float64(), "x": pa.binary(), "d": pa.date32()}
_DECLARED = {"i": "BIGINT", "s": "TEXT", "f": "REAL", "x": "BLOB", "d": "DATE"}


@pytest.mark.work(9)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=st.lists(_keys, max_size=12), asked=st.lists(_keys, min_size=1, max_size=12))
def test_exactly_the_rows_with_equal_keys_come(
    tmp_path: Path, stored: list[tuple[str, Any]], asked: list[tuple[str, Any]]
) -> None:
    """For every type that can be asked by, compared with Python's own equality."""
    file = tmp_path / "any.db"
    file.unlink(missing_ok=True)
    asked = list(dict.fromkeys([*asked, *stored[:3]]))
    for name, kind in _KINDS.items():
        rows = [value for column, value in stored if column == name]
        keys = [value for column, value in asked if column == name]
        connection = sqlite3.connect(file)
        connection.execute("PRAGMA synchronous = OFF")  # no test pulls the plug, and a disk takes its time
        connection.execute(f"CREATE TABLE t_{name} (v {_DECLARED[name]})")
        bound = [(value.isoformat() if name == "d" else value,) for value in rows]
        connection.executemany(f"INSERT INTO t_{name} VALUES (?)", bound)
        connection.commit()
        connection.close()
        if keys:
            found = ask(table_of(file, {"v": kind}, table_name=f"t_{name}"), {"v": keys})
            assert Counter(row["v"] for row in found) == Counter(value for value in rows if value in keys)


# --- files, names, locks, time --------------------------------------------------------------------


def test_a_missing_file_is_a_permanent_error_and_is_not_made(file: Path) -> None:
    error = failure_of(lambda: SqliteConnector(table_of(file, {"v": pa.int64()})).open())
    assert error.permanent
    assert str(file) in str(error)
    assert not file.exists()


@pytest.mark.parametrize("path", ["file:/x.db?mode=rw", "sqlite:///x.db", "jdbc:sqlite:/x.db"])
def test_a_url_in_place_of_a_path_is_refused(path: str) -> None:
    table = LookupTable("customers", pa.schema([("id", pa.int64())]), options={"path": path})
    with pytest.raises(OptionError, match=r"table customers: 'path' is a URL\. Write the path of the file"):
        SqliteConnector(table).check()
    assert "Write the path of the file" in str(failure_of(SqliteConnector(table).open))


def test_a_file_that_is_no_database_is_a_permanent_error(file: Path) -> None:
    file.write_bytes(b"no database at all " * 100)
    assert failure_of(lambda: SqliteConnector(table_of(file, {"v": pa.int64()})).open()).permanent


def test_a_table_without_a_path_is_refused() -> None:
    table = LookupTable("t", pa.schema([("v", pa.int64())]), options={})
    with pytest.raises(OptionError, match="'path' is missing"):
        SqliteConnector(table).open()


@pytest.mark.parametrize(
    ("source", "column", "tip"),
    [("custmers", "v", "Did you mean 'customers'?"), ("customers", "nmae", "Did you mean 'name'?")],
)
def test_a_wrong_name_is_a_permanent_error_with_the_nearest_one(
    file: Path, source: str, column: str, tip: str
) -> None:
    run(file, "CREATE TABLE customers (name TEXT)")
    table = table_of(file, {column: pa.string()}, table_name=source)
    error = failure_of(lambda: SqliteConnector(table).open())
    assert error.permanent
    assert tip in str(error)


def test_names_are_quoted(file: Path) -> None:
    run(file, 'CREATE TABLE "a ""b"" --" ("select" TEXT)', """INSERT INTO "a ""b"" --" VALUES ('x')""")
    table = table_of(file, {"select": pa.string()}, table_name='a "b" --')
    assert ask(table, {"select": ["x"]}) == [{"select": "x"}]


def test_a_view_with_a_generated_column_can_be_asked(file: Path) -> None:
    run(
        file,
        "CREATE TABLE t0 (a INT, twice INT GENERATED ALWAYS AS (a * 2) VIRTUAL)",
        "INSERT INTO t0 (a) VALUES (1), (2)",
        "CREATE VIEW t AS SELECT a, twice, twice + 1 AS more FROM t0",
    )
    table = table_of(file, {"a": pa.int64(), "twice": pa.int64(), "more": pa.int64()})
    assert ask(table, {"more": [5], "a": [2]}) == [{"a": 2, "twice": 4, "more": 5}]
    assert ask(table_of(file, {"twice": pa.int64()}, table_name="t0"), {"twice": [4]}) == [{"twice": 4}]


def test_it_cannot_write(file: Path) -> None:
    run(file, "CREATE TABLE t (v INT)")
    connector = SqliteConnector(table_of(file, {"v": pa.int64()}))
    connector.open()
    assert connector._connection is not None
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connector._connection.execute("INSERT INTO t VALUES (1)")
    connector.close()


def test_a_locked_file_may_pass(file: Path) -> None:
    run(file, "CREATE TABLE t (v INT)", "INSERT INTO t VALUES (1)")
    table = table_of(file, {"v": pa.int64()}, busy_timeout="10 ms")
    connector = SqliteConnector(table)
    connector.open()
    request = request_for(table.schema, {"v": [1]})
    writer = sqlite3.connect(file)
    writer.execute("BEGIN EXCLUSIVE")
    error = failure_of(lambda: connector.lookup(request))
    assert not error.permanent
    assert "busy-timeout" in str(error)
    writer.rollback()
    writer.close()
    assert rows_of(connector.lookup(request)).num_rows == 1
    connector.close()


def test_waiting_for_a_lock_ends_with_the_lookups_time(file: Path) -> None:
    run(file, "CREATE TABLE t (v INT)")
    connector = SqliteConnector(table_of(file, {"v": pa.int64()}, busy_timeout="1 h"))
    connector.open()
    writer = sqlite3.connect(file)
    writer.execute("BEGIN EXCLUSIVE")
    request = request_for(connector.table.schema, {"v": [1]}, timeout=0.05)
    assert not failure_of(lambda: connector.lookup(request)).permanent
    writer.close()
    connector.close()


def test_a_slow_query_is_interrupted_when_its_time_is_up_and_the_next_one_works(file: Path) -> None:
    run(
        file,
        "CREATE TABLE t0 (v INT)",
        "INSERT INTO t0 VALUES (1)",
        "CREATE VIEW t AS SELECT v FROM t0 WHERE v = 1 UNION ALL SELECT * FROM ("
        "WITH RECURSIVE s(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM s) SELECT n FROM s)",
    )
    connector = SqliteConnector(table_of(file, {"v": pa.int64()}))
    connector.open()
    request = request_for(connector.table.schema, {"v": [1]}, timeout=0.05)
    assert isinstance(failure_of(lambda: connector.lookup(request)), LookupTimeout)
    assert connector._connection is not None
    count = "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 50000) SELECT count(*) FROM s"
    assert connector._connection.execute(count).fetchall() == [(50_000,)]
    connector.close()


def test_a_table_dropped_under_an_open_connector_is_a_permanent_error(file: Path) -> None:
    run(file, "CREATE TABLE t (v INT)")
    connector = SqliteConnector(table_of(file, {"v": pa.int64()}))
    connector.open()
    run(file, "DROP TABLE t")
    assert failure_of(lambda: connector.lookup(request_for(connector.table.schema, {"v": [1]}))).permanent
    connector.close()


def test_the_schema_is_told_from_declared_types(file: Path) -> None:
    run(
        file,
        "CREATE TABLE t (i INTEGER, b BOOLEAN, s VARCHAR(10), r DOUBLE PRECISION, n DECIMAL(10, 2),"
        " m NUMERIC, d DATE, ts DATETIME, x BLOB, j JSON, PRIMARY KEY (s, i))",
    )
    schema, key = SqliteConnector(LookupTable("t", pa.schema([]), options={"path": str(file)})).discover()
    assert key == ("s", "i")
    assert schema.types == [
        pa.int64(), pa.bool_(), pa.string(), pa.float64(), pa.decimal128(10, 2), pa.decimal128(38, 18),
        pa.date32(), TIMESTAMP_NTZ, pa.binary(), pa.string(),
    ]  # fmt: skip


@pytest.mark.parametrize("declared", ["", "GEOMETRY", "MONEY"])
def test_a_declared_type_that_says_nothing_asks_for_a_column_list(file: Path, declared: str) -> None:
    run(file, f"CREATE TABLE t (v {declared})")
    table = LookupTable("t", pa.schema([]), options={"path": str(file)})
    error = failure_of(lambda: SqliteConnector(table).discover())
    assert error.permanent
    assert "Give a column list" in str(error)


# --- reading in parts -----------------------------------------------------------------------------


def numbered(file: Path, rows: int, create: str = "CREATE TABLE t (id INTEGER, name TEXT)") -> LookupTable:
    connection = sqlite3.connect(file)
    connection.execute(create)
    connection.executemany("INSERT INTO t (id, name) VALUES (?, 'x')", ((number,) for number in range(rows)))
    connection.commit()
    connection.close()
    return table_of(file, {"id": pa.int64(), "name": pa.string()})


def ids_of(table: LookupTable, *partitions: str) -> Counter[int]:
    connector, schema = SqliteConnector(table), pa.schema([("id", pa.int64())])
    batches = (batch for part in partitions for batch in connector.scan_partition(schema, part))
    return Counter(key for batch in batches for key in batch.column(0).to_pylist())


@pytest.mark.parametrize(
    "create",
    [
        "CREATE TABLE t (id INTEGER, name TEXT)",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)",
        "CREATE TABLE t (id INTEGER, name TEXT, rowid TEXT)",
    ],
)
def test_partitions_hold_each_row_once_and_those_that_come_later(file: Path, create: str) -> None:
    table = numbered(file, 160_000, create)
    parts = SqliteConnector(table).partitions(8)
    assert len(parts) == 3
    run(file, "INSERT INTO t (id, name) VALUES (-5, 'before'), (900000, 'after')")
    assert ids_of(table, *parts) == Counter([-5, *range(160_000), 900_000])


@pytest.mark.parametrize(
    "create",
    [
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT) WITHOUT ROWID",
        "CREATE TABLE t (id INTEGER, name TEXT, rowid TEXT, oid TEXT, _rowid_ TEXT)",
    ],
)
def test_rows_without_a_number_are_read_whole(file: Path, create: str) -> None:
    table = numbered(file, 120_000, create)
    assert SqliteConnector(table).partitions(8) == ("",)


def test_views_and_small_tables_are_read_whole(file: Path) -> None:
    table = numbered(file, 99_999)
    assert SqliteConnector(table).partitions(8) == ("",)
    run(file, "DELETE FROM t")
    assert SqliteConnector(table).partitions(8) == ("",)
    run(file, "CREATE VIEW v AS SELECT * FROM t")
    assert SqliteConnector(table_of(file, {"id": pa.int64()}, table_name="v")).partitions(8) == ("",)

"""Reads that leave rows out: each row that meets the filters comes, whatever the source's own types are."""

from __future__ import annotations

import sqlite3
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.postgres.columns import SourceColumn, plan_column
from lookup_connectors.postgres.lookup_sql import filter_of, literal
from lookup_connectors.sqlite import SqliteConnector

from lookup_hints.spi import Filter, FilteredScan, LookupTable
from tests.servers.postgres import PostgresServer

COLUMNS = {
    "id": pa.int64(),
    "small": pa.int16(),
    "name": pa.string(),
    "active": pa.bool_(),
    "price": pa.decimal128(10, 2),
    "since": pa.date32(),
}
SCHEMA = pa.schema(list(COLUMNS.items()))
ODD = r"""it's "odd" \n $$ %s -- ;"""
ROWS: list[tuple[Any, ...]] = [
    (1, 1, "DE", True, Decimal("1.50"), date(2020, 2, 29)),
    (2, -1, "de", False, Decimal("-0.01"), date(1969, 12, 31)),
    (3, 0, ODD, None, None, None),
    (4, None, "", True, Decimal("0.00"), date(9999, 12, 31)),
    (5, 5, None, False, Decimal("2.00"), date(1, 1, 1)),
    (None, 7, "é", None, Decimal("1.50"), None),
]
FILTERS = [
    (Filter("id", "=", (1,)), [1]),
    (Filter("id", "IN", (1, 3, 99)), [1, 3]),
    (Filter("id", ">=", (4,)), [4, 5]),
    (Filter("id", "IS NULL"), [None]),
    (Filter("small", "<", (0,)), [2]),
    (Filter("small", "=", (2**62,)), []),
    (Filter("name", "=", ("DE",)), [1]),
    (Filter("name", "=", (ODD,)), [3]),
    (Filter("name", "IN", ("", "é")), [4, None]),
    (Filter("name", "IS NOT NULL"), [1, 2, 3, 4, None]),
    (Filter("active", "=", (True,)), [1, 4]),
    (Filter("active", "<", (True,)), [2, 5]),
    (Filter("since", "=", (date(2020, 2, 29),)), [1]),
    (Filter("since", "<=", (date(1969, 12, 31),)), [2, 5]),
    (Filter("since", "IN", (date(1, 1, 1), date(9999, 12, 31))), [4, 5]),
]
DECIMALS = [
    (Filter("price", "=", (Decimal("1.5"),)), [1, None]),
    (Filter("price", ">", (0,)), [1, 5, None]),
    (Filter("price", "IN", (2, Decimal("-0.010"))), [2, 5]),
    (Filter("price", "IS NULL"), [3]),
]


def ids(connector: FilteredScan, *filters: Filter) -> list[int | None]:
    """The ids of the rows that come; the columns of the filters are not read."""
    schema = pa.schema([("id", pa.int64())])
    batches = connector.scan_filtered(schema, "", filters)
    return [key for batch in batches for key in batch.column(0).to_pylist()]


# --- PostgreSQL -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def goods(postgres_server: PostgresServer) -> LookupTable:
    values = ", ".join(f"({', '.join('NULL' if v is None else literal(v) for v in row)})" for row in ROWS)
    postgres_server.execute(
        "CREATE TABLE goods (id bigint, small smallint, name text, active boolean, price numeric, since date);"
        f"INSERT INTO goods VALUES {values}"
    )
    return table_of(postgres_server, "goods")


def table_of(server: PostgresServer, name: str, schema: pa.Schema = SCHEMA) -> LookupTable:
    return LookupTable(name, schema, (), {"connector": "postgres", "url": server.url()})


@pytest.mark.parametrize(("wanted", "found"), [*FILTERS, *DECIMALS], ids=str)
def test_postgres_gives_the_rows_that_meet_a_filter(
    goods: LookupTable, wanted: Filter, found: list[int | None]
) -> None:
    connector = PostgresConnector(goods)
    assert connector.can_filter(wanted)
    assert ids(connector, wanted) == found


def test_postgres_applies_all_of_several_filters_in_each_partition(postgres_server: PostgresServer) -> None:
    postgres_server.execute(
        "CREATE TABLE many AS SELECT id, repeat('x', 300) AS name, id % 2 = 0 AS active"
        " FROM generate_series(1, 100000) AS id"
    )
    connector = PostgresConnector(
        table_of(postgres_server, "many", pa.schema([SCHEMA.field("id"), SCHEMA.field("active")]))
    )
    parts = connector.partitions(2)
    assert len(parts) == 2
    wanted = [Filter("active", "=", (True,)), Filter("id", ">", (99_990,))]
    schema = pa.schema([("id", pa.int64())])
    batches = [batch for part in parts for batch in connector.scan_filtered(schema, part, wanted)]
    assert pa.Table.from_batches(batches).column("id").to_pylist() == list(range(99_992, 100_001, 2))


def test_postgres_reads_an_indexed_column_by_its_index(
    postgres_server: PostgresServer, goods: LookupTable
) -> None:
    plan = plan_column(SourceColumn("name", "text", "text", -1, False, 0), SCHEMA.field("name"))
    condition = filter_of(plan, Filter("name", "=", ("DE",)), "UTF8")
    postgres_server.execute("CREATE TABLE indexed (name text); CREATE INDEX ON indexed (name)")
    shown = postgres_server.fetch(f"EXPLAIN SELECT * FROM indexed WHERE {condition}")
    assert "Index Cond" in str(shown)


@pytest.mark.parametrize("conforming", ["on", "off"])
def test_a_text_is_quoted_whatever_the_server_takes_for_an_escape(
    postgres_server: PostgresServer, conforming: str
) -> None:
    postgres_server.execute(f"ALTER DATABASE postgres SET standard_conforming_strings = {conforming}")
    try:
        for text in (ODD, "\\", "'", "\\'", "''", "; DROP TABLE goods", "$1", "e'x'", "\n\t\r"):
            assert postgres_server.fetch(f"SELECT {literal(text)}")[0][0] == text
    finally:
        postgres_server.execute("ALTER DATABASE postgres RESET standard_conforming_strings")


def test_postgres_filters_through_a_domain(postgres_server: PostgresServer) -> None:
    postgres_server.execute(
        "CREATE DOMAIN label AS varchar(10);"
        "CREATE TABLE labels (id bigint, name label); INSERT INTO labels VALUES (1, 'x'), (2, 'X')"
    )
    connector = PostgresConnector(table_of(postgres_server, "labels", NAMES))
    assert ids(connector, Filter("name", "=", ("x",))) == [1]


NAMES = pa.schema([SCHEMA.field("id"), SCHEMA.field("name")])


@pytest.mark.parametrize(
    ("source", "kind", "wanted"),
    [
        ("uuid", pa.string(), Filter("c", "=", ("a",))),
        ("bpchar", pa.string(), Filter("c", "=", ("a",))),
        ("jsonb", pa.string(), Filter("c", "IS NULL")),
        ("numeric", pa.int64(), Filter("c", "=", (1,))),
        ("text", pa.string(), Filter("c", "=", ("a\0",))),
    ],
)
def test_a_type_that_compares_otherwise_is_not_filtered(
    source: str, kind: pa.DataType, wanted: Filter
) -> None:
    plan = plan_column(SourceColumn("c", source, source, -1, False, 0), pa.field("c", kind))
    assert filter_of(plan, wanted, "UTF8") == ""


def test_a_server_without_unicode_is_told_ascii_alone() -> None:
    plan = plan_column(SourceColumn("c", "text", "text", -1, False, 0), pa.field("c", pa.string()))
    assert filter_of(plan, Filter("c", "=", ("é",)), "LATIN1") == ""
    assert filter_of(plan, Filter("c", "=", ("e",)), "LATIN1") == "\"c\" = E'e'::text"


# --- SQLite ---------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "goods.db"
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE TABLE goods (id INTEGER, small SMALLINT, name TEXT, active BOOLEAN, price DECIMAL(10, 2),"
        " since DATE)"
    )
    kept = [tuple(str(v) if isinstance(v, date | Decimal) else v for v in row) for row in ROWS]
    connection.executemany("INSERT INTO goods VALUES (?, ?, ?, ?, ?, ?)", kept)
    connection.commit()
    connection.close()
    return path


def in_file(file: Path, columns: dict[str, pa.DataType] = COLUMNS) -> SqliteConnector:
    return SqliteConnector(LookupTable("goods", pa.schema(list(columns.items())), (), {"path": str(file)}))


@pytest.mark.parametrize(("wanted", "found"), FILTERS, ids=str)
def test_sqlite_gives_the_rows_that_meet_a_filter(
    file: Path, wanted: Filter, found: list[int | None]
) -> None:
    connector = in_file(file)
    assert connector.can_filter(wanted)
    assert ids(connector, wanted) == found


def test_sqlite_applies_all_of_several_filters_in_a_partition(file: Path) -> None:
    wanted = [Filter("active", "=", (True,)), Filter("id", ">", (1,))]
    schema = pa.schema([("id", pa.int64())])
    batches = list(in_file(file).scan_filtered(schema, " WHERE rowid < 5", wanted))
    assert pa.Table.from_batches(batches).column("id").to_pylist() == [4]


def test_sqlite_leaves_out_what_it_compares_otherwise(file: Path) -> None:
    connector = in_file(file)
    for wanted in (Filter("price", "=", (Decimal("1.5"),)), Filter("name", "<", ("a",))):
        assert not connector.can_filter(wanted)


def test_sqlite_does_not_make_a_number_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "goods.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE goods (id INTEGER, name ANYTHING)")
    connection.execute("INSERT INTO goods VALUES (1, 'x')")
    connection.commit()
    connection.close()
    connector = in_file(path, {"id": pa.int64(), "name": pa.string()})
    assert ids(connector, Filter("name", "=", ("1",))) == [1], "not filtered: Spark drops the row"


def test_sqlite_is_not_given_more_values_than_it_takes(file: Path) -> None:
    many = Filter("id", "IN", tuple(range(10, 1009)))
    assert ids(in_file(file), many) == []
    assert len(ids(in_file(file), many, Filter("id", "=", (1,)))) == 6, "not filtered: Spark drops the rows"


def test_a_collation_finds_more_never_less(tmp_path: Path) -> None:
    path = tmp_path / "goods.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE goods (id INTEGER, name TEXT COLLATE NOCASE)")
    connection.execute("INSERT INTO goods VALUES (1, 'x'), (2, 'X'), (3, 'y')")
    connection.commit()
    connection.close()
    connector = in_file(path, {"id": pa.int64(), "name": pa.string()})
    assert ids(connector, Filter("name", "=", ("x",))) == [1, 2]

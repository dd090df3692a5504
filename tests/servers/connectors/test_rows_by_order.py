"""Rows by order: sources find those that the worker would find among all rows of a key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.adbc import AdbcConnector
from lookup_connectors.memory import MemoryConnector, put_rows
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.sqlite import SqliteConnector

from lookup_hints.errors import ConnectorError
from lookup_hints.spi import LookupRequest, LookupTable, OrderCondition
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ
from lookup_hints.testing.contract import placed_answers
from lookup_hints.testing.row_checks import check_rows_by_order, conditions_of
from tests.servers.connectors.adbc_tables import DuckDbSource, PostgresAdbcSource, SqliteFileSource
from tests.servers.postgres import PostgresServer
from tests.unit.connectors.asking import during

NOON = datetime(2024, 3, 10, 12)
UTC_NOON = NOON.replace(tzinfo=timezone.utc)
MOMENTS = [NOON + timedelta(microseconds=each) for each in (-1, 0, 1, 60_000_000, 3_600_000_000)]
CENTS = [Decimal("-1.50"), Decimal("0.01"), Decimal("2.00")]
KINDS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "int": ("int", pa.int32(), [-(2**31), -3, 0, 7, 2**31 - 1]),
    "int as bigint": ("int", pa.int64(), [-(2**31), -3, 0, 7, 2**31 - 1]),
    "bigint": ("bigint", pa.int64(), [-(2**63), -3, 0, 7, 2**63 - 1]),
    "numeric as bigint": ("numeric(10,0)", pa.int64(), [-3, 0, 7]),
    "int as numeric": ("int", pa.decimal128(12, 2), [Decimal(-3), Decimal(7)]),
    "numeric": ("numeric(10,2)", pa.decimal128(10, 2), CENTS),
    "numeric as wider": ("numeric(10,2)", pa.decimal128(38, 18), CENTS),
    "date": ("date", pa.date32(), [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]),
    "timestamp": ("timestamp", TIMESTAMP_NTZ, MOMENTS),
    "timestamptz": ("timestamptz", TIMESTAMP, [each.replace(tzinfo=timezone.utc) for each in MOMENTS]),
}
SOURCES = ("memory", "sqlite", "postgres", "adbc duckdb", "adbc sqlite", "adbc postgresql")
ORDERED_BY_SQLITE = {"int", "int as bigint", "bigint", "date"}


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., LookupTable]:
    """Makes a table of a source out of rows."""

    def make(source: str, name: str, sql: str, schema: pa.Schema, rows: list[tuple[Any, ...]]) -> LookupTable:
        if source == "memory":
            put_rows(name, [dict(zip(schema.names, row, strict=True)) for row in rows])
            return LookupTable(name, schema, options={"connector": "memory"})
        listed = (", ".join("NULL" if each is None else repr(str(each)) for each in row) for row in rows)
        values = ", ".join(f"({row})" for row in listed)
        script = (
            f"CREATE TABLE {name} ({sql}); INSERT INTO {name} VALUES {values};"
            f" CREATE INDEX by_{name} ON {name} (k, since)"
        )
        if source in ("sqlite", "adbc sqlite"):
            file = SqliteFileSource(tmp_path / "ordered.db")
            file.execute(script)
            options = {"connector": "sqlite", "path": str(file.path)}
            return (
                LookupTable(name, schema, options=options) if source == "sqlite" else file.table(name, schema)
            )
        if source == "adbc duckdb":
            duck = DuckDbSource(tmp_path / "ordered.duckdb")
            duck.execute(script)
            return duck.table(name, schema)
        server: PostgresServer = request.getfixturevalue("postgres_server")
        server.execute(script)
        if source == "adbc postgresql":
            return PostgresAdbcSource(server).table(name, schema)
        return LookupTable(name, schema, options={"connector": "postgres", "url": server.url()})

    return make


def connector_of(table: LookupTable) -> Any:
    known = {
        "memory": MemoryConnector,
        "sqlite": SqliteConnector,
        "postgres": PostgresConnector,
        "adbc": AdbcConnector,
    }
    return known[table.connector](table)


@pytest.mark.parametrize("source", SOURCES)
def test_the_rows_are_those_that_the_worker_would_choose(
    made: Callable[..., LookupTable], source: str
) -> None:
    for kind, (sql_type, data_type, values) in KINDS.items():
        if "sqlite" in source and kind not in ORDERED_BY_SQLITE:
            continue
        chance = Random(kind)
        rows = [
            (chance.randrange(3), *chance.choices([None, *values], k=2), f"c{number % 4}", number)
            for number in range(25)
        ]
        schema = pa.schema(
            [
                ("k", pa.int32()),
                ("since", data_type),
                ("until", data_type),
                ("__c0", pa.string()),
                ("n", pa.int16()),
            ]
        )
        name = f"by_order_{source}_{kind}".replace(" ", "_")
        sql = f"k int, since {sql_type}, until {sql_type}, __c0 varchar(9), n smallint"
        table = made(source, name, sql, schema, rows)
        connector = connector_of(table)
        assert len(conditions_of(connector, pa.schema([schema.field("since"), schema.field("until")]))) == 14
        for by in ({"k": [0, 1, 2, 3]}, {"k": [0, 1, 2, 0], "__c0": ["c0", "c1", "c2", "none"]}):
            keys = pa.table(by, pa.schema([schema.field(each) for each in by]))
            check_rows_by_order(connector, LookupRequest(keys, schema, 30.0), placed_answers)


def test_years_that_spark_has_and_postgresql_has_not_are_beyond_all(postgres_server: PostgresServer) -> None:
    postgres_server.execute(
        "CREATE TABLE ages (k int, since timestamp); INSERT INTO ages VALUES (1, '2024-01-01'), (1, '9999-12-31')"
    )
    schema = pa.schema([("k", pa.int32()), ("since", TIMESTAMP_NTZ)])
    table = LookupTable("ages", schema, (), {"connector": "postgres", "url": postgres_server.url()})
    microseconds = [-(10**17), 10**18]
    values = pa.array(microseconds, pa.int64()).cast(TIMESTAMP_NTZ)
    keys = pa.table({"k": pa.array([1, 1], pa.int32()), "v": values})

    async def last(connector: PostgresConnector) -> Any:
        return await connector.alookup(LookupRequest(keys, schema, 30.0, order=OrderCondition("since")))

    answer = during(PostgresConnector(table), last)
    assert answer.positions.to_pylist() == [1]
    assert answer.rows.column("since").to_pylist() == [datetime(9999, 12, 31)]


def test_a_column_that_is_only_compared_has_its_type_still(postgres_server: PostgresServer) -> None:
    postgres_server.execute(
        "CREATE TABLE zoned (k int, since timestamptz); INSERT INTO zoned VALUES (1, '2024-01-01')"
    )
    schema = pa.schema([("k", pa.int32()), ("since", TIMESTAMP)])
    table = LookupTable("zoned", schema, (), {"connector": "postgres", "url": postgres_server.url()})
    values = pa.array([UTC_NOON], TIMESTAMP)
    keys = pa.table({"k": pa.array([1], pa.int32()), "v": values})
    request = LookupRequest(keys, pa.schema([schema.field("k")]), 30.0, order=OrderCondition("since"))

    async def before_and_after(connector: PostgresConnector) -> Any:
        answer: Any = await connector.alookup(request)
        assert answer.positions.to_pylist() == [0]
        await asyncio.to_thread(postgres_server.execute, "ALTER TABLE zoned ALTER since TYPE timestamp")
        await connector.alookup(request)

    with pytest.raises(
        ConnectorError, match=r"column 'since' \(its type was timestamp with time zone before"
    ):
        during(PostgresConnector(table), before_and_after)


def test_what_databases_order_in_their_own_way_is_left_to_the_worker(tmp_path: Path) -> None:
    schema = pa.schema(
        [("k", pa.int32()), ("t", pa.string()), ("x", pa.float64()), ("at", TIMESTAMP), ("d", pa.date32())]
    )
    postgres = LookupTable("t", schema, (), {"connector": "postgres", "host": "localhost"})
    sqlite = LookupTable("t", schema, (), {"connector": "sqlite", "path": str(tmp_path / "t.db")})
    duckdb = DuckDbSource(tmp_path / "t.duckdb")
    assert {
        table.options.get("driver", table.connector) + table.options.get("dialect", ""): {
            name for name in schema.names if connector_of(table).can_order(OrderCondition(name))
        }
        for table in (
            postgres,
            sqlite,
            LookupTable("t", schema, options={"connector": "memory"}),
            duckdb.table("t", schema),
            duckdb.table("t", schema, dialect="trino"),
            SqliteFileSource(tmp_path / "t.db").table("t", schema),
        )
    } == {
        "postgres": {"k", "at", "d"},
        "sqlite": {"k", "d"},
        "memory": {"k", "at", "d"},
        "adbc_driver_duckdb": {"k", "at", "d"},
        "adbc_driver_duckdbtrino": set(),
        "adbc_driver_sqlite": {"k", "d"},
    }

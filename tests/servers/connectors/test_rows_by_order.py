"""Rows by order: PostgreSQL finds those that the worker would find among all rows of a key."""

from __future__ import annotations

import asyncio
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.postgres import PostgresConnector

from lookup_hints.engine.arrow import Placed
from lookup_hints.engine.ordered import answering
from lookup_hints.errors import ConnectorError
from lookup_hints.spi import LookupRequest, LookupTable, OrderCondition, PlacedRows
from lookup_hints.spi.types import TIMESTAMP, TIMESTAMP_NTZ
from tests.servers.postgres import PostgresServer
from tests.unit.connectors.asking import during

NOON = datetime(2024, 3, 10, 12)
UTC_NOON = NOON.replace(tzinfo=timezone.utc)
MOMENTS = [NOON + timedelta(microseconds=each) for each in (-1, 0, 1, 60_000_000, 3_600_000_000)]
KINDS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "int": ("int4", pa.int64(), [-(2**31), -3, 0, 7, 2**31 - 1]),
    "numeric as bigint": ("numeric(10,0)", pa.int64(), [-3, 0, 7]),
    "numeric": ("numeric(10,2)", pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("0.01"), Decimal("2.00")]),
    "date": ("date", pa.date32(), [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]),
    "timestamp": ("timestamp", TIMESTAMP_NTZ, MOMENTS),
    "timestamptz": ("timestamptz", TIMESTAMP, [each.replace(tzinfo=timezone.utc) for each in MOMENTS]),
}
BEYOND = {"int": [-(2**40), 2**40]}
CONDITIONS = [
    *(OrderCondition("since", each) for each in (">=", ">", "<=", "<")),
    OrderCondition("since", until="until"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_are_those_that_the_worker_would_choose(postgres_server: PostgresServer, kind: str) -> None:
    sql_type, data_type, values = KINDS[kind]
    chance = Random(kind)
    pairs = sorted({(chance.randrange(3), chance.choice([None, *values])) for _ in range(15)}, key=repr)
    rows = [(key, since, chance.choice([None, *values]), number) for number, (key, since) in enumerate(pairs)]
    name = f"ordered_{kind.replace(' ', '_')}"
    literals = ", ".join(
        f"({', '.join('NULL' if each is None else repr(str(each)) for each in row)})" for row in rows
    )
    postgres_server.execute(
        f"CREATE TABLE {name} (k int, since {sql_type}, until {sql_type}, n int);"
        f" INSERT INTO {name} VALUES {literals}; CREATE INDEX ON {name} (k, since)"
    )
    schema = pa.schema([("k", pa.int32()), ("since", data_type), ("until", data_type), ("n", pa.int32())])
    table = LookupTable(name, schema, (), {"connector": "postgres", "url": postgres_server.url()})
    asked = sorted(
        {(chance.randrange(4), chance.choice([*values, *BEYOND.get(kind, [])])) for _ in range(15)}
    )
    keys = pa.table(
        {
            "k": pa.array([key for key, _ in asked], pa.int32()),
            "v": pa.array([value for _, value in asked], data_type),
        }
    )
    stored = pa.table(
        [
            pa.array(list(column), each.type)
            for column, each in zip(zip(*rows, strict=True), schema, strict=True)
        ],
        schema=schema,
    )

    async def answers(connector: PostgresConnector) -> list[PlacedRows]:
        wanted = pa.schema([schema.field("k"), schema.field("n")])
        found = [
            await connector.alookup(LookupRequest(keys, wanted, 30.0, order=each)) for each in CONDITIONS
        ]
        return [each for each in found if isinstance(each, PlacedRows)]

    connector = PostgresConnector(table)
    assert all(map(connector.can_order, CONDITIONS))
    for condition, answer in zip(CONDITIONS, during(connector, answers), strict=True):
        assert answer.positions is not None
        got = sorted(zip(answer.positions.to_pylist(), answer.rows.column("n").to_pylist(), strict=True))
        placed = Placed(stored, stored.column("k").combine_chunks())
        due = answering(
            placed, keys.column("k").combine_chunks(), keys.column("v").combine_chunks(), condition
        )
        ends = due.ends.to_pylist()
        owners = [at for at, (start, end) in enumerate(pairwise([0, *ends])) for _ in range(end - start)]
        assert got == sorted(zip(owners, due.rows.to_pylist(), strict=True)), condition
        assert got or condition.until, condition


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


def test_texts_and_floats_are_left_to_the_worker() -> None:
    schema = pa.schema([("k", pa.int32()), ("since", pa.string()), ("x", pa.float64())])
    connector = PostgresConnector(
        LookupTable("t", schema, (), {"connector": "postgres", "host": "localhost"})
    )
    assert not connector.can_order(OrderCondition("since"))
    assert not connector.can_order(OrderCondition("x"))

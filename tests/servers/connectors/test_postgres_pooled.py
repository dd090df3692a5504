"""The postgres connector behind a pooler that lends a server for each transaction, as pgbouncer does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pyarrow as pa
import pytest
from lookup_connectors.postgres import PostgresConnector

from lookup_hints.errors import ConnectorError
from lookup_hints.spi.request_and_answer import LookupTable
from tests.servers.pooler import Lent, transaction_pooler
from tests.servers.postgres import PostgresServer
from tests.unit.connectors.asking import awaited_failure, during, request_for, rows_of

# Of the columns, `took` is written as a setting says.
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("took", pa.float64())])
SERVERS = 3
ROWS = 40_000


@pytest.fixture(scope="module", autouse=True)
def _lent_rows(postgres_server: PostgresServer) -> None:
    postgres_server.execute(f"""
        CREATE TABLE lent AS SELECT n::bigint AS id, repeat('é', 100) || n AS name, n / 3::float8 AS took
            FROM generate_series(1, {ROWS}) AS n;
        CREATE INDEX ON lent (id)
    """)


@pytest.fixture
def pooler(postgres_server: PostgresServer) -> Iterator[tuple[int, Lent]]:
    """A pooler that has a few servers of others already, so that no transaction meets the server of the last."""

    async def log_in(port: int) -> None:
        for _ in range(SERVERS):
            await (await asyncpg.connect(postgres_server.url(port=port, sslmode="disable"))).close()

    with transaction_pooler(postgres_server.port) as (port, lent):
        asyncio.run(log_in(port))
        yield port, lent


def table_behind(server: PostgresServer, port: int, **options: str) -> LookupTable:
    given = {name.replace("_", "-"): value for name, value in options.items()}
    url = server.url(port=port, sslmode="disable")
    return LookupTable("lent", SCHEMA, ("id",), {"url": url, "pool-size": "1", **given})


def row_of(number: int) -> dict[str, object]:
    return {"id": number, "name": "é" * 100 + str(number), "took": number / 3}


def test_lookups_go_to_another_server_each_time(
    postgres_server: PostgresServer, pooler: tuple[int, Lent]
) -> None:
    port, lent = pooler

    async def ask_often(connector: PostgresConnector) -> list[list[dict[str, object]]]:
        lent.transactions.clear()
        requests = [request_for(SCHEMA, {"id": [number, -number]}) for number in range(1, 9)]
        return [rows_of(await connector.alookup(request)).to_pylist() for request in requests]

    connector = PostgresConnector(table_behind(postgres_server, port, statement_cache_size="0"))
    assert during(connector, ask_often) == [[row_of(number)] for number in range(1, 9)]
    assert len(set(lent.transactions)) == SERVERS + 1


def test_a_whole_read_keeps_its_server_and_its_moment(
    postgres_server: PostgresServer, pooler: tuple[int, Lent]
) -> None:
    port, lent = pooler
    connector = PostgresConnector(table_behind(postgres_server, port, statement_cache_size="0"))
    batches = connector.scan(SCHEMA)
    first = next(batches)
    lent.transactions.clear()
    postgres_server.execute("UPDATE lent SET took = 0 WHERE id > 20000; DELETE FROM lent WHERE id > 30000")
    try:
        found = pa.Table.from_batches([first, *batches]).sort_by("id")
    finally:
        postgres_server.execute(f"""
            DELETE FROM lent; INSERT INTO lent
            SELECT n, repeat('é', 100) || n, n / 3::float8 FROM generate_series(1, {ROWS}) AS n
        """)
    assert lent.transactions == [], "the transaction was still open"
    assert found.num_rows == ROWS
    assert found.column("took").to_pylist() == [number / 3 for number in range(1, ROWS + 1)]


def test_prepared_statements_are_a_failure_that_says_what_to_set(
    postgres_server: PostgresServer, pooler: tuple[int, Lent]
) -> None:
    port, _ = pooler

    async def ask_twice(connector: PostgresConnector) -> ConnectorError:
        request = request_for(SCHEMA, {"id": [1]})
        await connector.alookup(request)
        return await awaited_failure(connector.alookup(request))

    failed = during(PostgresConnector(table_behind(postgres_server, port)), ask_twice)
    assert failed.permanent
    assert "SQLSTATE 26000" in str(failed)
    assert str(failed).endswith("Behind a pooler in transaction mode set 'statement-cache-size' = '0'.")

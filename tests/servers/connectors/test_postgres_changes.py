"""What changes in PostgreSQL under a connector that is open: the types of its columns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pyarrow as pa
import pytest
from lookup_connectors.postgres import PostgresConnector

from lookup_hints.errors import ConnectorError
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable
from tests.servers.pooler import strict_pooler
from tests.servers.postgres import PostgresServer
from tests.unit.connectors.asking import request_for, rows_of

WHOLE = pa.schema([("n", pa.int32()), ("v", pa.int64())])

# A type, a literal of it, and what it is declared as: one for each way of reading and comparing.
KINDS: dict[str, tuple[str, pa.DataType]] = {
    "boolean": ("true", pa.bool_()),
    "bigint": ("7", pa.int64()),
    "smallint": ("7", pa.decimal128(20, 2)),
    "integer": ("7", pa.float64()),
    "real": ("1.5", pa.float32()),
    "double precision": ("1.5", pa.float64()),
    "numeric": ("0.5", pa.decimal128(20, 2)),
    "numeric(10,1)": ("0.5", pa.float64()),
    "numeric(10,0)": ("7", pa.int64()),
    "bytea": (r"'\x0001'", pa.binary()),
    "date": ("'2024-02-29'", pa.date32()),
    "timestamp without time zone": ("'2024-02-29 23:30'", TIMESTAMP_NTZ),
    "timestamp with time zone": ("'2024-02-29 23:30+01'", TIMESTAMP),
    "interval": ("'1 day 00:00:01'", pa.duration("us")),
    "text": ("'7'", pa.string()),
    "character(4)": ("'7'", pa.string()),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", pa.string()),
    "feeling": ("'7'", pa.string()),
    "inet": ("'10.0.0.1/8'", pa.string()),
    "jsonb": ("'[7]'", pa.list_(pa.int64())),
    "integer[]": ("'{7}'", pa.list_(pa.int64())),
}


@pytest.fixture(scope="module", autouse=True)
def _types(postgres_server: PostgresServer) -> None:
    # One round of hashing instead of 4096: these tests log in a thousand times.
    postgres_server.execute("""
        CREATE TYPE feeling AS ENUM ('7', 'good');
        SET scram_iterations = 1; CREATE ROLE quick SUPERUSER LOGIN PASSWORD 'quick'
    """)


@pytest.fixture
def _changing(postgres_server: PostgresServer) -> None:
    postgres_server.execute("""
        DROP TABLE IF EXISTS changing; CREATE TABLE changing (n int PRIMARY KEY, v int);
        INSERT INTO changing VALUES (1, 0), (2, 1)
    """)


def table_of(server: PostgresServer, kind: pa.DataType, **options: str) -> LookupTable:
    schema = pa.schema([("n", pa.int32()), ("v", kind)])
    return LookupTable("changing", schema, ("n",), {"url": server.url(), "pool-size": "1"} | options)


@asynccontextmanager
async def opened(table: LookupTable) -> AsyncIterator[PostgresConnector]:
    connector = PostgresConnector(table)
    await connector.aopen()
    try:
        yield connector
    finally:
        await connector.aclose()


async def outcome(connector: PostgresConnector, request: LookupRequest) -> Any:
    """The rows, or the text of the error."""
    try:
        return rows_of(await connector.alookup(request)).to_pylist()
    except ConnectorError as error:
        return str(error) if error.permanent else error


async def fresh_outcomes(table: LookupTable, requests: list[LookupRequest]) -> list[Any]:
    """What a connector that is opened now makes of ``requests``."""
    try:
        async with opened(table) as connector:
            return [await outcome(connector, request) for request in requests]
    except ConnectorError as error:
        return [str(error)] * len(requests)


# --- one type for another -------------------------------------------------------------------------


@pytest.mark.usefixtures("_changing")
@pytest.mark.parametrize(("cache", "pooled"), [("0", False), ("100", False), ("0", True), ("100", True)])
def test_a_type_that_changes_under_an_open_connector_is_noticed_by_the_statement_itself(
    postgres_server: PostgresServer, cache: str, pooled: bool
) -> None:
    request = request_for(WHOLE, {"n": [1, 2]})
    change = "ALTER TABLE changing ALTER COLUMN v TYPE numeric USING v"

    async def outcomes(port: int) -> list[Any]:
        url = postgres_server.url(port=port, sslmode="disable")
        options = {"url": url, "statement-cache-size": cache}
        async with opened(table_of(postgres_server, pa.int64(), **options)) as connector:
            found = [await outcome(connector, request)]
            for halves in ("", " + 0.5", " + 0.5"):
                await asyncio.to_thread(postgres_server.execute, change + halves)
                found.append(await outcome(connector, request))
        return found

    with strict_pooler(postgres_server.port) as pooler:
        before, *changed = asyncio.run(outcomes(pooler if pooled else postgres_server.port))
    misfit = "column 'v' of the row n = 1: '0.5' (str) does not fit BIGINT"
    assert before == [{"n": 1, "v": 0}, {"n": 2, "v": 1}]
    assert changed[0] == before
    assert misfit in changed[1]
    assert changed[2] == [{"n": 1, "v": 1}, {"n": 2, "v": 2}]


@pytest.mark.parametrize("old", KINDS)
def test_every_type_after_every_other_is_as_for_a_connector_that_is_opened_then(
    postgres_server: PostgresServer, old: str
) -> None:
    literal, kind = KINDS[old]
    table = table_of(postgres_server, kind, url=postgres_server.url(user="quick", password="quick"))

    made = (
        f"DROP TABLE IF EXISTS changing; CREATE UNLOGGED TABLE changing (n int, v {old});"
        f"INSERT INTO changing VALUES (1, {literal})"
    )

    async def after_each_change(admin: asyncpg.Connection) -> dict[str, tuple[list[Any], list[Any]]]:
        await admin.execute(made)
        by_number, found = request_for(table.schema, {"n": [1]}), {}
        async with opened(table) as connector:
            [row] = await outcome(connector, by_number)
            asked = {"v": [row["v"]]} if "v" in connector.key_columns() else {"n": [1]}
            requests = [by_number, request_for(table.schema, asked)]
            for new in KINDS.keys() - {old}:
                await admin.execute(made)
                assert await outcome(connector, by_number) == [row]  # once again as at first
                await admin.execute(f"ALTER TABLE changing ALTER v TYPE {new} USING {KINDS[new][0]}")
                outcomes = [await outcome(connector, request) for request in requests]
                found[new] = outcomes, await fresh_outcomes(table, requests)
        return found

    async def run() -> dict[str, tuple[list[Any], list[Any]]]:
        admin = await asyncpg.connect(postgres_server.url())
        try:
            return await after_each_change(admin)
        finally:
            await admin.close()

    for new, (outcomes, expected) in asyncio.run(run()).items():
        change = f" (its type was {old} before, and has changed to {new})"
        refused = [str(one) for one in expected if "cannot be read as" in str(one)]
        assert [str(one).replace(change, "") for one in outcomes] == [str(one) for one in expected], new
        assert [change in str(one) for one in outcomes] == [bool(refused)] * len(outcomes)

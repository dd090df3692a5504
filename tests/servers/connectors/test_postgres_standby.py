"""The postgres connector at a server that is a hot standby: it reads, until a change of the primary is in the way."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lookup_connectors.postgres import PostgresConnector

from lookup_hints.errors import ConnectorError
from lookup_hints.spi.request_and_answer import LookupTable
from tests.servers.postgres import PostgresServer
from tests.unit.connectors.asking import ask, awaited_failure, during, failure_of, request_for, rows_of

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROWS = 50_000


@pytest.fixture(scope="module")
def standby(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server that follows the other one, and lets no reader hold a change up."""
    postgres_server.execute(f"""
        CREATE TABLE followed AS SELECT n::bigint AS id, repeat('x', 400) || n AS name
            FROM generate_series(1, {ROWS}) AS n;
        CREATE TABLE slowly AS SELECT * FROM followed WHERE id < 10;
        CREATE VIEW read_slowly AS SELECT id, name FROM slowly WHERE id <> 7 OR pg_sleep(60) IS NOT NULL;
    """)
    directory = Path(tempfile.mkdtemp(prefix="lookup-hints-standby-"))
    directory.chmod(0o755)
    server = PostgresServer(directory)
    try:
        server.create_standby(postgres_server)
        server.start(max_standby_streaming_delay="0")
        assert server.fetch("SELECT pg_is_in_recovery()") == [(True,)]
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


def table_at(server: PostgresServer, name: str = "followed") -> LookupTable:
    return LookupTable(name, SCHEMA, ("id",), {"url": server.url(sslmode="disable"), "pool-size": "1"})


def test_a_standby_answers_what_its_primary_has_written(
    postgres_server: PostgresServer, standby: PostgresServer
) -> None:
    postgres_server.execute("CREATE TABLE of_primary AS SELECT 1::bigint AS id, 'é'::text AS name")
    deadline = time.monotonic() + 60
    while standby.fetch("SELECT to_regclass('of_primary')") == [(None,)]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert ask(table_at(standby, "of_primary"), {"id": [1, 2]}) == [{"id": 1, "name": "é"}]


def test_a_standby_is_read_whole_in_ranges(standby: PostgresServer) -> None:
    connector = PostgresConnector(table_at(standby))
    parts = connector.partitions(2)
    assert len(parts) == 2
    batches = [batch for part in parts for batch in connector.scan_partition(SCHEMA, part)]
    assert sorted(pa.Table.from_batches(batches).column("id").to_pylist()) == [*range(1, ROWS + 1)]


def test_a_lookup_that_a_change_of_the_primary_ends_may_pass(
    postgres_server: PostgresServer, standby: PostgresServer
) -> None:
    running = (
        "SELECT 1 FROM pg_stat_activity WHERE application_name = 'lookup_hints' AND wait_event = 'PgSleep'"
    )

    async def ask_meanwhile(connector: PostgresConnector) -> tuple[ConnectorError, int]:
        asked = asyncio.create_task(awaited_failure(connector.alookup(request_for(SCHEMA, {"id": [7]}))))
        while not await asyncio.to_thread(standby.fetch, running):
            await asyncio.sleep(0.05)
        await asyncio.to_thread(postgres_server.execute, "ALTER TABLE slowly ADD COLUMN later int")
        failed = await asked
        answer = await connector.alookup(request_for(SCHEMA, {"id": [8]}))
        return failed, rows_of(answer).num_rows

    failed, found = during(PostgresConnector(table_at(standby, "read_slowly")), ask_meanwhile)
    assert not failed.permanent
    assert str(failed) == (
        "table read_slowly: PostgreSQL says: canceling statement due to conflict with recovery"
        "\nDETAIL:  User was holding a relation lock for too long. (SQLSTATE 40001)."
    )
    assert found == 1


def test_a_read_that_a_change_of_the_primary_ends_may_pass(
    postgres_server: PostgresServer, standby: PostgresServer
) -> None:
    connector = PostgresConnector(table_at(standby))
    batches = connector.scan(SCHEMA)
    next(batches)
    postgres_server.execute("ALTER TABLE followed ADD COLUMN later int")
    deadline = time.monotonic() + 60
    while not standby.fetch(
        "SELECT 1 FROM pg_attribute WHERE attname = 'later' AND attrelid = 'followed'::regclass"
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    failed = failure_of(lambda: list(batches))
    assert not failed.permanent
    assert "table followed: " in str(failed)
    assert sum(batch.num_rows for batch in connector.scan(SCHEMA)) == ROWS

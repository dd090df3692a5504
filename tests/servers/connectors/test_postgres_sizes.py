"""Answers of PostgreSQL that are large: they are refused by the server, and asked for in pieces."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.shared.answer_sizes import COPIES

from lookup_hints.errors import AnswerTooLarge, ConnectorError
from lookup_hints.lookup_spec import LookupSettings, LookupSpec
from lookup_hints.process import open_connectors as process
from lookup_hints.process.open_connectors import Process
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable
from lookup_hints.worker.arrow_worker import look_up
from tests.servers.postgres import PostgresServer
from tests.unit.connectors.asking import during, request_for
from tests.unit.engine.support import plain

SCHEMA = pa.schema([("id", pa.int64()), ("body", pa.string()), ("parts", pa.list_(pa.string()))])
BUDGET = 4 * 1024 * 1024
AT_ONCE = BUDGET // COPIES // 4


@pytest.fixture(scope="module", autouse=True)
def _wide(postgres_server: PostgresServer) -> None:
    postgres_server.execute("""
        CREATE TABLE wide (id bigint PRIMARY KEY, body text, parts text[]);
        INSERT INTO wide SELECT n, repeat('é', CASE WHEN n = 99 THEN 2000000 WHEN n > 50 THEN 50000 ELSE 9 END),
                                ARRAY['a', 'b'] FROM generate_series(1, 200) AS n;
        CREATE FUNCTION beyond() RETURNS text LANGUAGE plpgsql AS
            'BEGIN RAISE ''array size exceeds the maximum allowed (1073741823)'' USING ERRCODE = ''54000''; END';
        CREATE VIEW beyond_server AS SELECT id, beyond() AS body, parts FROM wide;
    """)


def wide(server: PostgresServer, **options: str) -> PostgresConnector:
    given = {"url": server.url(), "max-bytes-in-flight": "4 mb", **options}
    return PostgresConnector(LookupTable("wide", SCHEMA, ("id",), {"connector": "postgres", **given}))


def outcomes(connector: PostgresConnector, *requests: LookupRequest) -> list[pa.Table | Exception]:
    async def ask_all(opened: PostgresConnector) -> list[pa.Table | Exception]:
        found: list[pa.Table | Exception] = []
        for request in requests:
            try:
                found.append(await opened.alookup(request))
            except ConnectorError as error:
                found.append(error)
        return found

    return during(connector, ask_all)


def test_the_server_sends_no_answer_that_is_larger_than_its_part_of_the_budget(
    postgres_server: PostgresServer,
) -> None:
    narrow, several, fewer, one = (
        request_for(SCHEMA, {"id": ids}) for ids in ([*range(1, 51)], [*range(60, 80)], [60, 61], [99])
    )
    found = outcomes(wide(postgres_server), narrow, several, fewer, one)
    assert [each.num_rows if isinstance(each, pa.Table) else type(each) for each in found] == [
        50,
        AnswerTooLarge,
        2,
        1,  # it is larger than that by itself
    ]
    assert isinstance(found[1], AnswerTooLarge)
    assert found[1].keys == AT_ONCE // 100_100
    assert "the rows of 20 keys are too large to be taken at once" in str(found[1])


def test_large_values_are_counted_before_one_is_read(postgres_server: PostgresServer) -> None:
    postgres_server.execute("""
        CREATE TABLE stored (id bigint, body text, parts text[]); ALTER TABLE stored ALTER body SET STORAGE EXTERNAL;
        INSERT INTO stored SELECT n, repeat('x', 400000), NULL FROM generate_series(1, 20) AS n
    """)
    request = request_for(SCHEMA, {"id": [*range(1, 21)]}, columns=["id", "body"])

    async def pages(connector: PostgresConnector, limit: int) -> int:
        live: Any = connector._live
        query, _, bound = live.statements.of(request)
        async with live.pool.borrowed() as connection:
            explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}"
            (plan,) = json.loads(await connection.fetchval(explained, *bound, limit))
            return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])

    connector = wide(postgres_server, **{"table-name": "stored"})
    assert during(connector, lambda opened: pages(opened, AT_ONCE)) < 50
    assert during(connector, lambda opened: pages(opened, 20 * 500_000)) > 20 * 400_000 // 8192


def test_what_statistics_tell_of_a_wide_table_is_believed_before_it_is_asked(
    postgres_server: PostgresServer,
) -> None:
    postgres_server.execute("""
        CREATE TABLE known (id bigint, body text, parts text[]); ALTER TABLE known ALTER body SET STORAGE EXTERNAL;
        INSERT INTO known SELECT n, repeat('x', 50000), NULL FROM generate_series(1, 30) AS n; ANALYZE known
    """)
    postgres_server.execute("VACUUM known")
    absent = request_for(SCHEMA, {"id": [*range(1000, 1100)]})
    [refused] = outcomes(wide(postgres_server, **{"table-name": "known"}), absent)
    assert isinstance(refused, AnswerTooLarge)
    assert refused.keys in (3, 4, 5)


def test_a_join_over_wide_rows_finds_them_all_within_the_budget(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Process()
    monkeypatch.setattr(process, "this_process", worker)
    connector = wide(postgres_server)
    held: list[int] = []
    convert = connector._arrays_to_table

    def watched(*arguments: object) -> pa.Table:
        assert connector._live is not None
        held.append(connector._live.sizes.budget.held)
        return convert(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(connector, "_arrays_to_table", watched)
    spec = LookupSpec(connector, ("id",), ("id", "body"), LookupSettings(True))
    ids = [*range(1, 201), 7]
    found = plain(look_up(spec, "wide", iter([(pa.array(ids, pa.int64()),)]), None))
    lengths = [[(key, len(body)) for key, body in rows or ()] for rows in found]
    expected = {key: 2_000_000 if key == 99 else 50_000 if key > 50 else 9 for key in ids}
    assert lengths == [[(key, expected[key])] for key in ids]
    # The one row that is larger than the whole budget waits for all others.
    assert [size for size in held if size > BUDGET] == [COPIES * max(size // COPIES for size in held)]
    worker.loop.call(connector.aclose())


def test_an_answer_beyond_what_postgresql_can_make_is_asked_for_in_halves(
    postgres_server: PostgresServer,
) -> None:
    three, one = request_for(SCHEMA, {"id": [1, 2, 3]}), request_for(SCHEMA, {"id": [1]})
    found = outcomes(wide(postgres_server, **{"table-name": "beyond_server"}), three, one)
    assert isinstance(found[0], AnswerTooLarge)
    assert found[0].keys == 1
    assert isinstance(found[1], ConnectorError)
    assert found[1].permanent
    assert "array size exceeds" in str(found[1])

"""The postgres connector against a real server: settings, plans, and everything that can go wrong."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote

import asyncpg
import pyarrow as pa
import pytest
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.postgres.copy_and_sizes import IN_RANGE, REWRITTEN, blocks_of

from lookup_hints.errors import ConnectorError, LookupTimeout, OptionError
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable, OrderCondition
from tests.servers.certificates import Certificates
from tests.servers.pooler import strict_pooler
from tests.servers.postgres import PASSWORD, PostgresServer, free_port, running_server
from tests.servers.proxy import FaultProxy
from tests.servers.tls import tls_front
from tests.unit.connectors.asking import ask, awaited_failure, during, failure_of, request_for, rows_of

SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.int32()), ("name", pa.string())])
ROW_1 = {"id": 1, "kind": 1, "name": "name 1"}
BUSY = "SELECT query FROM pg_stat_activity WHERE application_name = 'lookup_hints' AND state = 'active'"
UNLIMITED = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lookup_hints'"


@pytest.fixture(scope="module", autouse=True)
def _customers(postgres_server: PostgresServer) -> None:
    postgres_server.execute(
        """
        CREATE TABLE customers (id bigint PRIMARY KEY, kind int, name text);
        INSERT INTO customers SELECT n, n % 10, 'name ' || n FROM generate_series(1, 100000) AS n;
        CREATE INDEX ON customers (kind, id);
        ANALYZE customers;
        CREATE VIEW slow_customers AS
            SELECT id, kind, name FROM customers WHERE id <> 7 OR pg_sleep(60) IS NOT NULL;
        CREATE SEQUENCE counter;
        CREATE VIEW writing_customers AS SELECT id, kind, nextval('counter')::text AS name FROM customers;
    """
    )


@pytest.fixture
def line(postgres_server: PostgresServer) -> Iterator[FaultProxy]:
    with FaultProxy(postgres_server.port) as proxy:
        yield proxy


def customers(server: PostgresServer, *, port: int | None = None, **options: str) -> LookupTable:
    given = {key.replace("_", "-"): value for key, value in options.items()}
    url = server.url(port=port, sslmode="disable")
    return LookupTable("customers", SCHEMA, ("id",), {"connector": "postgres", "url": url, **given})


# --- settings -------------------------------------------------------------------------------------


def test_the_server_is_given_as_a_url_or_in_parts(postgres_server: PostgresServer) -> None:
    parts = {
        "host": "127.0.0.1",
        "port": str(postgres_server.port),
        "database": "postgres",
        "user": "postgres",
        "password": PASSWORD,
    }
    table = LookupTable("customers", SCHEMA, options=parts)
    assert ask(table, {"id": [1]}) == ask(customers(postgres_server), {"id": [1]}) == [ROW_1]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, "'url' or 'host'"),
        ({"url": "postgresql://a@b/c", "user": "a"}, "'user' is a part of 'url'"),
        ({"url": "jdbc:postgresql://b/c"}, "postgresql://user:password@host"),
    ],
)
def test_a_server_said_twice_or_not_at_all_is_refused(options: dict[str, str], shown: str) -> None:
    with pytest.raises(OptionError, match=shown):
        PostgresConnector(LookupTable("customers", SCHEMA, options=options)).check()


@pytest.mark.parametrize("source", ["shop.orders", 'shop."Order Items"', '"Sh op"."Or""der"'])
def test_a_table_is_named_as_in_sql(postgres_server: PostgresServer, source: str) -> None:
    schema = source[: source.index(".")]
    postgres_server.execute(
        f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema};"
        f"CREATE TABLE {source} AS SELECT * FROM customers WHERE id = 1"
    )
    assert ask(customers(postgres_server, table_name=source.replace("shop", "SHOP")), {"id": [1]}) == [ROW_1]


def test_columns_are_found_as_sql_finds_them(postgres_server: PostgresServer) -> None:
    postgres_server.execute("""CREATE TABLE cased ("customerId" int, customername text, "Sel""ect" int);
                               INSERT INTO cased VALUES (1, 'x', 2)""")
    schema = pa.schema([("customerId", pa.int32()), ("customerName", pa.string()), ('Sel"ect', pa.int32())])
    table = LookupTable("cased", schema, options={"url": postgres_server.url()})
    assert ask(table, {"customerId": [1]}) == [{"customerId": 1, "customerName": "x", 'Sel"ect': 2}]


@pytest.mark.parametrize(
    ("source", "column", "shown"),
    [
        ("custommers", "id", "no table or view custommers. Did you mean 'customers'?"),
        ("customers", "nmae", "no column 'nmae'. Did you mean 'name'?"),
        ("customers_pkey", "id", "no table or view customers_pkey"),
        ("my customers", "id", "my customers"),
    ],
)
def test_a_wrong_name_is_a_permanent_error_with_the_nearest_one(
    postgres_server: PostgresServer, source: str, column: str, shown: str
) -> None:
    options = {"url": postgres_server.url(), "table-name": source}
    table = LookupTable("t", pa.schema([(column, pa.int64())]), options=options)
    error = failure_of(lambda: ask(table, {column: [1]}))
    assert error.permanent
    assert shown in str(error)


def test_a_role_without_the_right_to_read_is_a_permanent_error(postgres_server: PostgresServer) -> None:
    postgres_server.execute("CREATE ROLE nosy LOGIN PASSWORD 'pw'")
    url = postgres_server.url(user="nosy", password="pw")
    error = failure_of(lambda: ask(LookupTable("customers", SCHEMA, options={"url": url}), {"id": [1]}))
    assert error.permanent
    assert "GRANT" in str(error).upper()


@pytest.mark.parametrize("change", [{"password": "wr0ng-pass"}, {"user": "nobody"}, {"database": "nowhere"}])
def test_a_refused_login_is_a_permanent_error_without_the_password(
    postgres_server: PostgresServer, change: dict[str, str]
) -> None:
    url = postgres_server.url(**change)  # type: ignore[arg-type]
    connector = PostgresConnector(LookupTable("customers", SCHEMA, options={"url": url}))
    error = failure_of(lambda: asyncio.run(connector.aopen()))
    assert error.permanent
    for secret in ("wr0ng-pass", PASSWORD, quote(PASSWORD, safe="")):
        assert secret not in f"{error!s}{error!r}{connector!r}{error.__cause__!s}"


def test_a_password_that_the_server_repeats_is_masked(postgres_server: PostgresServer) -> None:
    url = postgres_server.url(user="wr0ng-pass", password="wr0ng-pass")
    connector = PostgresConnector(LookupTable("customers", SCHEMA, options={"url": url}))
    assert "wr0ng-pass" not in str(failure_of(lambda: asyncio.run(connector.aopen())))


def test_a_url_that_cannot_be_read_does_not_show_the_password() -> None:
    table = LookupTable("customers", SCHEMA, options={"url": "postgresql://me:se/cret:99x@host/db"})
    error = failure_of(lambda: asyncio.run(PostgresConnector(table).aopen()))
    assert error.permanent
    assert "percent-encoded" in str(error)
    assert "cret" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


# --- sessions -------------------------------------------------------------------------------------


def test_a_session_cannot_write(postgres_server: PostgresServer) -> None:
    error = failure_of(lambda: ask(customers(postgres_server, table_name="writing_customers"), {"id": [1]}))
    assert error.permanent
    assert "read-only" in str(error)


def test_a_pooler_that_refuses_settings_is_used_all_the_same_and_read_only(
    postgres_server: PostgresServer,
) -> None:
    with strict_pooler(postgres_server.port) as port:
        plain = customers(postgres_server, port=port, statement_cache_size="0")
        assert ask(plain, {"id": [1]}) == [ROW_1]
        writing = customers(postgres_server, port=port, table_name="writing_customers")
        assert "read-only" in str(failure_of(lambda: ask(writing, {"id": [1]})))


@pytest.mark.parametrize(
    "refusal", ["unsupported startup parameter: {}", 'unrecognized configuration parameter "{}"']
)
def test_only_the_setting_that_is_refused_is_left_out(postgres_server: PostgresServer, refusal: str) -> None:
    postgres_server.execute("""
        CREATE OR REPLACE VIEW settings AS SELECT 1::bigint AS id, 1 AS kind, concat(
            current_setting('client_connection_check_interval'), ' ',
            current_setting('default_transaction_read_only')) AS name
    """)

    def settings(port: int) -> Any:
        [row] = ask(customers(postgres_server, port=port, table_name="settings"), {"id": [1]})
        return row["name"]

    read_only = {"default_transaction_read_only"}
    assert settings(postgres_server.port) == "1s on"
    with strict_pooler(postgres_server.port, tracked=read_only, refusal=refusal) as port:
        assert settings(port) == "0 on"
    with strict_pooler(postgres_server.port, refusal=refusal) as port:
        assert settings(port) == "0 off"


def test_a_statement_ends_soon_after_its_worker_was_killed(postgres_server: PostgresServer) -> None:
    running = f"{BUSY} AND query LIKE '%slow_customers%'"
    connector = PostgresConnector(customers(postgres_server, table_name="slow_customers"))
    worker = multiprocessing.get_context("spawn").Process(
        target=during, args=(connector, partial(_ask_of, request=request_for(SCHEMA, {"id": [7]})))
    )
    worker.start()
    try:
        _wait_until(lambda: bool(postgres_server.fetch(running)))
    finally:
        worker.kill()
        worker.join()
    _wait_until(lambda: not postgres_server.fetch(running), seconds=10)


async def _ask_of(connector: PostgresConnector, request: LookupRequest) -> pa.Table:
    return await connector.alookup(request)


def _wait_until(is_so: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_failure_behind_a_pooler_leaves_the_connection_usable(postgres_server: PostgresServer) -> None:
    async def fail_and_ask(connector: PostgresConnector) -> list[Any]:
        request = request_for(SCHEMA, {"id": [1]})
        await asyncio.to_thread(postgres_server.execute, "ALTER TABLE fragile RENAME TO gone")
        assert (await awaited_failure(connector.alookup(request))).permanent
        await asyncio.to_thread(postgres_server.execute, "ALTER TABLE gone RENAME TO fragile")
        rows: list[Any] = rows_of(await connector.alookup(request)).to_pylist()
        return rows

    postgres_server.execute("CREATE TABLE fragile AS SELECT * FROM customers WHERE id = 1")
    with strict_pooler(postgres_server.port) as port:
        table = customers(postgres_server, port=port, table_name="fragile", pool_size="1")
        assert during(PostgresConnector(table), fail_and_ask) == [ROW_1]


@pytest.mark.parametrize(("size", "kept"), [("0", False), ("100", True)])
def test_prepared_statements_are_kept_only_with_a_cache(
    postgres_server: PostgresServer, size: str, kept: bool
) -> None:
    postgres_server.execute("""
        CREATE OR REPLACE VIEW prepared AS SELECT 1::bigint AS id, 1 AS kind,
            (SELECT count(*) FROM pg_prepared_statements WHERE statement NOT LIKE '%pg_type%')::text AS name
    """)

    async def count_after_two(connector: PostgresConnector) -> int:
        for _ in range(2):
            answer = await connector.alookup(request_for(SCHEMA, {"id": [1]}))
        return int(rows_of(answer).column("name")[0].as_py())

    table = customers(postgres_server, table_name="prepared", statement_cache_size=size, pool_size="1")
    assert (during(PostgresConnector(table), count_after_two) > 0) == kept


def test_the_pool_is_bounded_and_lends_to_all_who_wait(postgres_server: PostgresServer) -> None:
    async def ask_forty(connector: PostgresConnector) -> tuple[int, int]:
        requests = [request_for(SCHEMA, {"id": [number]}) for number in range(1, 41)]
        answers = await asyncio.gather(*map(connector.alookup, requests))
        [[used]] = await asyncio.to_thread(postgres_server.fetch, UNLIMITED)
        return used, sum(rows_of(answer).num_rows for answer in answers)

    deadline = time.monotonic() + 60
    while postgres_server.fetch(UNLIMITED)[0][0]:  # of earlier tests, which the server is still closing
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert during(PostgresConnector(customers(postgres_server, pool_size="3")), ask_forty) == (3, 40)


def test_as_many_requests_are_worth_sending_as_connections_twice() -> None:
    def at_once(**options: str) -> int | None:
        table = LookupTable("customers", SCHEMA, options={"connector": "postgres", "host": "h", **options})
        return PostgresConnector(table).requests_at_once()

    assert at_once() == 8
    assert at_once(**{"pool-size": "3"}) == 6
    assert at_once(**{"pool-size": "${env:POOL}"}) is None  # not resolved before it connects


def test_an_unused_connection_is_closed_and_replaced(
    postgres_server: PostgresServer, line: FaultProxy
) -> None:
    async def ask_wait_ask(connector: PostgresConnector) -> int:
        await until(lambda: line.connections == 0)
        before = line.accepted
        answer = await connector.alookup(request_for(SCHEMA, {"id": [1]}))
        assert line.accepted == before + 1
        return int(rows_of(answer).num_rows)

    table = customers(postgres_server, port=line.port, idle_timeout="50 ms")
    assert during(PostgresConnector(table), ask_wait_ask) == 1


async def until(condition: Any, seconds: float = 60.0) -> None:
    """Wait for a condition that an event elsewhere makes true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never became true"
        await asyncio.sleep(0.01)


# --- plans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("keys", [("id",), ("kind", "id"), ("id", "name")], ids="+".join)
def test_a_thousand_keys_are_found_by_index(
    postgres_server: PostgresServer, keys: tuple[str, ...], mode: str
) -> None:
    values = {"id": list(range(1, 1001)), "kind": [n % 10 for n in range(1, 1001)]}
    values["name"] = [f"name {n}" for n in range(1, 1001)]  # type: ignore[misc]
    request = request_for(SCHEMA, {name: values[name] for name in keys})

    async def explain(connector: PostgresConnector) -> str:
        assert connector._live is not None
        query, _, bound = connector._live.statements.of(request)
        async with connector._live.pool.borrowed() as connection:
            await connection.execute(f"SET plan_cache_mode = {mode}")
            plan = await connection.fetch(f"EXPLAIN {query}", *bound, 1_000_000)
            return "\n".join(record[0] for record in plan)

    plan = during(PostgresConnector(customers(postgres_server, pool_size="1")), explain)
    assert "Index" in plan
    assert "Seq Scan" not in plan


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_the_last_row_that_was_known_is_found_by_index(postgres_server: PostgresServer, mode: str) -> None:
    postgres_server.execute("""
        DROP TABLE IF EXISTS ledger; CREATE TABLE ledger (k int, since int, known int, price int, PRIMARY KEY (k, since, known));
        INSERT INTO ledger SELECT n % 50, n / 50 / 3, n / 50 / 3 + n / 50 % 3, n FROM generate_series(0, 49999) AS n;
        ANALYZE ledger
    """)
    schema = pa.schema([(name, pa.int32()) for name in ("k", "since", "known", "price")])
    table = LookupTable(
        "ledger", schema, (), {"connector": "postgres", "url": postgres_server.url(), "pool-size": "1"}
    )
    keys = pa.table(
        {"k": list(range(50)) * 4, "at": [1, 100, 200, 300] * 50},
        pa.schema([("k", pa.int32()), ("at", pa.int32())]),
    )
    order = OrderCondition("since", known_from="known")
    request = LookupRequest(keys, schema, 30.0, order=order)
    # A day later, the first correction of each row is known.
    later = pa.chunked_array([[at + 1 for at in keys["at"].to_pylist()]], pa.int32())
    apart = LookupRequest(
        keys.append_column("by", later), schema, 30.0, order=replace(order, known_apart=True)
    )

    for asked, days in ((request, 0), (apart, 1)):

        async def explain(connector: PostgresConnector, asked: LookupRequest = asked) -> tuple[str, Any]:
            assert connector._live is not None
            query, _, bound = connector._live.statements.of(asked)
            async with connector._live.pool.borrowed() as connection:
                await connection.execute(f"SET plan_cache_mode = {mode}")
                plan = await connection.fetch(f"EXPLAIN {query}", *bound, 1_000_000)
            return "\n".join(record[0] for record in plan), await connector.alookup(asked)

        plan, answer = during(PostgresConnector(table), explain)
        assert re.search(r"Limit.*\n.*Index Scan Backward using ledger_pkey", plan)
        assert "Sort" not in plan
        assert "Seq Scan" not in plan
        rows = zip(answer.positions.to_pylist(), answer.rows.to_pylist(), strict=True)
        assert {
            (row["since"] - at, row["known"] - at)
            for at, row in ((keys["at"][at].as_py(), row) for at, row in rows)
        } == {(0, days)}
        assert len(answer.positions) == 200


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize(
    ("keys", "nulls"),
    [({}, ("kind",)), ({"kind": [1, 2, 3]}, ("name",)), ({"name": ["a", "b"]}, ("kind",))],
    ids=str,
)
def test_rows_with_null_are_found_by_index(
    postgres_server: PostgresServer, keys: dict[str, list[Any]], nulls: tuple[str, ...], mode: str
) -> None:
    postgres_server.execute(
        "CREATE TABLE IF NOT EXISTS gaps AS SELECT n AS id, nullif(n % 20000, 0)::int AS kind,"
        " CASE WHEN n % 50 > 0 THEN 'name ' || n END AS name FROM generate_series(1, 100000) n;"
        "CREATE INDEX IF NOT EXISTS gaps_by_kind ON gaps (kind, name); ANALYZE gaps"
    )
    request = request_for(SCHEMA, keys or {"id": [1]})
    request = replace(request, keys=request.keys.select([*keys]), nulls=nulls)

    async def explain(connector: PostgresConnector) -> str:
        assert connector._live is not None
        query, _, bound = connector._live.statements.of(request)
        async with connector._live.pool.borrowed() as connection:
            await connection.execute(f"SET plan_cache_mode = {mode}")
            plan = await connection.fetch(f"EXPLAIN {query}", *bound, 1_000_000)
            return "\n".join(record[0] for record in plan)

    plan = during(PostgresConnector(customers(postgres_server, table_name="gaps", pool_size="1")), explain)
    assert "gaps_by_kind" in plan
    assert "Seq Scan" not in plan


# --- faults ---------------------------------------------------------------------------------------


def test_a_line_cut_in_the_middle_of_an_answer_may_pass_and_the_next_lookup_works(
    postgres_server: PostgresServer, line: FaultProxy
) -> None:
    async def cut_then_ask(connector: PostgresConnector) -> tuple[ConnectorError, int]:
        line.cut_after(5000)
        request = request_for(SCHEMA, {"id": list(range(1, 20_001))})
        failed = await awaited_failure(connector.alookup(request))
        line.flow()
        return failed, rows_of(await connector.alookup(request)).num_rows

    table = customers(postgres_server, port=line.port, pool_size="1")
    failed, rows = during(PostgresConnector(table), cut_then_ask)
    assert not failed.permanent
    assert rows == 20_000


def test_idle_connections_that_were_cut_are_replaced_unnoticed(
    postgres_server: PostgresServer, line: FaultProxy
) -> None:
    async def cut_then_ask(connector: PostgresConnector) -> int:
        line.cut()
        assert connector._live is not None
        pool = connector._live.pool._pool
        await until(lambda: pool.get_size() == 0)  # the loop has seen the reset
        answer = await connector.alookup(request_for(SCHEMA, {"id": [1]}))
        return int(rows_of(answer).num_rows)

    assert during(PostgresConnector(customers(postgres_server, port=line.port)), cut_then_ask) == 1


def test_a_refused_connection_may_pass(postgres_server: PostgresServer) -> None:
    table = customers(postgres_server, port=free_port())
    assert not failure_of(lambda: ask(table, {"id": [1]})).permanent


def test_a_server_that_restarts_may_pass() -> None:
    for server in running_server():
        server.execute("CREATE TABLE customers AS SELECT 1::bigint AS id, 1 AS kind, 'name 1' AS name")

        async def across_a_restart(connector: PostgresConnector, server: PostgresServer = server) -> Any:
            request = request_for(SCHEMA, {"id": [1]})
            await asyncio.to_thread(server.stop)
            failed = await awaited_failure(connector.alookup(request))
            await asyncio.to_thread(server.start)
            return failed.permanent, rows_of(await connector.alookup(request)).to_pylist()

        result = during(PostgresConnector(customers(server)), across_a_restart)
        assert result == (False, [ROW_1])


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
def test_a_slow_query_times_out_and_is_cancelled_on_the_server(
    postgres_server: PostgresServer, pooled: bool
) -> None:
    async def ask_slowly(connector: PostgresConnector) -> float:
        start = time.monotonic()
        failed = await awaited_failure(connector.alookup(request_for(SCHEMA, {"id": [7]}, timeout=0.3)))
        took = time.monotonic() - start
        assert isinstance(failed, LookupTimeout)
        deadline = time.monotonic() + 60
        while await asyncio.to_thread(postgres_server.fetch, BUSY):
            assert time.monotonic() < deadline, "the server still runs the query"
        answer = await connector.alookup(request_for(SCHEMA, {"id": [8]}))
        assert rows_of(answer).num_rows == 1
        return took

    def run(port: int | None) -> float:
        table = customers(postgres_server, port=port, table_name="slow_customers", pool_size="1")
        return during(PostgresConnector(table), ask_slowly)

    if pooled:
        with strict_pooler(postgres_server.port) as port:
            took = run(port)
    else:
        took = run(None)
    assert took < 2


def test_a_statement_that_the_server_ends_for_its_time_may_pass(postgres_server: PostgresServer) -> None:
    async def ask_slowly(connector: PostgresConnector) -> tuple[ConnectorError, int]:
        failed = await awaited_failure(connector.alookup(request_for(SCHEMA, {"id": [7]})))
        answer = await connector.alookup(request_for(SCHEMA, {"id": [8]}))
        return failed, rows_of(answer).num_rows

    url = postgres_server.url(sslmode="disable") + "&options=-c%20statement_timeout%3D500"
    table = customers(postgres_server, table_name="slow_customers", pool_size="1", url=url)
    failed, found = during(PostgresConnector(table), ask_slowly)
    assert not failed.permanent
    assert str(failed) == (
        "table customers: PostgreSQL says: canceling statement due to statement timeout (SQLSTATE 57014)."
    )
    assert found == 1


@pytest.mark.parametrize("way", ["ranges", "copy"])
def test_a_read_that_the_server_ends_for_its_time_may_pass(postgres_server: PostgresServer, way: str) -> None:
    name = f"timed_{way}"
    postgres_server.execute(f"""
        CREATE ROLE {name} LOGIN PASSWORD 'pw'; ALTER ROLE {name} SET statement_timeout = '2s';
        CREATE TABLE {name} AS SELECT id, 0 AS kind, repeat('x', 200) AS name
            FROM generate_series(1, 50000) AS id;
        CREATE FUNCTION {name}_shown(id int) RETURNS bool LANGUAGE sql AS
            'SELECT id < 40000 OR pg_sleep(60) IS NOT NULL';
        ALTER TABLE {name} ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON {name} USING ({name}_shown(id));
        CREATE VIEW {name}_view WITH (security_invoker) AS SELECT * FROM {name};
        GRANT SELECT ON {name}, {name}_view TO {name};
    """)
    source = name if way == "ranges" else f"{name}_view"
    url = postgres_server.url(user=name, password="pw", sslmode="disable")
    batches = PostgresConnector(customers(postgres_server, table_name=source, url=url)).scan(SCHEMA)
    assert next(batches).num_rows > 0
    failed = failure_of(lambda: list(batches))
    assert not failed.permanent
    assert "canceling statement due to statement timeout" in str(failed)
    assert "(SQLSTATE 57014)" in str(failed)


def test_a_stalled_server_times_out_in_time_and_its_connection_is_thrown_away(
    postgres_server: PostgresServer, line: FaultProxy
) -> None:
    async def stall_then_ask(connector: PostgresConnector) -> tuple[float, int]:
        request = request_for(SCHEMA, {"id": [1]}, timeout=0.3)
        line.stall()
        start = time.monotonic()
        assert isinstance(await awaited_failure(connector.alookup(request)), LookupTimeout)
        took = time.monotonic() - start
        assert connector._live is not None
        assert connector._live.pool._coming_back, "nobody waits for what is handed back"
        line.flow()
        return took, rows_of(await connector.alookup(request_for(SCHEMA, {"id": [1]}))).num_rows

    table = customers(postgres_server, port=line.port, pool_size="1")
    took, rows = during(PostgresConnector(table), stall_then_ask)
    assert took < 1.5
    assert rows == 1


def test_a_stalled_server_does_not_stop_the_connector_from_closing(
    postgres_server: PostgresServer, line: FaultProxy
) -> None:
    connector = PostgresConnector(customers(postgres_server, port=line.port, pool_size="2"))

    async def stall_and_close() -> float:
        await connector.aopen()
        line.stall()
        await awaited_failure(connector.alookup(request_for(SCHEMA, {"id": [1]}, timeout=0.1)))
        start = time.monotonic()
        await connector.aclose()
        return time.monotonic() - start

    assert asyncio.run(stall_and_close()) < 6


def test_a_server_that_takes_a_connection_and_says_nothing_may_pass(
    postgres_server: PostgresServer, line: FaultProxy
) -> None:
    line.stall()
    table = customers(postgres_server, port=line.port, connect_timeout="200 ms")
    error = failure_of(lambda: ask(table, {"id": [1]}))
    assert not error.permanent
    assert "connect-timeout" in str(error)


def test_a_cancelled_lookup_hands_its_connection_back(postgres_server: PostgresServer) -> None:
    async def cancel_and_ask(connector: PostgresConnector) -> int:
        lookup = asyncio.ensure_future(connector.alookup(request_for(SCHEMA, {"id": [7]})))
        while not await asyncio.to_thread(postgres_server.fetch, BUSY):
            assert not lookup.done()
        lookup.cancel()
        await asyncio.gather(lookup, return_exceptions=True)
        assert lookup.cancelled()
        answer = await connector.alookup(request_for(SCHEMA, {"id": [8]}, timeout=10))
        return int(rows_of(answer).num_rows)

    table = customers(postgres_server, table_name="slow_customers", pool_size="1")
    assert during(PostgresConnector(table), cancel_and_ask) == 1


def test_too_many_connections_may_pass(postgres_server: PostgresServer) -> None:
    postgres_server.execute("CREATE ROLE lonely LOGIN PASSWORD 'pw' CONNECTION LIMIT 0")
    url = postgres_server.url(user="lonely", password="pw")
    error = failure_of(lambda: ask(LookupTable("customers", SCHEMA, options={"url": url}), {"id": [1]}))
    assert not error.permanent
    assert "pool-size" in str(error)


def test_a_connection_ended_by_an_administrator_may_pass(postgres_server: PostgresServer) -> None:
    async def end_and_ask(connector: PostgresConnector) -> ConnectorError:
        lookup = asyncio.ensure_future(connector.alookup(request_for(SCHEMA, {"id": [7]})))
        # A lookup that an earlier test gave up may run for another second: end what runs until this one fails.
        ending = BUSY.replace("SELECT query", "SELECT pg_terminate_backend(pid)")
        while not lookup.done():
            await asyncio.to_thread(postgres_server.fetch, f"{ending} AND query LIKE '%slow_customers%'")
        return await awaited_failure(lookup)

    table = customers(postgres_server, table_name="slow_customers")
    failed = during(PostgresConnector(table), end_and_ask)
    assert not failed.permanent
    assert "connection" in str(failed)


def test_a_table_dropped_under_an_open_connector_is_a_permanent_error(
    postgres_server: PostgresServer,
) -> None:
    postgres_server.execute("CREATE TABLE brief AS SELECT * FROM customers WHERE id = 1")

    async def drop_and_ask(connector: PostgresConnector) -> ConnectorError:
        await asyncio.to_thread(postgres_server.execute, "DROP TABLE brief")
        return await awaited_failure(connector.alookup(request_for(SCHEMA, {"id": [1]})))

    assert during(PostgresConnector(customers(postgres_server, table_name="brief")), drop_and_ask).permanent


def test_it_is_picklable_after_it_was_closed(postgres_server: PostgresServer) -> None:
    connector = PostgresConnector(customers(postgres_server))
    request = request_for(SCHEMA, {"id": [1]})
    during(connector, lambda opened: opened.alookup(request))
    copy = pickle.loads(pickle.dumps(connector))
    assert during(copy, lambda opened: opened.alookup(request)).num_rows == 1


# --- reading the whole table ----------------------------------------------------------------------


def test_a_scan_works_behind_a_pooler(postgres_server: PostgresServer) -> None:
    with strict_pooler(postgres_server.port) as port:
        table = customers(postgres_server, port=port, statement_cache_size="0")
        assert sum(batch.num_rows for batch in PostgresConnector(table).scan(SCHEMA)) == 100_000


def test_a_scan_names_what_does_not_fit(postgres_server: PostgresServer) -> None:
    schema = pa.schema([("id", pa.int8())])
    table = LookupTable("customers", schema, ("id",), {"url": postgres_server.url()})
    error = failure_of(lambda: list(PostgresConnector(table).scan(schema)))
    assert "id = 128" in str(error)


def test_a_scan_comes_in_batches_and_can_be_left_early(postgres_server: PostgresServer) -> None:
    connector = PostgresConnector(customers(postgres_server))
    batches = connector.scan(SCHEMA)
    assert next(batches).num_rows < 100_000
    batches.close()  # type: ignore[attr-defined]
    assert sum(batch.num_rows for batch in connector.scan(SCHEMA)) == 100_000


@pytest.fixture(scope="module")
def large(postgres_server: PostgresServer) -> LookupTable:
    """A table of some 25 MB."""
    postgres_server.execute(
        "CREATE TABLE large AS SELECT id, id % 7 AS kind, repeat('x', 200) || id AS name"
        " FROM generate_series(1, 100000) AS id"
    )
    return customers(postgres_server, table_name="large")


def ids_of(table: LookupTable, *partitions: str) -> Counter[int]:
    schema = pa.schema([("id", pa.int64())])
    connector = PostgresConnector(table)
    batches = (batch for part in partitions for batch in connector.scan_partition(schema, part))
    return Counter(key for batch in batches for key in batch.column(0).to_pylist())


@pytest.mark.parametrize("wanted", [1, 2, 3, 100])
def test_partitions_hold_each_row_once(large: LookupTable, wanted: int) -> None:
    parts = PostgresConnector(large).partitions(wanted)
    assert len(parts) == min(wanted, 3)
    assert ids_of(large, *parts) == Counter(range(1, 100_001))


def test_partitions_hold_rows_that_came_after_they_were_made(
    postgres_server: PostgresServer, large: LookupTable
) -> None:
    parts = PostgresConnector(large).partitions(2)
    postgres_server.execute(
        "INSERT INTO large SELECT 200000 + id, 0, repeat('y', 900) FROM generate_series(1, 9000) AS id"
    )
    try:
        assert ids_of(large, *parts) == Counter([*range(1, 100_001), *range(200_001, 209_001)])
    finally:
        postgres_server.execute("DELETE FROM large WHERE id > 200000")


def test_a_partition_reads_only_its_blocks(postgres_server: PostgresServer, large: LookupTable) -> None:
    (_, second) = PostgresConnector(large).partitions(2)
    places = [(block, 0) for block in blocks_of(second, 4000)]
    (plan,) = postgres_server.fetch(f"EXPLAIN SELECT id FROM large WHERE {IN_RANGE}", *places)[:1]
    assert "Tid Range Scan" in str(plan)


def test_a_partitioned_table_is_read_by_the_blocks_of_its_parts(postgres_server: PostgresServer) -> None:
    postgres_server.execute("""
        CREATE TABLE split (id bigint, kind int, name text) PARTITION BY RANGE (id);
        CREATE TABLE split_1 PARTITION OF split FOR VALUES FROM (0) TO (80001);
        CREATE TABLE split_2 PARTITION OF split DEFAULT;
        INSERT INTO split SELECT id, 0, repeat('x', 200) FROM generate_series(1, 100000) AS id
    """)
    table = customers(postgres_server, table_name="split")
    parts = PostgresConnector(table).partitions(8)
    assert len(parts) == 2
    assert ids_of(table, *parts) == Counter(range(1, 100_001))


def test_what_has_no_blocks_of_its_own_is_read_whole(
    postgres_server: PostgresServer, large: LookupTable
) -> None:
    postgres_server.execute("CREATE VIEW large_view AS SELECT * FROM large")
    for name in ("large_view", "customers"):
        table = customers(postgres_server, table_name=name)
        assert PostgresConnector(table).partitions(8) == ("",), name


@pytest.mark.parametrize("partition", ["1", "a-b", "0-1; DROP TABLE large", "-5"])
def test_only_a_range_is_a_partition(large: LookupTable, partition: str) -> None:
    with pytest.raises(ValueError, match="is no range of blocks"):
        ids_of(large, partition)


def test_a_server_that_dies_in_a_scan_is_a_failure_that_may_pass(
    postgres_server: PostgresServer, line: FaultProxy, large: LookupTable
) -> None:
    connector = PostgresConnector(customers(postgres_server, table_name="large", port=line.port))
    batches = connector.scan(SCHEMA)
    next(batches)
    line.cut()
    error = failure_of(lambda: list(batches))
    assert not error.permanent
    # The cut comes while rows are read, or before the next part is asked for.
    assert re.match(
        "table customers: the connection to PostgreSQL failed: ",
        str(error),
    )


@pytest.mark.parametrize("way", ["ranges", "copy"])
def test_a_scan_that_is_left_ends_at_the_server(
    postgres_server: PostgresServer, large: LookupTable, way: str
) -> None:
    postgres_server.execute("CREATE OR REPLACE VIEW left_view AS SELECT * FROM large")
    table = large if way == "ranges" else customers(postgres_server, table_name="left_view")
    batches = PostgresConnector(table).scan(SCHEMA)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    running = (
        "SELECT query FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state LIKE '%active%'"
        " OR state LIKE '%transaction%' AND pid <> pg_backend_pid()"
    )
    for _ in range(100):
        if not postgres_server.fetch(running):
            return
        time.sleep(0.05)
    raise AssertionError("it still runs")


def test_a_scan_reads_as_of_one_moment(postgres_server: PostgresServer) -> None:
    postgres_server.execute(
        "CREATE TABLE moved AS SELECT id, 0 AS kind, repeat('x', 200) AS name FROM generate_series(1, 50000) AS id"
    )
    batches = PostgresConnector(customers(postgres_server, table_name="moved")).scan(SCHEMA)
    first = next(batches)
    postgres_server.execute("UPDATE moved SET kind = 1; DELETE FROM moved WHERE id % 2 = 0")
    rest = list(batches)
    assert first.num_rows < 25_000, "most rows are read after they were changed"
    rows = pa.Table.from_batches([first, *rest])
    assert Counter(rows.column("id").to_pylist()) == Counter(range(1, 50_001))
    assert set(rows.column("kind").to_pylist()) == {0}


def test_a_table_that_was_written_anew_is_told_from_an_empty_one(postgres_server: PostgresServer) -> None:
    postgres_server.execute("CREATE TABLE anew AS SELECT 1 AS id")

    async def look() -> list[bool]:
        connection = await asyncpg.connect(postgres_server.url())
        try:
            oid = await connection.fetchval("SELECT 'anew'::regclass::oid")
            async with connection.transaction(isolation="repeatable_read"):
                found = [await connection.fetchval(REWRITTEN, oid)]
                other = await asyncpg.connect(postgres_server.url())
                await other.execute("ALTER TABLE anew ADD COLUMN x float8 DEFAULT random()")
                await other.close()
                assert await connection.fetchval("SELECT count(*) FROM anew") == 0, "as PostgreSQL warns of"
                found.append(await connection.fetchval(REWRITTEN, oid))
            return [*found, await connection.fetchval(REWRITTEN, oid)]
        finally:
            await connection.close()

    assert asyncio.run(look()) == [False, True, False]


def test_a_table_of_the_catalog_is_read_whole(postgres_server: PostgresServer) -> None:
    schema = pa.schema([("relname", pa.string())])
    table = LookupTable("c", schema, (), {"url": postgres_server.url(), "table-name": "pg_catalog.pg_class"})
    names = pa.Table.from_batches(PostgresConnector(table).scan(schema)).column(0).to_pylist()
    assert {"pg_class", "pg_type"} <= set(names)


def test_ranges_of_what_is_a_view_by_now_are_a_failure(
    postgres_server: PostgresServer, large: LookupTable
) -> None:
    (first, _) = PostgresConnector(large).partitions(2)
    postgres_server.execute("CREATE VIEW by_now AS SELECT * FROM large")
    error = failure_of(lambda: ids_of(customers(postgres_server, table_name="by_now"), first))
    assert "it had ranges of blocks, and has none any more" in str(error)


def test_a_scan_reads_rows_of_any_size(postgres_server: PostgresServer) -> None:
    postgres_server.execute("""
        CREATE TABLE sized (id bigint, kind int, name text); ALTER TABLE sized ALTER name SET STORAGE EXTERNAL;
        INSERT INTO sized SELECT n, 0, repeat('x', CASE WHEN n = 30 THEN 9000000 WHEN n > 50 THEN 9 ELSE 700000 END)
        FROM generate_series(1, 20000) AS n
    """)
    schema = pa.schema([SCHEMA.field("id"), SCHEMA.field("name")])
    batches = list(PostgresConnector(customers(postgres_server, table_name="sized")).scan(schema))
    assert max(batch.nbytes for batch in batches) < 10_000_000
    rows = pa.Table.from_batches(batches)
    lengths = dict(zip(rows.column("id").to_pylist(), map(len, rows.column("name").to_pylist()), strict=True))
    assert lengths == {n: 9_000_000 if n == 30 else 9 if n > 50 else 700_000 for n in range(1, 20_001)}
    assert rows.num_rows == 20_000


# --- TLS ------------------------------------------------------------------------------------------


def over_tls(server: PostgresServer, port: int, host: str = "localhost", **options: str) -> LookupTable:
    return LookupTable("customers", SCHEMA, options={"url": server.url(host=host, port=port), **options})


def test_verify_full_takes_a_server_of_a_trusted_authority(
    postgres_server: PostgresServer, certificates: Certificates
) -> None:
    with tls_front(postgres_server.port, certificates) as port:
        table = over_tls(
            postgres_server, port, sslmode="verify-full", sslrootcert=str(certificates.authority)
        )
        assert ask(table, {"id": [1]}) == [ROW_1]


@pytest.mark.parametrize(
    ("mode", "host", "trusted", "accepted"),
    [
        ("verify-full", "127.0.0.1", True, False),
        ("verify-full", "localhost", False, False),
        ("verify-ca", "127.0.0.1", True, True),
        ("verify-ca", "127.0.0.1", False, False),
        ("require", "127.0.0.1", None, True),
    ],
)
def test_a_server_is_checked_as_far_as_the_mode_says(
    postgres_server: PostgresServer,
    certificates: Certificates,
    mode: str, host: str, trusted: bool | None, accepted: bool,
) -> None:  # fmt: skip
    authorities = {True: certificates.authority, False: certificates.other_authority}
    options = {"sslmode": mode}
    if trusted is not None:
        options["sslrootcert"] = str(authorities[trusted])
    with tls_front(postgres_server.port, certificates) as port:
        table = over_tls(postgres_server, port, host, **options)
        if accepted:
            assert ask(table, {"id": [1]}) == [ROW_1]
        else:
            error = failure_of(lambda: ask(table, {"id": [1]}))
            assert error.permanent
            assert "certificate" in str(error)


def test_a_client_shows_its_certificate(postgres_server: PostgresServer, certificates: Certificates) -> None:
    shown = {"sslcert": str(certificates.client_certificate), "sslkey": str(certificates.client_key)}
    with tls_front(postgres_server.port, certificates, client_certificates=True) as port:
        assert ask(over_tls(postgres_server, port, sslmode="require", **shown), {"id": [1]}) == [ROW_1]
        failure_of(lambda: ask(over_tls(postgres_server, port, sslmode="require"), {"id": [1]}))


def test_a_server_without_tls_is_a_permanent_error_where_tls_is_asked_for(
    postgres_server: PostgresServer,
) -> None:
    error = failure_of(
        lambda: ask(over_tls(postgres_server, postgres_server.port, sslmode="require"), {"id": [1]})
    )
    assert error.permanent
    assert "sslmode" in str(error)


def test_a_missing_certificate_file_is_a_permanent_error(postgres_server: PostgresServer) -> None:
    table = over_tls(postgres_server, postgres_server.port, sslmode="verify-full", sslrootcert="/no/such.crt")
    error = failure_of(lambda: ask(table, {"id": [1]}))
    assert error.permanent
    assert "/no/such.crt" in str(error)

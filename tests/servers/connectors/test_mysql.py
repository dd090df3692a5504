"""The mysql connector against a real server: settings, plans, and everything that can go wrong."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from lookup_connectors.mysql import MysqlConnector
from lookup_connectors.shared.answer_sizes import COPIES

from lookup_hints.errors import AnswerTooLarge, ConnectorError, LookupTimeout, OptionError
from lookup_hints.spi import OrderCondition
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable, PlacedRows
from tests.servers.certificates import Certificates
from tests.servers.mariadb import PASSWORD, MariaDbServer, running_mariadb
from tests.servers.postgres import free_port
from tests.servers.proxy import FaultProxy
from tests.unit.connectors import asking
from tests.unit.connectors.asking import awaited_failure, during, failure_of, request_for, rows_of

ask = partial(asking.ask, connector_type=MysqlConnector)
SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.int32()), ("name", pa.string())])
ROW_1 = {"id": 1, "kind": 1, "name": "name 1"}
BUSY = "SELECT id FROM information_schema.processlist WHERE info LIKE '%slow_customers%' AND info NOT LIKE '%processlist%'"
OURS = "SELECT id FROM information_schema.processlist WHERE db = 'shop' AND info IS NULL"


@pytest.fixture(scope="module", autouse=True)
def _customers(mariadb_server: MariaDbServer) -> None:
    mariadb_server.execute(
        """
        CREATE TABLE customers (id BIGINT PRIMARY KEY, kind INT, name VARCHAR(40), KEY (kind, id));
        INSERT INTO customers SELECT seq, seq % 10, CONCAT('name ', seq) FROM seq_1_to_100000;
        ANALYZE TABLE customers;
        CREATE VIEW slow_customers AS SELECT id, kind, name FROM customers WHERE id <> 7 OR SLEEP(60) = 1;
        CREATE TABLE written (n INT);
        CREATE FUNCTION writing() RETURNS INT MODIFIES SQL DATA BEGIN INSERT INTO written VALUES (1); RETURN 1; END;
        CREATE VIEW writing_customers AS SELECT id, writing() AS kind, name FROM customers;
        """
    )


@pytest.fixture
def line(mariadb_server: MariaDbServer) -> Iterator[FaultProxy]:
    with FaultProxy(mariadb_server.port) as proxy:
        yield proxy


def customers(server: MariaDbServer, *, port: int | None = None, **options: str) -> LookupTable:
    given = {key.replace("_", "-"): value for key, value in options.items()}
    return LookupTable(
        "customers", SCHEMA, ("id",), {"connector": "mysql", "url": server.url(port=port), **given}
    )


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition that an event elsewhere makes true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never became true"
        await asyncio.sleep(0.01)


# --- settings -------------------------------------------------------------------------------------


def test_the_server_is_given_as_a_url_or_in_parts(mariadb_server: MariaDbServer) -> None:
    parts = LookupTable("customers", SCHEMA, options=mariadb_server.options())
    others = [
        customers(mariadb_server),
        LookupTable(
            "customers", SCHEMA, options={"url": mariadb_server.url().replace("mysql:", "mysql+pymysql:")}
        ),
        customers(
            mariadb_server, table_name="shop.customers", url=mariadb_server.url(database="", charset="utf8")
        ),
        customers(mariadb_server, url=f"{mariadb_server.url()}?ssl-mode=DISABLED"),
    ]
    assert ask(parts, {"id": [1]}) == [ROW_1]
    assert all(ask(each, {"id": [1]}) == [ROW_1] for each in others)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, "give the server as 'url' or 'host'."),
        ({"url": "mysql://a@b/c", "user": "a"}, "'user' is a part of 'url' already."),
        ({"url": "jdbc:mysql://b/c"}, "option 'url': it cannot be read. Write mysql://user:password@host:3306/database;"),
        ({"url": "mysql://b/c"}, "option 'url': it names no user. Give the user."),
        ({"url": "mysql://a@b,d/c"}, "option 'url': it names several servers. Write one."),
        ({"url": "mysql://a@b/c?sslmod=x"}, "option 'url': 'sslmod' is no parameter of it. Did you mean 'sslmode'?"),
        ({"url": "mysql://a@b/c?ssl-mode=preferred"}, "'sslmode' is not one of disable, require, verify-ca, verify-full"),
        ({"url": "mysql://a@b/c?sslmode=require", "sslmode": "disable"}, "option 'sslmode' says something else"),
        ({"host": "b", "user": "a", "table-name": "a.b.c"}, "option 'table-name': write it as SQL does: table,"),
    ],
)  # fmt: skip
def test_what_names_no_server_or_table_is_refused(options: dict[str, str], shown: str) -> None:
    with pytest.raises(OptionError) as caught:
        MysqlConnector(LookupTable("customers", SCHEMA, options=options)).check()
    assert shown in str(caught.value)


@pytest.mark.parametrize(
    ("source", "column", "shown"),
    [
        (
            "custommers",
            "id",
            "shows this user no table or view custommers in shop. Did you mean 'customers'?",
        ),
        ("customers", "nmae", "`shop`.`customers` has no column 'nmae'. Did you mean 'name'?"),
        ("nowhere.customers", "id", "no table or view nowhere.customers in nowhere."),
    ],
)
def test_a_wrong_name_is_a_permanent_error_with_the_nearest_one(
    mariadb_server: MariaDbServer, source: str, column: str, shown: str
) -> None:
    options = {**mariadb_server.options(), "table-name": source}
    table = LookupTable("t", pa.schema([(column, pa.int64())]), options=options)
    error = failure_of(lambda: ask(table, {column: [1]}))
    assert error.permanent
    assert shown in str(error)
    nameless = LookupTable("customers", SCHEMA, options={"url": mariadb_server.url(database="")})
    assert "there is no database. Write it in 'table-name'" in str(
        failure_of(lambda: ask(nameless, {"id": [1]}))
    )


@pytest.mark.parametrize("change", [{"password": "wr0ng-pass"}, {"user": "nobody"}, {"database": "nowhere"}])
def test_a_refused_login_is_a_permanent_error_without_the_password(
    mariadb_server: MariaDbServer, change: dict[str, str]
) -> None:
    url = mariadb_server.url(**change)  # type: ignore[arg-type]
    connector = MysqlConnector(LookupTable("customers", SCHEMA, options={"url": url}))
    error = failure_of(lambda: asyncio.run(connector.aopen()))
    assert error.permanent
    for secret in ("wr0ng-pass", PASSWORD, quote(PASSWORD, safe="")):
        assert secret not in f"{error!s}{error!r}{connector!r}{error.__cause__!s}"


def test_a_user_without_the_right_to_read_is_a_permanent_error(mariadb_server: MariaDbServer) -> None:
    mariadb_server.execute(
        "CREATE USER nosy@'127.0.0.1' IDENTIFIED BY 'pw'; GRANT SELECT (id) ON customers TO nosy@'127.0.0.1'"
    )
    table = LookupTable("customers", SCHEMA, options={"url": mariadb_server.url(user="nosy", password="pw")})
    error = failure_of(lambda: ask(table, {"id": [1]}))
    assert error.permanent
    assert "has no column 'kind'" in str(error)  # the catalog shows what may be read
    only = LookupTable("customers", SCHEMA.remove(2).remove(1), options=table.options)
    assert ask(only, {"id": [1]}) == [{"id": 1}]


def test_a_session_cannot_write(mariadb_server: MariaDbServer) -> None:
    error = failure_of(lambda: ask(customers(mariadb_server, table_name="writing_customers"), {"id": [1]}))
    assert error.permanent
    assert "Cannot execute statement in a READ ONLY transaction (error 1792, SQLSTATE 25006)." in str(error)
    assert mariadb_server.fetch("SELECT * FROM written") == []


def test_a_row_that_comes_late_is_seen_by_a_connection_that_asked_before(
    mariadb_server: MariaDbServer,
) -> None:
    async def ask_twice(connector: MysqlConnector) -> list[int]:
        request = request_for(SCHEMA, {"id": [200_000]})
        first = rows_of(await connector.alookup(request)).num_rows
        await asyncio.to_thread(mariadb_server.execute, "INSERT INTO customers VALUES (200000, 1, 'late')")
        return [first, rows_of(await connector.alookup(request)).num_rows]

    assert during(MysqlConnector(customers(mariadb_server, pool_size="1")), ask_twice) == [0, 1]
    mariadb_server.execute("DELETE FROM customers WHERE id = 200000")


# --- TLS ------------------------------------------------------------------------------------------


def test_tls_is_checked_by_default_on_other_machines(
    mariadb_with_tls: MariaDbServer, certificates: Certificates
) -> None:
    server = mariadb_with_tls
    server.execute(
        "CREATE TABLE customers (id BIGINT PRIMARY KEY, kind INT, name TEXT); INSERT INTO customers VALUES (1, 1, 'name 1')"
    )
    authority, other = str(certificates.authority), str(certificates.other_authority)

    def rows(host: str = "localhost", **options: str) -> Any:
        given = {**customers(server, url=server.url(host=host)).options, **options}
        return ask(LookupTable("customers", SCHEMA, ("id",), given), {"id": [1]})

    for mode in ("require", "verify_full", "verify-ca"):
        assert rows(sslmode=mode, sslrootcert=authority) == [ROW_1]
    assert rows(host="127.0.0.1", sslmode="verify_ca", sslrootcert=authority) == [ROW_1]
    assert rows(sslmode="require") == [ROW_1]
    for wrong in (
        partial(rows, sslmode="verify_full", sslrootcert=other),
        partial(rows, sslmode="verify_full"),
    ):
        error = failure_of(wrong)
        assert error.permanent
        assert "the server's certificate is not trusted" in str(error)
    error = failure_of(partial(rows, host="127.0.0.1", sslmode="verify_full", sslrootcert=authority))
    assert "the server's certificate is not trusted: IP address mismatch" in str(error)
    assert "TLS failed: No such file" in str(
        failure_of(partial(rows, sslmode="require", sslcert=f"{authority}.no"))
    )


def test_a_server_without_tls_is_refused_where_tls_is_asked_for(mariadb_server: MariaDbServer) -> None:
    error = failure_of(lambda: ask(customers(mariadb_server, sslmode="require"), {"id": [1]}))
    assert "the server has no TLS, and 'sslmode' asks for it." in str(error)
    assert error.permanent


# --- plans and sizes ------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [("id",), ("kind", "id"), ("id", "name")], ids="+".join)
def test_a_thousand_keys_are_found_by_index(mariadb_server: MariaDbServer, keys: tuple[str, ...]) -> None:
    values: dict[str, list[Any]] = {"id": [*range(1, 1001)], "kind": [each % 10 for each in range(1, 1001)]}
    values["name"] = [f"name {each}" for each in range(1, 1001)]
    request = request_for(SCHEMA, {name: values[name] for name in keys})

    async def explain(connector: MysqlConnector) -> list[str]:
        assert connector._live is not None
        [question] = connector._live.statements.of(request, request.keys)
        async with connector._live.pool.borrowed() as connection:
            return [row[3] for row in (await connection.ask(f"EXPLAIN {question.sql}", question.values)).rows]

    assert during(MysqlConnector(customers(mariadb_server)), explain) == ["range"]


@pytest.mark.parametrize(("keys", "how"), [({}, "ref"), ({"id": [1, 2, 3]}, "range")], ids=str)
def test_rows_with_null_are_found_by_index(
    mariadb_server: MariaDbServer, keys: dict[str, list[Any]], how: str
) -> None:
    request = request_for(SCHEMA, keys or {"id": [1]})
    request = replace(request, keys=request.keys.select([*keys]), nulls=("kind",))

    async def explain(connector: MysqlConnector) -> list[str]:
        assert connector._live is not None
        [question] = connector._live.statements.of(request, request.keys)
        async with connector._live.pool.borrowed() as connection:
            return [row[3] for row in (await connection.ask(f"EXPLAIN {question.sql}", question.values)).rows]

    assert during(MysqlConnector(customers(mariadb_server)), explain) == [how]


@pytest.mark.parametrize(
    "charset",
    ["latin1", "utf8mb3", "utf8mb4 COLLATE utf8mb4_unicode_ci", "utf8mb4 COLLATE utf8mb4_bin", "ascii"],
)
def test_texts_are_found_by_index_in_each_character_set(mariadb_server: MariaDbServer, charset: str) -> None:
    mariadb_server.execute(
        f"CREATE OR REPLACE TABLE texts (id BIGINT, kind INT, name VARCHAR(40) CHARACTER SET {charset}, KEY (name, kind));"
        "INSERT INTO texts SELECT seq, seq % 10, CONCAT('name ', seq) FROM seq_1_to_20000; ANALYZE TABLE texts"
    )

    async def explain(connector: MysqlConnector) -> list[str]:
        assert connector._live is not None
        found = []
        for names in ({"name"}, {"name", "kind"}):
            keys = {"name": [f"name {each}" for each in range(100)], "kind": [*range(100)]}
            request = request_for(SCHEMA, {name: keys[name] for name in keys if name in names})
            [question] = connector._live.statements.of(request, request.keys)
            async with connector._live.pool.borrowed() as connection:
                rows = (await connection.ask(f"EXPLAIN {question.sql}", question.values)).rows
                found += [f"{row[3]} {row[5]}" for row in rows]
        return found

    table = customers(mariadb_server, table_name="texts")
    assert during(MysqlConnector(table), explain) == ["range name", "range name"]
    found = ask(table, {"name": ["name 7", "NAME 8", "name 9 "]})
    assert [row["id"] for row in found if row["name"] in ("name 7", "NAME 8", "name 9 ")] == [7]


def test_requests_of_many_sizes_prepare_few_statements(mariadb_server: MariaDbServer) -> None:
    async def prepared(connector: MysqlConnector) -> int:
        for size in range(1, 300):
            answer = await connector.alookup(request_for(SCHEMA, {"id": [*range(1, size + 1)]}))
            assert rows_of(answer).num_rows == size
        assert connector._live is not None
        [connection] = connector._live.pool._idle
        return len(connection._statements)

    assert during(MysqlConnector(customers(mariadb_server, pool_size="1")), prepared) == 10


def test_an_answer_that_is_too_large_is_asked_for_in_parts(mariadb_server: MariaDbServer) -> None:
    mariadb_server.execute(
        "CREATE TABLE wide (id BIGINT PRIMARY KEY, kind INT, name MEDIUMTEXT);"
        "INSERT INTO wide SELECT seq, 1, REPEAT('x', 200000) FROM seq_1_to_64"
    )
    table = customers(mariadb_server, table_name="wide", max_bytes_in_flight=f"{COPIES * 4 * 1_000_000} b")

    async def ask_all(connector: MysqlConnector) -> tuple[int, int]:
        fitting, at, rows = 64, 1, 0
        while at < 65:
            request = request_for(SCHEMA, {"id": [*range(at, min(65, at + fitting))]})
            try:
                rows += rows_of(await connector.alookup(request)).num_rows
            except AnswerTooLarge as error:
                fitting = min(fitting - 1, error.keys)
            else:
                at += fitting
        return fitting, rows

    batches = [batch.num_rows for batch in MysqlConnector(table).scan(SCHEMA)]
    assert max(batches) < 64, "large rows are read some at a time"
    assert sum(batches) == 64
    fitting, rows = during(MysqlConnector(table), ask_all)
    assert 1 <= fitting <= 5
    assert rows == 64


# --- rows by order --------------------------------------------------------------------------------


def test_the_nearest_row_and_the_ranges_that_hold_a_value_are_asked_of_the_server(
    mariadb_server: MariaDbServer,
) -> None:
    mariadb_server.execute(
        "CREATE TABLE prices (sym VARCHAR(9) CHARACTER SET latin1, since DATETIME(6), until DATETIME(6), price INT, KEY (sym, since));"
        "INSERT INTO prices SELECT IF(seq % 2, 'a', 'b'), '2024-01-01' + INTERVAL seq DAY, '2024-01-03' + INTERVAL seq DAY, seq"
        " FROM seq_1_to_300; INSERT INTO prices SELECT 'a', '2023-01-01', NULL, 0 FROM seq_1_to_3"
    )
    stamp = pa.timestamp("us")
    schema = pa.schema([("sym", pa.string()), ("since", stamp), ("until", stamp), ("price", pa.int32())])
    table = LookupTable("prices", schema, (), {"connector": "mysql", **mariadb_server.options()})

    def asked(order: OrderCondition, keys: list[str], values: list[str]) -> list[tuple[int, int]]:
        moments = pa.array(values).cast(stamp)
        request = LookupRequest(pa.table({"sym": keys, "value": moments}), schema, 30, order=order)
        answer = during(MysqlConnector(table), lambda connector: connector.alookup(request))
        assert isinstance(answer, PlacedRows)
        assert answer.positions is not None
        return sorted(zip(answer.positions.to_pylist(), answer.rows.column("price").to_pylist(), strict=True))

    nearest = OrderCondition("since")
    days = ["2024-01-04", "2024-01-04", "2022-01-01", "2023-06-01", "2999-01-01"]
    assert asked(nearest, ["a", "b", "a", "a", "日"], days) == [(0, 3), (1, 2), (3, 0)]
    assert asked(OrderCondition("since", "<"), ["a", "b"], days[:2]) == [(0, 5), (1, 4)]
    holding = OrderCondition("since", until="until")
    assert asked(holding, ["a", "b"], ["2024-01-04 12:00:00", "2024-01-04 00:00:00"]) == [
        *((0, price) for price in (0, 0, 0, 3)),
        (1, 2),
    ]
    # Here `until` says from when a row is known: two days after it begins, and for those of 2023 never.
    known = OrderCondition("since", known_from="until")
    assert asked(known, ["a", "b", "a"], ["2024-01-04 12:00:00", "2024-01-04", "2023-06-01"]) == [(0, 1)]
    mariadb_server.execute("INSERT INTO prices VALUES ('a', '2024-01-02', '2024-01-04 06:00:00', 77)")
    assert asked(known, ["a", "a"], ["2024-01-04 05:00:00", "2024-01-04 06:00:00"]) == [(0, 1), (1, 77)]
    many = [f"2024-0{1 + at % 9}-15" for at in range(200)]
    assert len(asked(nearest, ["a"] * 200, many)) == 200


# --- faults ---------------------------------------------------------------------------------------


def test_a_line_cut_in_the_middle_of_an_answer_may_pass_and_the_next_lookup_works(
    mariadb_server: MariaDbServer, line: FaultProxy
) -> None:
    async def cut_then_ask(connector: MysqlConnector) -> tuple[ConnectorError, int]:
        line.cut_after(5000)
        request = request_for(SCHEMA, {"id": [*range(1, 20_001)]})
        failed = await awaited_failure(connector.alookup(request))
        line.flow()
        return failed, rows_of(await connector.alookup(request)).num_rows

    connector = MysqlConnector(customers(mariadb_server, port=line.port, pool_size="1"))
    failed, rows = during(connector, cut_then_ask)
    assert not failed.permanent
    assert connector.ending(failed) == "lost"
    assert rows == 20_000


def test_idle_connections_that_were_cut_are_replaced_unnoticed(
    mariadb_server: MariaDbServer, line: FaultProxy
) -> None:
    async def cut_then_ask(connector: MysqlConnector) -> int:
        line.cut()
        assert connector._live is not None
        [rests] = connector._live.pool._idle
        await until(lambda: not rests.is_usable)  # the loop has seen the reset
        return int(rows_of(await connector.alookup(request_for(SCHEMA, {"id": [1]}))).num_rows)

    assert during(MysqlConnector(customers(mariadb_server, port=line.port)), cut_then_ask) == 1


def test_an_unused_connection_is_closed_and_replaced(mariadb_server: MariaDbServer, line: FaultProxy) -> None:
    async def ask_wait_ask(connector: MysqlConnector) -> int:
        await until(lambda: line.connections == 0)
        before = line.accepted
        answer = await connector.alookup(request_for(SCHEMA, {"id": [1]}))
        assert line.accepted == before + 1
        return int(rows_of(answer).num_rows)

    table = customers(mariadb_server, port=line.port, idle_timeout="50 ms")
    assert during(MysqlConnector(table), ask_wait_ask) == 1


def test_a_refused_connection_may_pass(mariadb_server: MariaDbServer) -> None:
    connector = MysqlConnector(customers(mariadb_server, port=free_port()))
    error = failure_of(lambda: asyncio.run(connector.aopen()))
    assert not error.permanent
    assert connector.ending(error) == "lost"


def test_too_many_connections_may_pass_and_are_a_refusal(mariadb_server: MariaDbServer) -> None:
    mariadb_server.execute(
        "CREATE USER crowd@'127.0.0.1' IDENTIFIED BY 'pw' WITH MAX_USER_CONNECTIONS 1; GRANT SELECT ON shop.* TO crowd@'127.0.0.1'"
    )
    connector = MysqlConnector(customers(mariadb_server, url=mariadb_server.url(user="crowd", password="pw")))

    async def ask_at_once(connector: MysqlConnector) -> list[Any]:
        requests = [request_for(SCHEMA, {"id": [each]}) for each in range(1, 30)]
        return [*await asyncio.gather(*map(connector.alookup, requests), return_exceptions=True)]

    refused = [each for each in during(connector, ask_at_once) if isinstance(each, ConnectorError)]
    assert refused
    assert not any(each.permanent for each in refused)
    assert {connector.ending(each) for each in refused} == {"refused"}
    assert "max_user_connections" in str(refused[0])


def test_a_server_that_restarts_or_is_killed_may_pass() -> None:
    for server in running_mariadb():
        server.execute("CREATE TABLE customers AS SELECT 1 AS id, 1 AS kind, 'name 1' AS name")

        async def across(connector: MysqlConnector, server: MariaDbServer = server) -> list[Any]:
            request, seen = request_for(SCHEMA, {"id": [1]}), []
            for end in (server.stop, server.kill):
                await asyncio.to_thread(end)
                failed = await awaited_failure(connector.alookup(request))
                await asyncio.to_thread(server.start)
                seen += [failed.permanent, rows_of(await connector.alookup(request)).to_pylist()]
            return seen

        assert during(MysqlConnector(customers(server)), across) == [False, [ROW_1], False, [ROW_1]]


def test_a_restart_under_load_loses_no_row_and_gives_no_wrong_one() -> None:
    for server in running_mariadb():
        server.execute(
            "CREATE TABLE customers (id BIGINT PRIMARY KEY, kind INT, name TEXT) AS SELECT seq AS id, seq % 10 AS kind, CONCAT('name ', seq) AS name FROM seq_1_to_3000"
        )

        async def load(connector: MysqlConnector, server: MariaDbServer = server) -> tuple[int, int]:
            seen = Counter[str]()
            is_over = False

            async def ask_on(begin: int) -> None:
                while not is_over:
                    keys = [*range(begin, begin + 50)]
                    try:
                        found = rows_of(await connector.alookup(request_for(SCHEMA, {"id": keys})))
                    except ConnectorError as error:
                        seen["permanent" if error.permanent else "failures"] += 1
                        await asyncio.sleep(0.02)
                    else:
                        assert sorted(found.column("id").to_pylist()) == keys
                        assert all(row["name"] == f"name {row['id']}" for row in found.to_pylist())
                        seen["answers"] += 1

            tasks = [asyncio.ensure_future(ask_on(50 * each + 1)) for each in range(8)]
            for goal, end in ((20, server.kill), (500, server.stop)):
                await until(partial(lambda goal: seen["answers"] > goal, goal))
                await asyncio.to_thread(end)
                await asyncio.to_thread(server.start)
            await until(lambda: seen["answers"] > 1000)
            is_over = True
            await asyncio.gather(*tasks)
            return seen["failures"], seen["permanent"]

        failures, permanent = during(MysqlConnector(customers(server, pool_size="3")), load)
        assert failures
        assert not permanent


def test_a_slow_query_times_out_and_is_ended_on_the_server(mariadb_server: MariaDbServer) -> None:
    async def ask_slowly(connector: MysqlConnector) -> float:
        start = time.monotonic()
        failed = await awaited_failure(connector.alookup(request_for(SCHEMA, {"id": [7]}, timeout=0.3)))
        took = time.monotonic() - start
        assert isinstance(failed, LookupTimeout)
        assert str(failed) == "table customers: the server had no answer within 0.3 s."
        deadline = time.monotonic() + 60
        while await asyncio.to_thread(mariadb_server.fetch, BUSY):
            assert time.monotonic() < deadline, "the server still runs the query"
        assert rows_of(await connector.alookup(request_for(SCHEMA, {"id": [8]}))).num_rows == 1
        return took

    table = customers(mariadb_server, table_name="slow_customers", pool_size="1")
    assert during(MysqlConnector(table), ask_slowly) < 2


def test_a_stalled_server_times_out_in_time_and_its_connection_is_thrown_away(
    mariadb_server: MariaDbServer, line: FaultProxy
) -> None:
    async def stall_then_ask(connector: MysqlConnector) -> tuple[float, int]:
        line.stall()
        start = time.monotonic()
        failed = await awaited_failure(connector.alookup(request_for(SCHEMA, {"id": [1]}, timeout=0.3)))
        took = time.monotonic() - start
        assert isinstance(failed, LookupTimeout)
        line.flow()
        return took, rows_of(await connector.alookup(request_for(SCHEMA, {"id": [2]}))).num_rows

    took, rows = during(
        MysqlConnector(customers(mariadb_server, port=line.port, pool_size="1")), stall_then_ask
    )
    assert took < 2
    assert rows == 1


def test_an_answer_that_trickles_is_read_whole(mariadb_server: MariaDbServer, line: FaultProxy) -> None:
    async def ask_slowly(connector: MysqlConnector) -> int:
        line.delay(0.01)
        return int(rows_of(await connector.alookup(request_for(SCHEMA, {"id": [*range(1, 3001)]}))).num_rows)

    assert during(MysqlConnector(customers(mariadb_server, port=line.port)), ask_slowly) == 3000


def test_a_cancelled_lookup_leaves_no_rows_to_the_next_one(mariadb_server: MariaDbServer) -> None:
    async def cancel_often(connector: MysqlConnector) -> int:
        for wait in range(30):
            task = asyncio.ensure_future(connector.alookup(request_for(SCHEMA, {"id": [*range(1, 4001)]})))
            await asyncio.sleep(wait / 2000)
            task.cancel()
            found = rows_of(await connector.alookup(request_for(SCHEMA, {"id": [1]}))).to_pylist()
            assert found == [ROW_1]
        return 1

    assert during(MysqlConnector(customers(mariadb_server, pool_size="1")), cancel_often) == 1


def test_a_table_that_is_left_while_it_is_read_ends_its_statement(mariadb_server: MariaDbServer) -> None:
    rows = MysqlConnector(customers(mariadb_server)).scan(SCHEMA)
    assert next(rows).num_rows
    rows.close()  # type: ignore[attr-defined]
    deadline = time.monotonic() + 30
    while mariadb_server.fetch(
        "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'SELECT `id`, `kind`%'"
    ):
        assert time.monotonic() < deadline


# --- the whole table ------------------------------------------------------------------------------


def test_ranges_of_the_key_hold_each_row_once_also_those_that_come_later(
    mariadb_server: MariaDbServer,
) -> None:
    connector = MysqlConnector(customers(mariadb_server))
    parts = connector.partitions(8)
    assert parts == (":50001:id", "50001::id")
    mariadb_server.execute("INSERT INTO customers VALUES (-5, 0, 'low'), (500000, 0, 'high')")
    try:
        read = [pa.Table.from_batches(connector.scan_partition(SCHEMA, part), SCHEMA) for part in parts]
        ids = [each for table in read for each in table.column("id").to_pylist()]
        assert sorted(ids) == [-5, *range(1, 100_001), 500_000]
        only = pa.schema([SCHEMA.field("name")])
        assert pa.Table.from_batches(connector.scan(only), only).num_rows == 100_002
    finally:
        mariadb_server.execute("DELETE FROM customers WHERE id IN (-5, 500000)")
    size = connector.statistics()
    assert size.rows is not None
    assert 80_000 < size.rows < 120_000
    assert size.distinct["kind"] < 1000

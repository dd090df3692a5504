"""Redis: what is asked, how values become columns, and what goes wrong, against a real Valkey."""

from __future__ import annotations

import asyncio
import contextlib
import re
import select
import socketserver
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.redis import RedisConnector
from lookup_connectors.redis.connections import RedisEndpoint
from redis.exceptions import BusyLoadingError, ReadOnlyError, ResponseError

from lookup_hints.errors import ConnectorError, NotAllowed, OptionError
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable, Outcomes
from lookup_hints.spi.security_policy import Policy
from tests.servers.certificates import Certificates
from tests.servers.postgres import free_port
from tests.servers.proxy import FaultProxy, faulty_line
from tests.servers.redis import PASSWORD, USER, RedisServer, running_redis
from tests.servers.tls import tls_front
from tests.unit.connectors import asking
from tests.unit.connectors.asking import Result, awaited_failure, failure_of, request_for

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("seats", pa.int32())])
BOTH = pytest.mark.parametrize("runner", ["sync", "async"])


def table_of(server: RedisServer | None = None, schema: pa.Schema = SCHEMA, /, **options: str) -> LookupTable:
    given = {"connector": "redis", "key": "plane:{id}", **({"url": server.url} if server else {})}
    given |= {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return LookupTable("planes", schema, options=given)


def asked(table: LookupTable, request: LookupRequest, runner: str = "sync") -> Outcomes:
    connector = RedisConnector(table)
    connector.check()
    if runner == "async":
        answer = asyncio.run(_asked_async(connector, request))
    else:
        connector.open()
        try:
            answer = connector.lookup(request)
        finally:
            connector.close()
    assert isinstance(answer, Outcomes)
    return answer


async def _asked_async(connector: RedisConnector, request: LookupRequest) -> Any:
    await connector.aopen()
    try:
        return await connector.alookup(request)
    finally:
        await connector.aclose()


def rows(
    table: LookupTable, keys: dict[str, list[Any]], runner: str = "sync", columns: list[str] | None = None
) -> list[dict[str, Any]]:
    """All rows of ``keys``, none of which fails."""
    answer = asked(table, request_for(table.schema, keys, columns=columns), runner)
    assert not answer.failures
    found: list[dict[str, Any]] = answer.rows.to_pylist()
    return found


def failures(table: LookupTable, keys: dict[str, list[Any]], runner: str = "sync") -> dict[int, str]:
    """What is said about the keys that fail, by their place."""
    answer = asked(table, request_for(table.schema, keys), runner)
    assert all(isinstance(error, ConnectorError) and error.permanent for error in answer.failures.values())
    return {place: str(error) for place, error in answer.failures.items()}


# --- values ---------------------------------------------------------------------------------------


@BOTH
def test_a_hash_is_a_row(redis_server: RedisServer, runner: str) -> None:
    redis_server.run("HSET", "plane:1", "name", "Grüße 👋", "seats", "12", "other", "x")
    redis_server.run("HSET", "plane:2", "name", "")
    assert rows(table_of(redis_server), {"id": [3, 2, 1]}, runner) == [
        {"id": 2, "name": "", "seats": None},
        {"id": 1, "name": "Grüße 👋", "seats": 12},
    ]


@BOTH
def test_a_string_is_one_column(redis_server: RedisServer, runner: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    redis_server.run("MSET", "plane:1", "one", "plane:2", "")
    table = table_of(redis_server, schema, value_type="string")
    assert rows(table, {"id": [1, 2, 3]}, runner) == [{"id": 1, "name": "one"}, {"id": 2, "name": ""}]


@BOTH
def test_json_is_a_row_or_many(redis_server: RedisServer, runner: str) -> None:
    redis_server.run("SET", "plane:1", '{"name": "one", "seats": 2, "more": [1]}')
    redis_server.run("SET", "plane:2", '[{"name": "a"}, null, {"seats": 3}]')
    redis_server.run("MSET", "plane:3", "null", "plane:4", "[]")
    assert rows(table_of(redis_server, value_type="json"), {"id": [1, 2, 3, 4, 5]}, runner) == [
        {"id": 1, "name": "one", "seats": 2},
        {"id": 2, "name": "a", "seats": None},
        {"id": 2, "name": None, "seats": 3},
    ]


@pytest.mark.parametrize("kind", ["hash", "json"])
def test_a_column_may_have_another_name_in_the_value(redis_server: RedisServer, kind: str) -> None:
    redis_server.run("HSET", "plane:1", "Full Name", "one")
    if kind == "json":
        redis_server.run("SET", "plane:1", '{"Full Name": "one"}')
    table = table_of(redis_server, value_type=kind, field__NAME="Full Name")
    assert rows(table, {"id": [1]}) == [{"id": 1, "name": "one", "seats": None}]


TYPES = [
    (pa.int8(), "-128", -128),
    (pa.int64(), "9223372036854775807", 2**63 - 1),
    (pa.float64(), "1.5e300", 1.5e300),
    (pa.float32(), "0.5", 0.5),
    (pa.decimal128(5, 2), "123.45", Decimal("123.45")),
    (pa.bool_(), "true", True),
    (pa.bool_(), "0", False),
    (pa.string(), " x ", " x "),
    (pa.binary(), b"\xff\x00", b"\xff\x00"),
    (pa.binary(), "text", b"text"),
    (pa.date32(), "2024-02-29", date(2024, 2, 29)),
    (pa.timestamp("us"), "2024-01-01T12:30:00.5", datetime(2024, 1, 1, 12, 30, 0, 500_000)),
    (pa.timestamp("us", "UTC"), "2024-01-01T12:30:00+02:00", datetime(2024, 1, 1, 10, 30, tzinfo=timezone.utc)),
    (pa.list_(pa.int32()), "[1, null]", [1, None]),
    (pa.struct([("a", pa.string())]), '{"a": "b", "c": 1}', {"a": "b"}),
    (pa.map_(pa.string(), pa.int64()), '{"a": 1}', [("a", 1)]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "stored", "expected"), TYPES, ids=lambda each: str(each)[:30])
@pytest.mark.parametrize("value_type", ["string", "hash"])
def test_a_text_becomes_the_type_of_its_column(
    redis_server: RedisServer, kind: pa.DataType, stored: str | bytes, expected: object, value_type: str
) -> None:
    if value_type == "hash":
        redis_server.run("HSET", "plane:1", "v", stored)
    else:
        redis_server.run("SET", "plane:1", stored)
    table = table_of(redis_server, pa.schema([("id", pa.int64()), ("v", kind)]), value_type=value_type)
    assert rows(table, {"id": [1]}) == [{"id": 1, "v": expected}]


@BOTH
@pytest.mark.parametrize(
    ("kind", "stored", "shown"),
    [
        (pa.int32(), "12.5", "'12.5' (str) does not fit INT"),
        (pa.int32(), "", "'' (str) does not fit INT"),
        (pa.int8(), "128", "'128' (str) does not fit TINYINT"),
        (pa.decimal128(5, 2), "1.005", "'1.005' (str) does not fit DECIMAL(5,2)"),
        (pa.date32(), "29.2.2024", "'29.2.2024' (str) does not fit DATE"),
        (pa.timestamp("us", "UTC"), "2024-01-01", "'2024-01-01' (str) does not fit TIMESTAMP_LTZ. It has no"),
        (pa.string(), b"\xff", "b'\\xff' (bytes) does not fit STRING"),
        (pa.list_(pa.int32()), "[1", "'[1' (str) does not fit ARRAY<INT>"),
    ],
)
def test_a_value_that_does_not_fit_fails_its_key_alone_and_is_named(
    redis_server: RedisServer, kind: pa.DataType, stored: str | bytes, shown: str, runner: str
) -> None:
    redis_server.run("HSET", "plane:1", "v", stored)
    redis_server.run("HSET", "plane:2", "w", "fine")
    schema = pa.schema([("id", pa.int64()), ("v", kind), ("w", pa.string())])
    answer = asked(table_of(redis_server, schema), request_for(schema, {"id": [1, 2, 3]}), runner)
    assert answer.rows.to_pylist() == [{"id": 2, "v": None, "w": "fine"}]
    assert answer.positions == pa.array([1], pa.int32())
    [(place, error)] = answer.failures.items()
    assert place == 0
    assert str(error).startswith(f"table planes: column 'v' of the row at 'plane:1': {shown}"), error


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("{", "the value at 'plane:1' is not JSON: b'{' came."),
        (b"\xff", "the value at 'plane:1' is not JSON: b'\\xff' came."),
        ("7", "is neither a JSON object nor an array of objects: 7 came."),
        ('["x"]', 'is neither a JSON object nor an array of objects: "x" came.'),
        ('{"error": "quota"}', """has none of the columns: {"error": "quota"} came. 'field.<column>'"""),
        ('{"seats": "12"}', "column 'seats' of the row at 'plane:1': '12' (str) does not fit INT"),
        ('[{"seats": 1}, {"seats": 1.5}]', "Decimal('1.5') (Decimal) does not fit INT"),
    ],
)
def test_json_that_is_no_row_fails_its_key_alone(
    redis_server: RedisServer, stored: str | bytes, shown: str
) -> None:
    redis_server.run("MSET", "plane:1", stored, "plane:2", '{"name": "fine"}')
    answer = asked(table_of(redis_server, value_type="json"), request_for(SCHEMA, {"id": [1, 2]}))
    assert answer.rows.to_pylist() == [{"id": 2, "name": "fine", "seats": None}]
    assert list(answer.failures) == [0]
    assert shown in str(answer.failures[0])


@BOTH
@pytest.mark.parametrize(
    ("value_type", "command", "shown"),
    [
        ("hash", ("SET", "plane:1", "x"), "is not a hash"),
        ("string", ("HSET", "plane:1", "a", "b"), "is not a string"),
        ("json", ("RPUSH", "plane:1", "a"), "is not a string"),
    ],
)
def test_another_kind_of_value_is_an_error_and_no_miss(
    redis_server: RedisServer, value_type: str, command: tuple[str, ...], shown: str, runner: str
) -> None:
    redis_server.run(*command)
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    said = failures(table_of(redis_server, schema, value_type=value_type), {"id": [2, 1, 3]}, runner)
    assert said == {1: f"table planes: the value at 'plane:1' {shown}: see 'value-type'."}


@BOTH
def test_a_hash_without_the_fields_asked_for_is_there(redis_server: RedisServer, runner: str) -> None:
    redis_server.run("HSET", "plane:1", "other", "x")
    table = table_of(redis_server)
    assert rows(table, {"id": [1, 2]}, runner) == [{"id": 1, "name": None, "seats": None}]
    assert rows(table, {"id": [1, 2]}, runner, columns=["id"]) == [{"id": 1}]


# --- keys -----------------------------------------------------------------------------------------


def test_several_columns_of_several_types_make_a_key(redis_server: RedisServer) -> None:
    schema = pa.schema(
        [
            *[("day", pa.date32()), ("price", pa.decimal128(5, 2)), ("open", pa.bool_())],
            *[("at", pa.timestamp("us", "UTC")), ("text", pa.string()), ("v", pa.string())],
        ]
    )
    at = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
    redis_server.run("SET", "{x}2024-02-29|1.50|true|2024-01-01T12:00:00Z|a b:{c}\n👋", "found")
    table = table_of(redis_server, schema, key="{{x}}{day}|{price}|{open}|{at}|{TEXT}", value_type="string")
    key = {"text": "a b:{c}\n👋", "day": date(2024, 2, 29), "price": Decimal("1.5"), "open": True, "at": at}
    [row] = rows(table, {name: [value] for name, value in key.items()})
    assert row == {**key, "v": "found"}
    connector = RedisConnector(table)
    assert connector.key_columns() == connector.required_keys() == frozenset(key)


def test_a_key_may_have_a_hash_tag(redis_server: RedisServer) -> None:
    redis_server.run("SET", "user:{7}:profile", "Ada")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    table = table_of(redis_server, schema, key="user:{{{id}}}:profile", value_type="string")
    assert asked(table, request_for(schema, {"id": [7]})).rows.to_pylist() == [{"id": 7, "name": "Ada"}]


def test_a_key_with_the_text_of_another_one_fails_alone(redis_server: RedisServer) -> None:
    redis_server.run("SET", "t:x:y:z", "Ada")
    schema = pa.schema([("a", pa.string()), ("b", pa.string()), ("name", pa.string())])
    table = table_of(redis_server, schema, key="t:{a}:{b}", value_type="string")
    answer = asked(table, request_for(schema, {"a": ["x", "x:y"], "b": ["y:z", "z"]}))
    assert answer.rows.to_pylist() == [{"a": "x", "b": "y:z", "name": "Ada"}]
    assert list(answer.failures) == [1]
    assert "the key a = 'x:y', b = 'z' has the same text as another one" in str(answer.failures[1])


def test_an_empty_text_is_a_key(redis_server: RedisServer) -> None:
    redis_server.run("HSET", "plane:", "seats", "1")
    schema = pa.schema([("id", pa.string()), ("seats", pa.int32())])
    assert rows(table_of(redis_server, schema), {"id": ["", " "]}) == [{"id": "", "seats": 1}]


def test_a_reference_in_the_key_is_resolved(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGE", "test{id}")
    redis_server.run("HSET", "test{id}:7", "seats", "1")
    table = table_of(redis_server, key="${env:STAGE}:{id}")
    assert [row["seats"] for row in rows(table, {"id": [7]})] == [1]


def commands(server: RedisServer, *names: str) -> dict[str, int]:
    """How often the server was asked each command."""
    with server.client() as client:
        stats: dict[str, Any] = client.info("commandstats")
    return {name: stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in names}


@BOTH
def test_a_thousand_strings_are_one_command_and_what_misses_one_more(
    redis_server: RedisServer, runner: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    redis_server.run("MSET", *[part for number in range(2500) for part in (f"plane:{number}", "x")])
    table = table_of(redis_server, schema, value_type="string")
    redis_server.run("CONFIG", "RESETSTAT")
    assert len(rows(table, {"id": list(range(2500))}, runner)) == 2500
    assert commands(redis_server, "mget", "get", "exists") == {"mget": 3, "get": 0, "exists": 0}
    assert rows(table, {"id": list(range(5000, 6000))}, runner) == []
    assert commands(redis_server, "mget", "get", "exists") == {"mget": 4, "get": 0, "exists": 1}


@BOTH
def test_hashes_are_asked_for_the_wanted_fields_alone(redis_server: RedisServer, runner: str) -> None:
    redis_server.run("HSET", "plane:1", "name", "one", "seats", "broken")
    redis_server.run("CONFIG", "RESETSTAT")
    table = table_of(redis_server)
    assert rows(table, {"id": [1]}, runner, columns=["id", "name"]) == [{"id": 1, "name": "one"}]
    assert commands(redis_server, "hmget", "hgetall", "hlen") == {"hmget": 1, "hgetall": 0, "hlen": 0}


# --- connections ----------------------------------------------------------------------------------


def during(table: LookupTable, action: Callable[[RedisConnector], Awaitable[Result]]) -> Result:
    """What ``action`` gives on the opened connector of ``table``."""
    return asking.during(RedisConnector(table), action)


def test_lookups_wait_for_a_connection_where_all_are_taken(redis_server: RedisServer) -> None:
    redis_server.run("HSET", "plane:1", "seats", "1")

    async def ask_forty(connector: RedisConnector) -> tuple[int, int]:
        answers = await asyncio.gather(
            *(connector.alookup(request_for(SCHEMA, {"id": [1]})) for _ in range(40))
        )
        return sum(answer.rows.num_rows for answer in answers), proxy.accepted

    with faulty_line(redis_server.port) as proxy:
        found, connections = during(table_of(url=f"redis://127.0.0.1:{proxy.port}", pool_size="3"), ask_forty)
    assert found == 40
    assert connections <= 3


def test_a_cancelled_lookup_takes_no_other_s_answer(redis_server: RedisServer) -> None:
    redis_server.run("HSET", "plane:1", "seats", "1")
    redis_server.run("HSET", "plane:2", "seats", "2")

    async def cancel_and_ask(connector: RedisConnector) -> list[Any]:
        proxy.delay(0.2)
        task = asyncio.ensure_future(connector.alookup(request_for(SCHEMA, {"id": [1]})))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        answer = await connector.alookup(request_for(SCHEMA, {"id": [2]}))
        return [row["seats"] for row in answer.rows.to_pylist()]

    with faulty_line(redis_server.port) as proxy:
        table = table_of(url=f"redis://127.0.0.1:{proxy.port}", pool_size="1")
        assert during(table, cancel_and_ask) == [2]


def url_of(server: RedisServer, user: str, password: str) -> str:
    return f"redis://{user}:{password}@127.0.0.1:{server.port}"


@BOTH
def test_a_user_and_a_password_open_the_door(redis_server: RedisServer, runner: str) -> None:
    redis_server.run("HSET", "plane:1", "seats", "1")
    parts = {"host": "127.0.0.1", "port": str(redis_server.port), "username": USER, "password": PASSWORD}
    for table in (table_of(url=url_of(redis_server, USER, "s3cret-p%C3%A4ssword")), table_of(**parts)):
        assert [row["seats"] for row in rows(table, {"id": [1]}, runner)] == [1]


@BOTH
@pytest.mark.parametrize(
    ("user", "password", "shown"),
    [
        ("reader", "wr0ng-pass", "Check 'username' and 'password'."),
        ("nobody", "wr0ng-pass", "Check 'username' and 'password'."),
        ("nosy", "wr0ng-pass", "Give the user the right to read these keys."),
    ],
)
def test_a_refused_user_is_a_permanent_error_without_the_password(
    redis_server: RedisServer, user: str, password: str, shown: str, runner: str
) -> None:
    redis_server.run("ACL", "SETUSER", "nosy", "on", ">wr0ng-pass", "~other:*", "+@read", "+@connection")
    table = table_of(url=url_of(redis_server, user, password))
    error = failure_of(lambda: rows(table, {"id": [1]}, runner))
    assert error.permanent
    assert shown in str(error)
    assert str(error).startswith(f"table planes: Redis at 127.0.0.1:{redis_server.port}: ")
    assert "wr0ng-pass" not in f"{error}{error!r}{RedisConnector(table)!r}{table!r}{error.__cause__}"


@BOTH
def test_a_password_that_the_server_wants_is_asked_for(tmp_path: Path, runner: str) -> None:
    with running_redis() as server:
        server.run("CONFIG", "SET", "requirepass", "needed-pass")
        error = failure_of(lambda: rows(table_of(server), {"id": [1]}, runner))
        assert error.permanent
        assert "Give 'password' (and 'username')." in str(error)
        table = table_of(host="127.0.0.1", port=str(server.port), password="needed-pass")
        assert rows(table, {"id": [1]}, runner) == []


@BOTH
def test_tls_is_checked(redis_server: RedisServer, certificates: Certificates, runner: str) -> None:
    redis_server.run("HSET", "plane:1", "seats", "1")
    with tls_front(redis_server.port, certificates, asked_first=False) as port:
        good = {"url": f"rediss://localhost:{port}", "tls_ca": str(certificates.authority)}
        assert len(rows(table_of(**good), {"id": [1]}, runner)) == 1
        parts = {"host": "localhost", "port": str(port), "tls": "true", "tls_ca": str(certificates.authority)}
        assert len(rows(table_of(**parts), {"id": [1]}, runner)) == 1
        for change in (
            {"tls_ca": str(certificates.other_authority)},
            {"url": f"rediss://127.0.0.1:{port}"},  # another name than the certificate's
        ):
            error = failure_of(lambda: rows(table_of(**{**good, **change}), {"id": [1]}, runner))  # noqa: B023
            assert error.permanent
            assert "is not trusted" in str(error)
            assert "'tls-ca'" in str(error)


@BOTH
def test_a_client_certificate_is_shown(
    redis_server: RedisServer, certificates: Certificates, runner: str
) -> None:
    with tls_front(redis_server.port, certificates, client_certificates=True, asked_first=False) as port:
        known = {"url": f"rediss://localhost:{port}", "tls_ca": str(certificates.authority)}
        shown = {"tls_cert": str(certificates.client_certificate), "tls_key": str(certificates.client_key)}
        assert rows(table_of(**known, **shown), {"id": [1]}, runner) == []
        failure_of(lambda: rows(table_of(**known), {"id": [1]}, runner))


# --- failures -------------------------------------------------------------------------------------


@pytest.fixture
def line(redis_server: RedisServer) -> Iterator[FaultProxy]:
    redis_server.run("HSET", "plane:1", "seats", "1")
    with faulty_line(redis_server.port) as proxy:
        yield proxy


def over(line: FaultProxy, **options: str) -> LookupTable:
    return table_of(url=f"redis://127.0.0.1:{line.port}", **options)


@BOTH
def test_a_refused_connection_may_pass(line: FaultProxy, runner: str) -> None:
    line.refuse()
    error = failure_of(lambda: rows(over(line), {"id": [1]}, runner))
    assert not error.permanent
    assert f"Redis at 127.0.0.1:{line.port}" in str(error)


@BOTH
def test_a_line_that_breaks_is_an_error_that_may_pass_and_the_next_lookup_has_a_new_one(
    line: FaultProxy, runner: str
) -> None:
    request = request_for(SCHEMA, {"id": [1]})

    async def ask(connector: RedisConnector) -> tuple[list[ConnectorError], Any]:
        errors = []
        for limit in (0, 5):
            line.cut_after(limit)
            errors.append(await awaited_failure(connector.alookup(request)))
            line.flow()
        return errors, await connector.alookup(request)

    if runner == "async":
        errors, answer = during(over(line, pool_size="1"), ask)
    else:
        connector = RedisConnector(over(line))
        connector.open()
        errors = []
        for limit in (0, 5):
            line.cut_after(limit)
            errors.append(failure_of(lambda: connector.lookup(request)))
            line.flow()
        answer = connector.lookup(request)
        connector.close()
    assert [error.permanent for error in errors] == [False, False]
    assert answer.rows.to_pylist() == [{"id": 1, "name": None, "seats": 1}]


@BOTH
def test_an_idle_connection_that_was_cut_costs_no_failure(line: FaultProxy, runner: str) -> None:
    request = request_for(SCHEMA, {"id": [1]})

    async def ask(connector: RedisConnector) -> Any:
        await connector.alookup(request)
        await asyncio.to_thread(line.cut)
        await asyncio.sleep(0.05)  # for the news to arrive
        return await connector.alookup(request)

    if runner == "async":
        answer = during(over(line, pool_size="1"), ask)
    else:
        connector = RedisConnector(over(line))
        connector.open()
        connector.lookup(request)
        assert connector._live is not None
        [idle] = connector._live._client.connection_pool._available_connections
        line.cut()
        assert select.select([idle._sock], [], [], 10)[0], "the news has arrived"
        answer = connector.lookup(request)
        connector.close()
    assert answer.rows.num_rows == 1


class _Mixed(socketserver.BaseRequestHandler):
    """Replies PONG to each command, and to MGET with the value of one key."""

    def handle(self) -> None:
        while sent := self.request.recv(65536):
            for command in re.split(rb"\*\d+\r\n", sent)[1:]:
                is_asked = command.startswith(b"$4\r\nMGET")
                self.request.sendall(b"*1\r\n$1\r\nx\r\n" if is_asked else b"+PONG\r\n")


@BOTH
def test_what_is_no_reply_to_its_command_may_pass_and_is_told(runner: str) -> None:
    schema = pa.schema(list(SCHEMA)[:2])
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Mixed) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"redis://127.0.0.1:{server.server_address[1]}/0"
            table = table_of(None, schema, url=url, value_type="string")
            error = failure_of(lambda: asked(table, request_for(schema, {"id": [1, 2, 3]}), runner))
        finally:
            server.shutdown()
            thread.join()
    assert not error.permanent
    assert str(error).endswith(
        "a list of 1 came in reply to MGET with 3 arguments. Something between here and the server mixes up"
        " replies, or it is no Redis."
    )


@BOTH
def test_silence_ends_in_time_and_may_pass(line: FaultProxy, runner: str) -> None:
    line.stall()
    table = over(line, request_timeout="200 ms", connect_timeout="20 s")
    error = failure_of(lambda: rows(table, {"id": [1]}, runner))
    assert not error.permanent
    assert "'request-timeout'" in str(error)


def test_a_lookup_has_no_more_time_than_it_is_given(line: FaultProxy) -> None:
    async def ask(connector: RedisConnector) -> ConnectorError:
        line.stall()
        try:
            return await awaited_failure(connector.alookup(request_for(SCHEMA, {"id": [1]}, timeout=0.1)))
        finally:
            line.flow()

    assert "no answer within 0.1 s" in str(during(over(line), ask))


@BOTH
def test_a_script_that_keeps_the_server_busy_may_pass(runner: str) -> None:
    with running_redis("--busy-reply-threshold", "10") as server, server.client() as client:
        connector = RedisConnector(table_of(server))
        thread = threading.Thread(target=_loop_for_ever, args=(server,), daemon=True)
        thread.start()
        try:
            while True:  # until the server has noticed
                with contextlib.suppress(ConnectorError):
                    asked(table_of(server), request_for(SCHEMA, {"id": [1]}), runner)
                    continue
                break
            error = failure_of(lambda: asked(connector.table, request_for(SCHEMA, {"id": [1]}), runner))
        finally:
            client.script_kill()
            thread.join(10)
        assert not error.permanent
        assert "BUSY" in str(error).upper()


def _loop_for_ever(server: RedisServer) -> None:
    with contextlib.suppress(ResponseError):
        server.run("EVAL", "while true do end", 0)


@pytest.mark.parametrize(
    ("error", "permanent"),
    [
        (BusyLoadingError("Redis is loading the dataset in memory"), False),
        (ReadOnlyError("You can't write against a read only replica."), False),
        (ResponseError("MASTERDOWN Link with MASTER is down"), False),
        (ConnectionResetError("reset"), False),
        (ResponseError("ERR unknown command 'MGET'"), True),
    ],
)
def test_what_may_pass_is_told_from_what_does_not(error: Exception, permanent: bool) -> None:
    server = RedisEndpoint.of(table_of(url="redis://localhost"))
    explained = server.explained(error)
    assert explained.permanent == permanent
    assert str(explained).startswith("table planes: Redis at localhost:6379: ")


# --- a cluster ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisServer]:
    """A node of a cluster of two, each with half of the keys."""
    # Their ports for each other: ten thousand above their own by default, where there may be none.
    buses = free_port(), free_port()
    settings = ("--cluster-enabled", "yes", "--cluster-node-timeout", "30000", "--cluster-port")
    with running_redis(*settings, str(buses[0])) as first, running_redis(*settings, str(buses[1])) as second:
        first.run("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
        second.run("CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
        first.run("CLUSTER", "MEET", "127.0.0.1", second.port, buses[1])
        pause = threading.Event()
        for server in (first, second):
            for _ in range(1200):
                if b"cluster_state:ok" in _info(server) and b"cluster_known_nodes:2" in _info(server):
                    break
                pause.wait(0.1)
            else:
                raise AssertionError(f"the cluster does not form: {_info(server)!r}")
        yield first


def _info(server: RedisServer) -> bytes:
    told = server.run("CLUSTER", "INFO")
    return told if isinstance(told, bytes) else "\r\n".join(f"{a}:{b}" for a, b in told.items()).encode()


@BOTH
@pytest.mark.parametrize("kind", ["string", "hash"])
def test_a_cluster_is_asked_through_all_its_nodes(cluster: RedisServer, kind: str, runner: str) -> None:
    import redis

    with redis.RedisCluster.from_url(cluster.url) as client:
        client.flushall(target_nodes=redis.RedisCluster.PRIMARIES)
        for number in range(100):
            if kind == "hash":
                client.hset(f"plane:{number}", "name", f"n{number}")
            else:
                client.set(f"plane:{number}", f"n{number}")
        client.rpush("plane:100", "a list")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    table = table_of(cluster, schema, value_type=kind, cluster="true")
    found = rows(table, {"id": [*range(90), 500]}, runner)
    assert found == [{"id": number, "name": f"n{number}"} for number in range(90)]
    assert failures(table, {"id": [1, 100]}, runner) == {
        1: f"table planes: the value at 'plane:100' is not a {kind}: see 'value-type'."
    }
    error = failure_of(
        lambda: rows(table_of(cluster, schema, value_type=kind), {"id": list(range(90))}, runner)
    )
    assert error.permanent
    assert "'cluster' = 'true'" in str(error)


@pytest.mark.parametrize("runner", ["sync", "async"])
def test_nodes_that_a_cluster_lists_must_be_allowed(cluster: RedisServer, runner: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    both = table_of(cluster, schema, value_type="string", cluster="true")
    allowed = replace(both, policy=Policy(hosts=(("127.0.0.1",),)))
    assert rows(allowed, {"id": [5000]}, runner) == []
    with pytest.raises(NotAllowed, match=r"\(option 'url'\): the host '127.0.0.1:\d+' is not allowed here"):
        rows(replace(both, policy=Policy(hosts=((f"127.0.0.1:{cluster.port}",),))), {"id": [1]}, runner)


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"key": "plane:{nmae}"}, "'key': there is no column 'nmae'. Did you mean 'name'?"),
        ({"key": "plane"}, "'key' names no column, so every key would be the same. Write {column} in it."),
        ({"key": "{id}{name}"}, "'key': something must stand between the columns of {id}{name}: 1 and 23 is 12 and 3"),
        ({"value_type": "string"}, "a string is one column, and name, seats are 2"),
        ({"field__nmae": "x"}, "'field.nmae': no column 'nmae' is read from the value. Did you mean 'name'?"),
        ({"field__name": "${env:X}"}, "'field.name' may not be a reference"),
        ({"host": "x", "url": "redis://y"}, "'host' is a part of 'url' already"),
        ({"url": "http://x"}, "'url' must begin with redis:// or rediss://"),
        ({"url": "redis://x", "tls_key": "x"}, "'tls-key' is of no use without 'tls-cert'"),
        ({"host": "x", "username": "me"}, "'username' is of no use without 'password'"),
        ({}, "give the server as 'url' or 'host'"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused_before_anything_opens(
    options: dict[str, str], shown: str
) -> None:
    if "url" not in options and "host" not in options and options:
        options = {**options, "url": "redis://x"}
    with pytest.raises(OptionError) as caught:
        RedisConnector(table_of(**options)).check()
    assert f"table planes: {shown}" in str(caught.value)


@pytest.mark.parametrize(
    ("column", "key", "shown"),
    [
        (("v", pa.float64()), "p:{v}", "column 'v' cannot stand in a key: DOUBLE has no one spelling"),
        (("v", pa.binary()), "p:{v}", "column 'v' cannot stand in a key: BINARY has no one spelling"),
        (("v", pa.duration("us")), "p:{id}", "no value can be read as INTERVAL DAY TO SECOND"),
    ],
)
def test_columns_that_redis_cannot_have_are_refused(
    column: tuple[str, pa.DataType], key: str, shown: str
) -> None:
    table = table_of(None, pa.schema([("id", pa.int64()), column]), url="redis://x", key=key)
    with pytest.raises(OptionError) as caught:
        RedisConnector(table).check()
    assert shown in str(caught.value)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"url": "redis://:se/cret@x"}, "'url' cannot be read"),
        ({"url": "redis://:hidden-pass@x?db=1"}, "'url' takes no parameters"),
        ({"url": "redis://x", "tls_ca": "/x"}, "'tls-ca' and 'tls-cert' need TLS"),
        ({"url": "redis://x/1", "cluster": "true"}, "Redis Cluster supports database 0 only"),
    ],
)
def test_what_only_the_worker_can_see_is_refused_there_without_secrets(
    options: dict[str, str], shown: str
) -> None:
    error = failure_of(RedisConnector(table_of(**options)).open)
    assert error.permanent
    assert shown in str(error)
    assert "cret" not in str(error)
    assert "hidden-pass" not in str(error)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:6379/mydb", "the path of 'url' is not the number of a database"),
        ("redis://h:6379/0/1", "the path of 'url' is not the number of a database"),
        ("redis://h/-1", "the path of 'url' is not the number of a database"),
        ("redis://h/1.0", "the path of 'url' is not the number of a database"),
        ("redis://h/%31", "the path of 'url' is not the number of a database"),
        ("redis://h?db=2", "'url' takes no parameters: write options of the table (a database is the path"),
        ("rediss://h?ssl_cert_reqs=none", "certificates are always checked: see 'tls-ca'"),
        ("redis://h?hidden=hidden-pass", "'url' takes no parameters: write options of the table."),
        ("redis://h/0#hidden-pass", "'url' holds a '#'"),
        ("redis://u:hidden#pass@h", "'url' cannot be read. Write redis://user:password@host"),
        ("redis://:hidden/pass@h", "'url' cannot be read. Write redis://user:password@host"),
        ("redis://h:port", "'url' cannot be read."),
        ("redis://hidden-pass@h", "'url' names a user without a password"),
        ("redis://h1:1,h2:2", "'url' cannot be read."),
        ("redis://h1,h2", "'url' names several servers"),
        ("valkey://h", "'url' must begin with redis:// or rediss://. Valkey is asked as redis://."),
        ("unix:///run/redis.sock", "Sockets of files are not supported."),
        ("redis+sentinel://h:26379/mymaster/0", "Sentinels are not asked"),
        ("h:6379", "'url' must begin with redis:// or rediss://"),
    ],
)
def test_a_part_of_a_url_that_is_not_understood_is_refused_and_not_shown(url: str, shown: str) -> None:
    with pytest.raises(OptionError) as caught:
        RedisConnector(table_of(url=url)).check()
    assert shown in str(caught.value)
    assert "hidden-pass" not in str(caught.value)
    if "://h" in url:
        assert failure_of(RedisConnector(table_of(url=url)).open).permanent


@pytest.mark.parametrize("path", ["", "/", "/0", "/00"])
def test_a_url_may_leave_the_database_out(redis_server: RedisServer, path: str) -> None:
    redis_server.run("HSET", "plane:1", "seats", "1")
    table = table_of(url=f"redis://127.0.0.1:{redis_server.port}{path}")
    assert [row["seats"] for row in rows(table, {"id": [1]})] == [1]


@BOTH
@pytest.mark.parametrize(
    ("rights", "kind"),
    [
        (["+get"], "string"),
        (["+mget", "+get"], "string"),
        (["+hmget", "+hlen"], "hash"),
        (["+hmget", "+exists"], "hash"),
    ],
)
def test_few_rights_do(redis_server: RedisServer, rights: list[str], kind: str, runner: str) -> None:
    redis_server.run("ACL", "SETUSER", "few", "reset", "on", ">pw", "~*", "+@connection", *rights)
    redis_server.run("SET", "few:1", "Ada")
    redis_server.run("HSET", "fewh:1", "name", "Ada")
    redis_server.run("HSET", "fewh:3", "else", "x")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    key = "few:{id}" if kind == "string" else "fewh:{id}"
    table = table_of(None, schema, url=url_of(redis_server, "few", "pw"), key=key, value_type=kind)
    bare = [] if kind == "string" else [{"id": 3, "name": None}]
    assert rows(table, {"id": [1, 2, 3]}, runner) == [{"id": 1, "name": "Ada"}, *bare]


def test_a_right_that_is_missing_is_named(redis_server: RedisServer) -> None:
    redis_server.run("ACL", "SETUSER", "few", "reset", "on", ">pw", "~*", "+@connection", "+hmget")
    table = table_of(url=url_of(redis_server, "few", "pw"))
    error = failure_of(lambda: rows(table, {"id": [404]}))
    assert error.permanent
    assert "Give the user the right to read these keys. GET does for strings, HMGET with HLEN" in str(error)


def test_json_that_is_nested_too_deep_fails_its_key_alone(redis_server: RedisServer) -> None:
    redis_server.run("SET", "plane:1", "[" * 50_000 + "]" * 50_000)
    redis_server.run("SET", "plane:2", '{"name": "two"}')
    answer = asked(table_of(redis_server, value_type="json"), request_for(SCHEMA, {"id": [1, 2]}))
    assert "holds JSON that is nested too deep: b'[[[" in str(answer.failures[0])
    assert answer.rows.column("name").to_pylist() == ["two"]

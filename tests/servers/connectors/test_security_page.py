"""The statements of the page on security, tried on real servers."""

from __future__ import annotations

import asyncio
import re
import shlex
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import asyncpg
import pyarrow as pa
import pytest
from lookup_connectors.http import HttpConnector
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.redis import RedisConnector
from lookup_connectors.sqlite import SqliteConnector

from lookup_hints.errors import ConnectorError, NotAllowed
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable
from lookup_hints.spi.security_policy import Policy, policy_of_configuration, policy_of_environment
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.tables.catalog import LookupCatalog
from lookup_hints.tables.ddl import CreateLookupTable, parse_ddl
from tests.servers.http_server import Api
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.unit.connectors.asking import during, failure_of, request_for, rows_of

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def block(kind: str, beginning: str) -> str:
    """The block of the page that begins so."""
    [found] = [text for each, text in BLOCKS if each == kind and text.startswith(beginning)]
    return found


def table(name: str = "customers", schema: pa.Schema = SCHEMA, **options: str) -> LookupTable:
    return LookupTable(name, schema, ("id",), {key.replace("_", "-"): text for key, text in options.items()})


def refusal(connector: Any, request: LookupRequest) -> ConnectorError:
    return failure_of(lambda: during(connector, lambda opened: opened.alookup(request)))


def created(text: str, policy: Any = None) -> LookupTable:
    ddl = parse_ddl(SqlText(text.strip()))
    assert isinstance(ddl, CreateLookupTable)
    catalog = LookupCatalog() if policy is None else LookupCatalog(policy)
    return catalog.create(ddl, lambda _: None)


def test_the_role_of_postgresql_reads_its_columns_and_no_more(postgres_server: PostgresServer) -> None:
    statements = block("sql", "CREATE ROLE lookups")

    async def prepare() -> None:
        connection = await asyncpg.connect(postgres_server.url())
        try:
            await connection.execute(
                "CREATE SCHEMA IF NOT EXISTS crm; CREATE TABLE crm.customers (id BIGINT PRIMARY KEY, name TEXT, iban TEXT);"
                "INSERT INTO crm.customers VALUES (1, 'Ann', 'DE1')"
            )
            await connection.execute(statements)
        finally:
            await connection.close()

    asyncio.run(prepare())
    given = {
        "connector": "postgres",
        "host": "127.0.0.1",
        "port": str(postgres_server.port),
        "database": "postgres",
        "user": "lookups",
        "password": "s3cret",
        "table_name": "crm.customers",
    }
    request = request_for(SCHEMA, {"id": [1, 2]})
    by_url = {
        "connector": "postgres",
        "url": f"postgresql://lookups:s3cret@127.0.0.1:{postgres_server.port},[::1]:1/postgres?port=2",
        "table_name": "crm.customers",
    }
    for options in (given, by_url):
        allowed = replace(table(**options), policy=Policy(hosts=(("127.0.0.1", "[::1]:1"),)))
        rows: pa.Table = during(PostgresConnector(allowed), lambda opened: opened.alookup(request))
        assert rows.to_pylist() == [{"id": 1, "name": "Ann"}]
    wider = pa.schema([*SCHEMA, ("iban", pa.string())])
    refused = refusal(PostgresConnector(table(schema=wider, **given)), request_for(wider, {"id": [1]}))
    assert "SQLSTATE 42501" in str(refused)

    async def write() -> None:
        connection = await asyncpg.connect(
            host="127.0.0.1",
            port=postgres_server.port,
            user="lookups",
            password="s3cret",
            database="postgres",
        )
        try:
            await connection.execute("SET default_transaction_read_only = off")
            await connection.execute("UPDATE crm.customers SET name = 'Eve'")
        finally:
            await connection.close()

    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        asyncio.run(write())


def test_the_file_of_sqlite_is_read_without_the_right_to_write(tmp_path: Path) -> None:
    path = tmp_path / "customers.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE customers (id INTEGER, name TEXT); INSERT INTO customers VALUES (1, 'Ann')"
        )
    subprocess.run(shlex.split(block("sh", "chmod")), cwd=tmp_path, check=True, timeout=10)
    assert path.stat().st_mode & 0o777 == 0o440
    connector = SqliteConnector(table(connector="sqlite", path=str(path)))
    connector.open()
    found = connector.lookup(request_for(SCHEMA, {"id": [1]}))
    assert rows_of(found).to_pylist() == [{"id": 1, "name": "Ann"}]
    connector.close()


def test_the_client_of_http_asks_for_its_scope(api: Api, tmp_path: Path) -> None:
    (tmp_path / "api").write_text("s3cret/+\n")
    text = block("sql", "CREATE TEMPORARY TABLE people")
    for before, after in {
        "https://api.example.com/people": f"{api.url}/private",
        "https://login.example.com/token": f"{api.url}/token",
        "'lookups'": "'me'",
        "/run/secrets/api": str(tmp_path / "api"),
    }.items():
        assert before in text
        text = text.replace(before, after)
    connector = HttpConnector(created(text))
    request = request_for(connector.table.schema, {"id": [1]})
    answer: Any = during(connector, lambda opened: opened.alookup(request))
    assert answer.rows.to_pylist() == [{"id": 1, "name": "n1"}]
    [token] = [each for each in api.asked() if each["target"] == "/token"]
    assert parse_qs(token["body"])["scope"] == ["people.read"]


def test_the_user_of_redis_reads_its_keys_and_no_more(redis_server: RedisServer) -> None:
    statement = shlex.split(block("redis", "ACL SETUSER"))
    given = {
        "connector": "redis",
        "url": f"redis://lookups:s3cret@127.0.0.1:{redis_server.port}/0",
        "key": "customer:{id}",
    }
    client: Any
    with redis_server.client() as client:
        client.execute_command(*statement)
        client.hset("customer:1", mapping={"name": "Ann"})
        client.set("other:1", "x")
        client.set("customer:7", '{"name": "Bob"}')
    try:
        for value_type, key, name in (("hash", 1, "Ann"), ("json", 7, "Bob")):
            connector = RedisConnector(table(value_type=value_type, **given))
            request = request_for(SCHEMA, {"id": [key, 5]})
            rows: Any = during(connector, lambda opened, request=request: opened.alookup(request))  # type: ignore[misc]
            assert rows.rows.to_pylist() == [{"id": key, "name": name}]
        other = RedisConnector(table(value_type="string", **{**given, "key": "other:{id}"}))
        refused = refusal(other, request_for(SCHEMA, {"id": [1]}))
        assert "Give the user the right to read these keys" in str(refused)
    finally:
        with redis_server.client() as client:
            client.execute_command("ACL", "DELUSER", "lookups")


def test_both_ways_to_lock_down_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = dict(line.split(maxsplit=1) for line in block("properties", "spark.lookup").splitlines())
    policy = policy_of_configuration(properties)
    for line in block("sh", "export").splitlines():
        [assignment] = shlex.split(line.removeprefix("export "))
        monkeypatch.setenv(*assignment.split("=", 1))
    assert policy_of_environment() == policy
    monkeypatch.undo()
    with pytest.raises(NotAllowed) as caught:
        created(block("sql", "CREATE TEMPORARY TABLE t "), policy)
    assert str(caught.value) == block("console", "table t (option 'url')").strip()
    policy.check_host("t", "url", "shop.db.internal", 5432)
    policy.check_host("t", "url", "10.20.3.4", 5432)
    policy.check_path("t", "url", "/run/secrets/lookup/a/b")


def test_every_example_of_the_page_is_tried() -> None:
    """Here, and the Python in ``tests/spark/test_pages.py``."""
    assert sorted(kind for kind, _ in BLOCKS) == sorted(
        ["", "console", "properties", "python", "redis", "sh", "sh", "sql", "sql", "sql"]
    )

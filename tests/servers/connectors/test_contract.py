"""Our connectors keep the contract that every connector keeps."""

from __future__ import annotations

import itertools
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from lookup_connectors.http import HttpConnector
from lookup_connectors.memory import MemoryConnector, put_rows
from lookup_connectors.mysql import MysqlConnector
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.redis import RedisConnector
from lookup_connectors.sqlite import SqliteConnector

from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.spi.secrets import known_secrets
from lookup_hints.testing import CONTRACT_SCHEMA, ConnectorContract, ContractSource, SourceContract
from tests.servers.http_server import Api
from tests.servers.mariadb import MariaDbServer
from tests.servers.postgres import PASSWORD, PostgresServer
from tests.servers.redis import PASSWORD as REDIS_PASSWORD
from tests.servers.redis import USER, RedisServer

_numbers = itertools.count(1)


ROWS = [
    (1, "eu", "one", 1.5, True),
    (1, "us", "one again", None, False),
    (2, "eu", "two", -0.25, None),
]


class Both(SourceContract, ConnectorContract):
    """The contract over rows of the tests' own, and that for any table."""

    present = ({"id": 1}, {"id": 2})
    absent = ({"id": 77},)

    @pytest.fixture
    def table(self, source: ContractSource) -> LookupTable:
        """A table with some rows."""
        return source.filled(
            pa.Table.from_pylist(
                [dict(zip(CONTRACT_SCHEMA.names, row, strict=True)) for row in ROWS], CONTRACT_SCHEMA
            )
        )


class MemorySource:
    """Rows put from Python."""

    def filled(self, rows: pa.Table) -> LookupTable:
        name = f"contract_{next(_numbers)}"
        put_rows(name, rows.to_pylist())
        return LookupTable(name, CONTRACT_SCHEMA, options={"connector": "memory"})

    def missing(self) -> LookupTable:
        return LookupTable("nowhere", CONTRACT_SCHEMA, options={"connector": "memory"})


class TestMemory(Both):
    connector_type = MemoryConnector

    @pytest.fixture
    def source(self) -> ContractSource:
        return MemorySource()


class SqliteSource:
    """A table of an SQLite file, with an index or without."""

    def __init__(self, path: Path, *, indexed: bool) -> None:
        self.path, self.indexed = path, indexed

    def filled(self, rows: pa.Table) -> LookupTable:
        name = f"contract {next(_numbers)}"
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(
                f'CREATE TABLE "{name}" (id BIGINT, region TEXT, name TEXT, amount REAL, active BOOL)'
            )
            values = [tuple(row.values()) for row in rows.to_pylist()]
            connection.executemany(f'INSERT INTO "{name}" VALUES (?, ?, ?, ?, ?)', values)
            if self.indexed:
                connection.execute(f'CREATE INDEX "by {name}" ON "{name}" (region, id)')
                connection.execute(f'CREATE INDEX "by id of {name}" ON "{name}" (id)')
        connection.close()
        return self.table(name)

    def missing(self) -> LookupTable:
        sqlite3.connect(self.path).close()
        return self.table("nowhere")

    def table(self, name: str) -> LookupTable:
        options = {"connector": "sqlite", "path": str(self.path), "table-name": name}
        return LookupTable(name, CONTRACT_SCHEMA, options=options)


class TestSqlite(Both):
    connector_type = SqliteConnector

    @pytest.fixture(params=["indexed", "unindexed"])
    def source(self, tmp_path: Path, request: pytest.FixtureRequest) -> ContractSource:
        return SqliteSource(tmp_path / "contract #1?.db", indexed=request.param == "indexed")


class PostgresSource:
    """A table of a PostgreSQL server."""

    def __init__(self, server: PostgresServer, **options: str) -> None:
        self.server, self.options = server, options
        # What distances need; a file of tests begins with an empty schema.
        for extension in ("vector", "pg_trgm", "fuzzystrmatch", "earthdistance CASCADE"):
            server.execute(f"CREATE EXTENSION IF NOT EXISTS {extension}")

    def filled(self, rows: pa.Table) -> LookupTable:
        name = f"contract {next(_numbers)}"
        self.server.execute(
            f'CREATE TABLE "{name}" (id bigint, region text, name varchar(40), amount float8, active bool);'
            f'CREATE INDEX ON "{name}" (region, id);'
        )
        self.server.copy(name, [tuple(row.values()) for row in rows.to_pylist()], rows.column_names)
        return self.table(name)

    def missing(self) -> LookupTable:
        return self.table("nowhere")

    def table(self, name: str) -> LookupTable:
        options: dict[str, Any] = {"connector": "postgres", "url": self.server.url(), **self.options}
        return LookupTable(name, CONTRACT_SCHEMA, options=options)


class TestPostgres(Both):
    connector_type = PostgresConnector
    secrets = (PASSWORD, quote(PASSWORD, safe=""))

    @pytest.fixture(params=[{}, {"statement-cache-size": "0"}], ids=["direct", "no prepared statements"])
    def source(self, postgres_server: PostgresServer, request: pytest.FixtureRequest) -> ContractSource:
        return PostgresSource(postgres_server, **request.param)

    def test_it_knows_its_secrets(self, source: ContractSource) -> None:
        connector = self.connector(source.missing())
        assert any(quote(PASSWORD, safe="") in secret for secret in known_secrets(connector))


class MysqlSource:
    """A table of a MariaDB server."""

    def __init__(self, server: MariaDbServer, **kinds: str) -> None:
        self.server = server
        self.kinds = {"region": "varchar(40)", "name": "varchar(40)", **kinds}

    def filled(self, rows: pa.Table) -> LookupTable:
        name = f"contract {next(_numbers)}"
        region, text = self.kinds["region"], self.kinds["name"]
        self.server.execute(
            f"CREATE TABLE `{name}` (id bigint, region {region}, name {text}, amount double, active bool,"
            " KEY (region, id), KEY (id)) CHARACTER SET utf8mb4"
        )
        self.server.insert(f"`{name}`", [tuple(row.values()) for row in rows.to_pylist()])
        return self.table(name)

    def missing(self) -> LookupTable:
        return self.table("nowhere")

    def table(self, name: str) -> LookupTable:
        options = {"connector": "mysql", **self.server.options(), "table-name": f"`{name}`"}
        return LookupTable(name, CONTRACT_SCHEMA, options=options)


class TestMysql(Both):
    connector_type = MysqlConnector
    secrets = (PASSWORD,)

    @pytest.fixture(
        params=[{}, {"region": "varchar(40) COLLATE utf8mb4_bin", "name": "text"}], ids=["alike", "binary"]
    )
    def source(self, mariadb_server: MariaDbServer, request: pytest.FixtureRequest) -> ContractSource:
        return MysqlSource(mariadb_server, **request.param)


class HttpSource:
    """Rows that an HTTP API answers."""

    def __init__(self, api: Api, path: str, **options: str) -> None:
        self.api, self.path, self.options = api, path, options

    def filled(self, rows: pa.Table) -> LookupTable:
        name = f"contract_{next(_numbers)}"
        self.api.fill(name, rows.to_pylist())
        return self.table(name)

    def missing(self) -> LookupTable:
        return self.table("nowhere")

    def table(self, name: str) -> LookupTable:
        url = f"{self.api.url}/tables/{name}{self.path}"
        options = {
            "connector": "http",
            "url": url,
            "token": "t0ken-of-ours",
            "connections": "10",
            **self.options,
        }
        return LookupTable(name, CONTRACT_SCHEMA, options=options)


class TestHttpOneKeyPerRequest(Both):
    connector_type = HttpConnector
    secrets = ("t0ken-of-ours",)

    @pytest.fixture
    def source(self, api: Api) -> ContractSource:
        return HttpSource(api, "?id={id}&region={region}")

    @pytest.mark.skip(reason="twenty thousand requests")
    def test_ten_thousand_keys_fit_into_one_request(self, source: ContractSource) -> None: ...

    @pytest.mark.skip(reason="twenty thousand requests")
    def test_ten_thousand_keys_of_two_columns_fit_into_one_request(self, source: ContractSource) -> None: ...


class TestHttpManyKeysPerRequest(Both):
    connector_type = HttpConnector
    secrets = ("t0ken-of-ours",)

    @pytest.fixture(params=["query", "body"])
    def source(self, api: Api, request: pytest.FixtureRequest) -> ContractSource:
        if request.param == "query":
            return HttpSource(api, "?id={id}", **{"keys-per-request": "500"})
        body = '[{"id": "{id}", "region": "{region}"}]'
        return HttpSource(api, "", method="post", body=body, **{"keys-per-request": "5000"})


class RedisSource:
    """Rows in Redis: under each key a JSON array of those that have it."""

    def __init__(self, server: RedisServer, *columns: str) -> None:
        self.server, self.columns = server, columns

    def filled(self, rows: pa.Table) -> LookupTable:
        name = f"contract {next(_numbers)}"
        lists: dict[str, list[dict[str, Any]]] = {}
        for row in rows.to_pylist():
            if None not in (key := [row[column] for column in self.columns]):
                lists.setdefault(f"{name}|{'|'.join(map(str, key))}", []).append(row)
        with self.server.client() as client:
            client.mset({key: json.dumps(each) for key, each in lists.items()})
        return self.table(name)

    def missing(self) -> LookupTable:
        return self.table("nowhere", database="99")

    def table(self, name: str, database: str = "0") -> LookupTable:
        options = {
            "connector": "redis",
            "host": "127.0.0.1",
            "port": str(self.server.port),
            "username": USER,
            "password": REDIS_PASSWORD,
            "database": database,
            "value-type": "json",
            "key": "|".join([name, *(f"{{{column}}}" for column in self.columns)]),
        }
        return LookupTable(name, CONTRACT_SCHEMA, options=options)


class TestRedisByOneColumn(Both):
    connector_type = RedisConnector
    secrets = (REDIS_PASSWORD,)

    @pytest.fixture
    def source(self, redis_server: RedisServer) -> ContractSource:
        return RedisSource(redis_server, "id")


class TestRedisBySeveralColumns:
    """What of the contract asks by `region`, alone and beside `id`."""

    connector_type = RedisConnector
    secrets = ()
    connector = SourceContract.connector
    asked = SourceContract.asked

    @pytest.fixture(params=[("region",), ("region", "id")], ids=" and ".join)
    def source(self, redis_server: RedisServer, request: pytest.FixtureRequest) -> ContractSource:
        return RedisSource(redis_server, *request.param)

    test_several_key_columns_belong_together = SourceContract.test_several_key_columns_belong_together
    test_key_columns_may_come_in_any_order = SourceContract.test_key_columns_may_come_in_any_order
    test_a_null_in_a_row_matches_no_key = SourceContract.test_a_null_in_a_row_matches_no_key
    test_texts_are_keys_whatever_they_hold = SourceContract.test_texts_are_keys_whatever_they_hold
    test_each_text_finds_itself_alone = SourceContract.test_each_text_finds_itself_alone
    test_texts_are_keys_among_several_columns = SourceContract.test_texts_are_keys_among_several_columns

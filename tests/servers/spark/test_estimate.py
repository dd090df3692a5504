"""What an estimate says, held against what real servers then counted."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lookup_hints import LookupSession
from tests.servers.http_server import Api
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.spark.counting import Calls

Source = tuple[str, str, Callable[[], int]]
"""The options of its table, which of the figures its server counts, and the count."""


@pytest.fixture
def http(api: Api) -> Source:
    return f"'connector' = 'http', 'url' = '{api.url}/people/{{id}}'", "requests", lambda: len(api.asked())


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[Source]:
    postgres_server.execute(
        "CREATE TABLE estimated AS SELECT g AS id, 'x' AS name FROM generate_series(1, 900) g;"
        "CREATE UNIQUE INDEX ON estimated (id); ALTER DATABASE postgres SET log_statement = 'all'"
    )
    log, asked = (
        postgres_server.directory / "log",
        re.compile(rb"execute \S+: SELECT(?:(?!execute).)*?estimated", re.S),
    )
    before = len(log.read_bytes())
    options = f"'connector' = 'postgres', 'url' = '{postgres_server.url()}', 'table-name' = 'estimated'"
    yield (
        f"{options}, 'batch-size' = '100'",
        "requests",
        lambda: len(asked.findall(log.read_bytes(), before)),
    )
    postgres_server.execute("ALTER DATABASE postgres RESET log_statement")


@pytest.fixture
def sqlite(tmp_path: Path) -> Source:
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE estimated (id INTEGER PRIMARY KEY, name TEXT)")
    options = f"'path' = '{tmp_path}/shop.db', 'table-name' = 'estimated', 'log' = '{tmp_path}/log'"
    given = f"'connector' = 'tests.spark.counting:LoggedSqlite', {options}, 'batch-size' = '100'"
    return given, "requests", lambda: len(Calls.read(tmp_path / "log").requests)


@pytest.fixture
def redis(redis_server: RedisServer) -> Source:
    redis_server.run("CONFIG", "RESETSTAT")
    options = f"'connector' = 'redis', 'key' = 'estimated:{{id}}', 'url' = '{redis_server.url}'"

    def read() -> int:
        counts: dict[str, dict[str, int]] = redis_server.run("INFO", "commandstats")
        return sum(
            each["calls"] for name, each in counts.items() if name in ("cmdstat_hmget", "cmdstat_hgetall")
        )

    return options, "keys", read


@pytest.mark.parametrize("source", ["http", "postgres", "sqlite", "redis"])
def test_a_server_counts_what_was_estimated(
    spark: SparkSession, source: str, request: pytest.FixtureRequest
) -> None:
    options, figure, count = request.getfixturevalue(source)
    session = LookupSession(spark.newSession())
    session.sql(
        "CREATE TEMPORARY TABLE estimated (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
        f" WITH ({options}, 'lookup.access' = 'lookup', 'lookup.budget' = 'estimate-{source}')"
    )
    query = "SELECT e.name FROM range(0, 3000, 1, 2) o LEFT JOIN estimated e ON e.id = o.id % 333"
    found = getattr(session.estimate(query).lookups[0], figure)
    assert count() == 0
    assert found.is_exact
    session.sql(query).write.format("noop").mode("overwrite").save()
    assert found.least == pytest.approx(count(), rel=0.02)

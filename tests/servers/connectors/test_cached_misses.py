"""Misses are remembered whatever the connector, and however its source says that there is nothing."""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.adbc import AdbcConnector
from lookup_connectors.http import HttpConnector
from lookup_connectors.memory import MemoryConnector
from lookup_connectors.mmdb import MmdbConnector
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.redis import RedisConnector
from lookup_connectors.sqlite import SqliteConnector

from lookup_hints.lookup_spec import LookupSettings, LookupSpec, PartialCache
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.spi import AsyncLookup, AsyncRowLookup, Connector
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.testing import CONTRACT_SCHEMA
from lookup_hints.worker import arrow_worker
from tests.servers.connectors.adbc_tables import DuckDbSource, PostgresAdbcSource, SqliteFileSource
from tests.servers.connectors.http_asking import SCHEMA, table_of
from tests.servers.connectors.test_contract import (
    ROWS,
    HttpSource,
    MemorySource,
    PostgresSource,
    RedisSource,
    SqliteSource,
)
from tests.servers.http_server import Api
from tests.unit.connectors.mmdb_file import mmdb
from tests.unit.engine.support import plain

pytestmark = pytest.mark.usefixtures("worker")

_MANY = {"keys-per-request": "50"}
Source = Callable[[pytest.FixtureRequest, Path], tuple[type[Connector], Any]]
SOURCES: dict[str, Source] = {
    "memory": lambda _, __: (MemoryConnector, MemorySource()),
    "sqlite": lambda _, path: (SqliteConnector, SqliteSource(path / "a.db", indexed=True)),
    "sqlite without an index": lambda _, path: (SqliteConnector, SqliteSource(path / "a.db", indexed=False)),
    "postgres": lambda of, _: (PostgresConnector, PostgresSource(of.getfixturevalue("postgres_server"))),
    "redis": lambda of, _: (RedisConnector, RedisSource(of.getfixturevalue("redis_server"), "id")),
    "adbc over DuckDB": lambda _, path: (AdbcConnector, DuckDbSource(path / "a.duckdb")),
    "adbc over SQLite": lambda _, path: (AdbcConnector, SqliteFileSource(path / "a.db")),
    "adbc over PostgreSQL": lambda of, _: (
        AdbcConnector,
        PostgresAdbcSource(of.getfixturevalue("postgres_server")),
    ),
    "http by one key": lambda of, _: (HttpConnector, HttpSource(of.getfixturevalue("api"), "?id={id}")),
    "http by many keys": lambda of, _: (
        HttpConnector,
        HttpSource(of.getfixturevalue("api"), "?id={id}", **_MANY),
    ),
}


@pytest.fixture(autouse=True)
def _executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for the caches of the executor that this process is."""
    folder = tmp_path / "executor"
    folder.mkdir()
    monkeypatch.setattr(arrow_worker, "folder_of_executor", lambda: folder)


def looked_up(
    connector: Any, keys: Sequence[Any], column: str = "id", cache: PartialCache | None = None
) -> tuple[list[Any], LookupMetrics]:
    """The rows of ``keys``, each a list, and what a task that asks for them counts."""
    cache = cache or PartialCache(600.0, missing_ttl=60.0)
    connector = pickle.loads(pickle.dumps(connector))  # one that was used may be pickled otherwise
    settings = LookupSettings(isinstance(connector, AsyncLookup | AsyncRowLookup), batch_size=50, cache=cache)
    schema = connector.table.schema
    spec = LookupSpec(connector, (column,), tuple(schema.names), settings)
    reports: list[LookupMetrics] = []
    lookup = arrow_worker.arrow_lookup(spec, lambda _, metrics: reports.append(metrics))
    found = plain(lookup(iter([pa.array(keys, schema.field(column).type)])))
    [metrics] = reports
    return found, metrics


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_key_without_rows_is_asked_once(
    source: Source, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kind, filled = source(request, tmp_path)
    rows = [dict(zip(CONTRACT_SCHEMA.names, row, strict=True)) for row in ROWS]
    connector = kind(filled.filled(pa.Table.from_pylist(rows, CONTRACT_SCHEMA)))
    found, first = looked_up(connector, [2, 77, 78])
    assert [len(each) for each in found] == [1, 0, 0]
    assert (first.cache_misses, first.cache_missing) == (3, 0)
    again, then = looked_up(connector, [2, 77, 78])
    assert again == found
    assert (then.cache_hits, then.cache_missing, then.cache_misses, then.requests) == (1, 2, 0, 0)


def test_an_address_in_no_network_is_looked_for_once(tmp_path: Path) -> None:
    path = tmp_path / "geo.mmdb"
    path.write_bytes(mmdb({"81.2.69.160/27": {"name": "here"}}))
    schema = pa.schema([("ip", pa.string()), ("name", pa.string())])
    connector = MmdbConnector(LookupTable("geo", schema, options={"connector": "mmdb", "path": str(path)}))
    for missing, asked in ((0, 2), (1, 0)):
        _, counts = looked_up(connector, ["9.9.9.9", "81.2.69.161"], "ip")
        assert (counts.cache_missing, counts.cache_misses) == (missing, asked)


NOTHING: dict[str, dict[str, Any]] = {
    "404": {"status": 404, "body": {"error": "nobody"}},
    "204": {"status": 204},
    "empty list": {"status": 200, "body": []},
    "null": {"status": 200, "body": "null"},
    "empty object": {"status": 200, "body": {}},
    "empty text": {"status": 200, "body": ""},
}
_numbers = itertools.count(1)


def _http_table(api: Api, many: bool, *acts: dict[str, Any], **options: str) -> HttpConnector:
    path = f"/nothing{next(_numbers)}" + ("" if many else "/1")
    api.script(path, *acts)
    given = dict(options, **{"keys-per-request": "50"} if many else {})
    url = path + "?ids={id}" if many else path.removesuffix("1") + "{id}"
    return HttpConnector(table_of(api, url, SCHEMA, **given))


@pytest.mark.parametrize("many", [False, True], ids=["one key", "many keys"])
@pytest.mark.parametrize("nothing", NOTHING.values(), ids=NOTHING)
def test_each_way_of_an_api_to_say_nothing_is_remembered(
    api: Api, nothing: dict[str, Any], many: bool
) -> None:
    connector = _http_table(api, many, nothing | {"repeat": True})
    for _ in range(3):
        assert looked_up(connector, [1])[0] == [[]]
    assert len(api.asked()) == 1


@pytest.mark.parametrize("outcome_rows", [False, True], ids=["no row", "a row of the outcome"])
@pytest.mark.parametrize("many", [False, True], ids=["one key", "many keys"])
@pytest.mark.parametrize("nothing", NOTHING.values(), ids=NOTHING)
def test_a_row_that_is_gone_is_not_used_while_it_could_be_asked_again(
    api: Api, nothing: dict[str, Any], many: bool, outcome_rows: bool
) -> None:
    row = {"id": 1, "name": "Ann"}
    there = {"status": 200, "body": [row]}
    outcome = {"outcome-rows": "true"} if outcome_rows else {}
    connector = _http_table(api, many, there, nothing | {"repeat": True}, **outcome)
    cache = PartialCache(0.001, missing_ttl=60.0, stale_while_revalidate=3600.0)
    assert looked_up(connector, [1], cache=cache)[0] == [[(1, "Ann")]]
    gone = [[(1, None)]] if outcome_rows else [[]]
    end = time.monotonic() + 30
    while looked_up(connector, [1], cache=cache)[0] != gone:
        assert time.monotonic() < end, "the old row is used for the whole hour"
        time.sleep(0.02)
    for _ in range(3):
        assert looked_up(connector, [1], cache=cache)[0] == gone


def test_the_row_of_a_remembered_miss_says_so_and_has_no_status(api: Api) -> None:
    schema = pa.schema([*SCHEMA, ("outcome", pa.string()), ("status", pa.int32())])
    options = {"outcome-rows": "true", "path.outcome": "$outcome", "path.status": "$status"}
    connector = HttpConnector(table_of(api, "/nobody/{id}", schema, **options))
    for status in (404, None, None):
        assert looked_up(connector, [1])[0] == [[(1, None, "miss", status)]]
    assert len(api.asked()) == 1

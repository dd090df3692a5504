"""What connectors tell of their requests, over real servers."""

from __future__ import annotations

from typing import Any

import pytest
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.redis import RedisConnector

from lookup_hints.lookup_spec import Budget
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.testing import looked_up
from tests.servers.connectors import http_asking
from tests.servers.connectors.http_asking import SCHEMA, connector_of, table_of
from tests.servers.http_server import Api
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

KEYS = [(key,) for key in range(20)]


@pytest.fixture(autouse=True, params=http_asking.WAYS)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds for keys that have a task each, and for keys that are started together."""
    http_asking.use_way(request.param, monkeypatch)


def counted(table: LookupTable, keys: list[Any] = KEYS, **settings: Any) -> LookupMetrics:
    """What is counted while ``keys`` are asked; all waits together are no longer than it takes."""
    found = looked_up(connector_of(table), keys, waits=True, **settings)
    assert found.metrics.waited.total <= found.seconds
    return found.metrics


def test_http_counts_the_bytes_that_the_server_does(api: Api) -> None:
    metrics = counted(table_of(api, "/people/{id}"))
    assert (metrics.bytes_out, metrics.bytes_in) == api.nbytes()
    assert metrics.requests == 20


def test_http_counts_the_bytes_of_bodies(api: Api) -> None:
    body = {"method": "POST", "body": '{"id": "{id}"}'}
    metrics = counted(table_of(api, "/echo", **body), [(1,)], on_error="null")
    assert (metrics.bytes_out, metrics.bytes_in) == api.nbytes()
    assert metrics.bytes_out > 0


def test_a_429_is_counted_and_its_pause_is_throttling(api: Api) -> None:
    api.script("/people/1", {"status": 429, "headers": {"Retry-After": "1"}})
    metrics = counted(table_of(api, "/people/{id}"), [(1,), (2,)])
    assert metrics.throttled == 1
    assert metrics.hits == 2
    assert metrics.waited.counts["throttle"] >= 0.9
    assert "budget" not in metrics.waited.counts


def test_a_429_that_is_an_error_is_counted(api: Api) -> None:
    api.script("/people/1", {"status": 429, "headers": {"Retry-After": "7"}})
    metrics = counted(table_of(api, "/people/{id}", on_throttle="fail"), [(1,)], on_error="null")
    assert (metrics.throttled, metrics.errors) == (1, 1)
    assert "throttle" not in metrics.waited.counts


def test_a_rate_is_a_budget(api: Api) -> None:
    budget = Budget(rate=10.0, task_rate=10.0)
    counts = counted(table_of(api, "/people/{id}"), KEYS[:6], budget=budget)
    waited = counts.waited.counts
    assert waited["budget"] > 0  # on a busy machine less than half a second, as the requests take their time
    assert "throttle" not in waited


def test_a_free_connection_is_a_slot(api: Api) -> None:
    for key in range(4):
        api.script(f"/people/{key}", {"status": 200, "body": {"name": "n"}, "delay": 0.2})
    waited = counted(table_of(api, "/people/{id}", connections="1"), KEYS[:4]).waited.counts
    assert waited["slot"] > 2 * waited["source"]


def test_redis_tells_of_requests_that_wait_for_a_connection(redis_server: RedisServer) -> None:
    options = {"connector": "redis", "url": redis_server.url, "key": "person:{id}", "pool-size": "1"}
    metrics = looked_up(
        RedisConnector(LookupTable("people", SCHEMA, options=options)), KEYS, waits=True, batch_size=1
    ).metrics
    assert metrics.waited.counts["slot"] > 0
    assert metrics.bytes_out == 8 * 20


def test_postgres_tells_of_requests_that_wait_for_a_connection(postgres_server: PostgresServer) -> None:
    postgres_server.execute(
        "CREATE OR REPLACE VIEW slow_people AS"
        " SELECT id, 'n' || id AS name FROM generate_series(0, 19) AS id, pg_sleep(0.1)"
    )
    options = {
        "connector": "postgres",
        "url": postgres_server.url(),
        "table-name": "slow_people",
        "pool-size": "1",
    }
    found = looked_up(
        PostgresConnector(LookupTable("people", SCHEMA, options=options)), KEYS[:4], waits=True, batch_size=1
    )
    waited = found.metrics.waited
    assert waited.counts["slot"] == pytest.approx(0.3, abs=0.15)
    assert waited.total <= found.seconds

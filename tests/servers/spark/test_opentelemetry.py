"""OpenTelemetry on Spark: its workers send metrics and spans, and HTTP servers see the trace of each request."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from lookup_hints import LookupSession
from tests.servers.http_server import Api
from tests.servers.otlp_collector import Collector, collecting, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOKEN = "hunter2"


@contextmanager
def variables(spark: SparkSession, **given: str) -> Iterator[None]:
    """The environment of workers that functions of the block start, as `spark.executorEnv` gives it."""
    environment = spark.sparkContext.environment
    before = dict(environment)
    environment.update({f"OTEL_{name}": value for name, value in given.items()})
    try:
        yield
    finally:
        environment.clear()
        environment.update(before)


@pytest.fixture(scope="module")
def _collecting(spark: SparkSession) -> Iterator[Collector]:
    # Workers serve many tests: each should get what was measured since the last.
    given = {"SERVICE_NAME": "nightly", "EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta"}
    with collecting() as made, variables(spark, EXPORTER_OTLP_ENDPOINT=made.url, **given):
        yield made


@pytest.fixture
def collector(_collecting: Collector) -> Collector:
    _collecting.reset()
    return _collecting


def session_over(spark: SparkSession, api: Api, **options: str) -> LookupSession:
    session = LookupSession(spark.newSession())
    given = {
        "connector": "http",
        "url": f"{api.url}/people/{{id}}",
        "token": TOKEN,
        **options,
    }
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    session.sql(f"CREATE TEMPORARY TABLE people (id BIGINT, name STRING) WITH ({listed})")
    return session


def ask(session: LookupSession, keys: int) -> None:
    rows = session.sql(f"SELECT p.name FROM range(0, {keys}, 1, 2) r JOIN people p ON r.id = p.id").collect()
    assert len(rows) == keys


def test_servers_see_the_trace_of_each_request(spark: SparkSession, api: Api, collector: Collector) -> None:
    ask(session_over(spark, api), 20)
    spans = {(span.trace_id.hex(), span.span_id.hex()): span for span in collector.spans}
    assert len(spans) == 20
    asked = [each["headers"]["traceparent"].split("-") for each in api.asked()]
    assert {(trace, parent) for _, trace, parent, _ in asked} == spans.keys()
    assert all(version == "00" and int(flags, 16) & 1 for version, _, _, flags in asked)
    host, port = api.url.removeprefix("http://").split(":")
    for span in spans.values():
        assert (span.name, span.kind) == ("GET", Span.SPAN_KIND_CLIENT)
        assert values(span.attributes) == {
            "http.request.method": "GET",
            "http.response.status_code": 200,
            "server.address": host,
            "server.port": int(port),
            "lookup.table": "people",
            "lookup.alias": "p",
            "lookup.connector": "http",
        }


def test_metrics_of_all_tasks_equal_the_counts_of_the_session(
    spark: SparkSession, api: Api, collector: Collector
) -> None:
    session = session_over(spark, api, **{"request-timeout": "29 s"})  # its counts are of it alone
    ask(session, 30)
    ((name, counts),) = session.metrics().items()
    lookup = {"lookup.table": name.table, "lookup.alias": name.alias, "lookup.connector": "http"}
    for field in ("tasks", "rows_in", "rows_out", "keys", "requests", "hits", "bytes_in", "bytes_out"):
        assert collector.total(f"lookup.{field}", **lookup) == getattr(counts, field)
    points = collector.points("http.client.request.duration")
    assert sum(point.count for _, point in points) == counts.requests == 30
    assert {attributes["http.response.status_code"] for attributes, _ in points} == {200}
    assert {each["service.name"] for each in collector.resources} == {"nightly"}
    processes = {(each["process.pid"], each["service.instance.id"]) for each in collector.resources}
    assert (
        len(processes) == len({instance for _, instance in processes}) == len({pid for pid, _ in processes})
    )
    assert os.getpid() not in {pid for pid, _ in processes}
    assert collector.units()["http.client.request.duration"] == "s"


def test_a_request_that_is_sent_again_has_a_span_for_each_time(
    spark: SparkSession, api: Api, collector: Collector
) -> None:
    api.script("/people/1", {"status": 429, "headers": {"Retry-After": "0"}}, {"status": 404})
    session = session_over(spark, api)
    session.sql("SELECT p.name FROM range(1, 2, 1, 1) r LEFT JOIN people p ON r.id = p.id").collect()
    told = sorted(
        (values(each.attributes)["http.response.status_code"], each.status.code) for each in collector.spans
    )
    assert told == [(404, Status.STATUS_CODE_ERROR), (429, Status.STATUS_CODE_ERROR)]
    assert collector.total("lookup.throttled") == 1
    types = {attributes["error.type"] for attributes, _ in collector.points("http.client.request.duration")}
    assert types == {"404", "429"}


def test_no_secret_and_no_key_is_sent(spark: SparkSession, api: Api, collector: Collector) -> None:
    session = session_over(spark, api)
    session.sql(
        "SELECT p.name FROM range(7770777077, 7770777078, 1, 1) r LEFT JOIN people p ON r.id = p.id"
    ).collect()
    (asked,) = api.asked()
    assert TOKEN in str(asked["headers"])
    assert collector.bodies
    for body in collector.bodies:
        assert TOKEN.encode() not in body
        assert b"7770777077" not in body  # longer than what identifiers by chance have


def test_a_header_of_the_users_own_stays(spark: SparkSession, api: Api, collector: Collector) -> None:
    own = "00-11111111111111111111111111111111-2222222222222222-01"
    ask(session_over(spark, api, **{"header.Traceparent": own}), 1)
    (asked,) = api.asked()
    assert {name.lower(): value for name, value in asked["headers"].items()}["traceparent"] == own


def test_without_traces_no_header_is_sent(spark: SparkSession, api: Api, collector: Collector) -> None:
    with variables(spark, TRACES_EXPORTER="none"):
        ask(session_over(spark, api), 2)
    assert collector.spans == []
    assert collector.total("lookup.hits") == 2
    assert not [each for each in api.asked() if "traceparent" in {name.lower() for name in each["headers"]}]


def test_a_collector_that_hangs_does_not_hold_the_job_up(
    spark: SparkSession, api: Api, collector: Collector
) -> None:
    with variables(spark, RESOURCE_ATTRIBUTES="workers=new"):
        session = session_over(spark, api)
        collector.lets_go.clear()
        try:
            ask(session, 20)  # its two workers wait once, as the tests of the flusher count
            for _ in range(5):
                ask(session, 20)
        finally:
            collector.lets_go.set()

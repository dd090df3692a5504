"""What Prometheus scrapes: over HTTP, read by its own parser."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import closing
from importlib.machinery import ModuleSpec

import pytest

from lookup_hints.errors import OptionError
from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics import prometheus as prometheus
from lookup_hints.metrics.lookup_metrics import CountsByKey, Latencies, LookupMetrics, MaxGauge, about_counts
from lookup_hints.metrics.prometheus import LOOPBACK, MetricsServer, metric_name, serve
from tests.unit.metrics.scraping import scraped, value

CUSTOMERS = LookupName("customers", "c", "postgres", 3, "lookup_1f2e")
ODD = LookupName('odd "name"\n', "o\\", "http", 12, "lookup_77aa")

LABELS = {
    "table": "customers",
    "alias": "c",
    "connector": "postgres",
    "line": "3",
    "function": "lookup_1f2e",
}


def latencies(*seconds: float) -> Latencies:
    buckets = [Latencies.bucket_of(each) for each in seconds]
    return Latencies({bucket: buckets.count(bucket) for bucket in buckets})


COUNTS: dict[LookupName, LookupMetrics] = {}


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    """Serves whatever ``COUNTS`` holds when it is scraped, under Flink's names, too."""
    COUNTS.clear()
    with serve(0, LOOPBACK, lambda: dict(COUNTS), flink_names=True, job_name="nightly") as serving:
        yield serving


def test_each_count_is_a_metric_with_its_unit_and_meaning(server: MetricsServer) -> None:
    COUNTS[CUSTOMERS] = LookupMetrics()
    families = scraped(server.url)
    for field, about in about_counts().items():
        family = families[metric_name(field, about.unit)]
        assert about.unit in family.documentation
        assert about.meaning in family.documentation


def test_numbers_are_counters_with_the_labels_of_their_lookup(server: MetricsServer) -> None:
    COUNTS[CUSTOMERS] = LookupMetrics(rows_in=12345678, keys=7)
    families = scraped(server.url)
    assert families["lookup_rows_in"].type == "counter"
    (sample,) = families["lookup_rows_in"].samples
    assert (sample.name, sample.labels, sample.value) == ("lookup_rows_in_total", LABELS, 12345678)
    assert value(families, "lookup_keys_total") == 7


def test_a_scrape_shows_what_is_counted_by_then(server: MetricsServer) -> None:
    assert scraped(server.url)["lookup_keys"].samples == []
    for keys in (5, 9):
        COUNTS[CUSTOMERS] = LookupMetrics(keys=keys)
        assert value(scraped(server.url), "lookup_keys_total") == keys


def test_what_is_the_largest_of_all_is_a_gauge(server: MetricsServer) -> None:
    COUNTS[CUSTOMERS] = LookupMetrics(most_in_flight=MaxGauge(40))
    families = scraped(server.url)
    assert families["lookup_most_in_flight"].type == "gauge"
    assert value(families, "lookup_most_in_flight") == 40


def test_counts_by_key_have_a_label_more(server: MetricsServer) -> None:
    COUNTS[CUSTOMERS] = LookupMetrics(errors_by_class=CountsByKey({"ConnectorError": 2, "LookupTimeout": 1}))
    families = scraped(server.url)
    assert value(families, "lookup_errors_by_class_total", **LABELS, **{"class": "ConnectorError"}) == 2
    assert value(families, "lookup_errors_by_class_total", **{"class": "LookupTimeout"}) == 1


def test_seconds_by_cause_have_their_unit_at_the_end(server: MetricsServer) -> None:
    COUNTS[CUSTOMERS] = LookupMetrics(seconds=3.5, waited=CountsByKey({"slot": 1.25}), bytes_in=10)
    families = scraped(server.url)
    assert value(families, "lookup_seconds_total") == 3.5
    assert value(families, "lookup_waited_seconds_total", **LABELS, cause="slot") == 1.25
    assert value(families, "lookup_in_bytes_total") == 10


def test_latencies_are_a_histogram(server: MetricsServer) -> None:
    COUNTS[CUSTOMERS] = LookupMetrics(latency=latencies(1e-6, 0.003, 0.003, 0.25, 1.0, 3600.0))
    family = scraped(server.url)["lookup_latency_seconds"]
    buckets = [each for each in family.samples if each.name == "lookup_latency_seconds_bucket"]
    bounds = [float(each.labels["le"]) for each in buckets]
    assert bounds == sorted(bounds)
    assert bounds[0] == pytest.approx(79.5e-6, rel=1e-3)
    assert (len(bounds), bounds[-1]) == (23, float("inf"))

    def within(seconds: float) -> float:
        return next(each.value for each, bound in zip(buckets, bounds, strict=True) if bound >= seconds)

    below = [within(seconds) for seconds in (1e-5, 1e-3, 0.01, 0.1, 0.5, 2.0, 300.0, 3600.0)]
    assert below == [1, 1, 3, 3, 4, 5, 5, 6]
    families = {family.name: family}
    assert value(families, "lookup_latency_seconds_count") == 6
    exact = 1e-6 + 0.003 + 0.003 + 0.25 + 1.0 + 3600.0
    assert value(families, "lookup_latency_seconds_sum") == pytest.approx(exact, rel=0.1)


def test_a_bound_of_the_histogram_counts_what_took_no_longer(server: MetricsServer) -> None:
    COUNTS[CUSTOMERS] = LookupMetrics(latency=latencies(7.9e-5, 9e-5))
    families = scraped(server.url)
    below = [
        value(families, "lookup_latency_seconds_bucket", le=bound) for bound in ("7.95e-05", "0.0001648")
    ]
    assert below == [1, 2]


def test_names_with_any_character_arrive_as_they_are(server: MetricsServer) -> None:
    COUNTS[CUSTOMERS] = LookupMetrics(keys=1)
    COUNTS[ODD] = LookupMetrics(keys=2)
    assert value(scraped(server.url), "lookup_keys_total", table=ODD.table, alias=ODD.alias, line="12") == 2


def test_flinks_names_for_what_means_the_same(server: MetricsServer) -> None:
    COUNTS[CUSTOMERS] = LookupMetrics(
        rows_in=10, rows_out=12, requests=4, errors=1, hits=3, cache_hits=5, cache_missing=2, cache_misses=6
    )
    families = scraped(server.url)
    operator = "flink_taskmanager_job_task_operator"
    labels = {"job_name": "nightly", "operator_name": f"LookupJoin[{CUSTOMERS}]", "subtask_index": "0"}
    assert families[f"{operator}_numRecordsIn"].type == "gauge"  # as Flink's reporter makes of its counters
    assert value(families, f"{operator}_numRecordsIn", **labels) == 10
    assert value(families, f"{operator}_numRecordsOut", **labels) == 12
    assert value(families, f"{operator}_cache_loadCount", **labels) == 4
    assert value(families, f"{operator}_cache_numLoadFailures", **labels) == 1
    assert value(families, f"{operator}_cache_hitCount", **labels) == 7, "a known miss is a hit, as in Flink"
    assert value(families, f"{operator}_cache_missCount", **labels) == 6


def test_flinks_names_are_served_on_request_alone() -> None:
    with serve(0, LOOPBACK, dict) as server:
        assert not [name for name in scraped(server.url) if name.startswith("flink")]


def test_the_metrics_server_listens_on_loopback_only_and_stops() -> None:
    server = serve(0, LOOPBACK, dict)
    assert server.url == f"http://127.0.0.1:{server.port}/metrics"
    port = server.port
    server.stop()
    assert (server.port, server.url) == (None, "")
    server.stop()
    with pytest.raises(ConnectionRefusedError), closing(socket.create_connection((LOOPBACK, port or 0), 5)):
        pass


def test_two_servers_serve_each_its_own() -> None:
    one, other = {CUSTOMERS: LookupMetrics(keys=1)}, {ODD: LookupMetrics(keys=2)}
    with serve(0, LOOPBACK, lambda: one) as first, serve(0, LOOPBACK, lambda: other) as second:
        assert value(scraped(first.url), "lookup_keys_total") == 1
        assert value(scraped(second.url), "lookup_keys_total") == 2


def test_a_port_that_is_taken_is_a_warning_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    with serve(0, LOOPBACK, dict) as first:
        assert first.port is not None
        second = serve(first.port, LOOPBACK, dict)
        assert scraped(first.url)
    assert (second.port, second.url) == (None, "")
    second.stop()
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    assert str(first.port) not in second.url
    assert "metrics are not served at 127.0.0.1, port " in warning.getMessage()


@pytest.mark.parametrize("port", [-1, 65536])
def test_what_is_no_port(port: int) -> None:
    with pytest.raises(OptionError, match=f"{port} is no port"):
        serve(port, LOOPBACK, dict)


def test_a_driver_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(name: str) -> ModuleSpec | None:
        assert name == "prometheus_client"
        return None

    monkeypatch.setattr(prometheus, "find_spec", lacks)
    with pytest.raises(OptionError, match=r"lacks the Python module 'prometheus_client'.*\[prometheus\]"):
        serve(0, LOOPBACK, dict)

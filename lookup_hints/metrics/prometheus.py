"""Metrics for Prometheus: the counts of lookups as families, and an HTTP endpoint that serves them.

Names, units and meanings come from `about_counts`, and the kind of a metric from how its count merges. So a
new count is a new metric, and nothing is written here for it. The driver may lack Prometheus' own package: it
is imported where it is used.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, Any

from lookup_hints.errors import OptionError, Problem
from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.lookup_metrics import (
    About,
    CountsByKey,
    Latencies,
    LookupMetrics,
    MaxGauge,
    about_counts,
    division,
)

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.core import Metric

Read = Callable[[], Mapping[LookupName, LookupMetrics]]
"""Gives the counts of each lookup so far."""

LABELS = ("table", "alias", "connector", "line", "function")

# Units that stand at the end of a name; of rows, keys and requests the name itself speaks.
_BASE_UNITS = ("seconds", "bytes")

# Buckets of `Latencies` at which those of Prometheus end: 80 us to 355 s, each 2.07 times the one before.
_BOUNDS = range(24, 109, 4)


def metric_name(field: str, unit: str) -> str:
    """The name of a count, without the ``_total`` of counters.

    >>> metric_name("waited", "seconds"), metric_name("bytes_in", "bytes"), metric_name("rows_in", "rows")
    ('lookup_waited_seconds', 'lookup_in_bytes', 'lookup_rows_in')
    """
    words = field.split("_")
    if unit in _BASE_UNITS:
        words = [*(word for word in words if word != unit), unit]
    return "_".join(("lookup", *words))


def labels_of(name: LookupName) -> tuple[str, ...]:
    return tuple(str(getattr(name, label)) for label in LABELS)


# Scraped on the driver, which has the sums and lives as long as the job. Workers come and go and listen on no
# known port. (docs/decisions/0136)
class LookupCollector:
    """All counts of all lookups, read again at each scrape."""

    def __init__(self, read: Read, planner_failures: Callable[[], int] = lambda: 0) -> None:
        self._read, self._planner_failures = read, planner_failures

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        yield CounterMetricFamily(
            "lookup_planner_failures",
            "statements: whose tables were read whole, as the planner failed at them; please report them",
            value=self._planner_failures(),
        )
        lookups = self._read()
        for field, about in about_counts().items():
            values = [(labels_of(name), getattr(counts, field)) for name, counts in lookups.items()]
            yield _metric_family(field, about, values)


def _metric_family(field: str, about: About, values: Iterable[tuple[tuple[str, ...], Any]]) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    name = metric_name(field, about.unit)
    kind = type(getattr(LookupMetrics(), field))
    help_text = f"{about.unit}: {about.meaning}"
    if issubclass(kind, Latencies):
        histogram = HistogramMetricFamily(name, f"{help_text}; the sum is exact to 10 %", labels=LABELS)
        for labels, latencies in values:
            histogram.add_metric(labels, _cumulative_buckets(latencies), _estimated_sum(latencies))
        return histogram
    if issubclass(kind, CountsByKey):
        by_key = CounterMetricFamily(name, help_text, labels=(*LABELS, division(field)))
        for labels, counts in values:
            for key, count in counts.counts.items():
                by_key.add_metric((*labels, str(key)), count)
        return by_key
    family = GaugeMetricFamily if issubclass(kind, MaxGauge) else CounterMetricFamily
    plain = family(name, help_text, labels=LABELS)
    for labels, value in values:
        plain.add_metric(labels, value)
    return plain


# Each bucket of Prometheus counts all that are smaller, too.
def _cumulative_buckets(latencies: Latencies) -> list[tuple[str, float]]:
    ends = [(f"{1e-6 * Latencies.GROWTH**end:.4g}", end) for end in _BOUNDS]
    return [
        (bound, sum(count for bucket, count in latencies.counts.items() if bucket < end))
        for bound, end in [*ends, ("+Inf", math.inf)]
    ]


def _estimated_sum(latencies: Latencies) -> float:
    """The seconds of all requests, as if each took the middle of its bucket."""
    counts = latencies.counts.items()
    return 1e-6 * math.fsum(count * Latencies.GROWTH ** (bucket + 0.5) for bucket, count in counts)


PREFIX = "flink_taskmanager_job_task_operator_"

SAME_COUNTS = {
    "numRecordsIn": ("rows_in",),
    "numRecordsOut": ("rows_out",),
    "cache_hitCount": ("cache_hits", "cache_missing"),
    "cache_missCount": ("cache_misses",),
    "cache_loadCount": ("requests", "cache_loads"),
    "cache_numLoadFailures": ("errors", "cache_load_failures"),
}
"""Flink's name below an operator, and our counts of which it is the sum, for dashboards made for Flink.

A name whose meaning differs is not served: a figure that is missing is seen, one that is wrong is believed.
``latestLoadTime`` is that of a single load, ``numCachedRecords`` that of one task's cache.
"""

FLINK_LABELS = ("job_name", "task_name", "operator_name", "subtask_index", "tm_id")


class FlinkCollector:
    """The counts as Flink's Prometheus reporter calls them: gauges, as it makes of Flink's counters."""

    def __init__(self, read: Read, job_name: str) -> None:
        self._read, self._job_name = read, job_name

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        lookups = self._read()
        for flinks, ours in SAME_COUNTS.items():
            help_text = f"lookup_hints: {' + '.join(ours)}"
            family = GaugeMetricFamily(PREFIX + flinks, help_text, labels=FLINK_LABELS)
            for name, counts in lookups.items():
                # The sums are those of all tasks and machines together: one subtask, on the driver.
                operator = f"LookupJoin[{name}]"
                labels = self._job_name, operator, operator, "0", "driver"
                family.add_metric(labels, sum(getattr(counts, each) for each in ours))
            yield family


LOOPBACK = "127.0.0.1"

_log = logging.getLogger("lookup_hints.metrics")


# The exposition format, the HTTP server and the escaping of labels are those of `prometheus_client`.
# (docs/decisions/0136)
class MetricsServer:
    """Serves the counts of a session until it is stopped, or the driver ends; a context manager.

    A port that is taken is no reason to fail a job: then nothing is served, and ``url`` is empty.
    """

    def __init__(self, running: tuple[WSGIServer, Thread] | None) -> None:
        self._running = running

    @property
    def port(self) -> int | None:
        """Where it listens; None where it serves nothing."""
        return None if self._running is None else self._running[0].server_port

    @property
    def url(self) -> str:
        """The URL for Prometheus; empty if it serves nothing."""
        if self._running is None:
            return ""
        host = str(self._running[0].server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"

    def stop(self) -> None:
        """Close the port; may be called again."""
        if self._running is None:
            return
        (server, thread), self._running = self._running, None
        server.shutdown()
        server.server_close()
        thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def check_package() -> None:
    """Refuse to serve where what serves is not installed."""
    if find_spec("prometheus_client") is None:
        message = "Metrics cannot be served: the driver lacks the Python module 'prometheus_client'."
        tip = "Try: pip install 'lookup-hints[prometheus]'"
        raise OptionError(Problem(message, tip=tip))


def serve(
    port: int,
    host: str,
    read: Read,
    *,
    planner_failures: Callable[[], int] = lambda: 0,
    flink_names: bool = False,
    job_name: str = "",
) -> MetricsServer:
    """Serve what ``read`` gives, at each scrape again.

    Args:
        port: where; 0 takes one that is free.
        host: the address to listen on; that of loopback lets nobody in from elsewhere.
        read: gives the counts so far.
        planner_failures: gives how many statements were read whole because the planner failed.
        flink_names: whether Flink's names of metrics are served, too.
        job_name: what dashboards for Flink call the job.

    Raises:
        OptionError: ``port`` is none, or the package is missing.
    """
    if not 0 <= port <= 65535:
        raise OptionError(Problem(f"{port} is no port.", tip="Give one of 1 to 65535, or 0 for any."))
    check_package()
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(LookupCollector(read, planner_failures))
    if flink_names:
        registry.register(FlinkCollector(read, job_name))
    try:
        return MetricsServer(start_http_server(port, host, registry))
    except OSError as error:
        _log.warning("metrics are not served at %s, port %d: %s; all else goes on", host, port, error)
        return MetricsServer(None)

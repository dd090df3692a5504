"""The counts of lookups as families of Prometheus metrics.

Names, units and meanings come from `about_counts`, and the kind of a metric from how its count merges. So a
new count is a new metric, and nothing is written here for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from lookup_hints.metrics.lookup_metrics import (
    About,
    CountsByKey,
    Latencies,
    LookupMetrics,
    MaxGauge,
    about_counts,
    division,
)
from lookup_hints.spec import LookupName

Read = Callable[[], Mapping[LookupName, LookupMetrics]]
"""Gives the counts of each lookup so far."""

LABELS = ("table", "alias", "connector", "line", "function")

_BASE_UNITS = ("seconds", "bytes")
"""Units that stand at the end of a name; of rows, keys and requests the name itself speaks."""

_BOUNDS = range(24, 109, 4)
"""Buckets of `Latencies` at which those of Prometheus end: 80 us to 355 s, each 2.07 times the one before."""


def metric_name(field: str, unit: str) -> str:
    """What a count is called, without the ``_total`` of counters.

    >>> metric_name("waited", "seconds"), metric_name("bytes_in", "bytes"), metric_name("rows_in", "rows")
    ('lookup_waited_seconds', 'lookup_in_bytes', 'lookup_rows_in')
    """
    words = field.split("_")
    if unit in _BASE_UNITS:
        words = [*(word for word in words if word != unit), unit]
    return "_".join(("lookup", *words))


def labels_of(name: LookupName) -> tuple[str, ...]:
    return tuple(str(getattr(name, label)) for label in LABELS)


class LookupCollector(Collector):
    """All counts of all lookups, read again at each scrape."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        lookups = self._read()
        for field, about in about_counts().items():
            values = [(labels_of(name), getattr(counts, field)) for name, counts in lookups.items()]
            yield _family(field, about, values)


def _family(field: str, about: About, values: Iterable[tuple[tuple[str, ...], Any]]) -> Metric:
    name = metric_name(field, about.unit)
    kind = type(getattr(LookupMetrics(), field))
    help_text = f"{about.unit}: {about.meaning}"
    if issubclass(kind, Latencies):
        histogram = HistogramMetricFamily(name, f"{help_text}; the sum is exact to 10 %", labels=LABELS)
        for labels, latencies in values:
            histogram.add_metric(labels, _buckets(latencies), _estimated_sum(latencies))
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


def _buckets(latencies: Latencies) -> list[tuple[str, float]]:
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


class FlinkCollector(Collector):
    """The counts as Flink's Prometheus reporter calls them: gauges, as it makes of Flink's counters."""

    def __init__(self, read: Read, job_name: str) -> None:
        self._read, self._job_name = read, job_name

    def collect(self) -> Iterator[Metric]:
        lookups = self._read()
        for flinks, ours in SAME_COUNTS.items():
            help_text = f"lookup_hints: {' + '.join(ours)}"
            family = GaugeMetricFamily(PREFIX + flinks, help_text, labels=FLINK_LABELS)
            for name, counts in lookups.items():
                family.add_metric(self._labels(name), sum(getattr(counts, each) for each in ours))
            yield family

    def _labels(self, name: LookupName) -> tuple[str, ...]:
        # The sums are those of all tasks and machines together: one subtask, on the driver.
        operator = f"LookupJoin[{name}]"
        return self._job_name, operator, operator, "0", "driver"

"""Flink's names for counts of ours that mean the same, for dashboards that were made for Flink.

A name whose meaning differs is not served: a figure that is missing is seen, one that is wrong is believed.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lookup_hints.metrics.prometheus import Read
from lookup_hints.spec import LookupName

PREFIX = "flink_taskmanager_job_task_operator_"

SAME_COUNTS = {
    "numRecordsIn": ("rows_in",),
    "numRecordsOut": ("rows_out",),
    "cache_hitCount": ("cache_hits", "cache_missing"),
    "cache_missCount": ("cache_misses",),
    "cache_loadCount": ("requests", "cache_loads"),
    "cache_numLoadFailures": ("errors", "cache_load_failures"),
}
"""Flink's name below an operator, and our counts of which it is the sum.

``latestLoadTime`` is that of a single load, ``numCachedRecords`` that of one task's cache.
"""

LABELS = ("job_name", "task_name", "operator_name", "subtask_index", "tm_id")


class FlinkCollector(Collector):
    """The counts as Flink's Prometheus reporter calls them: gauges, as it makes of Flink's counters."""

    def __init__(self, read: Read, job_name: str) -> None:
        self._read, self._job_name = read, job_name

    def collect(self) -> Iterator[Metric]:
        """A family for each name."""
        lookups = self._read()
        for flinks, ours in SAME_COUNTS.items():
            family = GaugeMetricFamily(PREFIX + flinks, f"lookup_hints: {' + '.join(ours)}", labels=LABELS)
            for name, counts in lookups.items():
                family.add_metric(self._labels(name), sum(getattr(counts, each) for each in ours))
            yield family

    def _labels(self, name: LookupName) -> tuple[str, ...]:
        # The sums are those of all tasks and machines together: one subtask, on the driver.
        operator = f"LookupJoin[{name}]"
        return self._job_name, operator, operator, "0", "driver"

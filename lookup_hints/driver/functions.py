"""The Spark functions and views of lookups, by name, and the counts of their workers.

A function's name is a hash of everything that determines its result, so no function is ever replaced: on
Spark Connect a DataFrame is analysed again at each action, and must find the function it was created with.

Spark passes each micro-batch of ``foreachBatch`` in a session of its own. So names and counts belong to the
application: the same lookup has one function in all its sessions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from hashlib import blake2b
from secrets import token_bytes
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from lookup_hints.driver.made_once import MadeOnce
from lookup_hints.driver.metrics_collector import (
    Counts,
    accumulating,
    can_receive,
    listening,
    receive_over_connect,
    send_over_connect,
)
from lookup_hints.driver.scan_views import SCAN_PREFIX, create_scan_view
from lookup_hints.driver.spark_functions import spark_function
from lookup_hints.driver.spark_versions import is_connect, spark_version
from lookup_hints.lookup_spec import LookupName, LookupSpec
from lookup_hints.metrics.lookup_metrics import LookupMetrics, Report
from lookup_hints.metrics.readable_summary import Moment
from lookup_hints.metrics.tables import SessionMetrics
from lookup_hints.plan.joins import TableScan
from lookup_hints.process.running_task import Reporter
from lookup_hints.pyspark_internals import all_settings, cloudpickled
from lookup_hints.spi.arrow_types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The least time between two polls of a Connect server for the counts of ended tasks.
_LIVE_SECONDS = 1.0


class _Application:
    """State shared by the sessions of one Spark application; on Spark Connect each session has its own."""

    def __init__(self, spark: SparkSession) -> None:
        # Names appear in plans; without the salt a short secret inside a spec could be guessed from its hash.
        self.salt = token_bytes(16)
        self.counts = Counts()
        self._fetch: Callable[[], object] | None = None
        self.report: Report | None = None
        if not is_connect(spark):
            self.report = Reporter(accumulating(spark, self.counts))
        elif can_receive(spark):
            self._fetch = receive_over_connect(spark, self.counts.take)
            self.report = Reporter(send_over_connect)

    @property
    def counts_come_late(self) -> bool:
        """Whether a task may have ended before its counts are here."""
        return self._fetch is not None

    def fetch_counts(self) -> None:
        """Let the counts arrive that wait on a Connect server; on classic Spark they have."""
        if self._fetch is not None:
            self._fetch()


_applications: MadeOnce[_Application] = MadeOnce()


def _application_of(spark: SparkSession) -> _Application:
    key = spark if is_connect(spark) else spark.sparkContext
    return _applications.of(key, lambda: _Application(spark))


# One name per lookup and application: with a name for each micro-batch's session, a long stream gathered a
# function and an accumulator per batch. (docs/decisions/0070)
class Functions:
    """The lookup functions and scan views that one Spark session, and copies of it, have."""

    def __init__(self, spark: SparkSession) -> None:
        self._application = _application_of(spark)
        self._registered: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()
        self._names: dict[str, LookupName] = {}

    # Named by a hash of all that decides its result, the same in all micro-batches of an application.
    # (docs/decisions/0070)
    def name(self, prefix: str, *content: Any) -> str:
        """A name for ``content``, the same for the same content in this session."""
        digest = blake2b(cloudpickled(content), key=self._application.salt, digest_size=8)
        return f"{prefix}_{digest.hexdigest()}"

    def register(self, spark: SparkSession, spec: LookupSpec, repeated: bool, transport: str) -> None:
        """Make ``spec`` callable in SQL under its name."""
        name = spec.name.function
        if self.has(spark, name):
            return
        spark.udf.register(name, self.function(spec, repeated, transport))
        self._add_registered(spark, name)

    def function(self, spec: LookupSpec, repeated: bool, transport: str) -> Any:
        """The function that runs ``spec``, whose counts belong to this session."""
        function = spark_function(spec, self._application.report, transport)
        self._names[spec.name.function] = spec.name
        return function.asNondeterministic() if repeated else function

    def begin_task(self, spark: SparkSession, spec: LookupSpec, transport: str) -> None:
        """Run one task of ``spec`` that asks nothing, as its key is NULL."""
        from pyspark.sql import functions

        keys = [functions.lit(None).cast(sql_type(field.type)) for field in spec.argument_schema]
        spark.range(0, 1, 1, 1).select(
            spark_function(spec, None, transport)(*keys).alias("nothing")
        ).collect()

    def create_scan(self, spark: SparkSession, scan: TableScan) -> None:
        if not self.has(spark, scan.relation):
            create_scan_view(spark, scan)
            self._add_registered(spark, scan.relation)

    def drop_scans(self, spark: SparkSession, needed: str) -> None:
        """Drop the views that statements read, but for those whose names are in ``needed``."""
        for name in [each for each in self._registered.get(spark, ()) if each.startswith(SCAN_PREFIX)]:
            if name not in needed:
                type(spark.catalog).dropTempView(spark.catalog, name)
                self._registered[spark].discard(name)

    def metrics(self) -> Mapping[LookupName, LookupMetrics]:
        """The counts of each of these lookups so far."""
        self._application.fetch_counts()
        return self._counts_by_name(self._application.counts.totals)

    @contextmanager
    def watching(self, spark: SparkSession) -> Iterator[Callable[[], Mapping[LookupName, Moment]]]:
        """Gives a look at the counts while the block runs: on classic Spark of running tasks, too."""
        counts = self._application.counts
        fetched = -math.inf

        def look() -> Mapping[LookupName, Moment]:
            nonlocal fetched
            now = time.monotonic()
            if now - fetched >= _LIVE_SECONDS:
                fetched = now
                self._application.fetch_counts()
            so_far = counts.so_far
            return {
                self._names[function]: Moment(each, waiting, now)
                for function, (each, waiting) in so_far.items()
                if function in self._names
            }

        with nullcontext() if is_connect(spark) else listening(spark, counts):
            yield look

    def metrics_of_batch(self, query: str, batch: int) -> Mapping[LookupName, LookupMetrics]:
        """The counts of these lookups in one micro-batch of a query, as far as they have arrived."""
        return self._counts_by_name(self._application.counts.of_batch(query, batch))

    def fetched_metrics_of_batch(self, query: str, batch: int) -> Mapping[LookupName, LookupMetrics]:
        """The same, after fetching counts that a Connect server still holds.

        The server attaches them to the next statement of the session that ends, in any thread.
        """
        if not self._application.counts_come_late:
            return self.metrics_of_batch(query, batch)
        self._application.fetch_counts()
        return self._counts_by_name(self._application.counts.awaited_of_batch(query, batch))

    def _counts_by_name(self, counts: Mapping[str, LookupMetrics]) -> Mapping[LookupName, LookupMetrics]:
        known = {self._names[function]: each for function, each in counts.items() if function in self._names}
        return SessionMetrics(known)

    def has(self, spark: SparkSession, name: str) -> bool:
        """Whether a function or view of that name is known to ``spark``."""
        return name in self._registered.get(spark, ())

    def _add_registered(self, spark: SparkSession, name: str) -> None:
        if spark not in self._registered:
            _disable_columnar_input(spark)
        self._registered.setdefault(spark, set()).add(name)


COLUMNAR_INPUT = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"


def _disable_columnar_input(spark: SparkSession) -> None:
    """Let Spark pass rows, not columns, to a session's Python functions, unless the user configured this.

    Columnar input is slower for lookups. And with Arrow columns from a source, Spark expects batches of the
    same size back, while a lookup answers in windows of its own (docs/decisions/0062).
    """
    if spark_version(spark) < (4, 2):
        return
    settings = None if is_connect(spark) else all_settings(spark.conf)
    if COLUMNAR_INPUT not in (spark.conf.getAll if settings is None else settings):
        spark.conf.set(COLUMNAR_INPUT, "false")

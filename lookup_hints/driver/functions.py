"""Lookup specs as Spark functions, table scans as views, and what the workers counted.

A function's name is a hash of all that decides its result, so that none is ever replaced by another: on Spark
Connect a DataFrame is analysed again at each action, and must find the function it was made with.

Spark hands each micro-batch of ``foreachBatch`` over in a session of its own. So what makes names and takes
counts belongs to the application: the same lookup has one function, however many sessions it is made in.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from hashlib import blake2b
from secrets import token_bytes
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa

from lookup_hints.driver.metrics_collector import (
    Counts,
    accumulating,
    can_receive,
    listening,
    receive_over_connect,
    send_over_connect,
)
from lookup_hints.driver.shipping import Batches, shipped, strip_annotations
from lookup_hints.errors import InternalError, OptionError, Problem
from lookup_hints.lookup_spec import LookupName, LookupSpec
from lookup_hints.metrics.lookup_metrics import LookupMetrics, Report
from lookup_hints.metrics.readable_summary import Moment
from lookup_hints.plan.joins import TableScan
from lookup_hints.process.open_connectors import call_with_timeout, install_tip, scanned
from lookup_hints.process.running_task import Reporter
from lookup_hints.pyspark_internals import all_settings, cloudpickled
from lookup_hints.spi import Connector, Scan
from lookup_hints.spi.arrow_types import sql_type
from lookup_hints.spi.security_policy import SWITCHES, Policy, policy_of_configuration, policy_of_environment
from lookup_hints.sql.lexer import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

_T = TypeVar("_T")


class MadeOnce(Generic[_T]):
    """One value for each key, however many threads are the first to ask for it; it goes with its key."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[Any, _T] = WeakKeyDictionary()
        self._lock = Lock()

    def of(self, key: Any, make: Callable[[], _T]) -> _T:
        """The value of ``key``: what ``make`` gives at the first call that succeeds."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]


_LIVE_SECONDS = 1.0
"""A Connect server is asked for the counts of tasks that have ended no more often than that."""


class _Application:
    """What the sessions of one Spark application share; on Spark Connect each session is on its own."""

    def __init__(self, spark: SparkSession) -> None:
        # Names appear in plans; without the salt a short secret inside a spec could be guessed from its hash.
        self.salt = token_bytes(16)
        self.counts = Counts()
        self._fetch: Callable[[], None] | None = None
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


class Functions:
    """The lookup functions and scan views that one Spark session, and copies of it, have."""

    def __init__(self, spark: SparkSession) -> None:
        self._application = _application_of(spark)
        self._registered: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()
        self._names: dict[str, LookupName] = {}

    def name(self, prefix: str, *content: Any) -> str:
        """A name for ``content``, the same for the same content in this session."""
        digest = blake2b(cloudpickled(content), key=self._application.salt, digest_size=8)
        return f"{prefix}_{digest.hexdigest()}"

    def register(self, spark: SparkSession, spec: LookupSpec, repeated: bool, transport: str) -> None:
        """Make ``spec`` callable in SQL under its name."""
        name = spec.name.function
        if self.has(spark, name):
            return
        make = _arrow_function if transport == "arrow" else _pandas_function
        function = make(spec, self._application.report)
        spark.udf.register(name, function.asNondeterministic() if repeated else function)
        self._names[name] = spec.name
        self._add(spark, name)

    def begin_task(self, spark: SparkSession, spec: LookupSpec, transport: str) -> None:
        """Run one task of ``spec`` that asks nothing, as its key is NULL."""
        from pyspark.sql import functions

        make = _arrow_function if transport == "arrow" else _pandas_function
        keys = [functions.lit(None).cast(sql_type(field.type)) for field in spec.argument_schema]
        spark.range(0, 1, 1, 1).select(make(spec, None)(*keys).alias("nothing")).collect()

    def create_scan(self, spark: SparkSession, scan: TableScan) -> None:
        if not self.has(spark, scan.relation):
            create_view(spark, scan)
            self._add(spark, scan.relation)

    def metrics(self) -> Mapping[LookupName, LookupMetrics]:
        """What each of these lookups counted so far."""
        self._application.fetch_counts()
        return self._named(self._application.counts.totals)

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
        """What has arrived of the counts of these lookups in one micro-batch of the query with that id."""
        return self._named(self._application.counts.of_batch(query, batch))

    def fetched_metrics_of_batch(self, query: str, batch: int) -> Mapping[LookupName, LookupMetrics]:
        """The same, with what is still on its way: a Connect server keeps counts until it is asked.

        The server hands them to whichever statement of the session ends next, in whatever thread.
        """
        if not self._application.counts_come_late:
            return self.metrics_of_batch(query, batch)
        self._application.fetch_counts()
        return self._named(self._application.counts.awaited_of_batch(query, batch))

    def _named(self, counts: Mapping[str, LookupMetrics]) -> Mapping[LookupName, LookupMetrics]:
        return {self._names[function]: each for function, each in counts.items() if function in self._names}

    def has(self, spark: SparkSession, name: str) -> bool:
        """Whether a function or view of that name is known to ``spark``."""
        return name in self._registered.get(spark, ())

    def _add(self, spark: SparkSession, name: str) -> None:
        if spark not in self._registered:
            _ask_for_rows(spark)
        self._registered.setdefault(spark, set()).add(name)


def run_the_drivers_python(spark: SparkSession) -> None:
    """Let the workers of a local Spark run the driver's Python, if PYSPARK_PYTHON names none.

    PySpark takes ``python3`` from the path: another one, where the driver's environment is not activated.
    It reads the name from the context for each function that it makes, so this works at any time.
    """
    if is_connect(spark) or os.environ.get("PYSPARK_PYTHON"):
        return
    context = spark.sparkContext
    if (context.master or "").startswith("local") and sys.executable:
        context.pythonExec = sys.executable


_COLUMNAR_INPUT = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"


def _ask_for_rows(spark: SparkSession) -> None:
    """Have Spark read rows, not columns, for a session's Python functions, if nothing else was said of that.

    Columns cost a lookup more than rows; and where a source's own columns are Arrow's, Spark wants back as
    many rows at a time as it gave, where a lookup answers in windows of its own (docs/decisions/0062).
    """
    if spark_version(spark) < (4, 2):
        return
    settings = None if is_connect(spark) else all_settings(spark.conf)
    if _COLUMNAR_INPUT not in (spark.conf.getAll if settings is None else settings):
        spark.conf.set(_COLUMNAR_INPUT, "false")


def policy_of(spark: SparkSession) -> Policy:
    """What the application of ``spark``, and the environment of this process, allow SQL to use.

    On classic Spark the application's own configuration is read, which no session changes; on Spark Connect
    that of the session, which begins as the server's.

    Raises:
        OptionError: a switch is no list of patterns.
    """
    if not is_connect(spark):
        settings = dict(spark.sparkContext.getConf().getAll())
    elif hasattr(spark.conf, "getAll"):  # new in Spark 4.0
        settings = spark.conf.getAll
    else:
        keys = [prefix + switch for switch in SWITCHES for prefix in ("", "spark.")]
        settings = {key: value for key in keys if (value := spark.conf.get(key, None)) is not None}
    return policy_of_configuration(settings) & policy_of_environment()


def brings_counts(spark: SparkSession) -> bool:
    """Whether counts of the workers come back from ``spark``."""
    return not is_connect(spark) or can_receive(spark)


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def spark_version(spark: SparkSession) -> tuple[int, int]:
    """The first two numbers of Spark's version, of the server on Spark Connect."""
    major, minor = spark.version.split(".")[:2]
    return int(major), int(minor)


def transport_for(requested: str) -> str:
    """How keys and rows travel between Spark and Python: ``arrow`` or ``pandas``, as far as ``requested``.

    Raises:
        OptionError: ``arrow`` is requested, and this PySpark has no Arrow functions.
    """
    from pyspark.sql import functions

    available = hasattr(functions, "arrow_udf")
    if requested == "arrow" and not available:
        raise OptionError(
            Problem("'lookup.transport' cannot be 'arrow': PySpark has Arrow functions from 4.1 on.")
        )
    return "arrow" if available and requested != "pandas" else "pandas"


def wrapping_for(transport: str) -> Callable[[pa.DataType], tuple[str, str]]:
    """What is written before and after a key of a type, so that ``transport`` carries all of its values."""
    if transport == "arrow":
        return lambda _: ("", "")
    from lookup_hints.worker.pandas_worker import wrapping

    return wrapping


def _arrow_function(spec: LookupSpec, report: Report | None) -> Any:
    from pyspark.sql.pandas.functions import arrow_udf

    from lookup_hints.worker.arrow_worker import arrow_lookup

    return _made(arrow_udf, arrow_lookup(spec, report), spec, ("pyarrow",))


def _pandas_function(spec: LookupSpec, report: Report | None) -> Any:
    from pyspark.sql.pandas.functions import pandas_udf

    from lookup_hints.worker.pandas_worker import pandas_lookup

    return _made(pandas_udf, pandas_lookup(spec, report), spec, ("pyarrow", "pandas"))


def _made(make: Any, function: Batches, spec: LookupSpec, packages: tuple[str, ...]) -> Any:
    """A function of Spark's; ``make`` (without a type: it wants the kind said) reads the annotations."""
    stub = shipped(function, packages, install_tip(spec.connector))
    made = make(stub, spark_type(pa.list_(spec.row_type)))
    strip_annotations(stub)
    return made


_TYPES = {
    "BOOLEAN": "BooleanType",
    "TINYINT": "ByteType",
    "SMALLINT": "ShortType",
    "INT": "IntegerType",
    "BIGINT": "LongType",
    "FLOAT": "FloatType",
    "DOUBLE": "DoubleType",
    "STRING": "StringType",
    "BINARY": "BinaryType",
    "DATE": "DateType",
    "TIMESTAMP_LTZ": "TimestampType",
    "TIMESTAMP_NTZ": "TimestampNTZType",
    "INTERVAL DAY TO SECOND": "DayTimeIntervalType",
}


def spark_type(kind: pa.DataType) -> DataType:
    """The type that ``sql_type`` writes. PySpark has what is written parsed by the JVM, for each function."""
    from pyspark.sql import types

    if pa.types.is_decimal(kind):
        return types.DecimalType(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        return types.MapType(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_list(kind):
        return types.ArrayType(spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return types.StructType([types.StructField(each.name, spark_type(each.type)) for each in kind])
    made: DataType = getattr(types, _TYPES[sql_type(kind)])()
    return made


PARTITIONING_SECONDS = 1.0
"""A source that takes longer to tell its parts is read by one task."""

_log = logging.getLogger("lookup_hints")


def create_view(spark: SparkSession, scan: TableScan) -> None:
    """Make the view that reads the whole table of ``scan``, again at each action."""
    fields = [scan.use.table.schema.field(name) for name in scan.columns]
    schema, connector, filters = pa.schema(fields), scan.connector, scan.filters
    parts = parts_of(connector, scan.readers)

    def rows(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:  # to the end: Spark ends a worker that leaves input unread
            for number in batch.column(0).to_pylist():
                yield from scanned(connector, schema, parts[number], filters)

    columns = ", ".join(f"{quoted(column.name)} {sql_type(column.type)}" for column in fields)
    stub = shipped(rows, install_tip=install_tip(connector))
    strip_annotations(stub)
    frame = spark.range(0, len(parts), 1, len(parts)).mapInArrow(stub, columns)
    frame.createOrReplaceTempView(scan.relation)


def parts_of(connector: Connector, wanted: int, seconds: float = PARTITIONING_SECONDS) -> Sequence[str]:
    """The parts in which the table of ``connector`` is read; one where they cannot be known in time."""
    if not isinstance(connector, Scan):
        raise InternalError(f"{type(connector).__name__} was planned to be scanned, which it cannot")
    if wanted == 1 or type(connector).partitions is Scan.partitions:
        return ("",)
    try:
        parts = call_with_timeout(lambda: connector.partitions(wanted), seconds, "partitions")
        return parts or ("",)
    except Exception as error:  # a worker reads the table, and says what is wrong if that fails, too
        _log.warning(
            "Table %s is read by one task: its parts cannot be known here (%s). 'lookup.scan.partitions' ="
            " '1' in WITH says that this is meant.",
            connector.table.name,
            type(error).__name__,
        )
        return ("",)

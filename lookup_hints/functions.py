"""Lookup specs as Spark functions, table scans as views, and what the workers counted.

A function's name is a hash of all that decides its result; it is registered once and never replaced:
on Spark Connect a DataFrame is analysed again at each action, and must find the function it was made with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lookup_hints.errors import OptionError, Problem
from lookup_hints.plan.draft import TableScan
from lookup_hints.runtime.metrics import LookupMetrics, Report
from lookup_hints.spec import LookupSpec
from lookup_hints.sqltext import quoted
from lookup_hints.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Functions:
    """The lookup functions and scan views of one Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._registered: set[str] = set()
        # Names appear in plans; without the salt a short secret inside a spec could be guessed from its hash.
        self._salt = token_bytes(16)
        self._counts = _accumulator(spark)

    def name(self, prefix: str, *content: Any) -> str:
        """A name for ``content``, the same for the same content in this session."""
        from pyspark.cloudpickle import dumps

        pickled = dumps(content)  # type: ignore[no-untyped-call]  # PySpark's copy has no types
        digest = blake2b(pickled, key=self._salt, digest_size=8)
        return f"{prefix}_{digest.hexdigest()}"

    def register(self, spark: SparkSession, spec: LookupSpec, repeated: bool, transport: str) -> None:
        """Make ``spec`` callable in SQL under its name.

        Args:
            spark: the session.
            spec: what the function does.
            repeated: whether Spark must not compute it twice where its rows are read twice.
            transport: how keys and rows travel: ``arrow`` or ``pandas``.
        """
        if spec.name in self._registered:
            return
        make = _arrow_function if transport == "arrow" else _pandas_function
        function = make(spec, self._report())
        spark.udf.register(spec.name, function.asNondeterministic() if repeated else function)
        self._registered.add(spec.name)

    def create_scan(self, spark: SparkSession, scan: TableScan) -> None:
        """Make the view that reads the whole table of ``scan``, anew at each action and in one task."""
        if scan.relation in self._registered:
            return
        fields = [scan.use.table.schema.field(name) for name in scan.columns]
        schema = pa.schema(fields)
        connector = scan.connector

        def rows(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from lookup_hints.runtime.worker import scanned

            return scanned(connector, schema)

        columns = ", ".join(f"{quoted(column.name)} {sql_type(column.type)}" for column in fields)
        frame = spark.range(0, 1, 1, 1).mapInArrow(rows, columns)
        frame.createOrReplaceTempView(scan.relation)
        self._registered.add(scan.relation)

    def metrics(self) -> Mapping[str, LookupMetrics]:
        """What each lookup function counted so far in this session; empty on Spark Connect."""
        return {} if self._counts is None else dict(self._counts.value)

    def _report(self) -> Report | None:
        counts = self._counts
        return None if counts is None else _Reporter(counts)


class _Reporter:
    """Adds the counts of one task; pickled into the function with its accumulator."""

    def __init__(self, counts: Any) -> None:
        self._counts = counts

    def __call__(self, function: str, metrics: LookupMetrics) -> None:
        self._counts.add({function: metrics})


def _accumulator(spark: SparkSession) -> Any:
    """An accumulator of counts by function, or None on Spark Connect, which has no accumulators."""
    if is_connect(spark):
        return None
    from pyspark.accumulators import AccumulatorParam

    class Counts(AccumulatorParam[dict[str, LookupMetrics]]):
        def zero(self, value: dict[str, LookupMetrics]) -> dict[str, LookupMetrics]:
            return {}

        def addInPlace(  # noqa: N802 (Spark's name)
            self, value1: dict[str, LookupMetrics], value2: dict[str, LookupMetrics]
        ) -> dict[str, LookupMetrics]:
            for function, counted in value2.items():
                value1[function] = value1.get(function, LookupMetrics()) + counted
            return value1

    return spark.sparkContext.accumulator({}, Counts())


def is_connect(spark: SparkSession) -> bool:
    """Whether ``spark`` is a Spark Connect session."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def transport_for(wish: str) -> str:
    """How keys and rows travel between Spark and Python: ``arrow`` or ``pandas``, where one wished ``wish``.

    Raises:
        OptionError: the wish is ``arrow``, and this PySpark has no Arrow functions.
    """
    from pyspark.sql import functions

    available = hasattr(functions, "arrow_udf")
    if wish == "arrow" and not available:
        raise OptionError(
            Problem("'lookup.transport' cannot be 'arrow': PySpark has Arrow functions from 4.1 on.")
        )
    return "arrow" if available and wish != "pandas" else "pandas"


def wrapping_for(transport: str) -> Callable[[pa.DataType], tuple[str, str]]:
    """What is written before and after a key of a type, so that ``transport`` carries all of its values."""
    if transport == "arrow":
        return lambda _: ("", "")
    from lookup_hints.runtime.pandas_worker import wrapping

    return wrapping


def _return_type(spec: LookupSpec) -> str:
    return sql_type(pa.list_(spec.row_type))


def _arrow_function(spec: LookupSpec, report: Report | None) -> Any:
    from pyspark.sql.pandas.functions import arrow_udf

    from lookup_hints.runtime.worker import arrow_lookup

    # Its type wants the kind said in the call; the annotations of the function say it.
    make: Any = arrow_udf
    return make(arrow_lookup(spec, report), _return_type(spec))


def _pandas_function(spec: LookupSpec, report: Report | None) -> Any:
    from pyspark.sql.pandas.functions import pandas_udf

    from lookup_hints.runtime.pandas_worker import pandas_lookup

    make: Any = pandas_udf  # as above
    return make(pandas_lookup(spec, report), _return_type(spec))

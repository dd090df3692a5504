"""A lookup spec as a function of Spark's: how keys and rows travel, and which types they have there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lookup_hints.driver.shipping import Batches, shipped, strip_annotations
from lookup_hints.errors import OptionError, Problem
from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.metrics.lookup_metrics import Report
from lookup_hints.process.open_connectors import install_tip
from lookup_hints.spi.arrow_types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


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
    """Text to write before and after a key of a type, so that ``transport`` carries all of its values."""
    if transport == "arrow":
        return lambda _: ("", "")
    from lookup_hints.worker.pandas_worker import wrapping

    return wrapping


def spark_function(spec: LookupSpec, report: Report | None, transport: str) -> Any:
    """The Spark function that runs ``spec`` on the workers, and reports their counts."""
    if transport == "arrow":
        from pyspark.sql.pandas.functions import arrow_udf

        from lookup_hints.worker.arrow_worker import arrow_lookup

        return _make_udf(arrow_udf, arrow_lookup(spec, report), spec, ("pyarrow",))
    from pyspark.sql.pandas.functions import pandas_udf

    from lookup_hints.worker.pandas_worker import pandas_lookup

    return _make_udf(pandas_udf, pandas_lookup(spec, report), spec, ("pyarrow", "pandas"))


def _make_udf(make: Any, function: Batches, spec: LookupSpec, packages: tuple[str, ...]) -> Any:
    """A Spark function; ``make`` reads the annotations, so it gets no explicit function type."""
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
    """The Spark type of ``kind``, made without the JVM, which PySpark would call for a type as text."""
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

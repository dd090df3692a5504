"""Lookup tables that are read whole, as views of Spark's."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lookup_hints.driver.shipping import shipped, strip_annotations
from lookup_hints.errors import InternalError
from lookup_hints.plan.joins import TableScan
from lookup_hints.process.open_connectors import call_with_timeout, install_tip, scanned
from lookup_hints.spi import Connector, Scan
from lookup_hints.spi.arrow_types import sql_type
from lookup_hints.sql.lexer import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("lookup_hints")

PARTITIONING_SECONDS = 1.0
"""A source that takes longer to split into parts is read by one task."""


def create_scan_view(spark: SparkSession, scan: TableScan) -> None:
    """Make the view that reads the whole table of ``scan``, again at each action."""
    fields = [scan.use.table.schema.field(name) for name in scan.columns]
    schema, connector, filters = pa.schema(fields), scan.use.connector, scan.filters
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
    except Exception as error:  # one worker then reads the table, and reports its own error if that fails
        _log.warning(
            "Table %s is read by one task: its parts cannot be known here (%s). 'lookup.scan.partitions' ="
            " '1' in WITH says that this is meant.",
            connector.table.name,
            type(error).__name__,
        )
        return ("",)

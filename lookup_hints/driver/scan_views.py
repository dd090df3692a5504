"""Lookup tables that are read whole, as views of Spark's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import pyarrow as pa

from lookup_hints.driver.shipping import shipped, strip_annotations
from lookup_hints.errors import InternalError, Problem, QueryError
from lookup_hints.plan.decide.scan_and_filters import ReadRule
from lookup_hints.plan.joins import TableScan
from lookup_hints.process.open_connectors import PLACE, call_with_timeout, install_tip, scanned, with_places
from lookup_hints.spi import Connector, Scan
from lookup_hints.spi.arrow_types import sql_type
from lookup_hints.spi.multiple_match import ALL, ERROR, multiple_match_of
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.lexer import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("lookup_hints")

SCAN_PREFIX = "lookup_scan"
"""What the names of all views begin with that statements read."""

PARTITIONING_SECONDS = 1.0
"""A source that takes longer to split into parts is read by one task."""


def create_scan_view(spark: SparkSession, scan: TableScan) -> None:
    """Make the view that reads the whole table of ``scan``, again at each action."""
    match_key = scan.match_key
    wanted = {*scan.columns, *match_key}
    schema = pa.schema([field for field in scan.use.table.schema if field.name in wanted])
    connector, filters = scan.use.connector, scan.filters
    parts = parts_of(connector, scan.readers)

    def rows(number: int) -> Iterator[pa.RecordBatch]:
        found = scanned(connector, schema, parts[number], filters)
        return with_places(found, number) if match_key else found

    frame = frame_of_rows(spark, connector, schema, rows, tasks=len(parts), has_places=bool(match_key))
    if match_key:
        frame = _with_one_row(frame, scan.use.table, match_key, scan.columns)
    frame.createOrReplaceTempView(scan.relation)


# One task reads it: parts that several tasks computed for themselves could overlap, if the table grows
# meanwhile. (docs/decisions/0251)
def frame_of_table(spark: SparkSession, connector: Connector, name: str, rule: ReadRule) -> DataFrame:
    """The whole table of ``connector``, read again at each action, or refused then, as ``rule`` says.

    Args:
        spark: the session.
        connector: the table's connector.
        name: what Spark's plans call the function that reads it.
        rule: whether it may be read, and how many rows.
    """
    table, most = connector.table, rule.most_rows
    match_key = () if multiple_match_of(table) == ALL else table.primary_key

    def checked_rows(_: int) -> Iterator[pa.RecordBatch]:
        if rule.refusal:
            raise QueryError(Problem(rule.refusal))
        seen = 0
        for batch in scanned(connector, table.schema):
            seen += batch.num_rows
            if most is not None and seen > most:
                message = f"The lookup table {table.name} has more than {most} rows"
                raise QueryError(Problem(f"{message}, and 'lookup.scan.max-rows' lets no more be read."))
            yield batch

    def rows(_: int) -> Iterator[pa.RecordBatch]:
        return with_places(checked_rows(_), 0) if match_key else checked_rows(_)

    frame = frame_of_rows(spark, connector, table.schema, rows, name=name, has_places=bool(match_key))
    return _with_one_row(frame, table, match_key, table.schema.names) if match_key else frame


def unread_frame(spark: SparkSession, connector: Connector, why: str) -> DataFrame:
    """The columns of the table of ``connector``; reading them fails, and says ``why``."""
    return frame_of_table(spark, connector, "lookup_table", ReadRule(why))


def frame_of_rows(
    spark: SparkSession,
    connector: Connector,
    schema: pa.Schema,
    rows: Callable[[int], Iterator[pa.RecordBatch]],
    *,
    tasks: int = 1,
    name: str = "",
    has_places: bool = False,
) -> DataFrame:
    """What ``rows`` gives on the workers for each number of a task; ``name`` is shown in Spark's plans.

    ``has_places``: behind the columns of ``schema`` they have that of ``with_places``.
    """

    def rows_of_tasks(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:  # to the end: Spark ends a worker that leaves input unread
            for number in batch.column(0).to_pylist():
                yield from rows(number)

    columns = ", ".join(f"{quoted(column.name)} {sql_type(column.type)}" for column in schema)
    columns += f", {PLACE} BIGINT" if has_places else ""
    stub = shipped(rows_of_tasks, install_tip=install_tip(connector))
    strip_annotations(stub)
    stub.__name__ = name or stub.__name__
    return spark.range(0, tasks, 1, tasks).mapInArrow(stub, columns)


# One shuffle by key, and no window, for which Spark would sort the rows. (docs/decisions/0247)
def _with_one_row(
    frame: DataFrame, table: LookupTable, key: Sequence[str], wanted: Sequence[str]
) -> DataFrame:
    """The columns ``wanted`` of the first row of each ``key``, and of all rows that have a NULL in it."""
    from pyspark.sql import functions as F  # noqa: N812 (as everybody calls it)

    alone, row, count = (f"__lookup_{name}" for name in ("alone", "row", "rows"))
    columns = {name: F.col(quoted(name)) for name in key}
    has_null = reduce(or_, (column.isNull() for column in columns.values()))
    groups = frame.withColumn(alone, F.when(has_null, F.col(PLACE))).groupBy(*columns.values(), alone)
    whole = F.struct(*(F.col(quoted(name)) for name in wanted), F.col(PLACE))
    found = groups.agg(F.min_by(whole, PLACE).alias(row), F.count("*").alias(count))
    if multiple_match_of(table) == ERROR:
        shown = [
            part
            for name, column in columns.items()
            for part in (F.lit(f", {name} = "), column.cast("string"))
        ]
        text = F.concat(
            F.lit(f"table {table.name}: "),
            F.col(count).cast("string"),
            F.lit(" rows have the primary key "),
            F.substring(F.concat(*shown), 3, 200),
            F.lit(", and 'multiple-match' = 'error' allows one."),
        )
        has_several = F.col(count) > 1
        found = found.where(F.when(has_several, F.raise_error(text).cast("boolean")).otherwise(F.lit(True)))
    return found.select(*(F.col(f"{row}.{quoted(name)}") for name in wanted))


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

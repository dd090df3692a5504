"""Where the rows of a streaming INSERT go: a table, files below a path, or one of Spark's own sinks.

Spark's streaming writer trusts its caller: it writes the columns of a query under the query's own names
into a table's files, skips the batches of a new checkpoint whose numbers an older one has used up, and
hides the rows that were there before. Each of these loses rows without a word, so each is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lookup_hints.errors import Problem, QueryError, Span
from lookup_hints.sql.lexer import quoted
from lookup_hints.streaming.insert import ROOT, StreamInsert, StreamSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE_FORMATS = frozenset({"parquet", "orc", "csv", "json", "text", "avro"})
_PATH_FORMATS = FILE_FORMATS | {"delta"}
_WITHOUT_CHECKPOINT = frozenset({"console", "noop", "memory"})
_FORMATS = _WITHOUT_CHECKPOINT | {"kafka"}

RunSql = Callable[[str], "DataFrame"]
"""Spark's own ``sql``."""


@dataclass(frozen=True)
class Sink:
    """The target of a streaming INSERT.

    Args:
        table: the table's name, quoted for SQL; None for a sink without one.
        format: the format of a sink without a table, or of a table's files.
        path: the folder of files; None where there is none, or the table does not tell.
        columns: name and type of the table's columns; None: those of the query.
        partitions: the columns that the table's files are parted by.
        at: its position in the statement.
    """

    table: str | None
    format: str
    path: str | None
    columns: Sequence[Any] | None
    partitions: tuple[str, ...]
    at: Span

    @property
    def keeps_files(self) -> bool:
        """Whether Spark's file sink writes it, whose log says which files count."""
        return self.format in FILE_FORMATS

    @property
    def needs_checkpoint(self) -> bool:
        """Whether rows are kept, so that a second start must go on from the first."""
        return self.format not in _WITHOUT_CHECKPOINT

    @property
    def relation(self) -> str:
        """The relation by which SELECT reads it."""
        return self.table or f"{self.format}.{quoted(self.path or '')}"


def find_sink(insert: StreamInsert, run_sql: RunSql, table_exists: Callable[[str], bool]) -> Sink:
    """The sink that the statement names: a table where there is one of that name.

    Raises:
        QueryError: there is neither a table nor a format of that name.
    """
    other = sink_without_table(insert)
    if other is not None and other.path is not None:
        return other
    table = ".".join(map(quoted, insert.sink))
    if table_exists(table):
        columns = _columns_of_table(table, run_sql)
        provider, path, partitions, is_partition = "", None, [], False
        for row in run_sql(f"DESCRIBE TABLE EXTENDED {table}").collect():
            if row.col_name.startswith("#"):
                is_partition = "Partition" in row.col_name or (is_partition and row.col_name == "# col_name")
            elif not row.col_name:
                is_partition = False
            elif is_partition:
                partitions.append(row.col_name)
            elif row.col_name == "Provider":
                provider = row.data_type.lower()
            elif row.col_name == "Location":
                path = row.data_type
        return Sink(table, provider, path, columns, tuple(partitions), insert.sink_at)
    if other is not None:
        return other
    message = f"There is no table {insert.shown_sink}."
    tip = (
        "Create it first, or write to files (INSERT INTO parquet.`/folder`), console, noop, memory or kafka."
    )
    raise QueryError(Problem(message, insert.sink_at, tip))


def sink_without_table(insert: StreamInsert) -> Sink | None:
    """The files or the sink of Spark's own that the statement names, if it names one."""
    parts, at = insert.sink, insert.sink_at
    first = parts[0].lower()
    if len(parts) == 2 and first in _PATH_FORMATS and re.search(r"[/:\\]", parts[1]):
        return Sink(None, first, parts[1], None, (), at)
    if len(parts) == 1 and first in _FORMATS:
        return Sink(None, first, None, None, (), at)
    return None


def _columns_of_table(table: str, run_sql: RunSql) -> Sequence[Any] | None:
    try:
        return run_sql(f"SELECT * FROM {table}").schema.fields  # noqa: S608 (a quoted name)
    except Exception as error:
        if _CAPABILITY in str(error):
            return None
        raise


# --- before it starts ------------------------------------------------------------------------------


def check_sink(
    insert: StreamInsert, sink: Sink, settings: StreamSettings, run_sql: RunSql, spark: Any
) -> None:
    """Refuse settings that would lose or duplicate rows.

    Raises:
        QueryError: no checkpoint; a new checkpoint on files that another one wrote; files with rows that no
            streaming query wrote.
    """
    if sink.needs_checkpoint and settings.checkpoint is None:
        has_root = bool(settings.name is None and spark.conf.get(ROOT, None))
        raise QueryError(no_checkpoint(insert, has_root=has_root))
    if (
        sink.keeps_files
        and sink.path is not None
        and settings.checkpoint is not None
        and _is_new_checkpoint(settings.checkpoint, spark)
    ):
        _refuse_used_files(insert, sink, sink.path, settings.checkpoint, run_sql, spark)


def no_checkpoint(insert: StreamInsert, *, has_root: bool) -> Problem:
    """The problem of a query that would begin again at each start."""
    hint = "The folder of all checkpoints is set, but the query has no name. " if has_root else ""
    return Problem(
        f"The query that writes to {insert.shown_sink} has no checkpoint: after a restart its rows"
        " would be doubled.",
        insert.sink_at,
        f"{hint}SET lookup.stream.checkpoint = '/folder/of/its/own', or write"
        " WITH ('checkpointLocation' = '...') after the sink.",
    )


# A new checkpoint over files that an older one wrote skips batch 0, and its rows never arrive.
# (docs/decisions/0046)
def _is_new_checkpoint(checkpoint: str, spark: Any) -> bool:
    """Whether no query has planned a batch with this checkpoint."""
    offsets = f"{checkpoint.rstrip('/')}/offsets"
    try:
        # Named twice: of one folder that is not there, Spark first writes a stack into its log.
        return not spark.read.text([offsets, offsets]).head(1)
    except Exception as error:
        if "PATH_NOT_FOUND" in str(error) or "does not exist" in str(error):
            return True
        raise


# Spark's file sink loses rows without an error here: batch 0 of a new checkpoint is skipped where an older
# one wrote files. (docs/decisions/0046)
def _refuse_used_files(
    insert: StreamInsert, sink: Sink, folder: str, checkpoint: str, run_sql: RunSql, spark: Any
) -> None:
    if _any_file(folder, f"{_LOG}/[0-9]*", spark):
        message = (
            f"{insert.shown_sink} was written by a streaming query with another checkpoint, and"
            f" {checkpoint!r} is new: Spark would treat its first batches as written and skip them."
        )
        tip = "Go on with the old checkpoint, or write to another folder."
        raise QueryError(Problem(message, sink.at, tip))
    # A start that Spark refused, or that ended at once, leaves a log of no batch, which hides all files.
    is_hidden = _any_file(folder, _LOG, spark)
    if _any_file(folder, "[!_.]*", spark) if is_hidden else _has_rows(sink, run_sql):
        message = f"{insert.shown_sink} holds rows that no streaming query wrote: Spark would hide them."
        tip = (
            "Write to an empty table of files and read both (UNION ALL), or use a table format that takes"
            " both kinds of writes, such as Delta or Iceberg."
        )
        raise QueryError(Problem(message, sink.at, tip))


_LOG = "_spark_metadata"
"""The folder in which Spark's file sink notes its batches and their files."""


def _any_file(folder: str, pattern: str, spark: Any) -> bool:
    """Whether ``folder`` has a file or folder of such a name, which is looked up and not read."""
    path = f"{_GLOB.sub(_ESCAPED, folder.rstrip('/'))}/{pattern}"
    try:
        return bool(spark.read.text([path, path]).schema)
    except Exception as error:
        if "PATH_NOT_FOUND" in str(error) or "does not exist" in str(error):
            return False
        raise


_GLOB, _ESCAPED = re.compile(r"[\[\]{}*?\\]"), r"\\\g<0>"


def _has_rows(sink: Sink, run_sql: RunSql) -> bool:
    """Whether the files hold a row; there may be none yet."""
    try:
        return bool(run_sql(f"SELECT * FROM {sink.relation} LIMIT 1").head(1))  # noqa: S608 (quoted names)
    except Exception as error:
        if "PATH_NOT_FOUND" in str(error) or "UNABLE_TO_INFER_SCHEMA" in str(error):
            return False
        raise


# By name: under other names than the table's, Spark fills the table with NULLs. (docs/decisions/0046)
def check_columns(insert: StreamInsert, sink: Sink, query: str, frame: DataFrame, run_sql: RunSql) -> None:
    """Let Spark check the columns as for an INSERT without a stream.

    Raises:
        QueryError: Spark's reason.
    """
    if sink.table is None:
        return
    refused = _spark_refusal(insert, sink, query, run_sql)
    if refused is not None and _UNBOUND in refused:
        # Before Spark 4, EXPLAIN gets no parameters. Only names and types matter here.
        values = (f"CAST(NULL AS {column.dataType.simpleString()})" for column in frame.schema.fields)
        named = (f"{value} AS {quoted(name)}" for value, name in zip(values, frame.columns, strict=True))
        refused = _spark_refusal(insert, sink, f"SELECT {', '.join(named)}", run_sql)
    if refused is not None and _CAPABILITY not in refused:
        raise QueryError(Problem(refused, sink.at))


def _spark_refusal(insert: StreamInsert, sink: Sink, query: str, run_sql: RunSql) -> str | None:
    """Why Spark would refuse to insert the rows of ``query``; None if it would not."""
    listed = f" ({', '.join(map(quoted, insert.columns))})" if insert.columns is not None else ""
    by_name = " BY NAME" if insert.by_name else ""
    explain = f"EXPLAIN EXTENDED INSERT INTO {sink.table}{by_name}{listed} {query}"
    refused = _REFUSED.search(str(run_sql(explain).collect()[0][0]))
    return None if refused is None else refused[1].strip()


# Whether a table takes batches says nothing about streams.
_CAPABILITY = "UNSUPPORTED_FEATURE.TABLE_OPERATION"
_UNBOUND = "UNBOUND_SQL_PARAMETER"
_REFUSED = re.compile(
    r"^== Analyzed Logical Plan ==\n[\w.]+Exception: (.*?)(?=^== |\Z)", re.MULTILINE | re.DOTALL
)


def shaped(insert: StreamInsert, sink: Sink, frame: DataFrame) -> DataFrame:
    """The rows with the columns of the sink: its names and types, in its order."""
    if sink.columns is None:
        return frame
    from pyspark.sql.functions import expr

    numbered = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    # The column of the sink that each column of the query goes to, in lower case.
    assert sink.columns is not None
    names = [column.name for column in sink.columns] if insert.columns is None else insert.columns
    given = [name.lower() for name in (frame.columns if insert.by_name else names)]
    values = [
        numbered[f"c{given.index(column.name.lower())}"]
        if column.name.lower() in given
        else expr(column.metadata.get("CURRENT_DEFAULT", "NULL"))
        for column in sink.columns
    ]
    return numbered.select(
        *(
            value.cast(column.dataType).alias(column.name)
            for value, column in zip(values, sink.columns, strict=True)
        )
    )


# --- the start -------------------------------------------------------------------------------------


def starter(sink: Sink, settings: StreamSettings, frame: DataFrame) -> Callable[[], Any]:
    """A function that starts the query, and may be called again after a failure."""

    def start() -> Any:
        writer = frame.writeStream.outputMode(settings.output_mode).options(**settings.sink_options)
        if settings.checkpoint is not None:
            writer = writer.option("checkpointLocation", settings.checkpoint)
        if settings.name is not None:
            writer = writer.queryName(settings.name)
        if settings.trigger is not None:
            requested: dict[str, Any] = dict([settings.trigger])
            writer = writer.trigger(**requested)
        if sink.table is not None:
            if sink.keeps_files and sink.partitions:
                writer = writer.partitionBy(*sink.partitions)
            return writer.toTable(sink.table)
        writer = writer.format(sink.format)
        return writer.start(sink.path) if sink.path is not None else writer.start()

    return start


_NOT_STREAMABLE = re.compile(
    r"does not support streamed writing|support streaming write|Streaming into views"
    r"|does not support .*STREAMING|TABLE_DOES_NOT_SUPPORT_(STREAMING|WRITES)|UNSUPPORTED_STREAMING_SINK",
    re.IGNORECASE,
)


def not_streamable(insert: StreamInsert, error: Exception) -> QueryError | None:
    """The error for a sink that accepts no streams, if ``error`` means that; else None."""
    reason = str(error).split("\n")[0]
    if not _NOT_STREAMABLE.search(reason):
        return None
    message = f"{insert.shown_sink} cannot take a stream: {reason}"
    tip = "Tables of files, Delta and Iceberg can; for others write each batch from Python (foreachBatch)."
    return QueryError(Problem(message, insert.sink_at, tip))

"""The streaming queries that a session's INSERT statements started."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lookup_hints.errors import Problem, QueryError
from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.streaming.insert import StreamInsert, StreamSettings, stream_settings, written_options
from lookup_hints.streaming.sinks import (
    Sink,
    check_columns,
    check_sink,
    find_sink,
    not_streamable,
    shaped,
    starter,
)
from lookup_hints.streaming.supervisor import Status, Supervised, Supervisor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class StartedStream:
    """One query that an INSERT started."""

    insert: StreamInsert = field(repr=False)
    settings: StreamSettings
    sink: Sink = field(repr=False)
    supervised: Supervised
    started: float
    counts_of: CountsOf = field(repr=False)

    def __str__(self) -> str:
        settings = self.settings
        trigger = "as fast as it can"
        if settings.trigger is not None:
            keyword, value = settings.trigger
            trigger = keyword if value is True else f"{keyword} {value}"
        checkpoint = settings.checkpoint or "none"
        return (
            f"streaming query {self.supervised.name}, {settings.output_mode}, {trigger},"
            f" checkpoint {checkpoint}, restart strategy {settings.strategy}"
        )

    @property
    def batches(self) -> int | None:
        """How many batches its checkpoint counts, or None before the first is done."""
        progress = self.supervised.query.lastProgress
        return None if progress is None else int(progress["batchId"]) + 1

    @property
    def history(self) -> tuple[MicroBatch, ...]:
        """Its last micro-batches that had rows or lookups, with the counts of the latter.

        Spark keeps 100 of each run (``spark.sql.streaming.numRecentProgressUpdates``).
        """
        recent = self.supervised.query.recentProgress  # on Spark Connect it brings their counts, too
        batches = (batch_of(progress, self.counts_of) for progress in recent)
        return tuple(batch for batch in batches if batch.rows or batch.lookups)


@dataclass(frozen=True)
class Preparation:
    """A streaming INSERT whose query Spark has analysed."""

    insert: StreamInsert
    frame: DataFrame
    query: str = field(repr=False)
    has_lookups: bool
    run_sql: Callable[[str], DataFrame] = field(repr=False)
    check_tables: Callable[[], None] = field(repr=False)


class Streams:
    """The streaming queries of one session, in the order of their start.

    Examples:
        >>> session.sql("INSERT INTO enriched SELECT ... FROM STREAM orders ...")
        >>> session.streams.await_all()
    """

    def __init__(self, spark: SparkSession, counts_of: CountsOf, fetched_counts_of: CountsOf) -> None:
        self._spark, self._counts_of, self._fetched_counts_of = spark, counts_of, fetched_counts_of
        self._supervisor = Supervisor()
        self._started: list[StartedStream] = []

    @property
    def started(self) -> tuple[StartedStream, ...]:
        return tuple(self._started)

    @property
    def running(self) -> tuple[StartedStream, ...]:
        return tuple(stream for stream in self._started if not stream.supervised.status.is_end)

    def lookups_of(self, progress: Any) -> Mapping[LookupName, LookupMetrics]:
        """The counts of lookups in one micro-batch, for your own ``StreamingQueryListener``.

        On Spark Connect counts may arrive a little later than the progress. This waits for them: up to 2 s,
        or 0.5 s for a query without earlier counts.

        Args:
            progress: ``event.progress`` of ``onQueryProgress``, or one of a query's ``recentProgress``.

        Examples:
            >>> class Watch(StreamingQueryListener):
            ...     def onQueryProgress(self, event):
            ...         for name, counts in session.streams.lookups_of(event.progress).items():
            ...             print(name, counts.keys, counts.latency.quantile(0.99))
        """
        has_rows = rows_of(progress) > 0  # else none of them is worth waiting for
        return lookups_of(progress, self._fetched_counts_of if has_rows else self._counts_of)

    def await_all(self, timeout: float | None = None) -> bool:
        """Wait until all have ended; False when ``timeout`` (seconds) ran out before.

        Raises:
            Exception: one failed, and its strategy has given up; the others have been stopped.
        """
        return self._supervisor.await_all(timeout)

    def stop(self) -> None:
        self._supervisor.stop_all()

    def start(self, prepared: Preparation) -> StartedStream:
        """Start the query of a statement.

        Raises:
            QueryError: its sink, checkpoint or trigger is unsuitable.
            ConnectorError: a lookup table cannot be reached.
            Exception: Spark's error at the start.
        """
        insert = prepared.insert
        written = written_options(insert)
        sink = find_sink(insert, prepared.run_sql, self._spark.catalog.tableExists)
        settings = stream_settings(
            written, lambda key: self._spark.conf.get(key, None), keeps_rows=sink.needs_checkpoint
        )
        if not prepared.frame.isStreaming:
            raise _no_stream_error()
        if prepared.has_lookups and settings.trigger is not None and settings.trigger[0] == "continuous":
            raise _continuous_error(insert)
        self._refuse_shared_checkpoint(insert, sink, settings)
        check_sink(insert, sink, settings, prepared.run_sql, self._spark)
        check_columns(insert, sink, prepared.query, prepared.frame, prepared.run_sql)
        prepared.check_tables()
        start = starter(sink, settings, shaped(insert, sink, prepared.frame))
        try:
            supervised = self._supervisor.start(
                start, settings.strategy, name=settings.name or insert.shown_sink, failover=settings.failover
            )
        except Exception as error:
            refused = not_streamable(insert, error)
            if refused is None:
                raise
            raise refused from error
        stream = StartedStream(insert, settings, sink, supervised, time.time(), self._counts_of)
        self._started.append(stream)
        if settings.sync:
            supervised.await_termination()
        return stream

    def _refuse_shared_checkpoint(self, insert: StreamInsert, sink: Sink, settings: StreamSettings) -> None:
        """Two queries share neither a checkpoint nor the files that they write."""
        for other in self._started:
            status = other.supervised.status
            is_same = _one_line_text(other.insert) == _one_line_text(insert)
            paths = {each.checkpoint and _plain_path(each.checkpoint) for each in (settings, other.settings)}
            is_shared = len(paths) == 1 and settings.checkpoint is not None
            if is_shared and (not status.is_end or (status is Status.FINISHED and not is_same)):
                raise QueryError(
                    Problem(
                        f"The checkpoint {settings.checkpoint!r} belongs to the query that writes to"
                        f" {other.insert.shown_sink}{'' if status.is_end else ', which is running'}.",
                        insert.sink_at,
                        "Each query needs a checkpoint of its own: SET lookup.stream.checkpoint before each"
                        " INSERT.",
                    )
                )
            if not status.is_end and sink.keeps_files and other.sink.relation == sink.relation:
                message = (
                    f"Another streaming query is writing to {insert.shown_sink}: two queries cannot write to"
                    " the same files."
                )
                tip = "Write one INSERT with UNION ALL, or to two tables."
                raise QueryError(Problem(message, insert.sink_at, tip))


def _plain_path(path: str) -> str:
    return path.rstrip("/").removeprefix("file://").removeprefix("file:")


def _one_line_text(insert: StreamInsert) -> str:
    return " ".join(insert.text.rstrip("; \n").split())


def _no_stream_error() -> QueryError:
    message = "No stream is read here, and Spark reads a path after STREAM as it is now."
    tip = (
        "Make a table of the path (CREATE TABLE s USING parquet LOCATION '...') or a temporary view of"
        " readStream. Put backquotes around the name of a table that is called stream."
    )
    return QueryError(Problem(message, tip=tip))


def _continuous_error(insert: StreamInsert) -> QueryError:
    message = (
        "Continuous processing takes no lookup joins: it knows rows, and neither batches nor generators."
    )
    tip = "Use processing-time; without a trigger, batches follow each other at once."
    return QueryError(Problem(message, insert.sink_at, tip))


CountsOf = Callable[[str, int], Mapping[LookupName, LookupMetrics]]
"""Gives the counts of lookups in a micro-batch, for a streaming query's id and the number of the batch."""


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch of a streaming query.

    Args:
        number: its number in the checkpoint.
        began: its start, in UTC.
        seconds: its duration.
        rows: input rows.
        lag: how far the query is behind; empty if neither event time nor the source shows it.
        lookups: the counts of each lookup in it.
    """

    number: int
    began: datetime
    seconds: float
    rows: int
    lag: str = ""
    lookups: Mapping[LookupName, LookupMetrics] = field(default_factory=dict)

    @property
    def total(self) -> LookupMetrics:
        """The counts of all its lookups together."""
        return sum(self.lookups.values(), LookupMetrics())


def lookups_of(progress: Any, counts_of: CountsOf) -> Mapping[LookupName, LookupMetrics]:
    """The counts of lookups in the micro-batch of a ``StreamingQueryProgress``, object or dictionary."""
    return counts_of(str(_field_of_progress(progress, "id")), int(_field_of_progress(progress, "batchId")))


def rows_of(progress: Any) -> int:
    """How many rows came into the micro-batch of a ``StreamingQueryProgress``."""
    return int(_field_of_progress(progress, "numInputRows"))


def batch_of(progress: Any, counts_of: CountsOf) -> MicroBatch:
    """The micro-batch of a ``StreamingQueryProgress``, object or dictionary."""
    began = _parse_time(_field_of_progress(progress, "timestamp"))
    # The lag by event time, or by the offsets of a source such as Kafka.
    latest = (_field_of_progress(progress, "eventTime") or {}).get("max")
    if latest:
        lag = f"{max(0.0, (began - _parse_time(latest)).total_seconds()):,.1f} s behind"
    else:
        sources = (
            _field_of_progress(source, "metrics") or {}
            for source in _field_of_progress(progress, "sources") or ()
        )
        behind = [
            float(each["maxOffsetsBehindLatest"]) for each in sources if "maxOffsetsBehindLatest" in each
        ]
        lag = f"{sum(behind):,.0f} rows behind" if behind else ""
    return MicroBatch(
        number=int(_field_of_progress(progress, "batchId")),
        began=began,
        seconds=(_field_of_progress(progress, "durationMs") or {}).get("triggerExecution", 0) / 1000,
        rows=rows_of(progress),
        lag=lag,
        lookups=lookups_of(progress, counts_of),
    )


def _field_of_progress(progress: Any, name: str) -> Any:
    # Before PySpark 4.0 it is a plain dictionary without inapplicable entries. On Spark Connect an entry may
    # be None although the attribute sums up the sources.
    return getattr(progress, name) if hasattr(progress, name) else progress.get(name)


# Before Python 3.11 fromisoformat takes no Z.
def _parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))

"""Streaming INSERTs: which statements they are, where only Spark knows it, and how one starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookup_hints.errors import QueryError
from lookup_hints.execution.prepare import Prepared, prepare
from lookup_hints.execution.query import run_query
from lookup_hints.execution.scope import Scope
from lookup_hints.execution.state import SessionState
from lookup_hints.spark.functions import Functions
from lookup_hints.sql.lexer import code, pieces
from lookup_hints.streaming.insert import StreamInsert, read_insert
from lookup_hints.streaming.sinks import sink_without_table
from lookup_hints.streaming.streams import Preparation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def start_stream(prepared: Prepared, insert: StreamInsert, scope: Scope, state: SessionState) -> DataFrame:
    """Start the query of a streaming INSERT; the row says its name and id."""
    frame = run_query(prepared, scope, state.functions)
    planned = prepared.plan
    started = state.streams.start(
        Preparation(
            insert=insert,
            frame=frame,
            query=prepared.text if planned is None else planned.sql,
            has_lookups=planned is not None and bool(planned.joins),
            run_sql=lambda sql: scope.sql(sql, prepared.args),
        )
    )
    query = started.supervised
    return scope.rows("query STRING, id STRING", [(query.name, str(query.query.id))])


_STREAM_AS_BATCH = "streaming sources must be executed with writeStream.start"


def reads_a_stream(text: str, error: Exception) -> bool:
    """Whether ``text`` is an INSERT that Spark refuses as a batch: it reads a stream, or writes to what
    only a stream can be written to.
    """
    found = code(pieces(text))
    if not (found and found[0].is_word("INSERT")):
        return False
    if "TABLE_OR_VIEW_NOT_FOUND" not in str(error):
        return _STREAM_AS_BATCH in str(error)
    try:
        return sink_without_table(read_insert(text)) is not None
    except QueryError:
        return False


def overflows_over_a_stream(prepared: Prepared, error: Exception, scope: Scope, functions: Functions) -> bool:
    """Whether ``error`` is how Spark 3.5 refuses an INSERT that reads a stream: by endless explaining."""
    if "StackOverflowError" not in str(error) or not code(pieces(prepared.text))[0].is_word("INSERT"):
        return False
    try:
        query = prepare(read_insert(prepared.text).query, prepared.args, scope, functions)
        return run_query(query, scope, functions).isStreaming
    except QueryError:
        return False

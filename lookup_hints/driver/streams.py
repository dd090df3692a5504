"""Streaming INSERTs: which statements they are, where only Spark knows it, and how one starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookup_hints.driver.prepare import Prepared
from lookup_hints.driver.query import run_query
from lookup_hints.driver.scope import StatementScope
from lookup_hints.driver.state import SessionState
from lookup_hints.errors import QueryError
from lookup_hints.plan.read.kinds import written_query
from lookup_hints.sql.lexer import quoted
from lookup_hints.statements.statement import SparkStatement
from lookup_hints.streaming.insert import StreamInsert, read_insert
from lookup_hints.streaming.sinks import sink_without_table
from lookup_hints.streaming.streams import Preparation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def start_stream(
    prepared: Prepared, insert: StreamInsert, scope: StatementScope, state: SessionState
) -> DataFrame:
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


def is_stream(refused: Prepared, scope: StatementScope) -> bool:
    """Whether a statement that Spark has refused is an INSERT that a stream alone can run.

    Its text does not say so: it reads a view of a stream, or writes to what takes nothing else.
    """
    if not (isinstance(refused.statement, SparkStatement) and refused.statement.words[:1] == ("INSERT",)):
        return False
    return _reads_a_stream(refused, scope) or _writes_to_streams_only(refused.text, scope)


def _reads_a_stream(refused: Prepared, scope: StatementScope) -> bool:
    try:
        query = _query_of(refused.text) if refused.plan is None else refused.plan.query
        return query is not None and scope.sql(query, refused.args).isStreaming
    except Exception:  # what was refused is told, not what comes of asking
        return False


def _query_of(text: str) -> str | None:
    """The query of an INSERT, also of one that says what no stream can do."""
    try:
        return read_insert(text).query
    except QueryError:
        return written_query(text)


def _writes_to_streams_only(text: str, scope: StatementScope) -> bool:
    """Whether the sink is none that Spark's own INSERT knows: a table of its name would be one."""
    try:
        sink = sink_without_table(read_insert(text))
    except QueryError:
        return False
    if sink is None or sink.path is not None:
        return sink is not None and sink.keeps_files
    return not scope.spark.catalog.tableExists(quoted(sink.format))

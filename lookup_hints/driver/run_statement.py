"""One statement prepared, run, explained and measured: the one place where plan, runtime and Spark meet."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lookup_hints.dataframe.frames_in_text import named_frames, variables_refused
from lookup_hints.driver.attempts import Answer, first_that_works
from lookup_hints.driver.estimate_lookups import check_admission, estimate_lookups, estimate_of_last_batch
from lookup_hints.driver.invalidation import invalidation_spec, keys_of
from lookup_hints.driver.parse_and_plan import Prepared, prepare, prepare_stream, read, transport_of
from lookup_hints.driver.refused_plan import REFUSED, refuse_unplanned
from lookup_hints.driver.run_query import check_taken, register, run_query
from lookup_hints.driver.spark_names import without_own_views
from lookup_hints.driver.statement_scope import Args, StatementScope
from lookup_hints.errors import Problem, QueryError
from lookup_hints.estimate.report import EstimateOptions, StatementEstimate
from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.metrics.readable_summary import Measured, facts_of, seconds_text, what_mattered
from lookup_hints.plan.explain import PlanText, explain
from lookup_hints.plan.joins import LookupPlan
from lookup_hints.plan.parse.query_parts import written_query
from lookup_hints.plan.planner import mentions_lookup
from lookup_hints.spi.arrow_types import type_name
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.spi.secrets import masked_text
from lookup_hints.sql.lexer import quoted, string_literal
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import ESTIMATE, Explain, Setting, SparkStatement
from lookup_hints.streaming.insert import StreamInsert, read_insert
from lookup_hints.streaming.sinks import sink_without_table
from lookup_hints.streaming.streams import Preparation
from lookup_hints.tables.catalog import secret_keys
from lookup_hints.tables.ddl import (
    CreateLookupTable,
    Ddl,
    DescribeTable,
    DropTable,
    RefreshTable,
    ShowColumns,
    ShowLookupTables,
    ShowTables,
    create_statement,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Statements:
    """Prepares, runs and explains statements over one scope."""

    scope: StatementScope

    def over(self, frames: Mapping[str, DataFrame]) -> Statements:
        """The same for statements that read ``frames``."""
        return replace(self, scope=self.scope.over(frames))

    def sql(self, text: str, args: Args = None) -> DataFrame:
        """Prepare one statement, and run it."""
        return self.run(self.prepare(text, args))

    def prepare(self, text: str, args: Args = None, *, few_rows: bool = False, line: int = 1) -> Prepared:
        """Read and plan one statement, which begins at ``line`` of its file."""
        return prepare(SqlText.of(text), args, self.scope, few_rows=few_rows, line=line)

    def run(self, prepared: Prepared) -> DataFrame:
        """Run a prepared statement; a streaming INSERT gives the name and id of the query that it started."""
        statement = prepared.statement
        if isinstance(statement, Setting):
            self.scope.spark.conf.set(statement.key, statement.value)
            self.scope.state.names.update(self.scope)  # it may say that no table is read
            return self.scope.rows("key STRING, value STRING", [(statement.key, statement.value)])
        if isinstance(statement, Explain):
            if statement.mode == ESTIMATE:
                found = self.estimate(statement.text, prepared.args, line=prepared.line)
                return self.scope.rows("estimate STRING", [(str(found),)])
            inner = self.prepare(statement.text, prepared.args)
            if isinstance(inner.statement, SparkStatement) and inner.plan is None:
                return self.scope.sql(prepared.text, prepared.args)
            text = self.explain(statement.text, prepared.args, statement.mode, prepared.line)
            return self.scope.rows("plan STRING", [(text,)])
        if isinstance(statement, RefreshTable):
            self.invalidate(statement.name)
            return nothing(self.scope)
        if isinstance(statement, Ddl):
            return run_ddl(statement, self.scope)
        return self._try_attempts(prepared, self._run_attempt)

    def explain(self, text: str, args: Args = None, mode: str = "formatted", line: int = 1) -> str:
        """How one statement would run, which begins at ``line`` of its file."""
        prepared = self.prepare(text, args, line=line)
        if isinstance(prepared.statement, Explain):
            prepared = self.prepare(prepared.statement.text, args, line=line)
        return self._try_attempts(prepared, lambda each: self._explain_attempt(each, mode))

    def estimate(
        self, text: str, args: Args = None, options: EstimateOptions | None = None, line: int = 1
    ) -> StatementEstimate:
        """What the lookups of one statement will cost, which begins at ``line`` of its file."""
        prepared = self.prepare(text, args, line=line)
        if isinstance(prepared.statement, Explain):
            prepared = self.prepare(prepared.statement.text, args, line=line)
        return self._try_attempts(
            prepared, lambda each: self._estimate_attempt(each, options or EstimateOptions())
        )

    def _estimate_attempt(self, prepared: Prepared, options: EstimateOptions) -> StatementEstimate:
        if isinstance(prepared.statement, StreamInsert):
            return estimate_of_last_batch(prepared, self.scope)
        if prepared.plan is not None:
            register(prepared.plan, self.scope)
            check_taken(prepared, self.scope)
        return estimate_lookups(prepared, self.scope, options)

    def _try_attempts(self, prepared: Prepared, use: Callable[[Prepared], Answer]) -> Answer:
        """The result of ``use`` for the first attempt at the statement that succeeds."""

        def read(reason: str) -> Answer | None:
            whole = prepare(prepared.text, prepared.args, self.scope, line=prepared.line, read_because=reason)
            is_read = whole.plan is not None and whole.plan.scans and not whole.plan.joins
            return use(replace(whole, statement=prepared.statement)) if is_read else None

        def stream() -> Answer | None:
            if not is_stream(prepared, self.scope):
                return None
            insert = read_insert(prepared.text)
            return use(prepare_stream(insert, prepared.args, self.scope, line=prepared.line))

        failures = self.scope.state.failures
        return first_that_works(lambda: use(prepared), read, failures, line=prepared.line, stream=stream)

    def _run_attempt(self, prepared: Prepared) -> DataFrame:
        if isinstance(prepared.statement, StreamInsert):
            return start_stream(prepared, prepared.statement, self.scope)
        check_admission(prepared, self.scope)
        frame = run_query(prepared, self.scope)
        if prepared.plan is not None:
            self.scope.state.estimates[frame] = lambda options: self._estimate_attempt(prepared, options)
        return frame

    def _explain_attempt(self, prepared: Prepared, mode: str) -> str:
        if isinstance(prepared.statement, Ddl):
            return "A statement about lookup tables; Spark does not see it."
        planned = prepared.plan
        if planned is not None:
            register(planned, self.scope)
            check_taken(prepared, self.scope)
        shown = self.scope.explained(planned.sql if planned else prepared.text, prepared.args, mode)
        if REFUSED in shown and is_stream(prepared, self.scope):
            raise QueryError(Problem("Spark runs this as a stream alone."))  # the next attempt
        if planned is not None:
            refuse_unplanned(shown, prepared.text, planned, mode)
            shown = f"{explain(planned, first_line=prepared.line)}\n\n== Spark plan ==\n{shown}"
        if isinstance(prepared.statement, StreamInsert):
            shown = f"== Streaming query into {prepared.statement.shown_sink} ==\n\n{shown}"
        return PlanText(shown)

    def invalidate(self, name: str, keys: Iterable[Any] | DataFrame | None = None) -> None:
        """Invalidate the cached answers of the table of that name."""
        table = self.scope.table(name)
        if keys is None:
            self.scope.state.invalidations.invalidate(table)
            self.scope.state.names.refresh(self.scope, table.name)
        else:
            self.scope.state.invalidations.invalidate(table, table.primary_key, keys_of(table, keys))
        if self.scope.has_one_executor:
            conf = self.scope.settings()
            spec = invalidation_spec(self.scope.connector_of(table), self.scope.state.invalidations, conf)
            self.scope.state.functions.begin_task(self.scope.spark, spec, transport_of(conf))

    def sql_with_variables(self, text: str, args: Args, variables: dict[str, Any]) -> DataFrame:
        """Run one statement whose text names ``variables`` in braces."""
        given = SqlText(text)
        if isinstance(read(self.scope.as_read(given), self.scope), Ddl):
            raise variables_refused(variables)
        if mentions_lookup(given, self.scope.may_concern):
            try:
                named, frames = named_frames(text, variables)
            except QueryError:
                if mentions_lookup(given, self.scope.find):
                    raise
                # A view over a lookup table, and variables that only Spark takes: it reads the table whole.
            else:
                return self.over(frames).sql(named, args)
        original: Callable[..., DataFrame] = type(self.scope.spark).sql
        return original(self.scope.spark, text, args, **variables)


def start_stream(prepared: Prepared, insert: StreamInsert, scope: StatementScope) -> DataFrame:
    """Start the query of a streaming INSERT; the row says its name and id."""
    from lookup_hints.driver.doctor import check_before_stream

    frame = run_query(prepared, scope)
    planned = prepared.plan
    lookups = [] if planned is None else [join.function for join in planned.joins]
    started = scope.state.streams.start(
        Preparation(
            insert=insert,
            frame=frame,
            query=prepared.text if planned is None else planned.sql,
            has_lookups=planned is not None and bool(planned.joins),
            run_sql=lambda sql: scope.sql(sql, prepared.args),
            check_tables=lambda: check_before_stream(scope, lookups),
        )
    )
    query = started.supervised
    try:
        return scope.rows("query STRING, id STRING", [(query.name, str(query.query.id))])
    except Exception:  # a statement that fails leaves no query
        query.stop()
        raise


def is_stream(refused: Prepared, scope: StatementScope) -> bool:
    """Whether a statement that Spark refused is an INSERT that only a stream can run.

    Its text does not show it: it reads a view of a stream, or writes to a sink that accepts only streams.
    """
    if not (isinstance(refused.statement, SparkStatement) and refused.statement.words[:1] == ("INSERT",)):
        return False
    return _reads_stream(refused, scope) or _writes_to_streams_only(refused.text, scope)


def _reads_stream(refused: Prepared, scope: StatementScope) -> bool:
    try:
        query = _query_of(refused.text) if refused.plan is None else refused.plan.query
        return query is not None and scope.sql(query, refused.args).isStreaming
    except Exception:  # report the original error, not the one of this probe
        return False


def _query_of(text: SqlText) -> str | None:
    """The query of an INSERT, also if the INSERT has clauses that no stream supports."""
    try:
        return read_insert(text).query
    except QueryError:
        return written_query(text)


def _writes_to_streams_only(text: SqlText, scope: StatementScope) -> bool:
    """Whether the sink is none that Spark's own INSERT knows: a table of its name would be one."""
    try:
        sink = sink_without_table(read_insert(text))
    except QueryError:
        return False
    if sink is None or sink.path is not None:
        return sink is not None and sink.keeps_files
    return not scope.spark.catalog.tableExists(quoted(sink.format))


def run_ddl(ddl: Ddl, scope: StatementScope) -> DataFrame:
    """Run a DDL statement about lookup tables; returns the rows that Spark would for its own tables."""
    catalog = scope.state.catalog
    if isinstance(ddl, CreateLookupTable):
        scope.state.names.refuse_other_view(scope, ddl.name)
        catalog.create(ddl, scope.conf)
        scope.state.names.update(scope)
        return nothing(scope)
    if isinstance(ddl, ShowLookupTables):
        rows = [(table.name, table.connector) for table in catalog.tables()]
        return scope.rows("tableName STRING, connector STRING", rows)
    if isinstance(ddl, ShowTables):
        return _show_tables(ddl, scope)
    if isinstance(ddl, DropTable):
        if catalog.find(ddl.name) is not None:
            catalog.drop(ddl.name)
            scope.state.names.update(scope)
        # Spark has no DROP TEMPORARY TABLE, so it is for Spark's temporary views, too.
        elif not scope.spark.catalog.dropTempView(ddl.name) and not ddl.if_exists:
            raise catalog.no_table(ddl.name)
        return nothing(scope)
    table = catalog.find(ddl.name)
    assert table is not None, "only statements about lookup tables come here"
    if isinstance(ddl, DescribeTable):
        return scope.rows(
            "col_name STRING, data_type STRING, comment STRING", _describe_table(table, ddl.extended)
        )
    if isinstance(ddl, ShowColumns):
        return scope.rows("col_name STRING", [(name,) for name in table.schema.names])
    return scope.rows("createtab_stmt STRING", [(create_statement(table, secret_keys(table)),)])


def _show_tables(ddl: ShowTables, scope: StatementScope) -> DataFrame:
    """Spark's tables and ours, which show like temporary views."""
    pattern = "*" if ddl.like is None else ddl.like
    like = "" if ddl.like is None else f" LIKE {string_literal(ddl.like)}"
    ours = [
        ("", table.name, True)
        for table in scope.state.catalog.tables()
        if _matches_like(table.name, pattern) and not scope.state.names.has(table.name)
    ]
    spark_tables = without_own_views(scope.sql(f"SHOW TABLES{like}"))
    if not ours:
        return spark_tables
    return spark_tables.unionAll(scope.rows("namespace STRING, tableName STRING, isTemporary BOOLEAN", ours))


def nothing(scope: StatementScope) -> DataFrame:
    """The result of a statement that has none."""
    return scope.spark.range(0).select()


def _describe_table(table: LookupTable, extended: bool) -> list[tuple[str, str, str | None]]:
    rows: list[tuple[str, str, str | None]] = [
        (column.name, type_name(column.type), "key" if column.name in table.primary_key else None)
        for column in table.schema
    ]
    if extended:
        hidden = secret_keys(table)
        rows += [("", "", ""), ("# Lookup table", "", "")]
        shown = ((key, masked_text(text, declared=key in hidden)) for key, text in table.options.items())
        rows += [(key, text, "") for key, text in shown]
    return rows


def _matches_like(name: str, pattern: str) -> bool:
    """SHOW TABLES LIKE: ``*`` any characters, ``|`` between alternatives, ignoring case."""
    alternatives = (re.escape(part.strip()).replace(r"\*", ".*") for part in pattern.split("|"))
    return any(re.fullmatch(part, name, re.IGNORECASE) for part in alternatives)


# --- EXPLAIN ANALYZE --------------------------------------------------------------------------------


MetricsByName = Mapping[LookupName, LookupMetrics]
"""Counts of lookups, as ``LookupSession.metrics`` gives them."""


def measured(
    plan: LookupPlan | None, before: MetricsByName, after: MetricsByName
) -> dict[LookupName, Measured]:
    """The counts of each lookup of ``plan`` between two snapshots of the session's metrics."""
    none = LookupMetrics()
    found = {}
    for join in () if plan is None else plan.joins:
        name, settings = join.function.name, join.function.settings
        counts = after.get(name, none) - before.get(name, none)
        found[name] = Measured(name, counts, settings.capacity if settings.asynchronous else None)
    return found


def run_to_its_end(frame: DataFrame) -> None:
    """Compute all rows of ``frame``, and keep none. A statement that writes has run when it is a frame."""
    if frame.columns:
        frame.write.format("noop").mode("overwrite").save()


def explain_analyze(statements: Statements, prepared: Prepared) -> str:
    """Run a statement, and return its plan with the counts of each lookup.

    Raises:
        QueryError: it has no lookup join, or is a streaming query.
    """
    plan = prepared.plan
    if isinstance(prepared.statement, StreamInsert):
        message = "A streaming query has no end at which it could be measured."
        tip = "Start it, and look at session.streams: each batch has its figures."
        raise QueryError(Problem(message, tip=tip))
    if plan is None or not plan.joins:
        raise QueryError(
            Problem("This statement has no lookup join to measure.", tip="EXPLAIN shows its plan.")
        )
    functions = statements.scope.state.functions
    before, began = functions.metrics(), time.perf_counter()
    frame = statements.run(prepared)
    if plan.query is None:
        run_to_its_end(frame)
    seconds = time.perf_counter() - began
    return analyzed(plan, measured(plan, before, functions.metrics()), seconds, prepared.line)


def analyzed(
    plan: LookupPlan, lookups: Mapping[LookupName, Measured], seconds: float, first_line: int = 1
) -> str:
    """The plan with the figures of its lookups; the first line names what took the time."""
    figures = {name: tuple(facts_of(each)) for name, each in lookups.items() if each.counts.tasks}
    mattered = what_mattered(lookups, seconds)
    head = f"{seconds_text(seconds)}; {mattered}" if mattered else seconds_text(seconds)
    return PlanText(f"{head}\n\n{explain(plan, figures, first_line)}")

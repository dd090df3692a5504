"""Parse and plan a statement: its hints, its lookups, and its types by Spark's analysis."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from lookup_hints.driver.attempts import PlannerFailures, first_that_works
from lookup_hints.driver.execute_immediate import Immediate, read_immediate
from lookup_hints.driver.scan_views import SCAN_PREFIX
from lookup_hints.driver.spark_functions import transport_for, wrapping_for
from lookup_hints.driver.spark_versions import is_pipeline, spark_version
from lookup_hints.driver.statement_scope import Args, StatementScope, is_syntax_error
from lookup_hints.driver.views import analysed_plan
from lookup_hints.errors import HintError, Problem, QueryError
from lookup_hints.hints.hint_comments import LookupHint, read_hints
from lookup_hints.lookup_spec import Invalidation, LookupSpec
from lookup_hints.plan.cost import UNKNOWN, LeftRows
from lookup_hints.plan.decide.settings import session_option
from lookup_hints.plan.joins import LookupPlan
from lookup_hints.plan.lookup_get.calls import calls_lookup_get
from lookup_hints.plan.parse.lookup_use import LookThrough
from lookup_hints.plan.parse.statement import UnreadableStatement
from lookup_hints.plan.planner import mentions_lookup, plan, surely_uses_lookup
from lookup_hints.plan.session_interface import Context
from lookup_hints.plan.spark_analysis import Analyse, NamesAndTypes
from lookup_hints.pyspark_internals import errors_unlogged
from lookup_hints.retry import RowPredicate
from lookup_hints.spi import Connector, Filter, TableSize
from lookup_hints.spi.option_values import Conf
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.session_syntax import with_identifiers
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import SparkStatement, StatementKind, named_parameters, read_statement
from lookup_hints.streaming.insert import SINCE, StreamInsert, StreamSource, with_views
from lookup_hints.tables.registry import retry_predicates
from lookup_hints.worker.dead_letter_files import probe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LONGEST_ALIAS = 32

_log = logging.getLogger("lookup_hints")


@dataclass(frozen=True)
class Prepared:
    """A statement that was parsed and planned, but not run.

    Its text and the values of its parameters may hold secrets, so they are not shown.

    Args:
        statement: its kind.
        text: the text for Spark if there is no plan; for a streaming INSERT, the text of its query.
        args: values of its parameter markers.
        plan: the plan of its lookups; None if it has none.
        line: its first line in its file.
    """

    statement: StatementKind
    text: SqlText = field(repr=False)
    args: Args = field(default=None, repr=False)
    plan: LookupPlan | None = None
    line: int = 1


def read(text: SqlText, scope: StatementScope) -> StatementKind:
    """The kind of a statement, given the lookup tables in the catalog of ``scope``."""
    return read_statement(text, scope.state.catalog.concerns, scope.timestamp_of(text))


def prepare(
    text: SqlText,
    args: Args,
    scope: StatementScope,
    *,
    few_rows: bool = False,
    line: int = 1,
    read_because: str = "",
) -> Prepared:
    """Parse and plan a statement; see ``LookupSession.prepare``.

    Args:
        text: the statement.
        args: values of its parameter markers.
        scope: its session, tables, frames and hints.
        few_rows: whether the caller takes only the first rows.
        line: its first line in its file.
        read_because: why its tables must be read whole; empty to allow lookups.
    """
    written, given, text = text, args, scope.as_read(text)
    statement = read(text, scope)
    if isinstance(statement, StreamInsert):
        return prepare_stream(statement, args, scope, line=line)
    if not isinstance(statement, SparkStatement) or set(statement.words) <= {";"}:
        return Prepared(statement, written, args, line=line)
    if statement.words[0] in ("CACHE", "UNCACHE") and scope.state.names.is_enabled and len(text.code) <= 5:
        return Prepared(statement, written, args, line=line)  # CACHE TABLE name: Spark caches its view
    immediate = _read_immediate(text, args, scope)
    if immediate is not None:
        # Plan the inner statement if it uses lookups; else Spark runs the whole as it is.
        prepared = prepare(*immediate, scope, few_rows=few_rows, line=line)
        is_ours = prepared.plan is not None or not isinstance(prepared.statement, SparkStatement)
        return prepared if is_ours else Prepared(statement, written, args, line=line)
    text, args = _with_identifiers(text, args, scope)
    hints, problems = read_hints(text)
    own_hints = [hint for hint in hints if not hint.may_be_others]
    concerns_us = own_hints or problems or mentions_lookup(text, scope.may_concern)
    if not (concerns_us or calls_lookup_get(text)):
        return Prepared(statement, written, given, line=line)
    if is_pipeline(scope.spark):
        raise QueryError(
            Problem(
                "SQL with lookup tables cannot be planned while a pipeline is defined: Spark analyses nothing"
                " then.",
                tip="Write session.lookup_join(spark.read.table('orders'), 'customers', on=...).",
            )
        )
    if args is not None and not isinstance(args, Mapping | Immediate):
        text, args = named_parameters(text, args)
        hints, problems = read_hints(text)
    context = _SparkPlanning(args, scope)
    context.few_rows, context.line, context.read_because = few_rows, line, read_because
    with errors_unlogged():  # of texts that the user has not written
        planned = _plan_statement(text, (*hints, *scope.hints), problems, context)
    uses_lookup = planned is not None and (planned.joins or planned.scans or planned.sql != text)
    return Prepared(statement, text, args, planned if uses_lookup else None, line)


def _read_immediate(
    text: SqlText, args: Args, scope: StatementScope
) -> tuple[SqlText, Immediate | None] | None:
    """The inner statement of an EXECUTE IMMEDIATE and its values; None for others and for invalid ones."""
    if isinstance(args, Immediate) or not scope.state.catalog.tables():
        return None
    try:
        return read_immediate(text, args, scope.value_of)
    except Exception:  # Spark reports the error when it runs the statement
        return None


def _with_identifiers(text: SqlText, args: Args, scope: StatementScope) -> tuple[SqlText, Args]:
    """``text`` with the names that IDENTIFIER gives, and its values, which have names themselves then."""
    if not text.has_word("IDENTIFIER") or not scope.state.catalog.tables():
        return text, args
    if isinstance(args, Sequence):
        text, args = named_parameters(text, args)

    def value_of(expression: str) -> object:
        try:
            return scope.value_of(expression, args)
        except Exception:  # a variable of a script, say
            return None

    return with_identifiers(text, value_of), args


def prepare_stream(insert: StreamInsert, args: Args, scope: StatementScope, *, line: int = 1) -> Prepared:
    """Plan the query of a streaming INSERT."""

    def name_stream(source: StreamSource) -> str:
        return scope.state.functions.name("lookup_stream", source.name, dict(source.options))

    query = insert.query
    if spark_version(scope.spark) < SINCE:
        query = with_views(query, scope.spark, name_stream)
    return replace(prepare(query, args, scope, line=line), statement=insert)


def _plan_statement(
    text: SqlText, hints: tuple[LookupHint, ...], problems: tuple[Problem, ...], context: _SparkPlanning
) -> LookupPlan | None:
    """The plan of a statement; None when a lookup table's name in it means something else."""
    tolerant = session_option("on-invalid-hint", context.conf) == "warn"
    try:
        if problems:
            raise HintError(problems)
        return first_that_works(
            lambda: plan(text, hints, context),
            lambda reason: plan(text, hints, context.reading(reason)),
            context.failures,
            line=context.line,
        )
    except UnreadableStatement:
        if not (hints or surely_uses_lookup(text, context.find_table) or calls_lookup_get(text)):
            return None
        if not text.starts_with("BEGIN"):
            context.raise_syntax_error(text)
        raise
    except HintError as error:
        if not tolerant:
            raise
        _log.warning("LOOKUP hints without effect:\n%s", error)
        return plan(text, (), context)


class _SparkPlanning(Context):
    """The planner's interface to one statement's scope; answers of Spark are memoized."""

    few_rows = False
    line = 1
    read_because = ""

    def __init__(self, args: Args, scope: StatementScope) -> None:
        """``args`` are the values of its markers."""
        self._args, self._scope, self._functions = args, scope, scope.state.functions
        self._settings = scope.settings()
        self._transport = transport_of(self._settings)
        self._connectors: dict[int, tuple[LookupTable, Connector]] = {}
        self._frames: dict[str, DataFrame] = {}
        self._rows: dict[str, LeftRows] = {}
        self._streams: dict[str, bool] = {}
        self._views = cache(scope.find_view)

    def reading(self, reason: str) -> _SparkPlanning:
        """The same for a plan that reads all tables, as ``reason`` says."""
        self.read_because = reason
        return self

    @property
    def failures(self) -> PlannerFailures:
        return self._scope.state.failures

    def conf(self, key: str) -> str | None:
        return self._settings(key)

    @property
    def predicates(self) -> Mapping[str, RowPredicate]:
        return retry_predicates()

    def tables(self) -> Sequence[LookupTable]:
        return self._scope.state.catalog.tables()

    def find_table(self, name: str) -> LookupTable | None:
        return self._scope.find(name)

    def find_view(self, name: str) -> LookThrough | None:
        return self._views(name)[0]

    def is_lookup_view(self, name: str) -> bool:
        return self._views(name)[1]

    def connector(self, table: LookupTable) -> Connector:
        # Not by name: a view may see a table that another one of its name has replaced.
        if id(table) not in self._connectors:
            self._connectors[id(table)] = table, self._scope.connector_of(table)
        return self._connectors[id(table)][1]

    def table_size(self, connector: Connector) -> TableSize:
        return self._scope.state.sizes.of(connector)

    def invalidations(self, table: LookupTable, seconds: float) -> tuple[Invalidation, ...]:
        return self._scope.state.invalidations.of(table, seconds)

    def _analysed_frame(self, sql: str) -> DataFrame:
        """An analysed frame, used for key types of a left side, its cost, and whether it is a stream."""
        sql = sql.strip()
        if sql not in self._frames:
            self._frames[sql] = self._scope.sql(sql, self._args)
        return self._frames[sql]

    @property
    def analyse(self) -> Analyse:
        return lambda sql: columns_of(self._analysed_frame(sql))

    def raise_syntax_error(self, text: SqlText) -> None:
        """Raise Spark's own syntax error if Spark cannot parse ``text`` either, as it is more precise."""
        try:
            self._scope.explained(text, self._args, "")
        except Exception as error:
            if is_syntax_error(error):
                raise

    def left_rows(self, sql: str) -> LeftRows:
        if sql not in self._rows:
            try:
                self._rows[sql] = self._scope.state.costs.of(self._analysed_frame(sql))
            except Exception:  # Spark cannot analyse this part of the statement alone
                self._rows[sql] = LeftRows(None, UNKNOWN)
        return self._rows[sql]

    def is_stream(self, sql: str) -> bool:
        if sql not in self._streams:
            try:
                self._streams[sql] = bool(self._analysed_frame(sql).isStreaming)
            except Exception:  # a part that cannot be analysed alone is no stream
                self._streams[sql] = False
        return self._streams[sql]

    def analysed_plan(self, sql: str) -> str:
        try:
            return analysed_plan(self._scope.explained(sql, self._args, "extended"))
        except Exception:  # Spark cannot analyse it alone
            return ""

    def has_function(self, name: str) -> bool:
        return bool(self._scope.spark.catalog.functionExists(name))

    def name_function(self, spec: LookupSpec, repeated: bool) -> str:
        return self._functions.name(
            f"lookup_{_alias_in_name(spec.name.alias)}", spec, repeated, self._transport
        )

    def name_scan(
        self,
        table: LookupTable,
        columns: tuple[str, ...],
        filters: tuple[Filter, ...],
        match_key: tuple[str, ...],
    ) -> str:
        return self._functions.name(SCAN_PREFIX, self.connector(table), columns, filters, match_key)

    def wrapping(self, kind: pa.DataType) -> tuple[str, str]:
        return wrapping_for(self._transport)(kind)

    def unwritable(self, folder: str) -> str | None:
        return probe(folder) if self._scope.has_one_executor else None


def _alias_in_name(alias: str) -> str:
    """``alias`` as part of a function's name, by which Spark's own pages show the lookup."""
    return re.sub(r"\W", "_", alias.lower(), flags=re.ASCII)[:_LONGEST_ALIAS]


def columns_of(frame: DataFrame) -> NamesAndTypes:
    return tuple((column.name, column.dataType.simpleString()) for column in frame.schema.fields)


def transport_of(conf: Conf) -> str:
    """How keys and rows travel, by the session's configuration."""
    return transport_for(session_option("transport", conf))

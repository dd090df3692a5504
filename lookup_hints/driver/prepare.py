"""Text -> a statement that is read and planned: its hints, its lookups, and what Spark says of its types."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from lookup_hints.driver.functions import (
    Functions,
    spark_version,
    transport_for,
    wrapping_for,
)
from lookup_hints.driver.immediate import Immediate, read_immediate
from lookup_hints.driver.scope import Args, StatementScope
from lookup_hints.driver.views import analysed_plan
from lookup_hints.errors import HintError, InternalError, LookupHintsError, Problem
from lookup_hints.hints.parse import LookupHint, read_hints
from lookup_hints.plan.analysis import Columns
from lookup_hints.plan.choose import session_option
from lookup_hints.plan.cost import UNKNOWN, LeftRows
from lookup_hints.plan.draft import Context, LookupPlan
from lookup_hints.plan.planner import mentions_lookup, plan, surely_uses_lookup
from lookup_hints.plan.read.statement import UnreadableStatement
from lookup_hints.spec import LookupSpec
from lookup_hints.spi import Connector, Filter
from lookup_hints.spi.model import LookupTable
from lookup_hints.spi.options import Conf
from lookup_hints.sql.as_read import with_identifiers
from lookup_hints.sql.lexer import code, pieces
from lookup_hints.statements.statement import SparkStatement, Statement, named_parameters, read_statement
from lookup_hints.streaming.insert import SINCE, StreamInsert, StreamSource, with_views
from lookup_hints.tables.registry import retry_predicates
from lookup_hints.worker.dead_letter_files import probe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LONGEST_ALIAS = 32

_log = logging.getLogger("lookup_hints")


@dataclass(frozen=True)
class Prepared:
    """A statement that is read and planned, but not run.

    Its text and the values of its parameters may hold secrets, so they are not shown.

    Args:
        statement: what it is.
        text: as Spark gets it, where it has no plan; of a streaming INSERT, that of its query.
        args: values of its parameter markers.
        plan: how its lookups run; None where it has none.
    """

    statement: Statement
    text: str = field(repr=False)
    args: Args = field(default=None, repr=False)
    plan: LookupPlan | None = None


def read(text: str, scope: StatementScope) -> Statement:
    """What a statement is that is ``as_read``, where the catalog of ``scope`` knows the lookup tables."""
    return read_statement(text, scope.catalog.concerns, scope.timestamp_of(text))


def prepare(
    text: str,
    args: Args,
    scope: StatementScope,
    functions: Functions,
    *,
    few_rows: bool = False,
    line: int = 1,
    read_because: str = "",
) -> Prepared:
    """Read and plan a statement; ``LookupSession.prepare`` says more.

    Args:
        text: the statement.
        args: values of its parameter markers.
        scope: what it runs over.
        functions: those of the session.
        few_rows: whether the first rows alone will be taken.
        line: where it begins in its file.
        read_because: why its tables are read whole, where nothing may be asked.
    """
    written, given, text = text, args, scope.as_read(text)
    statement = read(text, scope)
    if isinstance(statement, StreamInsert):
        return prepare_stream(statement, args, scope, functions, line=line)
    if not isinstance(statement, SparkStatement) or set(statement.words) <= {";"}:
        return Prepared(statement, written, args)
    immediate = _immediate(text, args, scope)
    if immediate is not None:
        # What it runs is the statement, where that concerns us; else Spark runs it, as it does any other.
        prepared = prepare(*immediate, scope, functions, few_rows=few_rows, line=line)
        is_ours = prepared.plan is not None or not isinstance(prepared.statement, SparkStatement)
        return prepared if is_ours else Prepared(statement, written, args)
    text, args = _with_identifiers(text, args, scope)
    hints, problems = read_hints(text)
    if not (hints or problems or mentions_lookup(text, scope.may_concern)):
        return Prepared(statement, written, given)
    if args is not None and not isinstance(args, Mapping | Immediate):
        text, args = named_parameters(text, args)
        hints, problems = read_hints(text)
    context = replace(
        _context(args, scope, functions), few_rows=few_rows, line=line, read_because=read_because
    )
    planned = _plan(text, (*hints, *scope.hints), problems, context)
    uses_lookup = planned is not None and (planned.joins or planned.scans or planned.sql != text)
    return Prepared(statement, text, args, planned if uses_lookup else None)


def _immediate(text: str, args: Args, scope: StatementScope) -> tuple[str, Immediate | None] | None:
    """What an EXECUTE IMMEDIATE runs, and its values; None for others, and where Spark finds a mistake."""
    if isinstance(args, Immediate) or not scope.catalog.tables():
        return None
    try:
        return read_immediate(text, args, scope.value_of)
    except Exception:  # what is wrong with it is Spark's to say
        return None


def _with_identifiers(text: str, args: Args, scope: StatementScope) -> tuple[str, Args]:
    """``text`` with the names that IDENTIFIER gives, and its values, which have names themselves then."""
    if not any(piece.is_word("IDENTIFIER") for piece in pieces(text)) or not scope.catalog.tables():
        return text, args
    if isinstance(args, Sequence):
        text, args = named_parameters(text, args)

    def value_of(expression: str) -> object:
        try:
            return scope.value_of(expression, args)
        except Exception:  # a variable of a script, say
            return None

    return with_identifiers(text, value_of), args


def prepare_stream(
    insert: StreamInsert, args: Args, scope: StatementScope, functions: Functions, *, line: int = 1
) -> Prepared:
    """Plan the query of a streaming INSERT."""

    def name_stream(source: StreamSource) -> str:
        return functions.name("lookup_stream", source.name, dict(source.options))

    query = insert.query
    if spark_version(scope.spark) < SINCE:
        query = with_views(query, scope.spark, name_stream)
    return replace(prepare(query, args, scope, functions, line=line), statement=insert)


def _plan(
    text: str, hints: tuple[LookupHint, ...], problems: tuple[Problem, ...], context: Context
) -> LookupPlan | None:
    """The plan of a statement; None when a lookup table's name in it means something else."""
    tolerant = session_option("on-invalid-hint", context.conf) == "warn"
    try:
        if problems:
            raise HintError(problems)
        try:
            return plan(text, hints, context)
        except InternalError as error:
            return _read_instead(text, hints, context, error)
    except UnreadableStatement:
        if not (hints or surely_uses_lookup(text, context.find_table)):
            return None
        _let_spark_refuse(text, context)
        raise
    except HintError as error:
        if not tolerant:
            raise
        _log.warning("LOOKUP hints without effect:\n%s", error)
        return plan(text, (), context)


def _read_instead(
    text: str, hints: tuple[LookupHint, ...], context: Context, error: InternalError
) -> LookupPlan:
    """The plan of a statement whose lookups the planner failed at, with its tables read whole."""
    try:
        return plan(text, hints, replace(context, read_because=f"asking failed ({error})"))
    except LookupHintsError:
        raise error from None


def _let_spark_refuse(text: str, context: Context) -> None:
    """Raise Spark's own error where Spark cannot parse ``text`` either: it knows best what is wrong."""
    if context.analyse is None or code(pieces(text))[0].is_word("BEGIN"):
        return
    try:
        context.analyse(f"EXPLAIN {text}")
    except Exception as error:
        if type(error).__name__ == "ParseException":
            raise


def _context(args: Args, scope: StatementScope, functions: Functions) -> Context:
    conf = scope.settings()
    transport = transport_of(conf)
    built: dict[int, tuple[LookupTable, Connector]] = {}

    def connector(table: LookupTable) -> Connector:
        # Not by name: a view may see a table that another one of its name has replaced.
        if id(table) not in built:
            built[id(table)] = table, scope.connector_of(table)
        return built[id(table)][1]

    @cache
    def rows(sql: str) -> DataFrame:
        """What Spark says of a left side: its keys' types, its cost and whether it is a stream."""
        return scope.sql(sql, args)

    def analyse(sql: str) -> Columns:
        return columns_of(rows(sql.strip()))

    def name_function(spec: LookupSpec, repeated: bool) -> str:
        return functions.name(f"lookup_{_in_a_name(spec.name.alias)}", spec, repeated, transport)

    def name_scan(table: LookupTable, columns: tuple[str, ...], filters: tuple[Filter, ...]) -> str:
        return functions.name("lookup_scan", connector(table), columns, filters)

    return Context(
        find_table=scope.find,
        connector=connector,
        conf=conf,
        analyse=analyse,
        name_function=name_function,
        name_scan=name_scan,
        predicates=retry_predicates(),
        wrapping=wrapping_for(transport),
        unwritable=probe if scope.has_one_executor else lambda _: None,
        tables=scope.catalog.tables,
        table_size=scope.sizes.of,
        left_rows=cache(lambda sql: _left_rows_of(partial(rows, sql.strip()), scope)),
        is_stream=cache(lambda sql: _is_stream(partial(rows, sql.strip()))),
        find_view=cache(scope.find_view),
        is_lookup_view=cache(scope.is_lookup_view),
        analysed_plan=lambda sql: _analysed_plan_of(sql, args, scope),
        invalidations=scope.invalidations.of,
    )


def _left_rows_of(rows: Callable[[], DataFrame], scope: StatementScope) -> LeftRows:
    """How many rows a query has at least; unknown where Spark cannot tell it by itself."""
    try:
        return scope.costs.of(rows())
    except Exception:
        return LeftRows(None, UNKNOWN)


def _analysed_plan_of(sql: str, args: Args, scope: StatementScope) -> str:
    """Spark's analysed plan of a query; nothing where Spark cannot tell it by itself."""
    try:
        return analysed_plan(scope.explained(sql, args, "extended"))
    except Exception:
        return ""


def _is_stream(rows: Callable[[], DataFrame]) -> bool:
    try:
        return bool(rows().isStreaming)
    except Exception:
        return False


def _in_a_name(alias: str) -> str:
    """``alias`` as part of a function's name, by which Spark's own pages show the lookup."""
    return re.sub(r"\W", "_", alias.lower(), flags=re.ASCII)[:_LONGEST_ALIAS]


def columns_of(frame: DataFrame) -> Columns:
    return tuple((column.name, column.dataType.simpleString()) for column in frame.schema.fields)


def transport_of(conf: Conf) -> str:
    """How keys and rows travel, by the session's configuration."""
    return transport_for(session_option("transport", conf))

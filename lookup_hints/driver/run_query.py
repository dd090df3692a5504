"""Run a planned query: register its functions, run its text, and check the columns of the result."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from lookup_hints.driver.attempts import NotTaken
from lookup_hints.driver.execute_immediate import Immediate
from lookup_hints.driver.parse_and_plan import Prepared, columns_of, transport_of
from lookup_hints.driver.spark_names import without_own_views
from lookup_hints.driver.spark_versions import spark_version
from lookup_hints.driver.statement_scope import Args, StatementScope
from lookup_hints.errors import InternalError, Problem, UnsupportedLookup
from lookup_hints.plan.joins import LookupPlan
from lookup_hints.plan.planner import mentions_lookup
from lookup_hints.plan.write.lateral_view import HIDDEN_PREFIX, PRIVATE_PREFIX, ROW
from lookup_hints.pyspark_internals import errors_unlogged
from lookup_hints.sql.text_edits import Cut
from lookup_hints.statements import SparkStatement
from lookup_hints.streaming.insert import StreamInsert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger("lookup_hints")


def run_query(prepared: Prepared, scope: StatementScope) -> DataFrame:
    """Run a query, or a statement that writes the result of one; returns Spark's rows."""
    frame = _run_prepared(prepared, scope)
    if prepared.text.starts_with("CREATE") and mentions_lookup(prepared.text, scope.may_concern):
        scope.remember_view(prepared.text, prepared.args)
    return frame


def _run_prepared(prepared: Prepared, scope: StatementScope) -> DataFrame:
    planned = prepared.plan
    if planned is None:
        return _run_by_spark_alone(prepared, scope)
    is_stream = isinstance(prepared.statement, StreamInsert)
    with scope.state.lineage.reporting(planned, scope.conf, is_stream=is_stream):
        return _run_planned(planned, prepared.args, scope)


def _run_planned(planned: LookupPlan, args: Args, scope: StatementScope) -> DataFrame:
    for scan in planned.scans:
        if scan.warning:
            _log.warning(
                "Table %s is read whole because %s: %s.",
                scan.use.table.name,
                scan.decision.reason,
                scan.warning,
            )
    for warning in planned.warnings:
        _log.warning("%s.", warning)
    register(planned, scope)
    refuse_functions_in_lambdas(planned, args, scope)
    try:
        if planned.query is None:
            frame = _analyse_query(planned, scope, args, into=True)
            has_rows = not (isinstance(args, Immediate) and args.into)
            if has_rows and _renamed_columns(planned, frame):
                frame = frame.toDF(*(name for name, _ in planned.output or ()))
            return frame
        if planned.output is not None:
            # Before it writes, check that it would write the columns of the user's text.
            _check_columns(planned, _analyse_query(planned, scope, args))
        return _run_part(planned, None, scope, args)
    except Exception as error:
        refuse_own_functions(error)
        raise


# Only Spark's refusal makes us plan again, so it costs nothing where all is well. (docs/decisions/0173)
def check_taken(prepared: Prepared, scope: StatementScope) -> None:
    """Let Spark analyse the rewritten query, after registering its functions.

    Raises:
        NotTaken: Spark rejects it.
        InternalError: its columns differ from those of the user's query.
    """
    planned = prepared.plan
    if planned is not None and planned.output is not None:
        _renamed_columns(planned, _analyse_query(planned, scope, prepared.args))


def _analyse_query(
    planned: LookupPlan, scope: StatementScope, args: Args, *, into: bool = False
) -> DataFrame:
    """The rows of the query that a plan has, which are not computed yet."""
    try:
        with errors_unlogged():
            return _run_part(planned, planned.query_at, scope, args, into=into)
    except Exception as error:
        from pyspark.errors import AnalysisException

        refuse_own_functions(error)
        if planned.output and isinstance(error, AnalysisException):
            raise not_taken(error) from error
        raise


def _run_part(
    planned: LookupPlan, part: Cut | None, scope: StatementScope, args: Args, *, into: bool = False
) -> DataFrame:
    """Run the planned text, or the query that it has at ``part`` of the user's."""
    try:
        return scope.sql(planned.sql if part is None else planned.sql_of(part), args, into=into)
    except Exception as error:
        planned.put_in_place(error, part)
        raise


def _run_by_spark_alone(prepared: Prepared, scope: StatementScope) -> DataFrame:
    words = prepared.statement.words if isinstance(prepared.statement, SparkStatement) else ()
    names = [piece.name for piece in prepared.text.code if piece.is_name]
    last = names[-1] if words[:2] == ("DROP", "VIEW") else ""
    try:
        frame = scope.state.names.drop_view(scope, last, lambda: scope.sql(prepared.text, prepared.args))
    except Exception as error:
        refuse_unknown_table(error, scope)
        raise
    is_list = words[:2] in (("SHOW", "TABLES"), ("SHOW", "VIEWS")) or words[:3] == (
        "SHOW",
        "TABLE",
        "EXTENDED",
    )
    return without_own_views(frame) if is_list else frame


# Each LATERAL VIEW takes the analyzer some rounds more. (docs/decisions/0174)
_ITERATIONS = "spark.sql.analyzer.maxIterations"
_FEW_JOINS = 20
# A lookup join takes Spark's analyzer three rounds, or more where it is packed; it gives up after 100.
_ITERATIONS_OF_A_JOIN = 5


def register(planned: LookupPlan, scope: StatementScope) -> None:
    if len(planned.joins) > _FEW_JOINS:
        # Let Spark's analyzer take at least this many rounds; it takes them only where it needs them.
        iterations = 100 + _ITERATIONS_OF_A_JOIN * len(planned.joins)
        if int(scope.conf(_ITERATIONS) or 100) < iterations:
            scope.spark.conf.set(_ITERATIONS, str(iterations))
    functions = scope.state.functions
    new = [each for each in planned.joins if not functions.has(scope.spark, each.function.name.function)]
    transport = transport_of(scope.conf) if new else ""  # which is a round trip or two
    for planned_join in new:
        functions.register(scope.spark, planned_join.function, planned_join.repeated, transport)
    for scan in planned.scans:
        functions.create_scan(scope.spark, scan)


def _check_columns(planned: LookupPlan, frame: DataFrame) -> None:
    """Check that a statement writes the same columns as the user's own."""
    renamed = _renamed_columns(planned, frame)
    if renamed:
        message = (
            f"The column {renamed[0]} of what is written takes its name from its expression, which is another"
            " one inside."
        )
        tip = f"Give it a name: {renamed[0]} AS x."
        raise UnsupportedLookup(Problem(message, tip=tip))


def _renamed_columns(planned: LookupPlan, frame: DataFrame) -> list[str]:
    """The columns that Spark names after expressions which the rewrite changed."""
    found, wanted = columns_of(frame), planned.output
    if wanted is None or found == wanted:
        return []
    pairs = list(zip(found, wanted, strict=False))
    is_same = len(found) == len(wanted) and all(
        has[1] == should[1] and _is_same_expression(has[0], should[0]) for has, should in pairs
    )
    if not is_same:
        raise InternalError(
            f"the rewritten statement gives {found} instead of {wanted}; please report"
            f" this with the statement:\n{planned.text}"
        )
    return [should[0] for has, should in pairs if has != should]


def _is_same_expression(found: str, wanted: str) -> bool:
    """Whether Spark's names of two expressions differ only in what a rewrite changes.

    These are private column names, and the number of outer references in a subquery.
    """
    subquery = "scalarsubquery("
    is_private = PRIVATE_PREFIX in found or HIDDEN_PREFIX in found
    return found == wanted or is_private or (subquery in found and subquery in wanted)


_SHARED_COLUMN = re.compile(rf"{PRIVATE_PREFIX}(\w+)")
_UNKNOWN_TABLE = re.compile(r"TABLE_OR_VIEW_NOT_FOUND\] The table or view `((?:[^`]|``)+)` cannot be found")
_OWN_FUNCTION = re.compile("LAMBDA_FUNCTION_WITH_(PYTHON|SQL)_UDF|UNSUPPORTED_SQL_UDF_USAGE")
# In a plan, a Python function is `name(arguments)#number`.
_OWN_IN_LAMBDA = re.compile(rf"lambda {ROW.strip('`')}#\d+[^\n]*?\)#\d+")
_OWN_FUNCTION_IN_ON = Problem(
    "A function of your own (Python or SQL) is in the ON condition of a lookup join, where"
    " Spark cannot call it.",
    tip="Of an INNER JOIN, move the condition to WHERE; of a LEFT JOIN, compute its left part in a subquery"
    " on the left.",
)


def refuse_own_functions(error: Exception) -> None:
    """Translate Spark's errors about the rewritten text into terms of the user's text.

    Raises:
        UnsupportedLookup: a user's function is at a place where Spark cannot call it.
    """
    if _OWN_FUNCTION.search(str(error)):
        raise UnsupportedLookup(_OWN_FUNCTION_IN_ON) from error


def refuse_unknown_table(error: Exception, scope: StatementScope) -> None:
    """Explain Spark's error about an unknown table, where that is a lookup table.

    Raises:
        UnsupportedLookup: the statement cannot use a lookup table, or a script names it only
            while it runs.
    """
    named = _UNKNOWN_TABLE.search(str(error))
    table = scope.find(named[1].replace("``", "`")) if named else None
    if table is None:
        return
    message = (
        f"Spark looks for the lookup table {table.name} itself. Either this kind of statement cannot use one,"
        " or a script names the table only while it runs: by EXECUTE IMMEDIATE or IDENTIFIER."
    )
    tip = f"Write the table's name in a query: FROM {table.name}."
    raise UnsupportedLookup(Problem(message, tip=tip)) from error


def not_taken(error: Exception) -> UnsupportedLookup:
    """The error for a text that Spark accepts as the user wrote it, but not as rewritten."""
    shared = _SHARED_COLUMN.search(str(error))
    if shared is not None:
        column = shared[1]
        message = (
            f"The column {column} of USING or NATURAL is not allowed here with the lookup table's alias."
        )
        tip = f"Use the alias of the other side, or write ON with the equality in place of USING ({column})."
        return UnsupportedLookup(Problem(message, tip=tip))
    reason = str(error).strip().partition("\n")[0]
    message = (
        "Spark takes this statement, but not the one that it becomes with its lookup joins, and its tables"
        f" cannot be read whole instead. Spark says: {reason}"
    )
    tip = "Try the lookup join in a subquery: FROM (SELECT ... FROM ... JOIN ...)."
    return NotTaken(Problem(message, tip=tip))


def refuse_functions_in_lambdas(planned: LookupPlan, args: Args, scope: StatementScope) -> None:
    """Refuse lambdas that call a user's function; Spark before 4.0 would fail only at run time."""
    sql = planned.query or planned.sql
    if ROW not in sql or spark_version(scope.spark) >= (4, 0):
        return
    if _OWN_IN_LAMBDA.search(scope.explained(sql, args, "extended")):
        raise UnsupportedLookup(_OWN_FUNCTION_IN_ON)

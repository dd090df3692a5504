"""Spark's errors about text that the user did not write, in the user's words."""

from __future__ import annotations

import re

from lookup_hints.driver.functions import spark_version
from lookup_hints.driver.scope import Args, StatementScope
from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.draft import LookupPlan
from lookup_hints.plan.write.views import PRIVATE_PREFIX, ROW

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
    """Say in the user's words what Spark says about text that the user did not write.

    Raises:
        UnsupportedLookup: a function of the user's own stands where Spark cannot call it.
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
    raise UnsupportedLookup(
        Problem(
            f"Spark looks for the lookup table {table.name} itself. Either this kind of statement cannot use"
            " one, or a script names the table only while it runs: by EXECUTE IMMEDIATE or IDENTIFIER.",
            tip=f"Write the table's name in a query: FROM {table.name}.",
        )
    ) from error


class NotTaken(UnsupportedLookup):
    """Spark took the user's text, and does not take what it became; its tables may be read instead."""

    reason = "Spark does not take the text that asking it becomes"
    """As a sentence goes on behind "because"."""


def not_taken(error: Exception) -> UnsupportedLookup:
    """What to say when Spark took the user's text, and does not take the text that it became."""
    shared = _SHARED_COLUMN.search(str(error))
    if shared is not None:
        column = shared[1]
        return UnsupportedLookup(
            Problem(
                f"The column {column} of USING or NATURAL is not allowed here with the lookup table's alias.",
                tip="Use the alias of the other side, or write ON with the equality in place of USING"
                f" ({column}).",
            )
        )
    reason = str(error).strip().partition("\n")[0]
    return NotTaken(
        Problem(
            "Spark takes this statement, but not the one that it becomes with its lookup joins, and its"
            f" tables cannot be read whole instead. Spark says: {reason}",
            tip="Try the lookup join in a subquery: FROM (SELECT ... FROM ... JOIN ...).",
        )
    )


def refuse_functions_in_lambdas(planned: LookupPlan, args: Args, scope: StatementScope) -> None:
    """Find what Spark before 4.0 finds when it runs: that a lambda calls a function of the user's own."""
    sql = planned.query or planned.sql
    if ROW not in sql or spark_version(scope.spark) >= (4, 0):
        return
    if _OWN_IN_LAMBDA.search(scope.explained(sql, args, "extended")):
        raise UnsupportedLookup(_OWN_FUNCTION_IN_ON)

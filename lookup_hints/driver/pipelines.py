"""Lookup joins in Declarative Pipelines, whose query functions may neither analyse nor register anything.

Spark refuses both while a definition file is read: the datasets that a function names are not there yet. So
the join is planned over a stand-in for its keys, and written with function objects, not with SQL.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lookup_hints.dataframe import join as frame_join
from lookup_hints.driver.functions import COLUMNAR_INPUT
from lookup_hints.driver.parse_and_plan import prepare, transport_of
from lookup_hints.driver.spark_functions import spark_type
from lookup_hints.driver.statement_scope import StatementScope
from lookup_hints.errors import Problem, QueryError
from lookup_hints.plan.joins import LookupJoin
from lookup_hints.spi import Connector
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.sql_text import SqlText

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")


# Spark marks the thread that defines a pipeline; analysis of what is no dataset goes on in another one.
# (docs/decisions/0252)
def join_in_pipeline(
    df: DataFrame, connector: Connector, request: frame_join.JoinRequest, scope: StatementScope
) -> DataFrame:
    """``df``, whose columns are not known yet, joined with the table of ``connector``.

    Raises:
        QueryError: the join needs the columns of ``df`` to be known.
    """
    from pyspark.sql import functions

    refused = ("condition", "as_of", "known_as_of", "nearest")
    given = next((name for name in refused if getattr(request, name) is not None), None)
    if given is not None:
        raise QueryError(
            Problem(
                f"{given}= cannot be used while a pipeline is defined, as Spark analyses nothing then.",
                tip="Filter the result: session.lookup_join(...).where(...).",
            )
        )
    chosen = frame_join.chosen_columns(connector, request)
    with ThreadPoolExecutor(1, thread_name_prefix="lookup-pipeline") as thread:
        join = thread.submit(
            _plan_join, connector, replace(request, columns=chosen or request.columns), scope
        ).result()
    spec, types = join.function, {field.name: field.type for field in connector.table.schema}
    lefts = {column.lower(): left for left, column in request.pairs}
    keys = [_checked_key(lefts[name.lower()], name, types[name]) for name in spec.key_columns]
    is_semi = request.kind not in ("inner", "left")
    look_up = scope.state.functions.function(spec, is_semi or join.repeated, transport_of(scope.conf))
    found = look_up(*keys)
    names = [column for column, _ in request.pairs] if request.is_using else []
    others = f" EXCEPT ({', '.join(map(quoted, names))})" if names else ""
    left = [*(functions.col(quoted(name)) for name in names), functions.expr(f"*{others}")]
    if is_semi:
        has_rows = functions.coalesce(functions.size(found), functions.lit(0)) > 0
        return df.where(has_rows if request.kind == "left semi" else ~has_rows).select(*left)
    rows = functions.transform(
        found, lambda row: functions.struct(*(row[name].alias(new) for name, new in chosen or ()))
    )
    explode = functions.inline if request.kind == "inner" else functions.inline_outer
    return df.select(*left, explode(rows))


def _plan_join(connector: Connector, request: frame_join.JoinRequest, scope: StatementScope) -> LookupJoin:
    """The join with a frame that has nothing but the keys, each of its column's type."""
    from pyspark.sql import functions

    types = {field.name.lower(): spark_type(field.type) for field in connector.table.schema}
    stand_in = scope.spark.range(0).select(
        *(
            functions.lit(None).cast(types.get(column.lower(), "string")).alias(f"__key_{number}")
            for number, (_, column) in enumerate(request.pairs)
        )
    )
    scope.sql(f"SET {COLUMNAR_INPUT}=false").collect()  # a definition file may not set it otherwise
    pairs = tuple((f"__key_{number}", column) for number, (_, column) in enumerate(request.pairs))
    joined = frame_join.frame_join(stand_in, connector, replace(request, pairs=pairs, is_using=False), False)
    scope = scope.over({frame_join.LEFT: joined.frame}).with_table(connector, joined.hint)
    planned = prepare(SqlText.of(joined.text), None, scope).plan
    assert planned is not None, "its hint demands a lookup"
    return planned.joins[0]


def _checked_key(left: Any, column: str, kind: pa.DataType) -> Column:
    """The key that ``left`` is, where its type, which Spark knows at last, surely gives the rows of ``=``."""
    from pyspark.sql import functions

    key = functions.expr(f"(\n{left}\n)") if isinstance(left, str) else left
    wanted = spark_type(kind)
    name = wanted.simpleString()
    allowed = _WHOLE_NUMBERS if name in _WHOLE_NUMBERS else (name,)
    message = functions.concat(
        functions.lit(f"The key of the lookup by {column} is of the type "),
        functions.typeof(key),
        functions.lit(
            f", and the column is {name.upper()}: give on={{'CAST(... AS {name.upper()})': {column!r}}}."
        ),
    )
    return functions.when(functions.typeof(key).isin(*allowed), key.try_cast(wanted)).otherwise(
        functions.raise_error(message).cast(wanted)
    )

"""``session.lookup_join`` against ``df.join`` over the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions

from lookup_hints.sql.lexer import quoted
from tests.spark.answers import Answer, require_equal
from tests.spark.oracle import Twins

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_joins(twins: Twins, left: str, joins: Iterable[Mapping[str, Any]]) -> list[Answer]:
    """Join ``left``, a table of both sessions, both ways, all in one job; columns, types and rows must be the same.

    Values are compared as texts. Returns the answers.
    """
    of_session = twins.session.spark.table(left)
    return require_equal(
        (
            repr(join),
            native(twins, left, **{key: join[key] for key in join.keys() & _SPARKS}),
            twins.session.lookup_join(of_session, **join),
        )
        for join in joins
    )


_SPARKS = frozenset({"table", "on", "how", "condition", "columns"})
"""What says which rows a join gives, and not how it asks for them."""


def native(
    twins: Twins,
    left: str,
    table: str,
    on: Any = None,
    how: str = "inner",
    condition: str | None = None,
    columns: Any = None,
) -> DataFrame:
    """What Spark's own join gives."""
    df, other = twins.plain.table(left).alias("df"), twins.plain.table(table).alias(table)
    names = [on] if isinstance(on, str) else on
    if condition is None and columns is None and isinstance(names, list):
        return df.join(other, names, how)
    pairs = dict(zip(names, names, strict=True)) if isinstance(names, list) else dict(names or {})
    conditions = [
        functions.col(f"df.{quoted(one)}") == functions.col(f"{table}.{quoted(two)}")
        for one, two in pairs.items()
    ]
    if condition is not None:
        conditions.append(functions.expr(condition))
    joined = df.join(other, reduce(and_, conditions), how)
    first = names if isinstance(names, list) else []
    is_semi = "semi" in how or "anti" in how
    chosen = {} if is_semi else dict.fromkeys(other.columns) if columns is None else columns
    renamed = chosen.items() if isinstance(chosen, dict) else ((name, None) for name in chosen)
    return joined.select(
        *(functions.col(f"df.{quoted(name)}") for name in first),
        *(functions.col(f"df.{quoted(name)}") for name in df.columns if name not in first),
        *(
            functions.col(f"{table}.{quoted(name)}").alias(new or name)
            for name, new in renamed
            if name not in first
        ),
    )

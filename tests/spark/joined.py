"""``session.lookup_join`` against ``df.join`` over the same rows."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions

from lookup_hints.sql.lexer import quoted
from tests.spark.answers import collected, described
from tests.spark.oracle import Twins

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_join(
    twins: Twins, left: str, table: str, on: Any = None, how: str = "inner", **wishes: Any
) -> list[tuple[Any, ...]]:
    """Join ``left``, a table of both sessions, both ways; columns, types and rows must be the same."""
    expected = native(twins, left, table, on, how, wishes.get("condition"), wishes.get("columns"))
    actual = twins.session.lookup_join(twins.session.spark.table(left), table, on, how, **wishes)
    assert described(actual) == described(expected)
    rows, wanted = Counter(collected(actual)), Counter(collected(expected))
    assert rows == wanted, f"missing {wanted - rows}, surplus {rows - wanted}"
    return list(rows.elements())


def native(
    twins: Twins, left: str, table: str, on: Any, how: str, condition: str | None, columns: Any
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

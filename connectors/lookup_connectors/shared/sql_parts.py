"""SQL that databases share: quoted names, and rows by order, which SQLite finds in a way of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyarrow import types

from lookup_hints.spi import OrderCondition

Column = Callable[[str], str]
"""SQL for the column of that name."""


def quoted(name: str) -> str:
    """``name`` as an identifier of standard SQL."""
    return '"' + name.replace('"', '""') + '"'


def can_order(kind: pa.DataType) -> bool:
    """Whether databases order values of ``kind`` as Spark does: exact numbers, dates and moments.

    Texts have collations, and some databases have no NaN, or have it elsewhere.
    """
    is_time = types.is_date(kind) or types.is_timestamp(kind)
    return bool(is_time or types.is_integer(kind) or types.is_decimal(kind))


def found_rows(
    selected: str, source: str, equalities: Sequence[str], order: OrderCondition, value: str, column: Column
) -> str:
    """The query for the rows of ``source`` that meet ``equalities`` and answer ``value``: for LATERAL.

    An index on the key and the column gives the nearest row without a sort. ``column`` gives names that
    ORDER BY cannot take for those of ``selected``.
    """
    conditions = " AND ".join((*equalities, *_order_comparisons(order, value, column)))
    ending = ""
    if order.until is None:
        direction = "DESC" if order.operator in (">=", ">") else "ASC"
        ending = f" ORDER BY {column(order.column)} {direction} LIMIT 1"
    return f"SELECT {selected} FROM {source} WHERE {conditions}{ending}"  # noqa: S608  quoted


def joined_rows(
    source: str,
    equalities: Callable[[str], Sequence[str]],
    order: OrderCondition,
    column: Callable[[str, str], str],
) -> str:
    """FROM, with all that follows, of the rows of ``source`` that answer rows of ``asked``: for SQLite.

    It has no LATERAL: a subquery finds the nearest value, and one of the rows with that value is taken.

    Args:
        source: the table, which is called ``found``.
        equalities: the conditions that compare the key columns of a table that is called so with ``asked``.
        order: which rows answer ``asked.value``. ``asked.position`` tells the rows of ``asked`` apart.
        column: SQL for a column of the table that is called so.
    """
    found = [*equalities("found")]
    ending = ""
    if order.until is None:
        near = found_rows(
            column("near", order.column),
            f"{source} AS near",
            equalities("near"),
            order,
            "asked.value",
            lambda name: column("near", name),
        )
        found.append(f"{column('found', order.column)} = ({near})")
        ending = " GROUP BY asked.position"
    else:
        found += _order_comparisons(order, "asked.value", lambda name: column("found", name))
    return f"FROM asked CROSS JOIN {source} AS found WHERE {' AND '.join(found)}{ending}"


def _order_comparisons(order: OrderCondition, value: str, column: Column) -> Iterator[str]:
    yield f"{value} {order.operator} {column(order.column)}"
    if order.until is not None:
        until = column(order.until)
        is_before = f"{value} {order.until_operator} {until}"
        yield f"({until} IS NULL OR {is_before})" if order.is_open else is_before

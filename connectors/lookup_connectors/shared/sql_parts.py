"""SQL that databases share: names, filters, and rows by order, which SQLite finds in a way of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyarrow import types

from lookup_hints.errors import ConnectorError, nearest
from lookup_hints.spi import Filter, HealthCheck, OrderCondition

Column = Callable[[str], str]
"""SQL for the column of that name."""


def quoted(name: str) -> str:
    """``name`` as an identifier of standard SQL."""
    return '"' + name.replace('"', '""') + '"'


def find_name(name: str, names: Sequence[str], table: str, relation: str) -> str:
    """The one of ``names`` that is meant by ``name``: databases fold names in different ways.

    Raises:
        ConnectorError: ``relation`` of ``table`` has no such column.
    """
    alike = [each for each in names if each.lower() == name.lower()]
    if name in alike:
        return name
    if len(alike) != 1:
        what = f"{relation} has no column {name!r}. {nearest(name, names)}".rstrip()
        raise ConnectorError(f"table {table}: {what}", permanent=True)
    return alike[0]


def can_order(kind: pa.DataType) -> bool:
    """Whether databases order values of ``kind`` as Spark does: exact numbers, dates and moments.

    Texts have collations, and some databases have no NaN, or have it elsewhere.
    """
    is_time = types.is_date(kind) or types.is_timestamp(kind)
    return bool(is_time or types.is_integer(kind) or types.is_decimal(kind))


# --- reading --------------------------------------------------------------------------------------

FEWEST_ROWS = 50_000
"""A partition of fewer rows is not worth a task."""
NULLS = ("IS NULL", "IS NOT NULL")
_EQUALITY = ("=", "IN")


def even_ends(first: int, end: int, wanted: int, fewest: int) -> list[int]:
    """Where up to ``wanted`` even parts of the numbers from ``first`` to before ``end`` meet.

    Each part has ``fewest`` numbers at least.

    >>> even_ends(0, 4000, 3, 1024), even_ends(0, 1500, 3, 1024)
    ([1333, 2666], [])
    """
    count = min(wanted, (end - first) // fewest)
    return [first + (end - first) * part // count for part in range(1, count)]


def can_filter(kind: pa.DataType, wanted: Filter) -> bool:
    """Whether databases can leave out rows by ``wanted`` on a column of the declared type ``kind``.

    Texts by ``=`` and IN alone: their order depends on a collation, which may also find more texts equal than
    are the same, but never fewer.
    """
    if types.is_string(kind):
        return wanted.op in (*_EQUALITY, *NULLS)
    exact = types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind) or types.is_date(kind)
    return bool(exact)


def condition_of(column: str, wanted: Filter, values: Sequence[str]) -> str:
    """``wanted`` as a condition of SQL on ``column``; ``values`` are those of it, as SQL writes them.

    >>> condition_of("a", Filter("a", "IN", (1, 2)), ["?", "?"])
    'a IN (?, ?)'
    """
    listed = ", ".join(values)
    return f"{column} {wanted.op} {f'({listed})' if wanted.op == 'IN' else listed}".rstrip()


def index_check(
    key: Sequence[str], indexes: Iterable[tuple[str, Sequence[str]]], small: str, cure: str
) -> HealthCheck:
    """Whether a lookup by the columns ``key`` can use one of ``indexes``, which are names and their columns.

    Args:
        small: why none is needed; empty where one is.
        cure: what to try where there is none.
    """
    names = ", ".join(key)
    serving = [(name, columns) for name, columns in indexes if columns[0] in key]
    if serving:
        name, columns = max(serving, key=lambda index: _count_leading(index[1], key))
        return HealthCheck("index", "ok", f"{name} ({', '.join(columns)}) serves {names}")
    if small:
        return HealthCheck("index", "ok", f"none on {names}; {small}")
    what = f"no valid index begins with {names}: each request reads the whole table"
    return HealthCheck("index", "warn", what, cure)


def _count_leading(columns: Sequence[str], wanted: Sequence[str]) -> int:
    """The number of leading columns of an index that are wanted."""
    return next((place for place, name in enumerate(columns) if name not in wanted), len(columns))


# --- rows by order --------------------------------------------------------------------------------


def found_rows(
    selected: str,
    source: str,
    equalities: Sequence[str],
    order: OrderCondition,
    values: Sequence[str],
    column: Column,
) -> str:
    """The query for the rows of ``source`` that meet ``equalities`` and answer ``values``: for LATERAL.

    An index on the key and the column gives the nearest row without a sort. ``column`` gives names that
    ORDER BY cannot take for those of ``selected``.
    """
    conditions = " AND ".join((*equalities, *_order_comparisons(order, values, column)))
    ending = ""
    if order.until is None:
        direction = "DESC" if order.operator in (">=", ">") else "ASC"
        learned = "" if order.known_from is None else f", {column(order.known_from)} DESC"
        ending = f" ORDER BY {column(order.column)} {direction}{learned} LIMIT 1"
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
        order: which rows answer its values, called as ``value_names`` says. ``asked.position`` tells the rows
            of ``asked`` apart.
        column: SQL for a column of the table that is called so.
    """
    found, ending = [*equalities("found")], ""
    values = [f"asked.{name}" for name in value_names(order)]
    if order.until is None:
        near = found_rows(
            column("near", order.column),
            f"{source} AS near",
            equalities("near"),
            order,
            values,
            lambda name: column("near", name),
        )
        found.append(f"{column('found', order.column)} = ({near})")
        ending = " GROUP BY asked.position"
        if order.known_from is not None:
            # SQLite takes the row of a group from where its max() is, also in HAVING.
            learned = column("found", order.known_from)
            found.append(f"{values[-1]} >= {learned}")
            ending += f" HAVING max({learned}) IS NOT NULL"
    else:
        found += _order_comparisons(order, values, lambda name: column("found", name))
    return f"FROM asked CROSS JOIN {source} AS found WHERE {' AND '.join(found)}{ending}"


def value_names(order: OrderCondition) -> tuple[str, ...]:
    """What the columns with the values that rows are compared with are called."""
    return ("value", "known")[: order.values]


def _order_comparisons(order: OrderCondition, values: Sequence[str], column: Column) -> Iterator[str]:
    value, known_by = values[0], values[-1]
    yield f"{value} {order.operator} {column(order.column)}"
    if order.known_from is not None:
        yield f"{known_by} >= {column(order.known_from)}"
    if order.until is not None:
        until = column(order.until)
        is_before = f"{value} {order.until_operator} {until}"
        yield f"({until} IS NULL OR {is_before})" if order.is_open else is_before

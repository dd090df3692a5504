"""The statements for a table: lookups, changes, and the read of all of it. Values of keys are bound."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import chain
from typing import Any

import pyarrow as pa
from pyarrow import types

from lookup_connectors.mysql.columns import MysqlColumn, holds_all, quoted
from lookup_connectors.shared.sql_parts import FEWEST_ROWS, NULLS, condition_of, even_ends, found_rows
from lookup_hints.spi import Filter, FilterValue, LookupRequest, OrderCondition

# A server keeps 16,382 prepared statements for all its clients, and a statement has 65,535 places.
_MOST_PLACES = 4096
_MOST_QUERIES = 64
"""Queries of one statement that asks by order."""

_PART = re.compile(r"`((?:[^`]|``)+)`|\"((?:[^\"]|\"\")+)\"|([^\s.`\"]+)")


def database_and_name(text: str) -> tuple[str, str]:
    """The database that ``text`` names, or an empty text, and the table's name.

    Raises:
        ValueError: it names no table.

    >>> database_and_name("crm.`odd name`"), database_and_name("customers")
    (('crm', 'odd name'), ('', 'customers'))
    """
    parts: list[str] = []
    place = 0
    while len(parts) < 2 and (match := _PART.match(text, place)):
        back, double, bare = match.groups()
        parts.append(back.replace("``", "`") if back else double.replace('""', '"') if double else bare)
        place = match.end() + 1
        if text[match.end() : place] != ".":
            break
    if not parts or place <= len(text):
        raise ValueError("write it as SQL does: table, database.table or `odd name`")
    return (parts[0], parts[1]) if len(parts) == 2 else ("", parts[0])


@dataclass(frozen=True)
class BoundStatement:
    """A statement, the values to bind in it, and the position of its first key."""

    sql: str
    values: Sequence[Any]
    begin: int = 0


@dataclass(frozen=True)
class MysqlStatements:
    """The statements for a table, valid while its columns have the types of ``plans``."""

    relation: str
    plans: Mapping[str, MysqlColumn]

    def of(self, request: LookupRequest, keys: pa.Table) -> Iterator[BoundStatement]:
        """The statements that together ask for the rows of all ``keys`` of ``request``."""
        columns = ", ".join(self._select_list(request.columns))
        by = [self.plans[name] for name in request.key_columns]
        if request.order is None:
            return self.by_keys(f"SELECT {columns}", by, keys, request.nulls)
        return self._by_order(columns, by, keys, request.order)

    def sizes_of(self, request: LookupRequest, keys: pa.Table) -> Iterator[BoundStatement]:
        """The statements that ask how many bytes the large values of these rows have."""
        wide = (self.plans[name].selected() for name in request.columns if self.plans[name].source.is_wide)
        total = " + ".join(f"COALESCE(SUM(OCTET_LENGTH({column})), 0)" for column in wide)
        by = [self.plans[name] for name in request.key_columns]
        return self.by_keys(f"SELECT {total}", by, keys, request.nulls)

    def is_wide(self, columns: Sequence[str]) -> bool:
        """Whether rows of these columns may have large values."""
        return any(self.plans[name].source.is_wide for name in columns)

    def odd_dates(self, columns: Sequence[str]) -> list[str]:
        """Of ``columns`` those whose odd dates follow behind all columns of an answer."""
        return [name for name in columns if self.plans[name].odd_date()]

    def _select_list(self, columns: Sequence[str]) -> Iterator[str]:
        yield from (self.plans[name].selected() for name in columns)
        yield from (self.plans[name].odd_date() for name in self.odd_dates(columns))

    # Few sizes, so that few statements are prepared: powers of two, and the last key is repeated.
    def by_keys(
        self, select: str, by: Sequence[MysqlColumn], keys: pa.Table, nulls: Sequence[str] = ()
    ) -> Iterator[BoundStatement]:
        """The statements that begin with ``select``, for rows of ``keys`` that have NULL in ``nulls``."""
        are_null = [f"{self.plans[name].selected()} IS NULL" for name in nulls]
        if not by:
            yield BoundStatement(f"{select} FROM {self.relation} WHERE {' AND '.join(are_null)}", [])
            return
        compared = ", ".join(plan.selected() for plan in by)
        one = ", ".join("?" * len(by))
        compared, one = (f"({compared})", f"({one})") if len(by) > 1 else (compared, one)
        bound = [plan.bind(column) for plan, column in zip(by, keys.columns, strict=True)]
        most = 1 << (_MOST_PLACES // len(by)).bit_length() - 1
        for begin in range(0, keys.num_rows, most):
            parts = [_fill_up(column[begin : begin + most]) for column in bound]
            values = parts[0] if len(parts) == 1 else [*chain.from_iterable(zip(*parts, strict=True))]
            places = ", ".join([one] * len(parts[0]))
            condition = " AND ".join((f"{compared} IN ({places})", *are_null))
            yield BoundStatement(f"{select} FROM {self.relation} WHERE {condition}", values)

    # MariaDB 10.11 has no LATERAL: a query for each key finds its row in the index, many in one statement.
    # (docs/decisions/0243)
    def _by_order(
        self, columns: str, by: Sequence[MysqlColumn], keys: pa.Table, order: OrderCondition
    ) -> Iterator[BoundStatement]:
        bound = [plan.bind(column) for plan, column in zip(by, keys.columns, strict=False)]
        moments = [self.plans[order.column].bind_ordered(each) for each in keys.columns[len(by) :]]
        bound += moments if order.known_apart else moments * len(order.columns)
        equalities = [f"{plan.selected()} = ?" for plan in by]
        for begin in range(0, keys.num_rows, _MOST_QUERIES):
            parts = [_fill_up(column[begin : begin + _MOST_QUERIES]) for column in bound]
            queries = (
                found_rows(
                    f"{number} AS position, {columns}",
                    self.relation,
                    equalities,
                    order,
                    "?" * order.values,
                    lambda name: self.plans[name].selected(),
                )
                for number in range(len(parts[0]))
            )
            sql = " UNION ALL ".join(f"({query})" for query in queries)
            yield BoundStatement(sql, [*chain.from_iterable(zip(*parts, strict=True))], begin)


def _fill_up(values: list[Any]) -> list[Any]:
    """``values`` with the last one repeated, so that there are a power of two."""
    return values + values[-1:] * ((1 << (len(values) - 1).bit_length()) - len(values))


# --- changes --------------------------------------------------------------------------------------


def latest_query(relation: str, column: MysqlColumn) -> str:
    """The query for the greatest value of ``column``: one step in an index."""
    latest = f"(SELECT MAX({column.selected()}) AS {quoted(column.source.name)} FROM {relation}) AS latest"  # noqa: S608
    return f"SELECT {column.selected()}, {column.odd_date() or 'NULL'} FROM {latest}"  # noqa: S608  quoted


# --- the whole table ------------------------------------------------------------------------------

_PARTITION = re.compile(r"(-?\d*):(-?\d*):(.+)", re.DOTALL)


def ranges(column: str, first: int, last: int, wanted: int) -> tuple[str, ...]:
    """Ranges of ``column`` with numbers from ``first`` to ``last``; rows that come later are in one, too.

    >>> ranges("id", 1, 150_000, 2)
    (':75001:id', '75001::id')
    """
    ends = even_ends(first, last + 1, wanted, FEWEST_ROWS)
    if not ends:
        return ("",)
    return tuple(f"{begin}:{end}:{column}" for begin, end in zip(["", *ends], [*ends, ""], strict=True))


def range_conditions(partition: str) -> list[str]:
    """The conditions for the rows of one of ``ranges``.

    >>> range_conditions(":75001:id"), range_conditions("")
    (['`id` < 75001'], [])
    """
    match = _PARTITION.fullmatch(partition)
    if match is None:
        return []
    begin, end, column = match.groups()
    return [
        f"{quoted(column)} {compared} {bound}" for compared, bound in ((">=", begin), ("<", end)) if bound
    ]


def filter_of(plan: MysqlColumn, wanted: Filter) -> str:
    """``wanted`` as a condition on the column of ``plan``; empty if it could drop too much, or fail."""
    return (
        condition_of(plan.selected(), wanted, [*map(literal, wanted.values)])
        if _is_safe(plan, wanted)
        else ""
    )


def _is_safe(plan: MysqlColumn, wanted: Filter) -> bool:
    kind, wire = plan.field.type, plan.wire
    if wanted.op in NULLS:
        return not plan.odd_date()  # a zero date is NULL to the server, if the column is NOT NULL
    if types.is_string(kind):
        # A character that the column cannot hold would fail the statement.
        known = holds_all(plan.source.charset)
        return (
            wire == "text"
            and not plan.is_shown
            and all(known or str(value).isascii() for value in wanted.values)
        )
    if types.is_date(kind):
        return wire == "date"
    return wire in ("integer", "bit", "decimal")


# A statement whose rows are streamed takes no bound values. Hexadecimal digits mean the same under each mode.
def literal(value: FilterValue) -> str:
    """``value`` as SQL writes it, whatever the server's mode.

    >>> literal("it's"), literal(-5), literal(True)
    ("_utf8mb4 x'69742773'", '-5', '1')
    """
    if isinstance(value, str):
        return f"_utf8mb4 x'{value.encode().hex()}'"
    if isinstance(value, date):
        return f"DATE'{value}'"
    return f"{value:f}" if isinstance(value, Decimal) else str(int(value))

"""The statements for a table: lookups, changes, and the filters of a read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import reduce

import asyncpg
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_connectors.postgres.columns import INTEGERS, PostgresColumn
from lookup_connectors.postgres.inet_and_cidr import AddressColumn
from lookup_connectors.postgres.nearest_sql import (
    OPERATORS,
    NearestQuery,
    bind_nearest,
    bound_kinds,
    distance_of,
)
from lookup_connectors.postgres.packed_columns import PackedColumn, packed_query
from lookup_connectors.shared.postgres_server import unheld_character, without_characters
from lookup_connectors.shared.sql_parts import NULLS, condition_of, found_rows
from lookup_hints.errors import ConnectorError
from lookup_hints.spi import Filter, FilterValue, LookupRequest, NearestCondition, OrderCondition

# A column of keys, which no column of a table is called as.
_POSITION = " position"


@dataclass(frozen=True)
class PostgresStatements:
    """The statements for a table, valid while its columns have the types of ``plans``."""

    relation: str
    plans: Mapping[str, PostgresColumn]
    is_unicode: bool
    """Whether the server's encoding is UTF-8."""
    is_wide: bool
    """Whether rows may have large values."""
    search: Mapping[str, int] = field(default_factory=dict)
    """Settings of approximate indexes."""
    _queries: dict[tuple[object, ...], str] = field(default_factory=dict, init=False)
    # Characters that the server's encoding does not have.
    _strange: set[str] = field(default_factory=set, init=False)

    def of(self, request: LookupRequest) -> tuple[str, int, list[str]]:
        """The statement for ``request``, the number of its keys, and the values to bind before the limit.

        Keys that the source's types cannot hold are left out: they are misses, and would fail the batch.
        """
        plans = [self.plans[name] for name in request.key_columns]
        keys, order, nearest = request.keys, request.order, request.nearest
        is_placed = bool(order or nearest) or any(isinstance(plan, AddressColumn) for plan in plans)
        if is_placed:
            keys = keys.append_column(_POSITION, [pa.array(range(keys.num_rows), pa.int64())])
        if nearest is not None:
            keys = self._with_nearest_bound(keys, nearest)
        keys = without_characters(keys, self._strange)
        for plan in plans:
            keys = keys.filter(plan.possible(keys.column(plan.field.name)))
        bound = [plan.bind(keys.column(plan.field.name)) for plan in plans]
        if order is not None:
            moments = keys.columns[len(plans) : -1]
            bound += [self.plans[order.column].bind_ordered(moment) for moment in moments]
        if nearest is not None:
            bound += keys.columns[len(plans) : -1]
        if is_placed:
            bound.append(keys.column(_POSITION).cast(pa.string()))
        asked = request.columns, request.key_columns, request.nulls, order, nearest
        if asked not in self._queries:
            self._queries[asked] = (
                self._placed_query(request.columns, plans, order, nearest)
                if is_placed
                else self._lookup_query(request.columns, plans, request.nulls)
            )
        return self._queries[asked], keys.num_rows, joined(bound) if bound else []

    def _with_nearest_bound(self, keys: pa.Table, nearest: NearestCondition) -> pa.Table:
        """``keys`` with what is bound in the place of the values; without values that no row is near to."""
        at = keys.num_columns - 2
        values = bind_nearest(nearest, [self.plans[name] for name in nearest.columns], keys.column(at))
        keys = keys.remove_column(at)
        for number, texts in enumerate(values):
            keys = keys.add_column(at + number, f" value {number}", texts)
        return keys.filter(reduce(pc.and_, map(pc.is_valid, values)))

    def has_learned_a_character(self, error: ConnectorError) -> bool:
        """Whether ``error`` names a character that is new here, which the server's encoding has not."""
        cause = error.__cause__
        if not isinstance(cause, asyncpg.UntranslatableCharacterError):
            return False
        character = unheld_character(str(cause))
        is_new = bool(character) and character not in self._strange
        self._strange.update(character)
        return is_new

    def _lookup_query(
        self, columns: Sequence[str], plans: Sequence[PostgresColumn], nulls: Sequence[str]
    ) -> str:
        """The query for the columns, packed, of all rows whose key columns equal a bound key.

        Their columns ``nulls`` are NULL.
        """
        conditions = [f"{_told_null(self.plans[name])} IS NULL" for name in nulls]
        if plans:
            conditions.insert(0, _one_column(plans[0]) if len(plans) == 1 else _several_columns(plans))
        condition, bound = " AND ".join(conditions), len(plans) or -1  # without keys only the limit is bound
        # A row whose key is NULL equals no key.
        keys = {plan.field.name for plan in plans}
        selected = [
            PackedColumn(self.plans[name].wire, self.plans[name].selected, name in keys) for name in columns
        ]
        return self._packed(columns, selected, f"{self.relation} WHERE {condition}", bound)

    def _placed_query(
        self,
        columns: Sequence[str],
        plans: Sequence[PostgresColumn],
        order: OrderCondition | None,
        nearest: NearestCondition | None,
    ) -> str:
        """The same of the rows of each key that answer it, with the position of the key of each."""
        equalities = [plan.equality(f"__asked.k{number}") for number, plan in enumerate(plans, start=1)]
        bound = [plan.bound for plan in plans]
        named = [f"{self.plans[name].selected} AS __c{number}" for number, name in enumerate(columns)]
        made: list[str] = []
        if nearest is not None:
            compared = [self.plans[name] for name in nearest.columns]
            kinds = bound_kinds(nearest, compared)
            values = [f"k{number}" for number in range(len(bound) + 1, len(bound) + len(kinds) + 1)]
            bound += kinds
            distance = distance_of(nearest, compared, values, is_unicode=self.is_unicode)
            made = [f"{sql} AS {name}" for name, sql in (distance.made | self._set_search(nearest)).items()]
            near = NearestQuery(nearest, compared[0], distance, self.relation, equalities, self.is_unicode)
            found = near.query(", ".join(named))
        elif order is None:
            ending = "".join(plan.longest_first for plan in plans if isinstance(plan, AddressColumn))
            condition = " AND ".join(equalities)
            found = f"SELECT {', '.join(named)} FROM {self.relation} WHERE {condition}{ending}"  # noqa: S608  quoted
        else:
            since = self.plans[order.column]
            numbers = range(len(bound) + 1, len(bound) + order.values + 1)
            bound += [since.bound] * order.values
            found = found_rows(
                ", ".join(named),
                self.relation,
                equalities,
                order,
                [since.key.replace("{k}", f"__asked.k{number}") for number in numbers],
                lambda name: self.plans[name].compared,
            )
        bound.append("bigint")
        arrays = ", ".join(_array(number, kind, len(bound)) for number, kind in enumerate(bound, start=1))
        names = ", ".join(f"k{number}" for number in range(1, len(bound) + 1))
        asked = f"unnest({arrays}) AS __asked({names})"
        if made:
            asked = f"(SELECT {', '.join(['*', *made])} FROM {asked} OFFSET 0) AS __asked"  # noqa: S608  quoted
        rows = f"{asked} CROSS JOIN LATERAL ({found}) AS __found"
        selected = [
            PackedColumn(self.plans[name].wire, f"__c{number}") for number, name in enumerate(columns)
        ]
        by = order or nearest
        read = dict.fromkeys((*columns, *(() if by is None else by.columns)))
        return self._packed(
            read, [*selected, PackedColumn("bigint", f"k{len(bound)}", is_never_null=True)], rows, len(bound)
        )

    def _set_search(self, nearest: NearestCondition) -> dict[str, str]:
        """Settings of the statement for approximate indexes, which go on where conditions leave rows out."""
        if nearest.exact or nearest.metric not in OPERATORS:
            return {}
        on = "CASE WHEN current_setting('{0}', true) <> '' THEN set_config('{0}', 'relaxed_order', true) END"
        names = ("hnsw.iterative_scan", "ivfflat.iterative_scan")
        settings = {f"i{number}": on.format(name) for number, name in enumerate(names)}
        given = (f"set_config('{name}', '{value}', true)" for name, value in self.search.items())
        return settings | {f"s{number}": sql for number, sql in enumerate(given)}

    def _packed(self, read: Iterable[str], selected: Sequence[PackedColumn], rows: str, bound: int) -> str:
        """The query for what is ``selected`` of ``rows``, packed.

        The first value says whether the columns ``read`` have the types that the plans are made for, the next
        how many bytes the others have. Where these are more than the last parameter says, they are left out.
        """
        unchanged = types_unchanged(self.relation, [self.plans[name] for name in read])
        return packed_query(
            unchanged,
            selected,
            rows,
            is_unicode=self.is_unicode,
            is_wide=self.is_wide,
            limit=f"${bound + 2}::bigint",
        )


SEPARATOR = "\x1f"


def joined(columns: Sequence[pa.ChunkedArray]) -> list[str]:
    """Each of ``columns`` as one text, and what separates its values, which none of them holds.

    The separator ends in a character that is nowhere else in it, so it is found where it was put.
    """
    texts = [pc.binary_join(_as_one_list(column), SEPARATOR)[0].as_py() for column in columns]
    separator = SEPARATOR
    while any(
        text.count(separator) != max(len(column) - 1, 0) for text, column in zip(texts, columns, strict=True)
    ):
        separator = "\x1e" + separator
        texts = [pc.binary_join(_as_one_list(column), separator)[0].as_py() for column in columns]
    return [*texts, separator]


def _as_one_list(column: pa.ChunkedArray) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column.combine_chunks())


def _array(number: int, kind: str, columns: int) -> str:
    """SQL for the array of the type ``kind`` that the parameter ``number`` spells, of so many ``columns``.

    PostgreSQL knows it when it plans: it sees how many keys there are, and makes a hash table of them.
    """
    values = f"string_to_array(${number}, ${columns + 1})"
    # No text is no array of one empty text to it, and nobody asks for no key.
    return (
        f"CASE WHEN ${number}::text = '' THEN ARRAY[''] ELSE {values} END"
        if kind == "text"
        else f"{values}::{kind}[]"
    )


# `= ANY` is a quarter faster than a join with the keys. (docs/decisions/0007)
def _one_column(plan: PostgresColumn) -> str:
    bound = _array(1, plan.bound, 1)
    if plan.key != "{k}":
        bound = f"ARRAY(SELECT {plan.key.replace('{k}', 'k1')} FROM unnest({bound}) AS asked(k1))"  # noqa: S608
    return f"{plan.compared} = ANY({bound})"


# IN over unnest, not a join: where the source's equality is looser than SQL's, two keys find one row, which a
# join would give twice. (docs/decisions/0007)
def _several_columns(plans: Sequence[PostgresColumn]) -> str:
    numbered = list(enumerate(plans, start=1))
    compared = ", ".join(plan.compared for plan in plans)
    keys = ", ".join(plan.key.replace("{k}", f"k{number}") for number, plan in numbered)
    bound = ", ".join(_array(number, plan.bound, len(plans)) for number, plan in numbered)
    names = ", ".join(f"k{number}" for number, _ in numbered)
    return f"({compared}) IN (SELECT {keys} FROM unnest({bound}) AS asked({names}))"  # noqa: S608


def types_unchanged(relation: str, plans: Iterable[PostgresColumn]) -> str:
    """SQL that is true where the columns of ``relation`` have the types still for which ``plans`` were made.

    A part of the statement that reads the columns: server and statement see the same types, and the check
    costs no trip of its own. It touches no row: the type of a field of NULL is known without one.
    """
    is_query = relation.startswith("(")  # it has no row type, but its columns have types without a row, too

    def field(column: str) -> str:
        return f"(SELECT {column} FROM {relation} LIMIT 0)" if is_query else f"(NULL::{relation}).{column}"  # noqa: S608  quoted

    return " AND ".join(f"pg_typeof({field(plan.column)}) = {plan.source.oid}::regtype" for plan in plans)


# --- changes --------------------------------------------------------------------------------------


def latest_row(relation: str, column: PostgresColumn) -> str:
    """A FROM item for the greatest value of ``column``: one step in an index."""
    return f"(SELECT max({column.compared}) AS {column.column} FROM {relation}) AS greatest"  # noqa: S608  quoted


def changed_rows(relation: str, column: PostgresColumn, keys: Sequence[PostgresColumn], most: int) -> str:
    """A FROM item for the ``keys`` of the rows that have ``column`` greater than $1.

    Of more than ``most`` rows it is one more.
    """
    above = f"{column.compared} > {column.key.replace('{k}', f'$1::text::{column.bound}')}"
    names = ", ".join(key.column for key in keys)
    return f"(SELECT {names} FROM {relation} WHERE {above} LIMIT {most + 1}) AS changed"  # noqa: S608  quoted


# --- filters --------------------------------------------------------------------------------------

_TEXTS = frozenset({"text", "varchar"})
# Types whose NULL is Spark's. A composite of NULLs alone is NULL to PostgreSQL, and is read as a text.
_EXACT = INTEGERS | _TEXTS | {"bool", "numeric", "date"}


def _told_null(plan: PostgresColumn) -> str:
    """What is NULL where the value that is read is: the bare column where an index can be used."""
    return plan.column if plan.wire != "text" or plan.source.type in _EXACT | {"uuid"} else plan.selected


def filter_of(plan: PostgresColumn, wanted: Filter, encoding: str) -> str:
    """``wanted`` as a condition on the column of ``plan``; empty if it could drop too much, or fail.

    ``encoding`` is that of the server.
    """
    if not _is_safe(plan, wanted, encoding):
        return ""
    column = plan.column if wanted.op in NULLS else plan.compared
    return condition_of(column, wanted, [*map(literal, wanted.values)])


def _is_safe(plan: PostgresColumn, wanted: Filter, encoding: str) -> bool:
    kind, source = plan.field.type, plan.source.type
    if wanted.op in NULLS:
        return source in _EXACT
    if types.is_string(kind):
        return source in _TEXTS and all(_can_be_told(str(value), encoding) for value in wanted.values)
    if types.is_integer(kind):
        return source in INTEGERS
    if types.is_decimal(kind):
        return source in INTEGERS | {"numeric"}
    return source == ("bool" if types.is_boolean(kind) else "date")


def _can_be_told(text: str, encoding: str) -> bool:
    """Whether the server can read ``text``: one that knows no Unicode refuses the whole statement."""
    return "\0" not in text and (text.isascii() or encoding.upper() in ("UTF8", "UTF-8"))


# COPY takes no parameters. E'...' means the same whatever `standard_conforming_strings` says.
# (docs/decisions/0156)
def literal(value: FilterValue) -> str:
    """``value`` as a typed literal, whatever the server's `standard_conforming_strings`.

    >>> literal("it's"), literal(-5), literal(True)
    ("E'it''s'::text", "'-5'::bigint", 'TRUE')
    """
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        doubled = value.replace("\\", "\\\\").replace("'", "''")
        return f"E'{doubled}'::text"
    return f"'{value}'::{_type_of(value)}"


def _type_of(value: int | Decimal | date) -> str:
    if isinstance(value, date):
        return "date"
    return "numeric" if isinstance(value, Decimal) else "bigint"

"""SQL for lookups in a database's dialect, with keys as bound parameters. No I/O.

No value of a key is ever part of the SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Literal

import pyarrow as pa
from pyarrow import types
from sqlglot import Dialect, exp
from sqlglot.errors import SqlglotError

from lookup_connectors.adbc.columns import AdbcColumn
from lookup_connectors.adbc.nearest_sql import measure_of
from lookup_connectors.shared.source_query import ALIAS
from lookup_connectors.shared.sql_parts import found_rows, joined_rows, value_names
from lookup_connectors.shared.sqlite_types import as_stored, asked_keys, equality
from lookup_hints.spi import NearestCondition, OrderCondition

Way = Literal["arrays", "lists", "rows", "parameters"]
"""How keys are bound: PostgreSQL's arrays, DuckDB's lists, a row of values for SQLite, a value for each."""

_WAYS: dict[str, Way] = {"postgres": "arrays", "duckdb": "lists", "sqlite": "rows"}
# Dialects that write the parameters as $1, $2, ...
_NUMBERED = {"postgres", "redshift", "materialize", "risingwave"}

# A number that every build of SQLite, and every warehouse, accepts.
_MOST_PARAMETERS = 900

MARK = "lookup_hints_mark"
"""The column with the position of a row's key, if that is asked for; less than 0 in the row that only says
types: see ``typing_row``."""


def check_dialect(dialect: str) -> None:
    try:
        Dialect.get_or_raise(dialect)
    except ValueError as error:
        raise ValueError(str(error).rstrip(".")) from None


def way_of(dialect: str) -> Way:
    """How keys are bound in ``dialect``; where nothing better is known, as a parameter for each value.

    >>> way_of("postgres"), way_of("snowflake")
    ('arrays', 'parameters')
    """
    return _WAYS.get(dialect, "parameters")


def identifier(name: str, dialect: str) -> str:
    """``name`` as a quoted identifier.

    >>> identifier("id", "duckdb"), identifier("odd `name", "mysql")
    ('"id"', '`odd ``name`')
    """
    return exp.to_identifier(name, quoted=True).sql(dialect=dialect)


def relation(text: str, dialect: str) -> str:
    """The table that ``text`` names, as SQL writes it.

    Raises:
        ValueError: it names no table.

    >>> relation('crm."Odd name"', "postgres")
    'crm."Odd name"'
    """
    return _parse_table_name(text, dialect).sql(dialect=dialect)


def schema_and_name(text: str, dialect: str) -> tuple[str, str]:
    """The schema that ``text`` names, or an empty text, and the table's name.

    >>> schema_and_name('crm."Odd name"', "postgres")
    ('crm', 'Odd name')
    """
    table = _parse_table_name(text, dialect)
    return table.db, table.name


def _parse_table_name(text: str, dialect: str) -> exp.Table:
    try:
        table = exp.to_table(text, dialect=dialect)
    except (SqlglotError, ValueError):
        raise ValueError('write it as SQL does: table, schema.table or "Odd name"') from None
    parts = [part for part in table.args.values() if part]
    if not isinstance(table, exp.Table) or not all(isinstance(part, exp.Identifier) for part in parts):
        raise ValueError("write the name of a table or view, and nothing more")
    return table


def select(source: str, plans: Sequence[AdbcColumn], dialect: str) -> str:
    """The statement that reads the columns of all rows."""
    return f"SELECT {_select_list(plans, dialect)} FROM {source}"  # noqa: S608  quoted


def select_none(source: str) -> str:
    """The statement that gives no row, and so says the types of all columns."""
    return f"SELECT * FROM {source} WHERE 1 = 0"  # noqa: S608  quoted


def column(plan: AdbcColumn, dialect: str, of: str = "") -> str:
    """The expression that gives the values of a column, as text where the plan says so."""
    named = of + identifier(plan.name, dialect)
    if plan.as_exact_text:
        short = f"printf('%.15g', {named})"
        exact = f"CASE WHEN CAST({short} AS REAL) = {named} THEN {short} ELSE printf('%!.17g', {named}) END"
        return f"CASE typeof({named}) WHEN 'real' THEN {exact} ELSE {named} END"
    text_type = exp.DataType.build("text").sql(dialect=dialect)
    return f"CAST({named} AS {text_type})" if plan.as_text else named


def _select_list(plans: Sequence[AdbcColumn], dialect: str, of: str = "") -> str:
    return ", ".join(
        f"{column(plan, dialect, of)} AS {identifier(plan.field.name, dialect)}" for plan in plans
    )


# --- asking -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """One statement: its SQL, the values to bind, and the keys that it asks for."""

    sql: str
    bound: pa.RecordBatch | None
    keys: pa.Table


@dataclass(frozen=True)
class AdbcStatements:
    """The statements that ask for rows by keys.

    Args:
        source: the table, as SQL writes it.
        wanted: the columns that are read.
        by: the columns that keys are compared with, in the order of the keys.
        dialect: the SQL of the database.
        nulls: the columns that are NULL in all rows of keys.
    """

    source: str
    wanted: Sequence[AdbcColumn]
    by: Sequence[AdbcColumn]
    dialect: str
    nulls: Sequence[AdbcColumn] = ()

    def of(self, keys: pa.Table) -> Iterator[Question]:
        """The statements that together ask for the rows of all ``keys``."""
        way = way_of(self.dialect)
        if not self.by:
            return iter((self._by_nulls(keys, way),))
        if way == "arrays":
            return self._by_arrays(keys)
        if way == "lists":
            return self._by_lists(keys)
        return self._by_rows(keys) if way == "rows" else self._by_parameters(keys)

    def _by_nulls(self, keys: pa.Table, way: Way) -> Question:
        """The statement for a key of no columns."""
        condition = self._are_null.removeprefix(" AND ")
        if way != "rows":
            return Question(f"{self._select_rows} WHERE {condition}", None, keys)
        rows = f"SELECT 0, {self._found_columns} FROM {self.source} AS found WHERE {condition}"  # noqa: S608
        return Question(f"{self._types_first} UNION ALL {rows}", None, keys)

    @property
    def _are_null(self) -> str:
        of = "found." if way_of(self.dialect) == "rows" else ""
        return "".join(f" AND {of}{identifier(plan.name, self.dialect)} IS NULL" for plan in self.nulls)

    # ADBC can bind a batch of rows, but runs the statement once for each. Arrays are one value of one row.
    # (docs/decisions/0157)
    def _by_arrays(self, keys: pa.Table) -> Iterator[Question]:
        bound = _bound_arrays(self.by)
        compared = [column(plan, self.dialect) for plan in self.by]
        if len(self.by) == 1:
            condition = f"{compared[0]} = ANY({bound[0]})"
        else:
            condition = f"({', '.join(compared)}) IN (SELECT * FROM unnest({', '.join(bound)}))"  # noqa: S608
        yield Question(f"{self._select_rows} WHERE {condition}{self._are_null}", _keys_as_lists(keys), keys)

    def _by_lists(self, keys: pa.Table) -> Iterator[Question]:
        compared = ", ".join(_compared_in_lists(plan, self.dialect) for plan in self.by)
        unnested = ", ".join(["unnest(?)"] * len(self.by))
        condition = f"({compared}) IN (SELECT {unnested})"
        yield Question(f"{self._select_rows} WHERE {condition}{self._are_null}", _keys_as_lists(keys), keys)

    def _by_rows(self, keys: pa.Table) -> Iterator[Question]:
        """``CROSS JOIN`` fixes the order: SQLite searches for each key, and never reads the whole table."""
        rows = f"SELECT 0, {self._found_columns} FROM asked CROSS JOIN {self.source} AS found"  # noqa: S608
        found = f"{rows} WHERE {' AND '.join(self._key_equalities('found'))}{self._are_null}"
        for part in _split_by_parameters(keys):
            asked = asked_keys(self._key_names, part.num_rows)
            yield Question(f"{asked} {self._types_first} UNION ALL {found}", _keys_as_row(part), part)

    def _by_parameters(self, keys: pa.Table) -> Iterator[Question]:
        compared = [column(plan, self.dialect) for plan in self.by]
        for part in _split_by_parameters(keys):
            place = _number_placeholders(self.dialect)
            if len(self.by) == 1:
                condition = f"{compared[0]} IN ({', '.join(place() for _ in range(part.num_rows))})"
            else:
                one_key = (
                    " AND ".join(f"{each} = {place()}" for each in compared) for _ in range(part.num_rows)
                )
                condition = f"({' OR '.join(f'({each})' for each in one_key)})"
            sql = f"{self._select_rows} WHERE {condition}{self._are_null}"
            yield Question(sql, _keys_as_row(part), part)

    # By order.

    def in_order(
        self, keys: pa.Table, order: OrderCondition, plans: Mapping[str, AdbcColumn]
    ) -> Iterator[Question]:
        """The statements that ask for the rows that answer the values of ``keys``, by columns of ``plans``.

        In ``keys`` the values are behind the columns that are compared with ``by``, and then the positions of
        the keys, which stand in the column ``MARK`` of an answer.
        """
        way = way_of(self.dialect)
        if way == "rows":
            yield from self._ordered_rows(keys, order, plans)
            return
        names = [*self._key_names, *value_names(order), "position"]
        is_nearest = order.until is None and order.known_from is None
        if way == "lists" and is_nearest and _share_keys(keys, len(self.by)):
            yield self._by_asof_join(keys, order, plans)
            return
        if way == "arrays":
            others = (f"${number}" for number in range(len(self.by) + 1, len(names) + 1))
            arrays = (*_bound_arrays(self.by), *others)
            asked = f"unnest({', '.join(arrays)}) AS asked({', '.join(names)})"
            compared = partial(column, dialect=self.dialect, of="found.")
        else:
            asked = f"(SELECT {', '.join(f'unnest(?) AS {name}' for name in names)}) AS asked"
            compared = partial(_compared_in_lists, dialect=self.dialect, of="found.")
        rows = found_rows(
            self._found_columns,
            f"{self.source.removesuffix(f' AS {ALIAS}')} AS found",
            [f"{compared(plan)} = asked.{name}" for plan, name in zip(self.by, names, strict=False)],
            order,
            [f"asked.{name}" for name in value_names(order)],
            lambda name: compared(plans[name]),
        )
        sql = f"SELECT asked.position AS {MARK}, found.* FROM {asked} CROSS JOIN LATERAL ({rows}) AS found"  # noqa: S608  quoted
        yield Question(sql, _keys_as_lists(keys), keys)

    # By nearness.

    # Twice: first for the distances of the nearest rows alone, so that no other row is kept.
    def nearest_to(
        self, keys: pa.Table, nearest: NearestCondition, plans: Mapping[str, AdbcColumn]
    ) -> Question:
        """The statement of DuckDB for the rows nearest to the values of ``keys``, as for ``in_order``."""
        names = [*self._key_names, "value", "position"]
        compared = partial(_compared_in_lists, dialect=self.dialect, of="found.")
        columns = [compared(plans[name]) for name in nearest.columns]
        measure = measure_of(nearest, columns, plans[nearest.columns[0]].field.type, "asked.value")
        equalities = (f"{compared(plan)} = asked.{name}" for plan, name in zip(self.by, names, strict=False))
        same = f"{self.source.removesuffix(f' AS {ALIAS}')} AS found ON {' AND '.join(equalities)}"
        bound = ", ".join(f"unnest(?) AS {name}" for name in names)
        smallest = f"min({measure.most}, {nearest.most}) AS distances"
        sql = (
            f"WITH asked AS MATERIALIZED (SELECT {bound}),"  # noqa: S608  quoted
            f" nearest AS MATERIALIZED (SELECT asked.position, {smallest}"
            f" FROM asked JOIN {same} GROUP BY asked.position)"
            f" SELECT asked.position AS {MARK}, {self._found_columns}"
            f" FROM asked JOIN nearest ON nearest.position = asked.position JOIN {same}"
            f" WHERE {measure.is_near(nearest.most, 'nearest.distances')}"
        )
        return Question(sql, _keys_as_lists(keys), keys)

    # DuckDB's LATERAL compares each value with all rows of its key; its own ASOF JOIN sorts them once.
    # (docs/decisions/0191)
    def _by_asof_join(
        self, keys: pa.Table, order: OrderCondition, plans: Mapping[str, AdbcColumn]
    ) -> Question:
        """The nearest rows by DuckDB's own join, without the rows of other keys: it sorts all."""
        names = self._key_names
        bound = ", ".join(f"unnest(?) AS {name}" for name in (*names, "value", "position"))
        own = ", ".join(_compared_in_lists(plan, self.dialect) for plan in self.by)
        rows = f"SELECT * FROM {self.source} WHERE ({own}) IN (SELECT {', '.join(names)} FROM asked)"  # noqa: S608  quoted
        of_found = partial(_compared_in_lists, dialect=self.dialect, of="found.")
        conditions = [f"{of_found(plan)} = asked.{name}" for plan, name in zip(self.by, names, strict=True)]
        conditions.append(f"asked.value {order.operator} {of_found(plans[order.column])}")
        sql = (
            f"WITH asked AS MATERIALIZED (SELECT {bound})"  # noqa: S608  quoted
            f" SELECT asked.position AS {MARK}, {self._found_columns}"
            f" FROM asked ASOF JOIN ({rows}) AS found ON {' AND '.join(conditions)}"
        )
        return Question(sql, _keys_as_lists(keys), keys)

    def _ordered_rows(
        self, keys: pa.Table, order: OrderCondition, plans: Mapping[str, AdbcColumn]
    ) -> Iterator[Question]:
        rows = joined_rows(
            self.source,
            self._key_equalities,
            order,
            lambda of, name: column(plans[name], self.dialect, f"{of}."),
        )
        moments = value_names(order)
        names = [*self._key_names, *moments, "position"]
        for at, moment in enumerate(moments, len(self.by)):
            keys = keys.set_column(at, moment, as_stored(keys.column(at)))
        selected = f"SELECT asked.position, {self._found_columns} {rows}"
        for part in _split_by_parameters(keys):
            asked = asked_keys(names, part.num_rows, is_distinct=False)
            yield Question(f"{asked} {self._types_first} UNION ALL {selected}", _keys_as_row(part), part)

    # Parts of statements.

    @property
    def _select_rows(self) -> str:
        return select(self.source, self.wanted, self.dialect)

    @property
    def _found_columns(self) -> str:
        return _select_list(self.wanted, self.dialect, "found.")

    # SQLite's driver tells types from the first rows: where these hold NULL alone it takes integers, and
    # fails at the first text. (docs/decisions/0157)
    @property
    def _types_first(self) -> str:
        return _types_first(self.wanted, self.dialect)

    @property
    def _key_names(self) -> list[str]:
        return [f"k{number}" for number in range(len(self.by))]

    def _key_equalities(self, of: str) -> list[str]:
        return [
            equality(column(plan, self.dialect, f"{of}."), f"asked.{name}", plan.field.type)
            for plan, name in zip(self.by, self._key_names, strict=True)
        ]


def orders_rows(dialect: str) -> bool:
    """Whether rows can be asked for by order in ``dialect``."""
    return way_of(dialect) in ("arrays", "lists", "rows")


def typing_row(source: str, plans: Sequence[AdbcColumn], dialect: str) -> str:
    """The statement that reads all rows of SQLite, behind one that gives each column its type.

    Its driver guesses types from the first rows: where these hold NULL alone, it takes integers.
    """
    selected = _select_list(plans, dialect)
    return f"{_types_first(plans, dialect)} UNION ALL SELECT 0, {selected} FROM {source}"  # noqa: S608


def _types_first(plans: Sequence[AdbcColumn], dialect: str) -> str:
    values = ", ".join(
        f"{_example_literal(plan)} AS {identifier(plan.field.name, dialect)}" for plan in plans
    )
    return f"SELECT -1 AS {MARK}, {values}"


def _example_literal(plan: AdbcColumn) -> str:
    kind = plan.field.type
    if types.is_integer(kind) or types.is_boolean(kind):
        return "0"
    if types.is_floating(kind):
        return "0.5"
    return "x'00'" if types.is_binary(kind) else "''"


def _bound_arrays(by: Sequence[AdbcColumn]) -> list[str]:
    bound = [f"${number}" for number in range(1, len(by) + 1)]
    # The server takes the parameter for text: compared so, a char(n) would lose its blanks.
    return [
        f"CAST({each} AS bpchar[])" if plan.source_type == "bpchar" and not plan.as_text else each
        for each, plan in zip(bound, by, strict=True)
    ]


def _compared_in_lists(plan: AdbcColumn, dialect: str, of: str = "") -> str:
    """What is compared with a value of a list."""
    # A UUID reaches Arrow as a text, and does not compare with one. What is a text already is not cast.
    compared = column(replace(plan, as_text=bool(types.is_string(plan.field.type))), dialect, of)
    # Nanoseconds are cut when they are read; DuckDB itself would round them.
    is_finer = plan.source is not None and types.is_timestamp(plan.source) and plan.source.unit == "ns"
    return f"make_timestamp(epoch_us({compared}))" if is_finer else compared


# DuckDB compares each value with all rows of its key: for so many of a key, to sort the rows is faster.
_MANY_VALUES = 16


def _share_keys(keys: pa.Table, by: int) -> bool:
    """Whether many values have the same key, which the first columns are."""
    different = keys.group_by(keys.column_names[:by]).aggregate([]).num_rows
    return bool(keys.num_rows > different * _MANY_VALUES)


def _number_placeholders(dialect: str) -> Callable[[], str]:
    numbers = iter(range(1, _MOST_PARAMETERS + 1))
    return (lambda: f"${next(numbers)}") if dialect in _NUMBERED else (lambda: "?")


def _split_by_parameters(keys: pa.Table) -> Iterator[pa.Table]:
    size = max(1, _MOST_PARAMETERS // keys.num_columns)
    return (keys.slice(start, size) for start in range(0, keys.num_rows, size))


def _keys_as_lists(keys: pa.Table) -> pa.RecordBatch:
    """One row: of each key column the list of its values."""
    lists = [_wrap_in_list(key.combine_chunks()) for key in keys.columns]
    return pa.RecordBatch.from_arrays(lists, names=_numbers_as_text(len(lists)))


def _wrap_in_list(values: pa.Array | pa.ChunkedArray) -> pa.ListArray:
    whole = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
    return pa.ListArray.from_arrays(pa.array([0, len(whole)], pa.int32()), whole)


def _keys_as_row(keys: pa.Table) -> pa.RecordBatch:
    """One row: the values of the first key, of the second, and so on."""
    columns = [column.to_pylist() for column in keys.columns]
    kinds = keys.schema.types * keys.num_rows
    values = chain.from_iterable(zip(*columns, strict=True))
    arrays = [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=_numbers_as_text(len(arrays)))


def _numbers_as_text(count: int) -> list[str]:
    return [str(number) for number in range(count)]

"""What is asked of a database: SQL in its dialect, and the keys as bound parameters. No I/O.

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
from lookup_connectors.ordered_rows import found_rows, joined_rows
from lookup_connectors.sqlite_types import date_texts
from lookup_hints.spi import OrderCondition

Way = Literal["arrays", "lists", "rows", "parameters"]
"""How keys are bound: PostgreSQL's arrays, DuckDB's lists, a row of values for SQLite, a value for each."""

_WAYS: dict[str, Way] = {"postgres": "arrays", "duckdb": "lists", "sqlite": "rows"}
_NUMBERED = {"postgres", "redshift", "materialize", "risingwave"}
"""Dialects that write the parameters as $1, $2, ..."""

_MOST_PARAMETERS = 900
"""What every build of SQLite takes, and what no warehouse refuses."""

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
    return _table(text, dialect).sql(dialect=dialect)


def schema_and_name(text: str, dialect: str) -> tuple[str, str]:
    """The schema that ``text`` names, or an empty text, and the table's name.

    >>> schema_and_name('crm."Odd name"', "postgres")
    ('crm', 'Odd name')
    """
    table = _table(text, dialect)
    return table.db, table.name


def _table(text: str, dialect: str) -> exp.Table:
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
    return f"SELECT {_selected(plans, dialect)} FROM {source}"  # noqa: S608  quoted


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
    return f"CAST({named} AS {_text_type(dialect)})" if plan.as_text else named


def _text_type(dialect: str) -> str:
    return exp.DataType.build("text").sql(dialect=dialect)


def _selected(plans: Sequence[AdbcColumn], dialect: str, of: str = "") -> str:
    return ", ".join(
        f"{column(plan, dialect, of)} AS {identifier(plan.field.name, dialect)}" for plan in plans
    )


# --- asking -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """One statement: its SQL, the values to bind, and the keys that it asks for."""

    sql: str
    bound: pa.RecordBatch
    keys: pa.Table


def questions(
    source: str, wanted: Sequence[AdbcColumn], by: Sequence[AdbcColumn], keys: pa.Table, dialect: str
) -> Iterator[Question]:
    """The statements that together ask for the columns ``wanted`` of the rows of all ``keys``."""
    return _MAKERS[way_of(dialect)](source, wanted, by, keys, dialect)


def typing_row(source: str, plans: Sequence[AdbcColumn], dialect: str) -> str:
    """The statement that reads all rows of SQLite, behind one that gives each column its type.

    Its driver guesses types from the first rows: where these hold NULL alone, it takes integers.
    """
    selected = _selected(plans, dialect)
    return f"{_types_first(plans, dialect)} UNION ALL SELECT 0, {selected} FROM {source}"  # noqa: S608


def _types_first(plans: Sequence[AdbcColumn], dialect: str) -> str:
    values = ", ".join(f"{_example(plan)} AS {identifier(plan.field.name, dialect)}" for plan in plans)
    return f"SELECT -1 AS {MARK}, {values}"


def _example(plan: AdbcColumn) -> str:
    kind = plan.field.type
    if types.is_integer(kind) or types.is_boolean(kind):
        return "0"
    if types.is_floating(kind):
        return "0.5"
    return "x'00'" if types.is_binary(kind) else "''"


def _arrays(
    source: str, wanted: Sequence[AdbcColumn], by: Sequence[AdbcColumn], keys: pa.Table, dialect: str
) -> Iterator[Question]:
    bound = _bound_arrays(by)
    compared = [column(plan, dialect) for plan in by]
    if len(by) == 1:
        condition = f"{compared[0]} = ANY({bound[0]})"
    else:
        condition = f"({', '.join(compared)}) IN (SELECT * FROM unnest({', '.join(bound)}))"  # noqa: S608
    yield Question(f"{select(source, wanted, dialect)} WHERE {condition}", _as_lists(keys), keys)


def _bound_arrays(by: Sequence[AdbcColumn]) -> list[str]:
    bound = [f"${number}" for number in range(1, len(by) + 1)]
    # The server takes the parameter for text: compared so, a char(n) would lose its blanks.
    return [
        f"CAST({each} AS bpchar[])" if plan.source_type == "bpchar" and not plan.as_text else each
        for each, plan in zip(bound, by, strict=True)
    ]


def _lists(
    source: str, wanted: Sequence[AdbcColumn], by: Sequence[AdbcColumn], keys: pa.Table, dialect: str
) -> Iterator[Question]:
    compared = ", ".join(_of_lists(plan, dialect) for plan in by)
    unnested = ", ".join(["unnest(?)"] * len(by))
    condition = f"({compared}) IN (SELECT {unnested})"
    yield Question(f"{select(source, wanted, dialect)} WHERE {condition}", _as_lists(keys), keys)


def _of_lists(plan: AdbcColumn, dialect: str, of: str = "") -> str:
    """What is compared with a value of a list."""
    # A UUID reaches Arrow as a text, and does not compare with one. What is a text already is not cast.
    compared = column(replace(plan, as_text=bool(types.is_string(plan.field.type))), dialect, of)
    # Nanoseconds are cut when they are read; DuckDB itself would round them.
    is_finer = plan.source is not None and types.is_timestamp(plan.source) and plan.source.unit == "ns"
    return f"make_timestamp(epoch_us({compared}))" if is_finer else compared


def _rows(
    source: str, wanted: Sequence[AdbcColumn], by: Sequence[AdbcColumn], keys: pa.Table, dialect: str
) -> Iterator[Question]:
    """``CROSS JOIN`` fixes the order: SQLite searches the table for each key, and never reads it for all."""
    names = _names(by)
    conditions = " AND ".join(_equalities(by, dialect))
    rows = f"SELECT 0, {_selected(wanted, dialect, 'found.')} FROM asked CROSS JOIN {source} AS found"  # noqa: S608
    for part in _parts(keys):
        values = ", ".join([f"({', '.join('?' * len(by))})"] * part.num_rows)
        asked = f"WITH asked({', '.join(names)}) AS (SELECT DISTINCT * FROM (VALUES {values}))"  # noqa: S608
        sql = f"{asked} {_types_first(wanted, dialect)} UNION ALL {rows} WHERE {conditions}"
        yield Question(sql, _as_row(part), part)


def _names(by: Sequence[AdbcColumn]) -> list[str]:
    return [f"k{number}" for number in range(len(by))]


def _equalities(by: Sequence[AdbcColumn], dialect: str, of: str = "found") -> list[str]:
    return [
        _equal(column(plan, dialect, f"{of}."), f"asked.{name}", plan)
        for plan, name in zip(by, _names(by), strict=True)
    ]


def _equal(compared: str, key: str, plan: AdbcColumn) -> str:
    if types.is_string(plan.field.type):
        # The column's collation may find a row by two keys ('a' and 'A'): the row belongs to its own alone.
        # The first condition is there for the index, which has the column's collation.
        return f"{compared} = {key} AND {compared} = {key} COLLATE BINARY"
    return f"{compared} = {key}"


def _parameters(
    source: str, wanted: Sequence[AdbcColumn], by: Sequence[AdbcColumn], keys: pa.Table, dialect: str
) -> Iterator[Question]:
    compared = [column(plan, dialect) for plan in by]
    read = select(source, wanted, dialect)
    for part in _parts(keys):
        place = _placeholders(dialect)
        if len(by) == 1:
            condition = f"{compared[0]} IN ({', '.join(place() for _ in range(part.num_rows))})"
        else:
            one_key = (" AND ".join(f"{each} = {place()}" for each in compared) for _ in range(part.num_rows))
            condition = " OR ".join(f"({each})" for each in one_key)
        yield Question(f"{read} WHERE {condition}", _as_row(part), part)


_MAKERS: dict[Way, Callable[..., Iterator[Question]]] = {
    "arrays": _arrays,
    "lists": _lists,
    "rows": _rows,
    "parameters": _parameters,
}


# --- by order ---------------------------------------------------------------------------------------


def orders_rows(dialect: str) -> bool:
    """Whether rows can be asked for by order in ``dialect``."""
    return way_of(dialect) in ("arrays", "lists", "rows")


def ordered_questions(
    source: str,
    wanted: Sequence[AdbcColumn],
    by: Sequence[AdbcColumn],
    keys: pa.Table,
    dialect: str,
    order: OrderCondition,
    plans: Mapping[str, AdbcColumn],
) -> Iterator[Question]:
    """The statements that ask for the columns ``wanted`` of the rows that answer the values of ``keys``.

    In ``keys`` the values are behind the columns that are compared with ``by``, and then the positions of the
    keys, which stand in the column ``MARK`` of an answer.
    """
    if way_of(dialect) == "rows":
        yield from _ordered_rows(source, wanted, by, keys, dialect, order, plans)
        return
    names = [*_names(by), "value", "position"]
    if way_of(dialect) == "lists" and order.until is None and _share_keys(keys, len(by)):
        yield _by_asof_join(source, wanted, by, keys, dialect, order, plans)
        return
    if way_of(dialect) == "arrays":
        arrays = (*_bound_arrays(by), f"${len(by) + 1}", f"${len(by) + 2}")
        asked = f"unnest({', '.join(arrays)}) AS asked({', '.join(names)})"
        compared = partial(column, dialect=dialect, of="found.")
    else:
        asked = f"(SELECT {', '.join(f'unnest(?) AS {name}' for name in names)}) AS asked"
        compared = partial(_of_lists, dialect=dialect, of="found.")
    equalities = [f"{compared(plan)} = asked.{name}" for plan, name in zip(by, names, strict=False)]
    rows = found_rows(
        _selected(wanted, dialect, "found."),
        f"{source} AS found",
        equalities,
        order,
        "asked.value",
        lambda name: compared(plans[name]),
    )
    sql = f"SELECT asked.position AS {MARK}, found.* FROM {asked} CROSS JOIN LATERAL ({rows}) AS found"  # noqa: S608  quoted
    yield Question(sql, _as_lists(keys), keys)


_MANY_VALUES = 16
"""DuckDB compares each value with all rows of its key: for so many of a key, to sort the rows is faster."""


def _share_keys(keys: pa.Table, by: int) -> bool:
    """Whether many values have the same key, which the first columns are."""
    different = keys.group_by(keys.column_names[:by]).aggregate([]).num_rows
    return bool(keys.num_rows > different * _MANY_VALUES)


def _by_asof_join(
    source: str,
    wanted: Sequence[AdbcColumn],
    by: Sequence[AdbcColumn],
    keys: pa.Table,
    dialect: str,
    order: OrderCondition,
    plans: Mapping[str, AdbcColumn],
) -> Question:
    """The nearest rows by DuckDB's own join, of which the rows of other keys are kept away: it sorts all."""
    names = _names(by)
    bound = ", ".join(f"unnest(?) AS {name}" for name in (*names, "value", "position"))
    own = ", ".join(_of_lists(plan, dialect) for plan in by)
    rows = f"SELECT * FROM {source} WHERE ({own}) IN (SELECT {', '.join(names)} FROM asked)"  # noqa: S608  quoted
    conditions = [
        f"{_of_lists(plan, dialect, 'found.')} = asked.{name}" for plan, name in zip(by, names, strict=True)
    ]
    conditions.append(f"asked.value {order.operator} {_of_lists(plans[order.column], dialect, 'found.')}")
    sql = (
        f"WITH asked AS MATERIALIZED (SELECT {bound})"  # noqa: S608  quoted
        f" SELECT asked.position AS {MARK}, {_selected(wanted, dialect, 'found.')}"
        f" FROM asked ASOF JOIN ({rows}) AS found ON {' AND '.join(conditions)}"
    )
    return Question(sql, _as_lists(keys), keys)


def _ordered_rows(
    source: str,
    wanted: Sequence[AdbcColumn],
    by: Sequence[AdbcColumn],
    keys: pa.Table,
    dialect: str,
    order: OrderCondition,
    plans: Mapping[str, AdbcColumn],
) -> Iterator[Question]:
    names = [*_names(by), "value", "position"]
    rows = joined_rows(
        source,
        lambda of: _equalities(by, dialect, of),
        order,
        lambda of, name: column(plans[name], dialect, f"{of}."),
    )
    keys = keys.set_column(len(by), "value", _kept(keys.column(len(by))))
    selected = f"SELECT asked.position, {_selected(wanted, dialect, 'found.')} {rows}"
    for part in _parts(keys):
        values = ", ".join([f"({', '.join('?' * len(names))})"] * part.num_rows)
        asked = f"WITH asked({', '.join(names)}) AS (VALUES {values})"
        yield Question(f"{asked} {_types_first(wanted, dialect)} UNION ALL {selected}", _as_row(part), part)


def _kept(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return date_texts(values) if types.is_date(values.type) else values


def _placeholders(dialect: str) -> Callable[[], str]:
    numbers = iter(range(1, _MOST_PARAMETERS + 1))
    return (lambda: f"${next(numbers)}") if dialect in _NUMBERED else (lambda: "?")


def _parts(keys: pa.Table) -> Iterator[pa.Table]:
    size = max(1, _MOST_PARAMETERS // keys.num_columns)
    return (keys.slice(start, size) for start in range(0, keys.num_rows, size))


def _as_lists(keys: pa.Table) -> pa.RecordBatch:
    """One row: of each key column the list of its values."""
    lists = [_one_list(key.combine_chunks()) for key in keys.columns]
    return pa.RecordBatch.from_arrays(lists, names=_numbers(len(lists)))


def _one_list(values: pa.Array | pa.ChunkedArray) -> pa.ListArray:
    whole = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
    return pa.ListArray.from_arrays(pa.array([0, len(whole)], pa.int32()), whole)


def _as_row(keys: pa.Table) -> pa.RecordBatch:
    """One row: the values of the first key, of the second, and so on."""
    columns = [column.to_pylist() for column in keys.columns]
    kinds = keys.schema.types * keys.num_rows
    values = chain.from_iterable(zip(*columns, strict=True))
    arrays = [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=_numbers(len(arrays)))


def _numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]

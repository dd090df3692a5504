"""The ``memory`` connector: rows given in Python or written into the table's options.

For demonstrations, tests and small constant tables. The rows travel to the workers inside the pickled
connector, so a table of many megabytes belongs elsewhere.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial, reduce
from itertools import accumulate, chain
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_connectors.shared.conversion import (
    TOO_DEEP,
    ToArrow,
    as_floats,
    convert,
    from_json_values,
    is_nested,
    parse_json,
)
from lookup_connectors.shared.options import option_error
from lookup_connectors.shared.sql_parts import can_order
from lookup_connectors.shared.text_values import REFUSALS
from lookup_hints.errors import ConnectorError, OptionError, Problem, nearest
from lookup_hints.spi import (
    TEXT,
    Answer,
    AsyncLookup,
    Changes,
    ChangesRequest,
    LookupRequest,
    LookupTable,
    NullSafeLookup,
    Option,
    OrderCondition,
    OrderedLookup,
    PlacedRows,
    ReportsChanges,
    ReportsSchema,
    Scan,
    Statistics,
    SyncLookup,
    TableSize,
)
from lookup_hints.spi.arrow_types import cast, sql_type

_given: dict[str, pa.Table | list[dict[str, Any]]] = {}


def put_rows(name: str, rows: Any) -> None:
    """Let tables with ``'connector' = 'memory'`` and ``'data' = '<name>'`` hold ``rows``.

    Call it on the driver. A later call replaces the rows for the statements that follow.

    Args:
        name: what the option ``data`` says; a table without it takes the rows put under its own name.
        rows: a list of dictionaries, a pandas DataFrame or a pyarrow Table.

    Examples:
        >>> put_rows("countries", [{"code": "DE", "name": "Germany"}, {"code": "FR", "name": "France"}])
    """
    _given[name] = rows if isinstance(rows, pa.Table) else _copy_rows(rows)


def _copy_rows(rows: Any) -> pa.Table | list[dict[str, Any]]:
    # A DataFrame is known by what it offers: importing pandas for the test would make it a dependency.
    if hasattr(rows, "iloc"):
        return pa.Table.from_pandas(rows, preserve_index=False)
    copied = list(rows)
    strangers = [row for row in copied if not isinstance(row, Mapping)]
    if strangers:
        raise TypeError(f"rows are dictionaries, a DataFrame or a pyarrow Table, not {strangers[0]!r}")
    return [dict(row) for row in copied]


class MemoryConnector(
    SyncLookup, AsyncLookup, OrderedLookup, NullSafeLookup, Scan, Statistics, ReportsChanges, ReportsSchema
):
    """Rows that are already here."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("data", TEXT, "Name under which `put_rows` was given the rows; the table's own by default."),
        Option("rows", TEXT, "The rows as JSON: an array of objects, or of arrays in column order."),
    )

    def __init__(self, table: LookupTable) -> None:
        super().__init__(table)
        self._data = table.options.get("data", table.name)
        # Python's rows are on the driver only: they are taken along now. See `_rows_as_arrow` for the rest.
        self._source = _given.get(self._data)
        self._rows: pa.Table | None = None
        self._indexes: dict[tuple[tuple[str, ...], tuple[str, ...]], _Index] = {}

    def __getstate__(self) -> dict[str, Any]:
        source = self._source if self._rows is None else None
        return {**self.__dict__, "_source": source, "_indexes": {}}

    def check(self) -> None:
        """Read the rows, so that a mistake in them shows before a query runs."""
        if {"data", "rows"} <= self.table.options.keys():
            raise option_error(self.table, "'data' and 'rows' both say where rows come from")
        try:
            self._rows_as_arrow()
        except ConnectorError as error:
            raise OptionError(Problem(str(error))) from error

    def key_columns(self) -> frozenset[str]:
        """All columns but ARRAY, MAP and STRUCT ones."""
        return frozenset(column.name for column in self.table.schema if not is_nested(column.type))

    picks_known_rows = True

    def can_order(self, order: OrderCondition) -> bool:
        return can_order(self.table.schema.field(order.column).type)

    def can_ask_null(self, column: str) -> bool:
        return True

    # Life.

    def open(self) -> None:
        self._rows_as_arrow()

    async def aopen(self) -> None:
        self._rows_as_arrow()

    def close(self) -> None:
        self._indexes.clear()

    async def aclose(self) -> None:
        self._indexes.clear()

    # Lookups.

    def lookup(self, request: LookupRequest) -> Answer:
        rows = self._rows_as_arrow()
        wanted = rows.select(request.columns)
        if not request.key_columns:
            return wanted.filter(_all_null(rows.select(request.nulls)))
        # One table may be asked by different columns in one statement.
        by = request.key_columns, request.nulls
        if by not in self._indexes:
            self._indexes[by] = _Index(rows.select(request.key_columns), rows.select(request.nulls))
        index = self._indexes[by]
        if request.order is None:
            return wanted.take(index.positions(request.keys))
        owners, found = index.answering(request.keys, request.order, rows)
        return PlacedRows(wanted.take(found), owners)

    async def alookup(self, request: LookupRequest) -> Answer:
        """The rows of each key; never waits."""
        return self.lookup(request)

    # The whole table.

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield from self._rows_as_arrow().select(schema.names).to_batches()

    def statistics(self) -> TableSize:
        rows = self._rows_as_arrow()
        return TableSize(rows.num_rows, rows.nbytes, "counted", exact=True)

    def changes(self, request: ChangesRequest) -> Changes:
        rows = self._rows_as_arrow()
        column = rows.column(request.column)
        latest = pc.max(column)
        if request.since is None:
            return Changes(latest)
        changed = rows.filter(pc.greater(column, request.since))
        return Changes(latest, changed.select(request.schema.names) if len(changed) <= request.most else None)

    def discover(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """The columns of rows that Python gave; JSON does not say what its texts are."""
        if "rows" in self.table.options:
            raise ConnectorError(
                f"table {self.table.name}: JSON rows do not tell their types. Give a column list.",
                permanent=True,
            )
        source, name = self._given_rows(), self.table.name
        if not isinstance(source, pa.Table):
            source = pa.table({each: _inferred_column(source, each, name) for each in _names_of(source)})
        return pa.schema([(field.name, _check_spark_type(field, name)) for field in source.schema]), ()

    # Inside.

    def _rows_as_arrow(self) -> pa.Table:
        """The rows in the table's schema; converted once, mostly on the driver by ``check``."""
        if self._rows is None:
            self._rows = self._from_json() if "rows" in self.table.options else self._from_python()
        return self._rows

    def _given_rows(self) -> pa.Table | list[dict[str, Any]]:
        if self._source is None:
            tip = nearest(self._data, sorted(_given))
            raise ConnectorError(
                f"table {self.table.name}: no rows were given under the name {self._data!r}. "
                f"Call lookup_connectors.memory.put_rows({self._data!r}, rows) first. {tip}".rstrip(),
                permanent=True,
            )
        return self._source

    def _from_python(self) -> pa.Table:
        source = self._given_rows()
        names = source.column_names if isinstance(source, pa.Table) else _names_of(source)
        self._require_columns(names)
        return self._table_of([self._python_column(source, field) for field in self.table.schema])

    def _from_json(self) -> pa.Table:
        rows = _json_rows(self.table.read(self.OPTIONS)[0]["rows"], self.table)
        self._require_columns(_names_of(rows) if rows else self.table.schema.names)
        return self._table_of(
            [
                self._convert_column(
                    [row.get(field.name) for row in rows], partial(from_json_values, target=field.type), field
                )
                for field in self.table.schema
            ]
        )

    def _table_of(self, columns: list[pa.Array | pa.ChunkedArray]) -> pa.Table:
        return pa.table(columns, schema=self.table.schema)

    def _python_column(
        self, source: pa.Table | list[dict[str, Any]], field: pa.Field
    ) -> pa.Array | pa.ChunkedArray:
        if not isinstance(source, pa.Table):
            values = [row.get(field.name) for row in source]
            return self._convert_column(values, _from_python(field.type), field)
        column = source.column(field.name)
        if not _same_family(column.type, field.type):
            return self._convert_column(column.to_pylist(), _from_python(field.type), field)
        try:
            return pa.chunked_array([cast(chunk, field.type) for chunk in column.chunks], field.type)
        except REFUSALS:  # again, value by value, to name the one that does not fit
            return self._convert_column(
                column.to_pylist(), lambda values: cast(pa.array(values, column.type), field.type), field
            )

    def _convert_column(self, values: Sequence[Any], to_arrow: ToArrow, field: pa.Field) -> pa.Array:
        return convert(values, to_arrow, field, table=self.table.name, where=lambda row: f"number {row + 1}")

    def _require_columns(self, names: Sequence[str]) -> None:
        for column in self.table.schema.names:
            if column not in names:
                raise ConnectorError(
                    f"table {self.table.name}: the rows have no column {column!r}. {nearest(column, names)}",
                    permanent=True,
                )


class _Index:
    """Where the rows of each key are: those without a NULL in it, and with NULL alone in ``nulls``."""

    def __init__(self, keys: pa.Table, nulls: pa.Table) -> None:
        complete = pc.invert(_any_null(keys))
        if nulls.num_columns:
            complete = pc.and_(complete, _all_null(nulls))
        # One array: pyarrow 25 dies of `indices_nonzero` over a chunked array without chunks.
        complete = complete.combine_chunks()
        where = pc.indices_nonzero(complete).to_pylist()
        self._positions: defaultdict[Any, list[int]] = defaultdict(list)
        self._ordered: dict[OrderCondition, _RowsInOrder] = {}
        for key, position in zip(_hashable_keys(keys.filter(complete)), where, strict=True):
            self._positions[key].append(position)

    def positions(self, keys: pa.Table) -> pa.Array:
        # 0.0 and -0.0 are one key here, and so are two NaNs.
        found = filter(None, map(self._positions.get, dict.fromkeys(_hashable_keys(keys))))
        return pa.array(chain.from_iterable(found), pa.int64())

    def answering(self, keys: pa.Table, order: OrderCondition, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
        """The positions of ``keys``, whose last columns are the values, and of ``rows`` that answer them."""
        if order not in self._ordered:
            self._ordered[order] = _RowsInOrder(order, rows)
        ordered = self._ordered[order]
        by = keys.select(keys.column_names[: -order.values])
        moments = [_hashable_column(column) for column in keys.columns[-order.values :]]
        found = [
            (at, row)
            for at, (key, *values) in enumerate(zip(_hashable_keys(by), *moments, strict=True))
            for row in ordered.answering(key, self._positions.get(key, ()), values)
        ]
        owners, positions = zip(*found, strict=True) if found else ((), ())
        return pa.array(owners, pa.int64()), pa.array(positions, pa.int64())


class _RowsInOrder:
    """The rows of each key in the order of a column, without those that answer nothing."""

    def __init__(self, order: OrderCondition, rows: pa.Table) -> None:
        self._order = order
        self._starts = _hashable_column(rows.column(order.column))
        ends = [] if order.until is None else _hashable_column(rows.column(order.until))
        self._learned = [] if order.known_from is None else _hashable_column(rows.column(order.known_from))
        self._ends = [math.inf if end is None and order.is_open else end for end in ends]
        self._keys: dict[Any, tuple[list[int], list[Any], list[Any]]] = {}

    def answering(self, key: Any, positions: Sequence[int], values: Sequence[Any]) -> Sequence[int]:
        """Those of ``positions``, where the rows of ``key`` are, that answer ``values``."""
        value, known_by = values[0], values[-1]
        if key not in self._keys:
            self._keys[key] = self._sort_positions(positions)
        rows, starts, latest = self._keys[key]
        side = bisect_right if self._order.operator in (">=", "<") else bisect_left
        at = side(starts, value)
        if self._order.operator in ("<", "<="):
            return rows[at : at + 1]
        while self._learned and at and self._learned[rows[at - 1]] > known_by:
            at -= 1
        if not self._ends:
            return rows[at - 1 : at] if at else ()
        is_before = operator.lt if self._order.until_operator == "<" else operator.le
        found = []
        while at and is_before(value, latest[at - 1]):
            at -= 1
            if is_before(value, self._ends[rows[at]]):
                found.append(rows[at])
        return found

    def _sort_positions(self, positions: Sequence[int]) -> tuple[list[int], list[Any], list[Any]]:
        """Positions in the order of their values, the values, and the latest end so far."""
        known = [at for at in positions if self._starts[at] is not None]
        if self._ends:
            known = [at for at in known if self._ends[at] is not None]
        if self._learned:
            known = [at for at in known if self._learned[at] is not None]
            known.sort(key=self._learned.__getitem__)
        known.sort(key=self._starts.__getitem__)
        latest = list(accumulate((self._ends[at] for at in known), max)) if self._ends else []
        return known, [self._starts[at] for at in known], latest


def _any_null(keys: pa.Table) -> pa.ChunkedArray:
    return reduce(pc.or_, map(pc.is_null, keys.columns))


def _all_null(columns: pa.Table) -> pa.ChunkedArray:
    return reduce(pc.and_, map(pc.is_null, columns.columns))


def _hashable_keys(keys: pa.Table) -> Sequence[Any]:
    """One dictionary key per row: the value of a single column, the tuple of several."""
    columns = [_hashable_column(column) for column in keys.columns]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _hashable_column(column: pa.ChunkedArray) -> list[Any]:
    if types.is_floating(column.type):
        # A NaN equals no NaN in Python and any in Spark; NULL has no other use here.
        column = pc.if_else(pc.is_nan(column), None, column)
    elif types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif types.is_timestamp(column.type) or types.is_duration(column.type):
        column = column.cast(pa.int64())  # much faster to hash than datetime objects
    values: list[Any] = column.to_pylist()
    return values


# --- rows given in Python -------------------------------------------------------------------------

_PYTHON_TYPES: tuple[tuple[Any, frozenset[type]], ...] = (
    (types.is_boolean, frozenset({bool})),
    (types.is_integer, frozenset({int})),
    (types.is_floating, frozenset({int, float})),
    (types.is_decimal, frozenset({int, Decimal})),
    (types.is_string, frozenset({str})),
    (types.is_binary, frozenset({bytes})),
    (types.is_date, frozenset({date})),
    (types.is_timestamp, frozenset({datetime})),
    (types.is_duration, frozenset({timedelta})),
    (types.is_struct, frozenset({dict})),
    (types.is_map, frozenset({dict, list})),
    (types.is_list, frozenset({list, tuple})),
)


def _names_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(chain.from_iterable(rows)))


def _from_python(kind: pa.DataType) -> ToArrow:
    allowed = next(allowed for is_kind, allowed in _PYTHON_TYPES if is_kind(kind)) | {type(None)}

    def to_arrow(values: Sequence[Any]) -> pa.Array:
        # pa.array alone takes True for 1.0, bytes for text and a datetime for its date.
        if not set(map(type, values)) <= allowed:
            raise TypeError
        if types.is_timestamp(kind) and not _all_have_zone(values, kind.tz is not None):
            raise TypeError
        return as_floats(values, kind) if types.is_floating(kind) else pa.array(values, kind)

    return to_arrow


def _all_have_zone(moments: Sequence[datetime | None], zoned: bool) -> bool:
    return all((moment.tzinfo is not None) == zoned for moment in moments if moment is not None)


def _same_family(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Arrow's checked cast from ``source`` changes the width of a type and never its meaning."""
    if types.is_dictionary(source):
        return _same_family(source.value_type, target)
    if types.is_timestamp(source) and types.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    families = (types.is_integer, types.is_floating, types.is_decimal, types.is_date, types.is_duration)
    texts = (types.is_string(source) or types.is_large_string(source)) and types.is_string(target)
    return bool(source == target or texts or any(family(source) and family(target) for family in families))


def _inferred_column(rows: list[dict[str, Any]], name: str, table: str) -> pa.Array:
    try:
        return pa.array([row.get(name) for row in rows])
    except pa.ArrowException as error:
        raise ConnectorError(
            f"table {table}: the values of column {name!r} have no common type ({error})."
            " Give a column list.",
            permanent=True,
        ) from error


def _check_spark_type(field: pa.Field, table: str) -> pa.DataType:
    kind = _spark_kind(field.type)
    try:
        sql_type(kind)
    except ValueError as error:
        raise ConnectorError(
            f"table {table}: the type of column {field.name!r} cannot be inferred from its values ({error}). "
            "Give a column list.",
            permanent=True,
        ) from error
    return kind


def _spark_kind(kind: pa.DataType) -> pa.DataType:
    """The type in which Spark's data crosses Arrow that is nearest to ``kind``."""
    if types.is_dictionary(kind):
        return _spark_kind(kind.value_type)
    if types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if types.is_duration(kind):
        return pa.duration("us")
    if types.is_date(kind):
        return pa.date32()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_spark_kind(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([(field.name, _spark_kind(field.type)) for field in kind])
    return kind


# --- rows given as JSON ---------------------------------------------------------------------------


def _json_rows(text: str, table: LookupTable) -> list[dict[str, Any]]:
    try:
        rows = parse_json(text)
    except RecursionError:
        raise ConnectorError(f"table {table.name}, option 'rows': {TOO_DEEP}.", permanent=True) from None
    except ValueError as error:
        raise ConnectorError(f"table {table.name}: 'rows' is not JSON: {error}.", permanent=True) from error
    if not isinstance(rows, list):
        raise ConnectorError(f"table {table.name}: 'rows' must be a JSON array of rows.", permanent=True)
    return [_json_row(number, row, table) for number, row in enumerate(rows, start=1)]


def _json_row(number: int, row: Any, table: LookupTable) -> dict[str, Any]:
    names = table.schema.names
    if isinstance(row, dict):
        return row
    if isinstance(row, list) and len(row) == len(names):
        return dict(zip(names, row, strict=True))
    raise ConnectorError(
        f"table {table.name}: row number {number} of 'rows' must be an object, "
        f"or an array of {len(names)} values ({', '.join(names)}).",
        permanent=True,
    )

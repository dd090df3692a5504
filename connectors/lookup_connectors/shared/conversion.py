"""Values of a source to Arrow columns, strictly: a value that does not fit is an error that names it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from decimal import Decimal
from itertools import accumulate, chain
from math import isinf
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_connectors.shared.text_values import REFUSALS, from_texts, is_number
from lookup_hints.errors import ConnectorError
from lookup_hints.spi.arrow_types import cast, sql_type

ToArrow = Callable[[Sequence[Any]], pa.Array]


def convert(
    values: Sequence[Any], to_arrow: ToArrow, field: pa.Field, *, table: str, where: Callable[[int], str]
) -> pa.Array:
    """``to_arrow(values)``, the values of column ``field``; ``where`` says which row a position is.

    Raises:
        ConnectorError: it refuses a value; table, column, row and the first such value are named.
    """
    try:
        return to_arrow(values)
    except REFUSALS:
        row, refusal = next(_find_refused(to_arrow, values))
        place = f"table {table}: column {field.name!r} of the row {where(row)}"
        if isinstance(refusal, RecursionError):
            raise ConnectorError(f"{place}: {TOO_DEEP}.", permanent=True) from None
        raise ConnectorError(
            f"{place}: {_short_repr(values[row])} does not fit {sql_type(field.type)}."
            f" {_advice_for(values[row], field.type)}",
            permanent=True,
        ) from None


TOO_DEEP = "the JSON is nested too deep to be read"


def _find_refused(to_arrow: ToArrow, values: Sequence[Any]) -> Iterator[tuple[int, Exception]]:
    """Which of ``values`` are refused, and why."""
    for row, value in enumerate(values):
        try:
            to_arrow([value])
        except REFUSALS as refusal:
            yield row, refusal


# A table that was declared with TIMESTAMP does not name the type in the error.
def _advice_for(value: object, kind: pa.DataType) -> str:
    if types.is_timestamp(kind) and kind.tz and _WITHOUT_ZONE.fullmatch(str(value)):
        return "It has no time zone: declare the column TIMESTAMP_NTZ, or write a zone, such as Z for UTC."
    return "Correct the value in the source, or declare the column with a type that holds it."


_WITHOUT_ZONE = re.compile(r"(?!0000)\d{4}-\d\d-\d\d([T ]\d\d:\d\d[\d:.]*)?")


def _short_repr(value: object) -> str:
    try:
        text = repr(value)
    except RecursionError:
        text = "a deeply nested value"
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def row_with(schema: pa.Schema, row: Sequence[object], key: Sequence[str]) -> str:
    """A row, said by the values of its key columns; for an error message."""
    values = dict(zip(schema.names, row, strict=True))
    return " and ".join(f"{name} = {values[name]!r}" for name in key if name in values) or "(without a key)"


# --- JSON -----------------------------------------------------------------------------------------


def is_nested(kind: pa.DataType) -> bool:
    """Whether ``kind`` is ARRAY, MAP or STRUCT."""
    return bool(types.is_nested(kind))


def readable_as_json(kind: pa.DataType) -> bool:
    """Whether JSON can spell values of ``kind``: binaries and intervals have no spelling there."""
    if is_nested(kind):
        return all(readable_as_json(kind.field(position).type) for position in range(kind.num_fields))
    return not (types.is_binary(kind) or types.is_duration(kind))


def shown_as_json(value: Any) -> str:
    """``value`` as JSON, for messages."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except RecursionError:
        text = "a deeply nested value"
    return text if len(text) <= 120 else f"{text[:117]}..."


def from_json(texts: Sequence[str | None], target: pa.DataType) -> pa.Array:
    """The values that ``texts`` spell as JSON."""
    return from_json_values([None if text is None else parse_json(text) for text in texts], target)


class JsonWord(float):
    """NaN or Infinity as some write it into JSON: another float that is infinite was a number too large."""


def parse_json(text: str) -> Any:
    """The value of a JSON text, with fractions as exact decimals."""
    return json.loads(text, parse_float=Decimal, parse_constant=JsonWord)


def from_json_values(values: Sequence[Any], target: pa.DataType) -> pa.Array:
    """Parsed JSON values as a column; what JSON writes as text (dates, exact numbers) is read from it.

    Built from the leaves up. (Arrow would cast a whole column of structs of texts, but it gives a NULL struct
    empty texts for members, which are not dates.)
    """
    if types.is_struct(target):
        return _build_structs(values, target)
    if types.is_map(target):
        return _build_maps(values, target)
    if types.is_list(target):
        return _build_lists(values, target)
    exact = _exact_type(target)
    if exact is not None:
        if not set(map(type, values)) <= {exact, type(None)}:
            raise TypeError
        return pa.array(values, target)
    leaves = [None if value is None else _check_leaf(value, target) for value in values]
    is_text = types.is_decimal(target) or types.is_temporal(target)
    return from_texts(leaves, target) if is_text else as_floats(leaves, target)


def as_floats(numbers: Sequence[float | None], kind: pa.DataType) -> pa.Array:
    """``numbers`` as FLOAT or DOUBLE."""
    values = pa.array(numbers, kind)
    if types.is_float32(kind) and pc.sum(pc.is_inf(values)).as_py():
        cast(pa.array(numbers, pa.float64()), kind)
    return values


def _build_structs(values: Sequence[Any], target: pa.DataType) -> pa.Array:
    members = [{} if value is None else _check_type(value, dict) for value in values]
    columns = [from_json_values([row.get(field.name) for row in members], field.type) for field in target]
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(target), mask=missing)


def _build_lists(values: Sequence[Any], target: pa.DataType) -> pa.Array:
    lists = [None if value is None else _check_type(value, list) for value in values]
    items = from_json_values(list(_flatten_rows(lists)), target.value_type)
    return pa.ListArray.from_arrays(_list_offsets(lists), items).cast(target)


def _build_maps(values: Sequence[Any], target: pa.DataType) -> pa.Array:
    maps = [None if value is None else _check_type(value, dict) for value in values]
    keys = from_texts(list(_flatten_rows(maps)), target.key_type)  # JSON writes every key as text
    items = from_json_values([item for row in maps if row for item in row.values()], target.item_type)
    return pa.MapArray.from_arrays(_list_offsets(maps), keys, items).cast(target)


def _flatten_rows(rows: Iterable[Any]) -> Iterator[Any]:
    return chain.from_iterable(row for row in rows if row)


def _list_offsets(rows: Sequence[Sized | None]) -> pa.Array:
    """Where each row begins among the items of all, NULL for a NULL row, and where the last one ends."""
    ends = list(accumulate(0 if row is None else len(row) for row in rows))
    begins = [0, *ends][: len(rows)]
    marked = [None if row is None else begin for row, begin in zip(rows, begins, strict=True)]
    return pa.array([*marked, ends[-1] if ends else 0], pa.int32())


def _exact_type(kind: pa.DataType) -> type | None:
    """The type of all JSON values of ``kind``, where it is the same for JSON and for Arrow."""
    if types.is_integer(kind):
        return int
    if types.is_boolean(kind):
        return bool
    return str if types.is_string(kind) else None


def _check_leaf(value: Any, kind: pa.DataType) -> Any:
    if types.is_decimal(kind):
        return str(_check_type(value, int, Decimal, str))
    if types.is_floating(kind):
        # str: "NaN" and "Infinity", which JSON has no number for. Python's float() takes more than they.
        if type(value) is str and not is_number(value):
            raise ValueError("not a number")
        number = float(_check_type(value, int, float, Decimal, str, JsonWord))
        is_word = type(value) is JsonWord or (type(value) is str and "n" in value.lower())
        if isinf(number) and not is_word:
            raise ValueError("more than a DOUBLE holds")
        return number
    return _check_type(value, str)


def _check_type(value: Any, *expected: type) -> Any:
    # type(), not isinstance: True is not a number here.
    if type(value) not in expected:
        raise TypeError(f"{type(value).__name__} is not {' or '.join(kind.__name__ for kind in expected)}")
    return value

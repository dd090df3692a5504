"""The same lookup for ``pandas_udf``: PySpark before 4.1 has no ``arrow_udf``.

A thin adapter around ``worker.look_up``. pandas has no place for all that a column can hold: an integer
beside a NULL becomes a float, NaN and NULL are one, a timestamp loses its zone. So such keys travel as
text, and a NaN that is handed back travels in a form that nobody takes for NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import types

from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.metrics.lookup_metrics import Report
from lookup_hints.process.pickled_connector import PickledConnector
from lookup_hints.worker.arrow_worker import look_up

PandasLookup = Callable[[Iterator[Any]], Iterator[pd.Series]]

_AS_TEXT = ("CAST(", " AS STRING)")
_MICROSECONDS_AS_TEXT = ("CAST(unix_micros(", ") AS STRING)")

# pyarrow reads a float that is NaN as NULL, and this one as NaN.
_NAN = np.float32("nan")


def pandas_lookup(spec: LookupSpec, report: Report | None = None) -> PandasLookup:
    """The lookup join ``spec`` as a function for ``pandas_udf``, of the iterator kind.

    Takes keys in the form that ``wrapping`` gives them, and answers as ``arrow_lookup`` does, as lists
    of tuples.
    """
    carried = PickledConnector.of(spec.connector)
    identity, spec = carried.identity, spec.over(carried)

    def one_key(series: Iterator[pd.Series]) -> Iterator[pd.Series]:
        yield from several_keys((one,) for one in series)

    def several_keys(series: Iterator[tuple[pd.Series, ...]]) -> Iterator[pd.Series]:
        batches = (_columns_to_arrow(batch, spec.argument_schema) for batch in series)
        for lists in look_up(spec, identity, batches, report):
            yield pd.Series(python_values(lists), dtype=object)

    def packed_keys(frames: Iterator[pd.DataFrame]) -> Iterator[pd.Series]:
        yield from several_keys(tuple(frame[name] for name in spec.argument_schema.names) for frame in frames)

    if spec.packed:
        return packed_keys
    return one_key if len(spec.argument_schema) == 1 else several_keys


# --- keys ------------------------------------------------------------------------------------------


def wrapping(kind: pa.DataType) -> tuple[str, str]:
    """SQL to write before and after a key of that type, so that pandas carries all of its values.

    >>> wrapping(pa.int64())
    ('CAST(', ' AS STRING)')
    >>> wrapping(pa.string())
    ('', '')
    """
    if types.is_timestamp(kind) and kind.tz is not None:
        return _MICROSECONDS_AS_TEXT
    return _AS_TEXT if _travels_as_text(kind) else ("", "")


def _travels_as_text(kind: pa.DataType) -> bool:
    return bool(types.is_int64(kind) or types.is_floating(kind) or types.is_timestamp(kind))


def _columns_to_arrow(batch: Sequence[pd.Series], schema: pa.Schema) -> list[pa.Array]:
    return [_column_to_arrow(series, field.type) for series, field in zip(batch, schema, strict=True)]


def _column_to_arrow(series: pd.Series, kind: pa.DataType) -> pa.Array:
    if not _travels_as_text(kind):
        return pa.Array.from_pandas(series, type=kind)
    texts = pa.Array.from_pandas(series, type=pa.string())
    return texts.cast(pa.int64()).cast(kind) if wrapping(kind) == _MICROSECONDS_AS_TEXT else texts.cast(kind)


# --- rows ------------------------------------------------------------------------------------------


def python_values(column: pa.Array) -> list[Any]:
    """The values of ``column`` as PySpark converts them fastest: structs as tuples, maps as dictionaries."""
    if types.is_list(column.type):
        return _cut_into_lists(python_values(column.values), column, list)
    if types.is_map(column.type):
        entries = zip(python_values(column.keys), python_values(column.items), strict=True)
        return _cut_into_lists(list(entries), column, dict)
    if types.is_struct(column.type):
        fields = [python_values(field) for field in column.flatten()]
        rows = list(zip(*fields, strict=True)) if fields else [()] * len(column)
        return [
            row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)
        ]
    values: list[Any] = column.to_pylist()
    if types.is_floating(column.type):
        return [_NAN if value != value else value for value in values]
    return values


def _cut_into_lists(values: list[Any], column: pa.Array, collection: Callable[[list[Any]], Any]) -> list[Any]:
    valid = column.is_valid().to_pylist()
    places = pairwise(column.offsets.to_pylist())
    return [
        collection(values[start:end]) if is_valid else None
        for (start, end), is_valid in zip(places, valid, strict=True)
    ]

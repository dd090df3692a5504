"""The same lookup for ``pandas_udf``: PySpark before 4.1 has no ``arrow_udf``.

A thin adapter around ``worker.look_up``. What pandas cannot carry is lost on the way in: a NaN key is a
NULL key here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow import types

from lookup_hints.model import LookupSpec
from lookup_hints.runtime.metrics import Report
from lookup_hints.runtime.worker import identity_of, look_up

PandasLookup = Callable[[Iterator[Any]], Iterator[pd.Series]]


def pandas_lookup(spec: LookupSpec, report: Report | None = None, *, zone: str = "UTC") -> PandasLookup:
    """The lookup join ``spec`` as a function for ``pandas_udf``, of the iterator kind.

    Answers as ``arrow_lookup`` does, as lists of tuples. ``zone`` is the session's time zone, in which
    Spark gives TIMESTAMP columns to pandas, without saying so.
    """
    identity = identity_of(spec.connector)

    def one_key(series: Iterator[pd.Series]) -> Iterator[pd.Series]:
        yield from several_keys((one,) for one in series)

    def several_keys(series: Iterator[tuple[pd.Series, ...]]) -> Iterator[pd.Series]:
        batches = (_columns(batch, spec.key_schema, zone) for batch in series)
        for lists in look_up(spec, identity, batches, report):
            yield pd.Series(as_tuples(lists), dtype=object)

    return one_key if len(spec.key_columns) == 1 else several_keys


def _columns(batch: Sequence[pd.Series], schema: pa.Schema, zone: str) -> list[pa.Array]:
    return [_column(series, field.type, zone) for series, field in zip(batch, schema, strict=True)]


def _column(series: pd.Series, kind: pa.DataType, zone: str) -> pa.Array:
    if types.is_timestamp(kind) and kind.tz is not None and series.dt.tz is None:
        # The second pass of an hour that a zone has twice is lost: Spark's series does not tell it.
        series = series.dt.tz_localize(zone, ambiguous=[True] * len(series), nonexistent="shift_forward")
    return pa.Array.from_pandas(series, type=kind)


def as_tuples(lists: pa.ListArray) -> list[list[tuple[Any, ...]] | None]:
    """Each list of structs as a list of tuples: Spark reads them faster than dictionaries."""
    structs = lists.values
    columns = [column.to_pylist() for column in structs.flatten()]
    rows = list(zip(*columns, strict=True)) if columns else [()] * len(structs)
    offsets = lists.offsets.to_pylist()
    valid = lists.is_valid().to_pylist()
    return [
        rows[start:end] if is_valid else None
        for start, end, is_valid in zip(offsets[:-1], offsets[1:], valid, strict=True)
    ]

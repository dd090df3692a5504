"""The nearest rows that a source finds, each against the distances of all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import permutations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_hints.engine.arrow import Placed, whole
from lookup_hints.engine.distances import NumberArray, metric_of
from lookup_hints.spi import Connector, LookupRequest, NearestCondition, NearestLookup, Scan
from lookup_hints.spi.request_and_answer import METRICS
from lookup_hints.testing.row_checks import AskByAbility, row_texts, with_neighbours

MOST = (1, 3)
"""So many rows answer a value."""


def nearest_conditions(
    connector: NearestLookup, columns: pa.Schema, among: tuple[str, ...]
) -> Iterator[NearestCondition]:
    """The metrics of ``columns`` that ``connector`` finds exact rows by."""
    for metric, count in METRICS.items():
        for names in permutations(columns.names, count or 2):
            for most in MOST:
                condition = NearestCondition(names, metric, most)
                kinds = [columns.field(name).type for name in names]
                if all(_may_compare(metric, kind) for kind in kinds) and connector.can_find_nearest(
                    condition, among=among
                ):
                    yield condition


def _may_compare(metric: str, kind: pa.DataType) -> bool:
    if metric in ("l2", "cosine", "inner-product"):
        return bool(types.is_list(kind) and types.is_float32(kind.value_type))
    if metric in ("levenshtein", "trigram"):
        return bool(types.is_string(kind))
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    is_time = types.is_date32(kind) or types.is_timestamp(kind)
    return bool(is_number or (is_time and metric == "difference"))


def check_nearest_rows(connector: Connector, request: LookupRequest, asked: AskByAbility) -> int:
    """Ask for the rows that are nearest to values: among those of the keys of ``request``, and among all.

    The values are those that the rows have, and those beside them. Returns how many conditions were asked.

    Raises:
        AssertionError: a row is missing that is nearer than one of the answer, or is none of the key; names
            the condition and the value.
    """
    assert isinstance(connector, NearestLookup)
    by = tuple(request.keys.column_names)
    compared = pa.schema([each for each in request.schema if each.name not in by])
    checked = 0
    for among in (by, ()):
        conditions = [*nearest_conditions(connector, compared, among)]
        if not conditions or (not among and not isinstance(connector, Scan)):
            continue
        if among:
            rows = asked(connector, [request])[0][0]
        else:
            assert isinstance(connector, Scan)
            table = pa.Table.from_batches(connector.scan(request.schema), request.schema)
            rows = Placed(table, pa.array(np.zeros(len(table), np.int32)))
        requests = [_ask_each_value(request, rows, each, among) for each in conditions]
        for answers in asked(connector, requests):
            for found, nearest in zip(answers, requests, strict=True):
                _check_answers(rows, found, nearest, request.keys.num_rows if among else 1)
                checked += 1
    return checked


def _check_answers(rows: Placed, found: Placed, request: LookupRequest, keys: int) -> None:
    count = request.keys.num_rows // max(keys, 1)
    for position in range(request.keys.num_rows):
        of_key = rows.rows.filter(pc.equal(rows.positions, position // count))
        answer = found.rows.filter(pc.equal(found.positions, position))
        what = f"{request.nearest}, {request.keys.slice(position, 1).to_pylist()}"
        strangers = Counter(row_texts(answer)) - Counter(row_texts(of_key))
        assert not strangers, f"{what}: {strangers} is not among the rows"
        value = whole(request.keys.columns[-1]).slice(position, 1)
        assert request.nearest is not None
        _, due = _bounds_of(of_key, value, request.nearest)
        least, _ = _bounds_of(answer, value, request.nearest)
        due, least = np.sort(due)[: request.nearest.most], np.sort(least)[: len(due)]
        wrong = len(least) < len(due) or bool(np.any(least[: len(due)] > due))
        assert not wrong, f"{what}: {row_texts(answer)} lacks a nearer row of {row_texts(of_key)}"


def _bounds_of(
    rows: pa.Table, value: pa.Array, condition: NearestCondition
) -> tuple[NumberArray, NumberArray]:
    """The bounds of the distances of ``rows``, of those that have one."""
    metric = metric_of(condition, rows.schema)
    compared = metric.read([whole(rows.column(name)) for name in condition.columns])
    values = metric.read(value.flatten() if types.is_struct(value.type) else [value])
    is_known = compared.is_known
    if condition.metric == "cosine":  # of zeros and a finite vector there is none
        with np.errstate(invalid="ignore"):
            is_known = is_known & (compared.norms * values.norms[0] != 0)
    known = np.flatnonzero(is_known)
    if not len(known):
        return np.zeros(0), np.zeros(0)
    return metric.bounds(values, compared, (np.zeros(len(known), np.int64), known))


def _ask_each_value(
    request: LookupRequest, rows: Placed, condition: NearestCondition, among: tuple[str, ...]
) -> LookupRequest:
    """``request``, with each of its keys beside each of the values."""
    field = condition.value_field(rows.rows.schema)
    parts = [whole(rows.rows.column(name)) for name in condition.columns]
    metric = metric_of(condition, rows.rows.schema)
    is_known = pa.array(metric.read(parts).is_known)
    if types.is_struct(field.type):
        values = pa.StructArray.from_arrays(parts, fields=list(field.type)).filter(is_known)
    else:
        values = parts[0].filter(is_known)
        values = values if types.is_list(values.type) else with_neighbours(values)
    values = values.take(
        pa.array(np.unique([str(each) for each in values.to_pylist()], return_index=True)[1])
    )
    count = request.keys.num_rows if among else 1
    columns = request.keys.select(among).take(pa.array(np.repeat(np.arange(count), len(values)))).columns
    fields = [request.keys.schema.field(name) for name in among]
    columns.append(pa.chunked_array([values] * count, values.type))
    keys = pa.Table.from_arrays(columns, schema=pa.schema([*fields, field]))
    return LookupRequest(keys, request.schema, request.timeout, nearest=condition)

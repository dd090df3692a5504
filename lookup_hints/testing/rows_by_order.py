"""Rows by order: a source finds those that the worker would choose among all rows of a key."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from lookup_hints.engine.arrow import Placed, whole
from lookup_hints.engine.asof_and_ranges import answering
from lookup_hints.spi import Connector, OrderCondition, OrderedLookup
from lookup_hints.spi.request_and_answer import LookupRequest

Asked = Callable[[Connector, Sequence[LookupRequest]], list[list[Placed]]]
"""For each ability of a connector its answers to some requests."""


def conditions_of(connector: Connector, columns: pa.Schema) -> list[OrderCondition]:
    """The orders of ``columns`` that ``connector`` can be asked by: nearest rows, and ranges."""
    found = [OrderCondition(each.name, operator) for each in columns for operator in (">=", ">", "<=", "<")]
    found += [
        OrderCondition(start.name, until=end.name)
        for start in columns
        for end in columns
        if start.name != end.name and start.type == end.type
    ]
    return [each for each in found if isinstance(connector, OrderedLookup) and connector.can_order(each)]


def check_rows_by_order(connector: Connector, request: LookupRequest, asked: Asked) -> None:
    """Ask for the rows of the keys of ``request`` that answer values, in each order that ``connector`` knows.

    The values are those that the rows have, and those beside them.

    Raises:
        AssertionError: some are not those that the worker would choose; names the order, key and value.
    """
    by = request.keys.column_names
    conditions = conditions_of(connector, pa.schema([each for each in request.schema if each.name not in by]))
    rows = asked(connector, [request])[0][0]
    requests = [_ordered(request, rows, each) for each in conditions]
    due = [_due(rows, *each) for each in zip(requests, conditions, strict=True)]
    for answers in asked(connector, requests):
        for found, right, ordered in zip(answers, due, requests, strict=True):
            _check(found, right, ordered)


def _check(found: Placed, due: list[list[Counter[str]]], request: LookupRequest) -> None:
    got: list[Counter[str]] = [Counter() for _ in due]
    for position, row in zip(found.positions.to_pylist(), _shown(found.rows), strict=True):
        got[position][row] += 1
    for at, (answer, right) in enumerate(zip(got, due, strict=True)):
        if answer not in right:
            what = f"{answer} in place of {' or '.join(map(str, right))}"
            raise AssertionError(f"{request.order}, {_texts(request.keys, at)}: {what}")


def _ordered(request: LookupRequest, rows: Placed, condition: OrderCondition) -> LookupRequest:
    """``request``, with each of its keys beside each of the values."""
    known = [_with_neighbours(whole(rows.rows.column(name))) for name in condition.columns]
    values = pa.concat_arrays(known).unique()
    count = request.keys.num_rows
    keys = request.keys.take(pa.array(np.repeat(np.arange(count), len(values))))
    keys = keys.append_column(f"{condition.column} AS OF", pa.chunked_array([values] * count, values.type))
    return LookupRequest(keys, request.schema, request.timeout, order=condition)


def _with_neighbours(column: pa.Array) -> pa.Array:
    """The values of ``column``, and of whole numbers and times the next ones on both sides."""
    known = column.drop_null().unique()
    is_time = types.is_date32(column.type) or types.is_timestamp(column.type)
    if not is_time and not types.is_integer(column.type):
        return known
    width = pa.int32() if types.is_date32(column.type) else pa.int64() if is_time else column.type
    limit = 2 ** (width.bit_width - 1)
    numbers = known.cast(width).to_pylist()
    beside = [each + step for each in numbers for step in (-1, 1) if -limit <= each + step < limit]
    return pa.concat_arrays([known, pa.array(beside, width).cast(column.type)])


def _due(rows: Placed, request: LookupRequest, condition: OrderCondition) -> list[list[Counter[str]]]:
    """For each key of ``request`` the answers that are right: several where some rows are equally near."""
    owners = _owners(request)
    chosen = answering(rows, pa.array(owners, pa.int64()), whole(request.keys.columns[-1]), condition)
    shown = _shown(rows.rows)
    starts = [repr(each or 0) for each in rows.rows.column(condition.column).to_pylist()]  # -0.0 is 0.0
    equally_near: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
    for owner, start, row in zip(rows.positions.to_pylist(), starts, shown, strict=True):
        equally_near[owner, start].append(row)
    due: list[list[Counter[str]]] = []
    at = chosen.rows.to_pylist()
    for owner, (begin, end) in zip(owners, pairwise([0, *chosen.ends.to_pylist()]), strict=True):
        if condition.until is not None or begin == end:
            due.append([Counter(shown[each] for each in at[begin:end])])
        else:
            due.append([Counter([row]) for row in equally_near[owner, starts[at[begin]]]])
    return due


def _owners(request: LookupRequest) -> list[int]:
    """For each key of ``request`` the position of its key columns among the different ones."""
    places: dict[tuple[Any, ...], int] = {}
    by = request.keys.select(request.key_columns)
    rows = zip(*(column.to_pylist() for column in by.columns), strict=True)
    return [places.setdefault(row, len(places)) for row in rows]


def _texts(keys: pa.Table, row: int) -> dict[str, str]:
    """A row of ``keys``, which may hold days that Python has not."""
    return {name: keys.column(name).slice(row, 1).cast(pa.string())[0].as_py() for name in keys.column_names}


def _shown(rows: pa.Table) -> list[str]:
    """Each row as text: what it holds may be a list or a dictionary, which cannot be counted."""
    return [repr(tuple(row.values())) for row in rows.to_pylist()]

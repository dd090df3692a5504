"""Rows by order and keys that are started together: each against what is found without them."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from lookup_hints.engine.arrow import Placed, whole
from lookup_hints.engine.asof_and_ranges import answering, compared_values
from lookup_hints.spi import (
    AsyncRowLookup,
    Connector,
    LookupRequest,
    OrderCondition,
    OrderedLookup,
    RowRequest,
    Rows,
    StartedRow,
    StartedRows,
)
from lookup_hints.spi.connector import outcomes_of, rows_of

AskByAbility = Callable[[Connector, Sequence[LookupRequest]], list[list[Placed]]]
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
    if isinstance(connector, OrderedLookup) and connector.picks_known_rows:
        found += [
            OrderCondition(each.column, known_from=each.until, known_apart=is_apart)
            for each in found
            if each.until is not None
            for is_apart in (False, True)
        ]
    return [each for each in found if isinstance(connector, OrderedLookup) and connector.can_order(each)]


def check_rows_by_order(connector: Connector, request: LookupRequest, asked: AskByAbility) -> None:
    """Ask for the rows of the keys of ``request`` that answer values, in each order that ``connector`` knows.

    The values are those that the rows have, and those beside them.

    Raises:
        AssertionError: some are not those that the worker would choose; names the order, key and value.
    """
    by = request.keys.column_names
    conditions = conditions_of(connector, pa.schema([each for each in request.schema if each.name not in by]))
    rows = asked(connector, [request])[0][0]
    requests = [_with_each_value(request, rows, each) for each in conditions]
    due = [_right_answers(rows, *each) for each in zip(requests, conditions, strict=True)]
    for answers in asked(connector, requests):
        for found, right, ordered in zip(answers, due, requests, strict=True):
            _check_rows(found, right, ordered)


def _check_rows(found: Placed, due: list[list[Counter[str]]], request: LookupRequest) -> None:
    got: list[Counter[str]] = [Counter() for _ in due]
    for position, row in zip(found.positions.to_pylist(), row_texts(found.rows), strict=True):
        got[position][row] += 1
    for at, (answer, right) in enumerate(zip(got, due, strict=True)):
        if answer not in right:
            what = f"{answer} in place of {' or '.join(map(str, right))}"
            raise AssertionError(f"{request.order}, {_key_texts(request.keys, at)}: {what}")


def _with_each_value(request: LookupRequest, rows: Placed, condition: OrderCondition) -> LookupRequest:
    """``request``, with each of its keys beside each of the values, or each pair of them."""
    known = [with_neighbours(whole(rows.rows.column(name))) for name in condition.columns]
    values = pa.concat_arrays(known).unique()
    counts = (request.keys.num_rows, *[len(values)] * condition.values)
    own, *places = (each.ravel() for each in np.indices(counts))
    keys = request.keys.take(pa.array(own))
    names = f"{condition.column} AS OF", f"{condition.known_from} KNOWN AS OF"
    for name, at in zip(names, places, strict=False):
        keys = keys.append_column(name, values.take(pa.array(at)))
    return LookupRequest(keys, request.schema, request.timeout, order=condition)


def with_neighbours(column: pa.Array) -> pa.Array:
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


def _right_answers(
    rows: Placed, request: LookupRequest, condition: OrderCondition
) -> list[list[Counter[str]]]:
    """For each key of ``request`` the answers that are right: several where some rows are equally near."""
    owners = _key_numbers(request)
    values = compared_values(request.keys.columns[-condition.values :])
    chosen = answering(rows, pa.array(owners, pa.int64()), values, condition)
    shown = row_texts(rows.rows)
    orders = [each for each in (condition.column, condition.known_from) if each is not None]
    columns = [rows.rows.column(name).to_pylist() for name in orders]
    starts = [repr([each or 0 for each in row]) for row in zip(*columns, strict=True)]  # -0.0 is 0.0
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


def _key_numbers(request: LookupRequest) -> list[int]:
    """For each key of ``request`` the position of its key columns among the different ones."""
    places: dict[tuple[Any, ...], int] = {}
    by = request.keys.select(request.key_columns)
    rows = zip(*(column.to_pylist() for column in by.columns), strict=True)
    return [places.setdefault(row, len(places)) for row in rows]


def _key_texts(keys: pa.Table, row: int) -> dict[str, str]:
    """A row of ``keys``, which may hold days that Python has not."""
    return {name: keys.column(name).slice(row, 1).cast(pa.string())[0].as_py() for name in keys.column_names}


def row_texts(rows: pa.Table) -> list[str]:
    """Each row as text: what it holds may be a list or a dictionary, which cannot be counted."""
    return [repr(tuple(row.values())) for row in rows.to_pylist()]


_SECONDS = 60.0
_ROUNDS = 3


def check_started_rows(connector: AsyncRowLookup, request: LookupRequest) -> int:
    """Compare what comes of the keys of ``request`` in both ways; how many keys were started, 0 for none.

    Raises:
        AssertionError: they differ, a key comes twice or never, or one that was cancelled comes at all.
    """
    return asyncio.run(_compare_together_and_alone(connector, request))


async def _compare_together_and_alone(connector: AsyncRowLookup, request: LookupRequest) -> int:
    rows, started = rows_of(request), 0
    await connector.aopen()
    try:
        alone = [await _outcome_of_row(connector, row) for row in rows]
        # All at once, so that there are connections over which many can be started.
        await asyncio.gather(*(_outcome_of_row(connector, row) for row in rows))
        for _ in range(_ROUNDS):
            together = _StartedTogether(connector)
            outcomes = await together.outcomes(rows)
            started += together.count
            assert _rows_and_errors(connector, rows, outcomes, request) == _rows_and_errors(
                connector, rows, alone, request
            )
            await together.cancelled(rows)
            assert not together.strays, "a key came that was not started, or twice, or after it was cancelled"
        return started
    finally:
        await connector.aclose()


async def _outcome_of_row(connector: AsyncRowLookup, row: RowRequest) -> Rows | Exception:
    try:
        return await connector.alookup_row(row)
    except Exception as error:
        return error


class _StartedTogether:
    """Starts keys as the engine does, and looks up the others."""

    def __init__(self, connector: AsyncRowLookup) -> None:
        self.count = 0
        """How many keys were started."""
        self.strays = 0
        """The number of keys reported without being started."""
        self._connector = connector
        self._starter = connector.row_starter(self._take_outcomes)
        self._waiting: dict[StartedRow, asyncio.Future[Any]] = {}

    def _take_outcomes(self, came: StartedRows) -> None:
        for row, outcome in came:
            future = self._waiting.pop(row, None)
            if future is not None:
                future.set_result(outcome)
                continue
            self.strays += 1
            if asyncio.iscoroutine(outcome):
                outcome.close()

    def _start_rows(self, rows: Sequence[RowRequest]) -> list[StartedRow]:
        """Start the first of ``rows``; returns those that were started."""
        if self._starter is None:
            return []
        started = list(self._starter.start(rows))
        assert len(started) <= len(rows)
        loop = asyncio.get_running_loop()
        self._waiting |= {row: loop.create_future() for row in started}
        self.count += len(started)
        return started

    async def outcomes(self, rows: Sequence[RowRequest]) -> list[Rows | Exception]:
        """What comes of each of ``rows``."""
        futures = [self._waiting[row] for row in self._start_rows(rows)]
        others = [_outcome_of_row(self._connector, row) for row in rows[len(futures) :]]
        each = [*(self._await_outcome(future) for future in futures), *others]
        return list(await asyncio.wait_for(asyncio.gather(*each), _SECONDS))

    async def _await_outcome(self, future: asyncio.Future[Any]) -> Rows | Exception:
        outcome = await future
        try:
            found: Rows | Exception = await outcome if asyncio.iscoroutine(outcome) else outcome
        except Exception as error:
            return error
        return found

    async def cancelled(self, rows: Sequence[RowRequest]) -> None:
        """Start ``rows`` and cancel them, each a little later in its life: nothing may be told of them."""
        for turns in range(_ROUNDS):
            started = {row: self._waiting[row] for row in self._start_rows(rows)}
            for _ in range(turns):
                await asyncio.sleep(0)
            for row, future in started.items():
                if self._waiting.pop(row, None) is not None:
                    row.cancel()
                elif asyncio.iscoroutine(outcome := future.result()):
                    outcome.close()
            await asyncio.sleep(0.01)


def _rows_and_errors(
    connector: AsyncRowLookup,
    rows: Sequence[RowRequest],
    outcomes: Sequence[Rows | Exception],
    request: LookupRequest,
) -> tuple[list[dict[str, Any]], list[int], dict[int, str]]:
    """The rows in their order, the keys that they are of, and the errors."""
    answer = outcomes_of(connector, list(zip(rows, outcomes, strict=True)), request.schema)
    assert answer.positions is not None
    errors = {key: f"{type(error).__name__}: {error}" for key, error in answer.failures.items()}
    return answer.rows.to_pylist(), answer.positions.to_pylist(), errors

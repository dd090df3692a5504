"""The contract notices a connector whose rows by order are not those that the worker would choose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.memory import MemoryConnector, put_rows

from lookup_hints.spi import Answer, LookupRequest, LookupTable, OrderCondition, PlacedRows
from lookup_hints.testing.contract import placed_answers
from lookup_hints.testing.row_checks import check_rows_by_order

SCHEMA = pa.schema([("k", pa.int64()), ("since", pa.int64()), ("until", pa.int64())])
ROWS = [(1, 10, 20), (1, 20, 20), (1, 20, 40), (1, 30, None), (1, None, 90), (2, 15, 25), (2, 40, 50)]


class Including(MemoryConnector):
    """Takes > for >=."""

    def lookup(self, request: LookupRequest) -> Answer:
        order = request.order
        if order is not None and order.operator == ">":
            request = replace(request, order=replace(order, operator=">="))
        return super().lookup(request)


class Ending(MemoryConnector):
    """A range without an end holds nothing."""

    def lookup(self, request: LookupRequest) -> Answer:
        order = request.order
        return super().lookup(
            request if order is None else replace(request, order=replace(order, is_open=False))
        )


class Last(MemoryConnector):
    """Loses one of the ranges that overlap."""

    def lookup(self, request: LookupRequest) -> Answer:
        answer = super().lookup(request)
        if not isinstance(answer, PlacedRows) or answer.positions is None:
            return answer
        firsts = {position: row for row, position in enumerate(answer.positions.to_pylist())}
        kept = pa.array(sorted(firsts.values()), pa.int64())
        return PlacedRows(answer.rows.take(kept), answer.positions.take(kept))


class Unchecked(MemoryConnector):
    """Orders by one column alone."""

    def can_order(self, order: OrderCondition) -> bool:
        return order == OrderCondition("since")


@pytest.mark.parametrize(
    ("kind", "mistake"),
    [
        (MemoryConnector, ""),
        (Unchecked, ""),
        (Including, r"operator='>', until=None.*\{'k': '1', 'since AS OF': '10'\}"),
        (Ending, r"until='until'.*'since AS OF': '30'"),
        (Last, r"until='until'"),
    ],
)
def test_a_wrong_row_is_noticed(kind: type[MemoryConnector], mistake: str) -> None:
    put_rows("by order", [dict(zip(SCHEMA.names, row, strict=True)) for row in ROWS])
    connector = kind(LookupTable("by order", SCHEMA, options={"connector": "memory"}))
    request = LookupRequest(pa.table({"k": [1, 2, 3]}), SCHEMA)
    if not mistake:
        check_rows_by_order(connector, request, placed_answers)
        return
    with pytest.raises(AssertionError, match=mistake):
        check_rows_by_order(connector, request, placed_answers)


@pytest.mark.parametrize("operator", [">=", ">"])
@pytest.mark.parametrize("until_operator", ["<", "<="])
@pytest.mark.parametrize("is_open", [True, False])
def test_each_kind_of_range_is_found(operator: str, until_operator: str, is_open: bool) -> None:
    put_rows("by order", [dict(zip(SCHEMA.names, row, strict=True)) for row in ROWS])
    connector = MemoryConnector(LookupTable("by order", SCHEMA, options={"connector": "memory"}))
    order = OrderCondition("since", operator, "until", until_operator, is_open)
    values = range(5, 60, 5)
    keys = pa.table({"k": [1] * len(values), "value": values})
    answer: Any = connector.lookup(LookupRequest(keys, SCHEMA, order=order))
    rows = [tuple(row.values()) for row in answer.rows.to_pylist()]

    def holds(value: int, row: tuple[Any, ...]) -> bool:
        begins = row[1] is not None and (value > row[1] or (value == row[1] and operator == ">="))
        if row[2] is None:
            return begins and is_open
        return begins and (value < row[2] or (value == row[2] and until_operator == "<="))

    due = [(at, row) for at, value in enumerate(values) for row in ROWS if row[0] == 1 and holds(value, row)]
    assert sorted(zip(answer.positions.to_pylist(), rows, strict=True), key=repr) == sorted(due, key=repr)

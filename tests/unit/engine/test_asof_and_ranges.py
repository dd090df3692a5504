"""Which rows of a key answer a value, held against the definition, row by row."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.engine import arrow
from lookup_hints.engine import asof_and_ranges as ordered
from lookup_hints.engine.arrow import Placed
from lookup_hints.engine.asof_and_ranges import answering, compared_values
from lookup_hints.engine.input_window import Settled
from lookup_hints.spi import OrderCondition
from tests.unit.engine.support import plain, spec

START = datetime(2020, 1, 1)
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "numbers": (pa.int64(), [-(2**63), -3, 0, 1, 2, 5, 2**63 - 1]),
    "floats": (pa.float64(), [-math.inf, -0.0, 0.0, 1.5, 2.0, math.inf, math.nan]),
    "decimals": (pa.decimal128(5, 2), [Decimal(text) for text in ("-1.50", "0.00", "0.01", "7.25")]),
    "moments": (pa.timestamp("us", "UTC"), [START + timedelta(microseconds=each) for each in (0, 1, 2, 9)]),
    "truths": (pa.bool_(), [False, True]),
    "small floats": (pa.float32(), [-math.inf, -0.0, 0.0, 1.5, math.nan]),
    "days": (pa.date32(), [date(2020, 1, day) for day in (1, 2, 3)]),
    "bytes": (pa.binary(), [b"", b"a", b"ab", b"\xff"]),
    "texts": (pa.string(), ["", "a", "ab", "b", "é", "😀"]),
}
OPERATORS = {
    ">=": lambda value, own: own <= value,
    ">": lambda value, own: own < value,
    "<=": lambda value, own: value <= own,
    "<": lambda value, own: value < own,
}


def rank(value: Any) -> Any:
    """A value that sorts as Spark sorts ``value``: NaN is the largest number, text goes by its bytes."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def expected(
    rows: list[tuple[int, Any, Any, Any]],
    key: int | None,
    value: Any,
    known_by: Any,
    condition: OrderCondition,
) -> list[set[int]]:
    """For each row that must come the positions of those that may, as they are equal."""
    if key is None or value is None or known_by is None:
        return []
    own = [
        (at, start, end)
        for at, (owner, start, end, _) in enumerate(rows)
        if owner == key and start is not None
    ]
    if condition.known_from is not None:
        learned = [
            ((rank(start), rank(rows[at][3])), at, end)
            for at, start, end in own
            if rows[at][3] is not None and rank(start) <= rank(value) and rank(rows[at][3]) <= rank(known_by)
        ]
        latest = max((order for order, _, _ in learned), default=None)
        if condition.until is not None:
            assert len([at for order, at, _ in learned if order == latest]) <= 1, "keys are unique here"
            learned = [each for each in learned if each[2] is None or rank(value) < rank(each[2])]
        chosen = {at for order, at, _ in learned if order == latest}
        return [chosen] if chosen else []
    if condition.until is not None:
        holding = [
            at
            for at, start, end in own
            if rank(start) <= rank(value) and (end is None or rank(value) < rank(end))
        ]
        return [{at} for at in holding]
    found = [
        (at, rank(start)) for at, start, _ in own if OPERATORS[condition.operator](rank(value), rank(start))
    ]
    if not found:
        return []
    best = (max if condition.operator in (">=", ">") else min)(start for _, start in found)
    return [{at for at, start in found if start == best}]


@pytest.mark.work(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "condition",
    [
        *(OrderCondition("since", operator) for operator in OPERATORS),
        OrderCondition("since", until="until"),
        OrderCondition("since", known_from="known"),
        OrderCondition("since", until="until", known_from="known"),
        OrderCondition("since", known_from="known", known_apart=True),
        OrderCondition("since", until="until", known_from="known", known_apart=True),
    ],
    ids=lambda each: " ".join((*each.columns[1:], *["apart"] * each.known_apart)) or each.operator,
)
def test_rows_are_those_of_the_definition(
    kind: str, condition: OrderCondition, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_type, values = KINDS[kind]
    chance = Random(38)
    for _ in range(60):
        monkeypatch.setattr(ordered, "MOST_PAIRS", chance.choice([1, 5, 4_000_000]))
        rows = [
            (chance.randrange(3), *(chance.choice([None, *values]) for _ in range(3)))
            for _ in range(chance.randrange(12))
        ]
        if condition.known_from is not None and condition.until is not None:
            rows = [*{(row[0], rank(row[1]), rank(row[3])): row for row in rows}.values()]
        asked = [(chance.choice([None, 0, 1, 2, 3]), *chance.choices([None, *values], k=2)) for _ in range(9)]
        if not condition.known_apart:
            asked = [(key, value, value) for key, value, _ in asked]
        table = {name: [row[at] for row in rows] for at, name in enumerate(("since", "until", "known"), 1)}
        schema = pa.schema([(name, data_type) for name in table])
        placed = Placed(pa.table(table, schema=schema), pa.array([row[0] for row in rows], pa.int32()))
        answers = answering(
            placed,
            pa.array([key for key, _, _ in asked], pa.int32()),
            compared_values(
                [
                    pa.chunked_array([[row[at] for row in asked]], data_type)
                    for at in range(1, 1 + condition.values)
                ]
            ),
            condition,
        )
        found, ends, begin = answers.rows.to_pylist(), answers.ends.to_pylist(), 0
        for (key, value, by), end in zip(asked, ends, strict=True):
            own, wanted = sorted(found[begin:end]), expected(rows, key, value, by, condition)
            assert len(own) == len(wanted)
            assert all(at in may for at, may in zip(own, wanted, strict=True)), (rows, key, value, by)
            begin = end


def test_few_pairs_are_compared_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges that overlap: each of 20 values may be in each of 10."""
    compared: list[int] = []
    is_before = ordered._OrderedRows.is_before

    def noted(asked: Any, *others: Any) -> Any:
        compared.append(len(asked))
        return is_before(asked, *others)

    monkeypatch.setattr(ordered._OrderedRows, "is_before", staticmethod(noted))
    monkeypatch.setattr(ordered, "MOST_PAIRS", 30)
    placed = Placed(pa.table({"since": [0] * 10, "until": [9] * 10}), pa.array([0] * 10, pa.int32()))
    condition = OrderCondition("since", until="until")
    answers = answering(placed, pa.array([0] * 20, pa.int32()), pa.array([5] * 20), condition)
    assert len(answers.rows) == 200
    assert compared == [30] * 6 + [20]


def test_a_condition_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="rows cannot be found by '='"):
        OrderCondition("since", "=")
    with pytest.raises(ValueError, match="rows cannot be found by '<' until"):
        OrderCondition("since", "<", "until")
    with pytest.raises(ValueError, match="rows cannot be found by '<='"):
        OrderCondition("since", "<=", known_from="known")


def test_thousands_of_corrections_of_a_row_are_passed_over() -> None:
    """A moment before all but one of them."""
    count = 5000
    found = {"since": [0] * count + [-1], "known": [*range(10, count + 10), 3]}
    placed = Placed(pa.table(found), pa.array([1] * count + [0], pa.int32()))
    asked = [0, 9, 10, 11, count - 1, count + 8, count + 50]
    condition = OrderCondition("since", known_from="known")
    answers = answering(placed, pa.array([1] * len(asked)), pa.array(asked), condition)
    assert answers.ends.to_pylist() == [0, 0, 1, 2, 3, 4, 5]
    assert answers.rows.to_pylist() == [0, 1, count - 11, count - 2, count - 1]


def test_rows_go_out_in_the_order_of_the_input_with_gaps_and_dropped_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lookup = replace(spec(), columns=("name",), order=OrderCondition("name"))
    assert lookup.argument_schema.names == ["id", "name AS OF"]
    assert lookup.key_schema.names == ["id"]
    assert replace(lookup, order_asked=True).key_schema.names == ["id", "name AS OF"]
    found = Placed(pa.table({"name": ["b", "d", "a"]}), pa.array([0, 0, 1], pa.int32()))
    codes = pa.array([0, 1, None, 0, 2, 0], pa.int32())
    values = pa.array(["c", "c", "c", "a", "c", "e"])
    expected = [[("b",)], [("a",)], [], [], None, [("d",)]]
    for most in (32 * 1024 * 1024, 1):  # all at once, and each row by itself
        monkeypatch.setattr(arrow, "OUTPUT_BYTES", most)
        settled = Settled(codes, 3, [found], [pa.array([2], pa.int32())], values)
        assert plain(settled.results(lookup)) == expected

"""Keys and rows as Arrow columns."""

from __future__ import annotations

import math
import random
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.engine import arrow
from lookup_hints.engine.arrow import (
    Placed,
    absent,
    conform,
    count_up_to,
    distinct_keys,
    handed_out,
    lists_per_key,
    ordered_keys,
    place,
    positions_of,
    with_empty_last,
    with_nulls,
)
from lookup_hints.errors import AnswerError, ConnectorError
from lookup_hints.spi.request_and_answer import LookupRequest, OrderCondition, Outcomes, PlacedRows
from tests.unit.engine.support import SCHEMA, rows

KIND = pa.struct(list(SCHEMA))
STRING_VIEW = getattr(pa, "string_view", pa.large_string)()  # pyarrow 15 has none


def request(*ids: int) -> LookupRequest:
    return LookupRequest(pa.table({"id": pa.array(ids, pa.int64())}), SCHEMA)


# --- keys


def test_equal_keys_are_one() -> None:
    keys = distinct_keys(pa.table({"id": [5, 3, 5, 5, 3]}))
    assert keys.table.column("id").to_pylist() == [5, 3]
    assert keys.codes.to_pylist() == [0, 1, 0, 0, 1]


def test_a_null_in_any_key_column_is_no_key() -> None:
    table = pa.table({"a": [1, None, 1, None], "b": ["x", "x", None, None]})
    keys = distinct_keys(table)
    assert keys.table.to_pylist() == [{"a": 1, "b": "x"}]
    assert keys.codes.to_pylist() == [0, None, None, None]


def test_rows_that_are_all_null_give_no_key() -> None:
    table = pa.table({"a": pa.nulls(3, pa.int64()), "b": pa.nulls(3, pa.string())})
    keys = distinct_keys(table)
    assert keys.table.num_rows == 0
    assert keys.codes.to_pylist() == [None, None, None]


def test_keys_of_three_columns_differ_by_any_column() -> None:
    values = [(1, "x", True), (1, "x", False), (1, "y", True), (2, "x", True), (1, "x", True)]
    a, b, c = (list(column) for column in zip(*values, strict=True))
    keys = distinct_keys(pa.table({"a": a, "b": b, "c": c}))
    assert [tuple(row.values()) for row in keys.table.to_pylist()] == values[:4]
    assert keys.codes.to_pylist() == [0, 1, 2, 3, 0]
    assert keys.table.column_names == ["a", "b", "c"]


def test_both_zeros_are_one_key_and_all_nans_another() -> None:
    keys = distinct_keys(pa.table({"x": [0.0, -0.0, math.nan, -math.nan, 1.0]}))
    assert keys.codes.to_pylist() == [0, 0, 1, 1, 2]
    assert math.copysign(1, keys.table.column("x")[0].as_py()) == 1


def test_a_negative_zero_alone_is_asked_as_zero() -> None:
    keys = distinct_keys(pa.table({"x": pa.array([-0.0], pa.float32())}))
    assert math.copysign(1, keys.table.column("x")[0].as_py()) == 1
    assert keys.table.schema.field("x").type == pa.float32()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.decimal128(10, 2), Decimal("1.50")),
        (pa.binary(), b"\x00"),
        (pa.bool_(), False),
        (pa.date32(), datetime(2024, 1, 1).date()),
        (pa.timestamp("us", "UTC"), datetime(2024, 1, 1, tzinfo=timezone.utc)),
        (pa.duration("us"), datetime(2024, 1, 2) - datetime(2024, 1, 1)),
    ],
)
def test_every_key_type_keeps_its_type_and_value(kind: pa.DataType, value: Any) -> None:
    keys = distinct_keys(pa.table({"k": pa.array([value, None, value], kind)}))
    assert keys.table.column("k").type == kind
    assert keys.table.column("k").to_pylist() == [value]


def test_absent_lists_numbers_without_a_position() -> None:
    assert absent(pa.array([3, 0, 3], pa.int32()), 5).to_pylist() == [1, 2, 4]
    assert absent(pa.array([1, 0], pa.int32()), 2).to_pylist() == []
    assert count_up_to(0).to_pylist() == []


# --- answers


def test_rows_find_the_position_of_their_key_and_strangers_none() -> None:
    keys = pa.table({"a": [1, 2], "b": ["x", "x"]})
    found = pa.table({"b": ["x", "y", "x", None], "a": [2, 1, 1, 1]})
    assert positions_of(found, keys).to_pylist() == [1, None, 0, None]


def test_rows_of_keys_that_were_not_asked_are_dropped() -> None:
    placed = place(rows((2, "b"), (9, "?"), (1, "a")), request(1, 2), "memory")
    assert placed.rows.column("name").to_pylist() == ["b", "a"]
    assert placed.positions.to_pylist() == [1, 0]


def test_a_negative_zero_in_an_answer_belongs_to_zero() -> None:
    keys = pa.table({"x": [0.0, math.nan]})
    assert positions_of(pa.table({"x": [-0.0, math.nan]}), keys).to_pylist() == [0, 1]


def test_placed_rows_are_not_compared() -> None:
    answer = PlacedRows(rows((9, "like 1"), (8, "like 1")), pa.array([0, 0]))
    assert place(answer, request(1, 2), "memory").positions.to_pylist() == [0, 0]


def test_rows_beside_failures_are_compared_where_they_have_no_positions() -> None:
    answer = Outcomes(rows((2, "b"), (9, "x")), failures={0: ConnectorError("?")})
    strangers: list[pa.Table] = []
    placed = place(answer, request(1, 2), "memory", strangers.append)
    assert (placed.positions.to_pylist(), placed.rows.num_rows) == ([1], 1)
    assert [each.to_pylist() for each in strangers] == [[{"id": 9}]]


@pytest.mark.parametrize(
    ("positions", "complaint"),
    [
        (pa.array([0, 2]), "from 0 to 2; it was asked 2 keys"),
        (pa.array([-1, 0]), "from -1 to 0"),
        (pa.array([0]), "2 rows with 1 position"),
        (pa.array([0, None]), "no NULL"),
        (pa.array(["a", "b"]), "expected integers"),
    ],
)
def test_wrong_positions_are_an_error(positions: pa.Array, complaint: str) -> None:
    with pytest.raises(AnswerError, match=complaint):
        place(PlacedRows(rows((1, "a"), (2, "b")), positions), request(1, 2), "memory")


def test_rows_in_order_say_which_value_they_answer() -> None:
    keys = pa.table({"id": [1], "name AS OF": ["b"]})
    ordered = LookupRequest(keys, SCHEMA, order=OrderCondition("name"))
    answer = rows((1, "a"))
    assert place(PlacedRows(answer, pa.array([0])), ordered, "memory").rows.equals(answer)
    with pytest.raises(
        AnswerError,
        match="memory answered rows without positions; where it is asked in order, it must answer PlacedRows",
    ):
        place(answer, ordered, "memory")


def test_something_that_is_no_table_is_an_error() -> None:
    answer: Any = [(1, "a")]
    with pytest.raises(
        AnswerError,
        match=r"memory answered a list; expected a pyarrow\.Table\.\nWrite pa\.Table\.from_pylist\(",
    ):
        place(answer, request(1), "memory")


def test_a_missing_column_is_an_error_that_names_it() -> None:
    with pytest.raises(AnswerError, match=r"memory has no column 'name'; it has \['id'\]"):
        conform(pa.table({"id": [1]}), SCHEMA, "memory")


def test_a_column_that_is_there_twice_is_an_error() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array(["a"])], ["id", "id", "name"])
    with pytest.raises(AnswerError, match="more than one column 'id'"):
        conform(twice, SCHEMA, "memory")


@pytest.mark.parametrize(
    ("answered", "wanted"),
    [
        (pa.array([1]), pa.string()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([1.0]), pa.int64()),
        (pa.array([1]), pa.float64()),
        (pa.array([0], pa.timestamp("us")), pa.timestamp("us", "UTC")),
        (pa.array([[1]]), pa.list_(pa.string())),
        (pa.array([{"a": 1}]), pa.struct([("b", pa.int64())])),
        (pa.array([b"a"]), pa.string()),
    ],
)
def test_a_column_of_another_kind_is_an_error(answered: pa.Array, wanted: pa.DataType) -> None:
    with pytest.raises(AnswerError, match=r"memory answered column 'x' as .*; expected "):
        conform(pa.table({"x": answered}), pa.schema([("x", wanted)]), "memory")


def test_a_value_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(AnswerError, match="'x' as int64; expected int8, and not all values fit"):
        conform(pa.table({"x": [300]}), pa.schema([("x", pa.int8())]), "memory")


@pytest.mark.parametrize(
    ("answered", "wanted"),
    [
        (pa.array(["a"], pa.large_string()), pa.string()),
        (pa.array(["a"], STRING_VIEW), pa.string()),
        (pa.array(["a"]).dictionary_encode(), pa.string()),
        (pa.array([1], pa.int64()), pa.int8()),
        (pa.array([None], pa.null()), pa.string()),
        (pa.array([0], pa.timestamp("ms", "Europe/Berlin")), pa.timestamp("us", "UTC")),
        (pa.array([Decimal("1.5")], pa.decimal128(3, 1)), pa.decimal128(10, 2)),
        (pa.array([["a"]], pa.large_list(pa.large_string())), pa.list_(pa.string())),
        (pa.array([{"a": 1}], pa.struct([("a", pa.int32())])), pa.struct([("a", pa.int64())])),
    ],
)
def test_another_form_of_the_same_kind_is_converted(answered: pa.Array, wanted: pa.DataType) -> None:
    table = conform(pa.table({"more": answered, "x": answered}), pa.schema([("x", wanted)]), "memory")
    assert table.schema == pa.schema([("x", wanted)])
    assert table.column("x").to_pylist() == answered.to_pylist()


# --- results


def test_each_key_has_its_rows_in_the_order_of_the_answer() -> None:
    placed = Placed(rows((2, "x"), (0, "y"), (2, "a")), pa.array([2, 0, 2], pa.int32()))
    lists = lists_per_key(placed, 4, KIND)
    assert lists.type == pa.list_(KIND)
    names = [[row["name"] for row in one] for one in lists.to_pylist()]
    assert names == [["y"], [], ["x", "a"], []]


@pytest.mark.parametrize("positions", [[], [1], [0, 2, 3], [1, 1, 3], [0, 0, 0, 3]])
@pytest.mark.parametrize("is_old", [False, True])
def test_keys_without_rows_have_empty_lists(
    positions: list[int], is_old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_old:
        monkeypatch.delattr(pc, "inverse_permutation", raising=False)
    found = rows(*((each, str(number)) for number, each in enumerate(positions)))
    lists = lists_per_key(Placed(found, pa.array(positions, pa.int32())), 4, KIND)
    assert [[row["id"] for row in one] for one in lists.to_pylist()] == [
        [key] * positions.count(key) for key in range(4)
    ]


def test_structs_without_columns_keep_their_number() -> None:
    placed = Placed(rows((1, "x"), (1, "y")), pa.array([1, 1], pa.int32()))
    assert lists_per_key(placed, 2, pa.struct([])).to_pylist() == [[], [{}, {}]]


def test_nested_columns_and_null_fields_come_through() -> None:
    kind = pa.struct([("tags", pa.list_(pa.string())), ("at", pa.struct([("x", pa.float64())]))])
    values = [{"tags": ["a", None], "at": {"x": 1.0}}, {"tags": None, "at": None}]
    placed = Placed(pa.Table.from_pylist(values, schema=pa.schema(list(kind))), pa.array([1, 0], pa.int32()))
    assert lists_per_key(placed, 2, kind).to_pylist() == [[values[1]], [values[0]]]


def test_chunked_answers_are_one_result() -> None:
    table = pa.concat_tables([rows((1, "a")), rows(), rows((0, "b"))])
    lists = lists_per_key(Placed(table, pa.array([1, 0], pa.int32())), 2, KIND)
    assert [one[0]["name"] for one in lists.to_pylist()] == ["b", "a"]


def test_no_keys_and_no_rows_give_no_lists() -> None:
    lists = lists_per_key(Placed(rows(), pa.array([], pa.int32())), 0, KIND)
    assert with_empty_last(lists).to_pylist() == [[]]


def test_nulls_and_an_empty_list_are_added() -> None:
    lists = lists_per_key(Placed(rows((0, "a")), pa.array([0], pa.int32())), 3, KIND)
    found = with_empty_last(with_nulls(lists, pa.array([2], pa.int32())))
    assert found.to_pylist() == [[{"id": 0, "name": "a"}], [], None, []]


def test_the_output_is_cut_where_a_hot_key_would_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "OUTPUT_BYTES", 10_000)
    table = rows((0, "x" * 4000), (1, "y"))
    lists = lists_per_key(Placed(table, pa.array([0, 1], pa.int32())), 2, KIND)
    pieces = list(handed_out(lists, pa.array([0, 0, 0, 0, 0, *[1] * 20], pa.int32())))
    assert [len(piece) for piece in pieces[:2]] == [2, 2]
    assert sum(len(piece) for piece in pieces) == 25
    assert all(piece.nbytes < 12_000 for piece in pieces)


def test_a_row_that_is_larger_than_an_output_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "OUTPUT_BYTES", 100)
    lists = lists_per_key(Placed(rows((0, "x" * 400)), pa.array([0], pa.int32())), 1, KIND)
    assert [len(piece) for piece in handed_out(lists, pa.array([0, 0, 0], pa.int32()))] == [1, 1, 1]


@given(st.lists(st.integers(0, 3), max_size=20), st.booleans(), st.booleans(), st.integers(0, 2))
def test_lists_are_handed_out_as_arrow_takes_them(
    codes: list[int], has_two: bool, has_null: bool, sliced: int
) -> None:
    kind = pa.list_(pa.struct([("name", pa.string()), ("nest", pa.list_(pa.int64())), ("x", pa.float64())]))
    row = {"name": "a", "nest": [1, None], "x": None}
    values = [[], [row] * 2 if has_two else [row], None if has_null else [], [{**row, "name": None}]]
    lists = pa.array([*[[row]] * sliced, *values], kind)[sliced:]
    taken = list(handed_out(lists, pa.array(codes, pa.int32())))
    assert [one for piece in taken for one in piece.to_pylist()] == [values[code] for code in codes]
    assert {piece.type for piece in taken} <= {kind}
    for piece in taken:
        piece.validate(full=True)


def test_structs_without_columns_are_handed_out() -> None:
    lists = pa.array([[{}], []], pa.list_(pa.struct([])))
    (taken,) = handed_out(lists, pa.array([1, 0, 0], pa.int32()))
    assert taken.to_pylist() == [[], [{}], [{}]]


def test_no_rows_give_no_output() -> None:
    lists = with_empty_last(lists_per_key(Placed(rows(), pa.array([], pa.int32())), 0, KIND))
    assert list(handed_out(lists, pa.array([], pa.int32()))) == []


# --- order


@given(
    st.lists(st.tuples(st.integers(-3, 3) | st.none(), st.text("ab", max_size=2) | st.none()), max_size=30)
)
def test_keys_in_order_are_the_same_keys_for_each_row(values: list[tuple[int | None, str | None]]) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    rows = pa.Table.from_pylist([dict(zip(schema.names, value, strict=True)) for value in values], schema)
    found = ordered_keys(rows)
    told = [tuple(key.values()) for key in found.table.to_pylist()]
    assert told == sorted(told)
    assert len(set(told)) == len(told)
    each = [None if code is None else told[code] for code in found.codes.to_pylist()]
    assert each == [None if None in value else value for value in values]


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9), max_size=40)
    | st.lists(st.text(max_size=3), max_size=40)
)
def test_sorting_finds_the_same_distinct_keys_as_hashing(
    values: list[int] | list[str],
) -> None:
    rows = pa.table(
        {"k": pa.array(values, pa.string() if values and isinstance(values[0], str) else pa.int64())}
    )
    hashed, by_sorting = distinct_keys(rows), ordered_keys(rows)
    assert by_sorting.table.schema == hashed.table.schema
    assert by_sorting.codes.type == hashed.codes.type
    keys = by_sorting.table.column("k").to_pylist()
    assert keys == by_sorting.table.sort_by("k").column("k").to_pylist()
    assert len(keys) == len(set(values))
    assert [keys[code] for code in by_sorting.codes.to_pylist()] == values


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
@pytest.mark.parametrize("bits", [0, 1, 7, 8, 12, 13, 24, 25, 32, 63, 64])
def test_many_integers_are_sorted_as_arrow_sorts_them(kind: pa.DataType, bits: int) -> None:
    chance, width = random.Random(bits), min(bits, kind.bit_width)
    lowest = chance.randint(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 2**width)
    values = [lowest + chance.getrandbits(width) for _ in range(2 * arrow.SAMPLE)]
    values += [lowest, lowest + 2**width - 1]
    column = pa.array(values, kind)
    order = arrow._sort_column(column)
    assert order.cast(pa.uint64()).equals(pc.array_sort_indices(column))


@pytest.mark.parametrize(
    ("values", "sorts"),
    [([3, 1, 2, 1, 0], True), ([3, 1, 1, 1], False), ([3, 1, None], False), ([0.0, -0.0, 1.0, 2.0], False)],
)
def test_only_keys_that_repeat_little_are_sorted_first(
    monkeypatch: pytest.MonkeyPatch, values: list[float | None], sorts: bool
) -> None:
    sorted_first = Mock(wraps=arrow._keys_by_sorting)
    monkeypatch.setattr(arrow, "_keys_by_sorting", sorted_first)
    ordered_keys(pa.table({"k": values}))
    assert sorted_first.called == sorts


def test_keys_come_in_order_on_every_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pc, "inverse_permutation", raising=False)
    found = ordered_keys(pa.table({"id": [30, None, 10, 30, 20]}))
    assert found.table.column("id").to_pylist() == [10, 20, 30]
    assert found.codes.to_pylist() == [2, None, 0, 2, 1]


def test_an_answer_with_one_row_for_each_key_in_order_is_placed_so() -> None:
    keys = pa.table({"id": [1, 2, 3]})
    assert positions_of(pa.table({"name": ["a", "b", "c"], "id": [1, 2, 3]}), keys).to_pylist() == [0, 1, 2]
    assert positions_of(pa.table({"name": ["a", "b", "c"], "id": [1, 3, 2]}), keys).to_pylist() == [0, 2, 1]
    assert positions_of(pa.table({"name": ["a", "b", "c"], "id": [1, 1, 9]}), keys).to_pylist() == [
        0,
        0,
        None,
    ]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (
            pa.list_(pa.float32()),
            [[1.0, 2.0], None, [1.0], [1.0, 2.0], [], [math.nan], [1.0], [math.nan], []],
        ),
        (
            pa.struct([("x", pa.float64()), ("day", pa.int32())]),
            [{"x": 1.0, "day": 2}, None, {"x": 1.0, "day": 3}, {"x": 1.0, "day": 2}],
        ),
    ],
)
def test_a_vector_or_a_point_is_a_key_by_its_bytes(kind: pa.DataType, values: list[Any]) -> None:
    column = pa.array([values[0], *values], kind)[1:]  # it begins elsewhere in its buffers
    rows = pa.table({"shop": ["a"] * (len(values) - 1) + ["b"], "value": column})
    for keys in (distinct_keys(rows), ordered_keys(rows)):
        told = list(zip(*(column.to_pylist() for column in keys.table.columns), strict=True))
        asked = list(zip(rows.column(0).to_pylist(), values, strict=True))
        again = [None if code is None else told[code] for code in keys.codes.to_pylist()]
        assert repr(again) == repr([None if value is None else (shop, value) for shop, value in asked])
        assert len({repr(each) for each in told}) == len(told)

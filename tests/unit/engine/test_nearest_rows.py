"""The nearest rows among those of a key: what is asked and held, and which rows answer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.engine import distances, nearest_rows
from lookup_hints.engine.arrow import Placed
from lookup_hints.engine.input_window import Settled
from lookup_hints.engine.nearest_rows import NearestRows
from lookup_hints.errors import ConnectorError
from lookup_hints.lookup_spec import LookupSettings, LookupSpec
from lookup_hints.spi import NearestCondition, OrderCondition
from lookup_hints.spi.request_and_answer import LookupTable
from tests.unit.engine.support import Asked, names_of, plain

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("shop", pa.string()),
        ("lat", pa.float64()),
        ("lon", pa.float64()),
        ("name", pa.string()),
        ("vector", pa.list_(pa.float32())),
    ]
)


def lookup_of(order: NearestCondition | OrderCondition, *by: str, asked: bool = False) -> LookupSpec:
    connector = Asked(names_of())
    connector.table = LookupTable("places", SCHEMA, primary_key=("id",), options={"connector": "asked"})
    return LookupSpec(
        connector, by, ("name",), LookupSettings(asynchronous=False), order=order, order_asked=asked
    )


def test_the_value_is_the_last_argument_and_part_of_the_key_where_no_rows_of_a_key_are_compared() -> None:
    place = NearestCondition(("lat", "lon"), "great-circle", 3, ties=("id",))
    value = pa.struct([("lat", pa.float64()), ("lon", pa.float64())])
    by_worker, by_source = lookup_of(place, "shop"), lookup_of(place, "shop", asked=True)
    for each in (by_worker, by_source):
        assert each.argument_schema.types == [pa.string(), value]
    assert by_worker.key_schema.names == ["shop"]
    assert by_worker.held_columns == ("name", "lat", "lon", "id")
    assert by_source.key_schema == by_source.argument_schema
    assert by_source.answer_schema.names == ["shop", "name"]
    assert by_worker.searched_whole is None
    assert by_source.searched_whole is None
    anywhere = lookup_of(place)
    assert anywhere.searched_whole is place
    assert anywhere.chosen_order is None
    assert anywhere.key_schema.types == [value]
    assert anywhere.answer_schema.names == ["id", "lat", "lon", "name"]
    assert lookup_of(place, asked=True).searched_whole is None
    vector = replace(place, columns=("vector",), metric="l2")
    assert lookup_of(vector).argument_schema.types == [pa.list_(pa.float32())]
    assert lookup_of(OrderCondition("lat", until="lon"), asked=True).searched_whole is not None


# --- which rows answer, held against all pairs ranked one by one ---


def spark_score(metric: str, one: Any, other: Any) -> Any:
    """What Spark finds for two values, as a number that is smaller where they are nearer; None for NULL."""
    parts = (
        [*one, *other] if isinstance(one, list | tuple) and isinstance(other, list | tuple) else [one, other]
    )
    if any(each is None for each in parts):
        return None
    if metric == "difference":
        return abs(one - other)
    if metric == "levenshtein":
        return edits(one, other)
    if metric == "trigram":
        mine, others = trigrams(one), trigrams(other)
        return -len(mine & others) / max(len(mine | others), 1)
    if metric == "great-circle":
        (north, east), (to_north, to_east) = (map(math.radians, each) for each in (one, other))
        half = (
            math.sin((to_north - north) / 2) ** 2
            + math.cos(north) * math.cos(to_north) * math.sin((to_east - east) / 2) ** 2
        )
        return 2 * 6371.0 * math.asin(min(1.0, math.sqrt(half)))
    if metric in ("l2", "euclidean"):
        score = math.sqrt(sum((left - right) ** 2 for left, right in zip(one, other, strict=True)))
    else:
        score = -sum(left * right for left, right in zip(one, other, strict=True))
        if metric == "cosine":
            size = math.sqrt(sum(each * each for each in one) * sum(each * each for each in other))
            if size == 0:
                return None
            score = score / size
    with np.errstate(over="ignore"):  # of floats, a large one is infinity
        return score if metric == "euclidean" else float(np.float32(score))


def edits(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for number, mine in enumerate(one, 1):
        last, row[0] = row[0], number
        for at, each in enumerate(other, 1):
            last, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, last + (mine != each))
    return row[-1]


def trigrams(text: str) -> set[str]:
    words = "".join(each if each.isalnum() else " " for each in text.lower()).split()
    return {f"  {word} "[at : at + 3] for word in words for at in range(len(word) + 1)}


def rank(score: Any, nan: int) -> tuple[int, Any]:
    """NaN is the largest distance, and the greatest similarity: behind the others, or before them."""
    return (nan, 0.0) if isinstance(score, float) and math.isnan(score) else (0, score)


def ranked(
    metric: str,
    most: int,
    rows: list[tuple[int, Any]],
    asked: tuple[int | None, Any],
    among: Iterable[int],
    nan: int,
) -> list[int]:
    """The positions that Spark keeps of the rows ``among`` all: by distance, and then by position."""
    key, value = asked
    scores = [
        (rank(score, nan), at)
        for at in among
        if rows[at][0] == key and value is not None and rows[at][1] is not None
        if (score := spark_score(metric, value, rows[at][1])) is not None
    ]
    return [at for _, at in sorted(scores)[:most]]


def answered(
    metric: str, kind: pa.DataType, most: int, rows: list[tuple[int, Any]], asked: list[tuple[int, Any]]
) -> list[list[int]]:
    """The positions of the rows that answer each of ``asked``; equally near ones go by their position."""
    names = [field.name for field in kind] if pa.types.is_struct(kind) else ["c"]
    columns = of_kind(kind, [value for _, value in rows])
    parts = columns.flatten() if pa.types.is_struct(kind) else [columns]
    ids = pa.array(range(len(rows)), pa.int64())
    condition = NearestCondition(tuple(names), metric, most, ties=("id",))
    owners = np.array([owner for owner, _ in rows], np.int64)
    searched = NearestRows(pa.table([*parts, ids], names=[*names, "id"]), owners, condition, "places")
    keys = np.array([-1 if key is None else key for key, _ in asked], np.int64)
    found = searched.answering(keys, of_kind(kind, [value for _, value in asked]))
    ends = [0, *found.ends.to_pylist()]
    return [found.rows.to_pylist()[begin:end] for begin, end in pairwise(ends)]


def in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=timezone.utc)


def of_kind(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if not pa.types.is_struct(kind):
        return pa.array(values, kind)
    return pa.array([None if v is None else dict(zip("xyz", v, strict=False)) for v in values], kind)


def check(
    metric: str, kind: pa.DataType, most: int, rows: list[tuple[int, Any]], asked: list[tuple[int, Any]]
) -> None:
    """What Spark keeps of each answer is what it keeps of all rows."""
    is_exact = metric in ("difference", "levenshtein", "trigram") and kind not in INEXACT
    for own, found in zip(asked, answered(metric, kind, most, rows, asked), strict=True):
        for nan in (1, -1):
            due = ranked(metric, most, rows, own, range(len(rows)), nan)
            assert ranked(metric, most, rows, own, found, nan) == due, own
        assert len(set(found)) == len(found)
        assert not is_exact or sorted(found) == sorted(due)


# As there are NaN, infinity, and numbers whose difference has no 64 bits.
INEXACT = {pa.decimal128(12, 2), pa.float64(), pa.float32(), pa.int64()}
VECTOR, POINT = pa.list_(pa.float32()), pa.struct([("x", pa.float64()), ("y", pa.float64())])
FLOATS = st.sampled_from([0.0, -0.0, 1.0, -2.0, 0.5, 3.25, math.nan, math.inf, -math.inf, None, 1e30, 1e-30])
SMALL = st.sampled_from([0.0, 1.0, 2.0, -1.0, 0.1])
DEGREES = st.sampled_from([0.0, 45.0, -45.0, 45.00001, 89.9, -179.99, 179.99, math.nan, None])
KINDS: dict[str, list[tuple[pa.DataType, st.SearchStrategy[Any]]]] = {
    "difference": [
        (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)),
        (pa.int32(), st.integers(-3, 3)),
        (pa.float64(), FLOATS.filter(lambda each: each is not None) | st.floats(allow_nan=True)),
        (pa.float32(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, -math.inf])),
        (pa.decimal128(12, 2), st.integers(-300, 300).map(lambda each: Decimal(each) / 100)),
        (pa.date32(), st.dates(date(2020, 1, 1), date(2020, 1, 9))),
        (pa.timestamp("us", "UTC"), st.datetimes(datetime(2020, 1, 1), datetime(2020, 1, 2)).map(in_utc)),
    ],
    "levenshtein": [(pa.string(), st.text("ab\u00e9\U0001f600", max_size=6) | st.text(max_size=4))],
    "trigram": [(pa.string(), st.text("abB c_-1", max_size=9))],
    "euclidean": [(POINT, st.tuples(FLOATS, SMALL)), (POINT, st.tuples(SMALL, SMALL))],
    "great-circle": [(POINT, st.tuples(DEGREES, DEGREES))],
    **{
        metric: [
            (VECTOR, st.lists(FLOATS, min_size=3, max_size=3)),
            (VECTOR, st.lists(SMALL, min_size=2, max_size=2)),
        ]
        for metric in ("l2", "cosine", "inner-product")
    },
}


@pytest.mark.parametrize("many", [64, 0])  # rows of a key that are compared with others, and searched
@pytest.mark.parametrize(
    ("metric", "kind", "values"), [(name, *each) for name, kinds in KINDS.items() for each in kinds]
)
@pytest.mark.work(4)  # a hundred examples
@given(data=st.data())
def test_spark_keeps_the_same_of_an_answer_as_of_all_rows(
    metric: str, kind: pa.DataType, values: st.SearchStrategy[Any], many: int, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, 2), st.none() | values), max_size=12))
    asked = data.draw(st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | values), max_size=5))
    most = data.draw(st.integers(1, 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest_rows, "MANY_ROWS", many)
        check(metric, kind, most, rows, asked)


RANDOM = np.random.default_rng(7)


def test_a_vector_of_zeros_is_compared_with_nan_and_infinity_alone() -> None:
    """Spark divides by the product of the lengths: NaN is no zero."""
    zeros, others = [[0.0, 0.0], [-0.0, 0.0]], [[math.nan, 0.0], [math.inf, 1.0], [1.0, 2.0]]
    rows = [(0, vector) for vector in [*zeros, *others]]
    check("cosine", VECTOR, 4, rows, rows)
    many = [*rows[2:4], *[(0, [1.0, float(at)]) for at in range(200)]]
    assert [sorted(each) for each in answered("cosine", VECTOR, 3, many, [(0, zeros[0])])] == [[0, 1]]


@pytest.mark.parametrize("metric", ["l2", "cosine", "inner-product"])
def test_vectors_that_are_close_together_and_far_from_zero_are_told_apart(metric: str) -> None:
    """What a product of matrices rounds away decides nothing; some vectors are there several times."""
    vectors = (RANDOM.normal(size=(300, 48)) * 1e-3 + 10).astype(np.float32)
    rows = [(0, list(map(float, vector))) for vector in np.concatenate([vectors, vectors[:40], vectors[:20]])]
    check(metric, VECTOR, 7, rows, [(0, value) for _, value in rows[:20]])


def test_the_bound_of_each_block_holds_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances, "FIRST_ROWS", 4)
    monkeypatch.setattr(distances, "MOST_ROWS", 16)
    monkeypatch.setattr(distances, "VALUES_AT_ONCE", 3)
    for most in (1, 5, 30, 190):
        monkeypatch.setattr(distances, "BLOCK_BYTES", 64 * 40)  # more candidates are searched for in parts
        vectors = RANDOM.normal(size=(200, 3)).astype(np.float32)
        rows = [(0, list(map(float, vector))) for vector in vectors]
        check(
            "l2", VECTOR, most, rows, [(0, list(map(float, value))) for value in RANDOM.normal(size=(8, 3))]
        )


@pytest.mark.parametrize("metric", ["euclidean", "great-circle"])
def test_many_points_are_found_by_products(metric: str) -> None:
    """Also where thousands are at one place, and on the other side of the globe."""
    spread = [
        *RANDOM.uniform([-90, -180], [90, 180], size=(2000, 2)),
        *RANDOM.normal(50, 0.01, size=(500, 2)),
    ]
    points = [*map(tuple, np.array(spread).tolist()), *[(10.0, 10.0)] * 300]
    rows = [(0, point) for point in points]
    asked = [
        (0, point) for point in [*points[:6], (50.0, 50.001), (10.0, 10.0), (89.99, 170.0), (0.0, -180.0)]
    ]
    for most in (1, 6):
        check(metric, POINT, most, rows, asked)


@pytest.mark.parametrize(("bits", "kind"), [(8, pa.int8()), (64, pa.int64())])
def test_a_difference_that_begins_again_at_zero_answers_as_well(bits: int, kind: pa.DataType) -> None:
    """Spark computes so without ANSI: the farthest number may be the nearest."""
    numbers = [*range(-128, 128, 5), 127] if bits == 8 else [*range(-(2**63), 2**63, 2**61 + 7), 2**63 - 1]
    rows = [(0, number) for number in numbers]

    def score(value: int, row: int) -> int:
        top: int = 2 ** (bits - 1)
        apart = (value - row + top) % (2 * top) - top
        return (abs(apart) + top) % (2 * top) - top

    for value, found in zip(
        numbers, answered("difference", kind, 3, rows, [(0, number) for number in numbers]), strict=True
    ):
        due = sorted((score(value, number), at) for at, number in enumerate(numbers))[:3]
        assert {at for _, at in due} <= set(found), value


def test_distances_that_are_no_normal_floats_are_equal_where_sparks_are() -> None:
    tiny = 2.0**-149
    rows = [(0, [1.0, tiny, tiny]), (0, [1.0, tiny, 0.0]), (0, [1.0, 3 * tiny, 0.0])]
    check("l2", VECTOR, 1, rows, [(0, [1.0, 0.0, 0.0])])


@pytest.mark.work(4)  # a hundred thousand vectors
@pytest.mark.parametrize("metric", ["l2", "cosine", "inner-product"])
def test_of_many_equal_vectors_only_the_wanted_ones_are_compared(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, most, asked, compared = 100_000, 10, 200, list[int]()
    bounds = distances.Vectors.bounds

    def counted(self: Any, values: Any, rows: Any, pairs: Any) -> Any:
        compared.append(len(pairs[0]))
        return bounds(self, values, rows, pairs)

    monkeypatch.setattr(distances.Vectors, "bounds", counted)
    items = pa.array(np.tile(np.array([1, 2, 3], np.float32), count))
    vectors = pa.ListArray.from_arrays(np.arange(0, 3 * count + 1, 3, dtype=np.int32), items)
    ids = RANDOM.permutation(count)
    condition = NearestCondition(("v",), metric, most, ties=("id",))
    table = pa.table({"v": vectors, "id": ids})
    searched = NearestRows(table, np.zeros(count, np.int64), condition, "t")
    found = searched.answering(np.zeros(asked, np.int64), pa.array([[1.0, 2.0, 3.5]] * asked, VECTOR))
    assert sum(compared) == asked * most
    ids_found = ids[found.rows.to_numpy()].reshape(asked, most)
    assert (np.sort(ids_found, axis=1) == np.arange(most)).all()


@pytest.mark.parametrize("metric", ["difference", "euclidean", "levenshtein", "trigram"])
def test_of_many_equal_rows_the_first_by_key_answer(metric: str) -> None:
    """Those of each key, also where others are NaN."""
    kind, _ = KINDS[metric][0]
    kinds: dict[str, list[Any]] = {
        "difference": [1, 1, 5],
        "euclidean": [(0.0, -0.0), (0.0, 0.0), (math.nan, 1.0), (2.0, math.nan)],
    }
    values = kinds.get(metric, ["ab", "ab", "b c"])
    rows = [(key, value) for _ in range(40) for key in (1, 0, 2) for value in values]
    found = answered(metric, kind, 2, rows, [(key, values[0]) for key in range(3)])
    assert all(len(each) <= 2 * len(set(map(str, values))) for each in found)
    check(metric, kind, 2, rows, [(key, value) for key in range(4) for value in values])


@pytest.mark.parametrize(("metric", "longest"), [("levenshtein", 300), ("trigram", 40)])
def test_many_texts_are_searched(metric: str, longest: int) -> None:
    sizes = [*RANDOM.integers(1, 9, 200), *RANDOM.integers(1, longest, 5)]
    texts = ["".join(RANDOM.choice([*"abcdeé "], size)) for size in sizes]
    rows = [(0, text) for text in [*texts, *texts[:20]]]
    check(metric, pa.string(), 3, rows, [(0, text) for text in [*texts[:5], "abc", "", "zzz", texts[-1]]])


def test_numbers_of_one_key_do_not_answer_for_another() -> None:
    rows = [(key, float(value)) for key in range(3) for value in RANDOM.integers(0, 50, 100)]
    asked = [(key, float(value)) for key in range(4) for value in RANDOM.integers(-5, 60, 10)]
    for most in (1, 4, 200):
        check("difference", pa.float64(), most, rows, asked)
    far = [(0, 1e16 + 2 * step) for step in range(200)]  # seen from zero, many are equally far
    check(
        "difference",
        pa.float64(),
        3,
        far,
        [(0, 1.0), (0, 1e16), (0, math.inf), (0, -math.inf), (0, math.nan)],
    )


def test_vectors_of_several_lengths_answer_their_own_keys_and_others_are_refused() -> None:
    rows = [(0, [1.0, 2.0]), (1, [1.0, 2.0, 3.0]), (0, None), (0, [0.0, 1.0])]
    check("l2", VECTOR, 1, rows, [(0, [1.0, 1.0]), (1, [1.0, 1.0, 1.0]), (2, [1.0]), (1, None)])
    with pytest.raises(
        ConnectorError,
        match=r"^table places: c has a vector of 2 numbers, and is compared with one of 3\. Compare vectors of",
    ):
        answered("l2", VECTOR, 1, rows, [(0, [1.0, 1.0]), (0, [1.0, 1.0, 1.0])])


def test_without_a_primary_key_any_of_the_equally_near_answer_and_no_more() -> None:
    rows = pa.table({"n": pa.array([5, 5, 5, 9])})
    searched = NearestRows(rows, np.zeros(4, np.int64), NearestCondition(("n",), "difference", 2), "t")
    assert len(searched.answering(np.array([0]), pa.array([4])).rows) == 2


def test_a_window_hands_out_the_nearest_rows_of_each_input_row() -> None:
    lookup = replace(lookup_of(NearestCondition(("lat",), "difference", 2, ties=("id",)), "shop"))
    found = pa.table(
        {"name": ["a", "b", "c", "d"], "lat": [1.0, 3.0, 3.0, None], "id": [4, 3, 2, 1]},
        schema=pa.schema([lookup.table.schema.field(name) for name in lookup.held_columns]),
    )
    codes, values = pa.array([0, 1, None, 0, 2], pa.int32()), pa.array([3.0, 3.0, 3.0, None, 3.0])
    settled = Settled(
        codes, 3, [Placed(found, pa.array([0, 0, 0, 0], pa.int32()))], [pa.array([2], pa.int32())], values
    )
    results = [row and sorted(row) for row in plain(settled.results(lookup))]
    assert results == [[("b",), ("c",)], [], [], [], None]

"""NULL as a key: which keys rows have, and how a source is asked for them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.cache.store.hashing import comparable, equal, hash_is_exact, hashes_of
from lookup_hints.cache.store.hashing import is_null_key as is_marked
from lookup_hints.engine.arrow import distinct_keys, is_null_key, place, positions_of, without_keys
from lookup_hints.engine.backlog import FreshKeys
from lookup_hints.engine.input_window import Window
from lookup_hints.engine.null_keys import ask_beside_nulls
from lookup_hints.lookup_spec import NULL_IS_KEY
from lookup_hints.spi.request_and_answer import LookupRequest

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.string())])
MARKED = pa.schema([each.with_metadata(NULL_IS_KEY) for each in (SCHEMA.field("a"), SCHEMA.field("b"))])
ROWS = [(1, "x", "one"), (None, "x", "two"), (None, None, "three"), (1, None, "four"), (None, "x", "five")]


def keys(*rows: tuple[Any, Any], schema: pa.Schema = MARKED) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema)


def rows_of(request: LookupRequest) -> pa.Table:
    """The rows of ``ROWS`` that a source finds: it compares its keys, and sees to NULLs."""
    wanted = [{**key, **dict.fromkeys(request.nulls)} for key in request.keys.to_pylist()]
    assert all(None not in key.values() for key in request.keys.to_pylist())
    found = [dict(zip(SCHEMA.names, row, strict=True)) for row in ROWS]
    return pa.Table.from_pylist(
        [row for row in found if any(key.items() <= row.items() for key in wanted)], SCHEMA
    )


def test_null_is_a_key_where_the_column_is_marked() -> None:
    found = distinct_keys(keys((1, None), (None, None), (1, None), (None, "x")))
    assert found.table.to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": None}, {"a": None, "b": "x"}]
    assert found.codes.to_pylist() == [0, 1, 0, 2]


def test_a_null_in_another_column_is_no_key() -> None:
    mixed = pa.schema([SCHEMA.field("a"), MARKED.field("b")])
    found = distinct_keys(keys((1, None), (None, None), (2, "x"), schema=mixed))
    assert found.codes.to_pylist() == [0, None, 1]
    left_out = without_keys(keys((1, None), (2, "x"), schema=mixed), pa.array([True, False]))
    assert left_out.to_pylist() == [{"a": None, "b": None}, {"a": 2, "b": "x"}]


def test_keys_that_are_null_in_the_same_columns_are_taken_together() -> None:
    window = Window(distinct_keys(keys((1, None), (2, "x"), (3, None), (None, "y"), (4, "z"), (None, None))))
    fresh = FreshKeys()
    fresh.add(window, window.everything)
    taken = [fresh.take(3)[1].to_pylist() for _ in range(4)]
    assert taken == [[0, 2], [1, 4], [3], [5]]
    assert not fresh


@pytest.mark.parametrize("asked", [[(1, None)], [(1, "x"), (2, "x")], [(None, "x")], [(None, None)]])
def test_a_source_is_asked_for_columns_that_are_null(asked: list[tuple[Any, Any]]) -> None:
    request = LookupRequest(keys(*asked), SCHEMA)
    own = ask_beside_nulls(request)
    assert own.nulls == tuple(name for name in "ab" if name not in own.key_columns)
    assert (own is request) == (not own.nulls)
    assert own.keys.num_rows == len(asked)
    placed = place(rows_of(own), request, "source")
    found = list(zip(placed.positions.to_pylist(), placed.rows.column("c").to_pylist(), strict=True))
    assert sorted(found) == sorted((asked.index(row[:2]), row[2]) for row in ROWS if row[:2] in asked)


def test_an_answer_with_null_belongs_to_the_key_with_null() -> None:
    asked = keys((None, "x"), (1, None))
    rows = pa.table(
        [[1, None, None], [None, "x", None]], schema=pa.schema([SCHEMA.field("a"), SCHEMA.field("b")])
    )
    assert positions_of(rows, asked).to_pylist() == [1, 0, None]


@pytest.mark.parametrize(
    ("kind", "zero"),
    [
        (pa.int64(), 0),
        (pa.int8(), 0),
        (pa.float64(), 0.0),
        (pa.bool_(), False),
        (pa.string(), ""),
        (pa.binary(), b""),
        (pa.date32(), 0),
        (pa.timestamp("us", "UTC"), 0),
        (pa.decimal128(20, 2), 0),
    ],
    ids=str,
)
def test_a_cache_tells_null_from_each_value(kind: pa.DataType, zero: Any) -> None:
    column = pa.array([None, zero, None], kind)
    marked = pa.table([column], schema=pa.schema([pa.field("k", kind, metadata=NULL_IS_KEY)]))
    compared = comparable(marked)
    assert not hash_is_exact(marked.schema)
    hashes = hashes_of(compared).tolist()
    assert hashes[0] == hashes[2] != hashes[1]
    assert hashes[1] == hashes_of(comparable(pa.table({"k": column}))).tolist()[1], "as where NULL is no key"
    assert equal(compared, compared.take(pa.array([2, 2, 0]))).tolist() == [True, False, True]
    assert is_marked(marked.schema.field(0))
    assert is_null_key(marked.schema.field(0)), "both rooms know the same mark"


def test_null_has_the_hash_of_no_small_number_and_of_no_other_null() -> None:
    marked = [pa.field(name, pa.int64(), metadata=NULL_IS_KEY) for name in "ab"]
    numbers = [None, *range(-1000, 1000)]
    both = pa.table([numbers, [None] * len(numbers)], schema=pa.schema(marked))
    turned = pa.table([[None] * len(numbers), numbers], schema=pa.schema(marked))
    alone = both.select(["a"])
    assert len(set(hashes_of(comparable(alone)).tolist())) == len(numbers)
    hashes = [*hashes_of(comparable(both)).tolist(), *hashes_of(comparable(turned)).tolist()]
    assert len(set(hashes)) == 2 * len(numbers) - 1, "both are NULL in one key of each"


def test_keys_of_other_lookups_are_compared_as_before() -> None:
    plain = pa.table({"k": [3, 5]})
    assert comparable(plain).num_columns == 1
    assert hash_is_exact(plain.schema)

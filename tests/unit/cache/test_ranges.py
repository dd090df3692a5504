"""A whole table that is asked for the rows whose ranges hold a value, held against the definition."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.cache.store.full_table import Generations
from lookup_hints.cache.store.ranges import Bounds, TooLarge
from lookup_hints.cache.store.segment_files import StoreLimits
from tests.unit.cache.support import Clock

START = datetime(2020, 1, 1)
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "numbers": (pa.int64(), [-(2**63), -3, 0, 1, 2, 5, 2**63 - 1]),
    "small numbers": (pa.int8(), [-128, -1, 0, 1, 127]),
    "floats": (pa.float64(), [-math.inf, -1.5, -0.0, 0.0, 1.5, 2.0, math.inf, math.nan]),
    "small floats": (pa.float32(), [-math.inf, -0.0, 0.0, 1.5, math.nan]),
    "decimals": (pa.decimal128(5, 2), [Decimal(text) for text in ("-1.50", "0.00", "0.01", "7.25")]),
    "long decimals": (pa.decimal128(38, 0), [Decimal(each) for each in (-(10**37), -1, 0, 2**64, 10**37)]),
    "moments": (pa.timestamp("us", "UTC"), [START + timedelta(microseconds=each) for each in (0, 1, 2, 9)]),
    "local times": (pa.timestamp("us"), [START + timedelta(microseconds=each) for each in (0, 1, 2, 9)]),
    "days": (pa.date32(), [date(1, 1, 1), date(2020, 1, 1), date(2020, 1, 2)]),
    "truths": (pa.bool_(), [False, True]),
    "bytes": (pa.binary(), [b"", b"a", b"ab", b"a\0", b"\xff"]),
    "texts": (pa.string(), ["", "a", "ab", "b", "é", "😀"]),
}


def rank(value: Any) -> Any:
    """A value that sorts as Spark sorts ``value``: NaN is the largest number, text goes by its bytes."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def holds(bounds: Bounds, low: Any, high: Any, value: Any) -> bool:
    if low is None or high is None:
        return False
    begun = rank(low) <= rank(value) if bounds.holds_start else rank(low) < rank(value)
    return bool(begun and (rank(value) <= rank(high) if bounds.holds_end else rank(value) < rank(high)))


def table_of(folder: Path, bounds: Bounds, rows: pa.Table, limits: StoreLimits | None = None) -> Generations:
    made = Generations(folder, limits or StoreLimits(), Clock(), bounds)
    made.load(rows.to_batches(max_chunksize=7), ())
    assert made.opened() is not None
    return made


def found(table: Generations, values: pa.Array) -> list[list[int]]:
    """For each value the numbers of the rows that hold it, ascending."""
    known = table.probe(pa.table({"x": values}), ["no"])
    numbers: list[list[int]] = [[] for _ in values]
    for rows, positions in known.found:
        for no, at in zip(rows.column("no").to_pylist(), positions.to_pylist(), strict=True):
            numbers[at].append(no)
    missing = known.missing.to_pylist()
    assert missing == [at for at, each in enumerate(numbers) if not each]
    return list(map(sorted, numbers))


@pytest.mark.work(10)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ends", ["[]", "[)", "(]", "()"])
def test_each_value_finds_the_rows_that_hold_it(tmp_path: Path, kind: str, ends: str) -> None:
    arrow_type, values = KINDS[kind]
    schema = pa.schema([("no", pa.int32()), ("lo", arrow_type), ("hi", arrow_type)])
    bounds = Bounds(schema, "lo", "hi", ends[0] == "[", ends[1] == "]")
    chance = Random(f"{kind} {ends}")
    asked = pa.array(values, arrow_type)
    for number, size in enumerate((0, 1, 2, 3, 9, 40)):
        rows = [[chance.choice([None, *values]) for _ in range(2)] for _ in range(size)]
        if number % 2:
            rows = [list(pair) for pair in pairwise(values)]  # side by side
        table = pa.table(
            [range(len(rows)), [low for low, _ in rows], [high for _, high in rows]], schema=schema
        )
        expected = [
            [no for no, (low, high) in enumerate(rows) if holds(bounds, low, high, value)] for value in values
        ]
        made = table_of(tmp_path / str(number), bounds, table)
        assert found(made, asked) == expected
        assert made.most >= max(map(len, expected))


INTEGERS = pa.schema([("no", pa.int32()), ("lo", pa.int64()), ("hi", pa.int64())])


@pytest.mark.work(10)
def test_ranges_within_ranges_are_all_found(tmp_path: Path) -> None:
    chance = Random(5)
    lows = [chance.randrange(100) for _ in range(500)]
    highs = [low + chance.choice([0, 1, 2, 50, 200]) - 1 for low in lows]
    table = pa.table([range(500), lows, highs], schema=INTEGERS)
    values = list(range(-2, 310))
    expected = [[no for no in range(500) if lows[no] <= value <= highs[no]] for value in values]
    made = table_of(tmp_path, Bounds(INTEGERS, "lo", "hi"), table)
    assert found(made, pa.array(values, pa.int64())) == expected
    assert made.most == max(map(len, expected))


def test_what_takes_too_much_is_not_kept(tmp_path: Path) -> None:
    table = pa.table([range(100), range(100), range(100)], schema=INTEGERS)
    with pytest.raises(TooLarge):
        table_of(tmp_path, Bounds(INTEGERS, "lo", "hi"), table, StoreLimits(max_bytes=1000))
    assert list(tmp_path.glob("*.generation")) == []


@pytest.mark.parametrize("damage", [b"", b"no table"])
def test_what_is_damaged_is_not_used(tmp_path: Path, damage: bytes) -> None:
    table = pa.table([range(3), range(3), range(3)], schema=INTEGERS)
    bounds = Bounds(INTEGERS, "lo", "hi")
    table_of(tmp_path, bounds, table)
    (file,) = tmp_path.glob("*.generation/*")
    file.write_bytes(damage)
    other = Generations(tmp_path, StoreLimits(), Clock(), bounds)
    assert other.opened() is None
    assert other.damaged == 1

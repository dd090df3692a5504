"""The nearest rows, and the rows in range, held against DuckDB's own ASOF and range joins."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from lookup_hints.cache.store.full_table import Generations
from lookup_hints.cache.store.ranges import Bounds
from lookup_hints.cache.store.segment_files import StoreLimits
from lookup_hints.engine.arrow import Placed
from lookup_hints.engine.asof_and_ranges import answering
from lookup_hints.spi import OrderCondition
from tests.kinds import EXAMPLES

duckdb = pytest.importorskip("duckdb")
Pairs = list[tuple[int, int]]


def by_duckdb(sql: str, asked: pa.Table, rows: pa.Table) -> Pairs:
    """The numbers of the rows on the left and on the right that a join ties, ascending."""
    with duckdb.connect() as connection:
        connection.register("a", asked)
        connection.register("r", rows)
        return sorted(connection.sql(sql).fetchall())


KINDS = [pa.int64(), pa.date32(), pa.timestamp("us"), pa.float64(), pa.decimal128(30, 3)]
TIMES = max(10, EXAMPLES // 4)


def drawn(chance: Random, size: int, most: int, kind: pa.DataType = KINDS[0]) -> pa.Array:
    return typed([chance.choice([None, *range(most)]) for _ in range(size)], kind)


def typed(numbers: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """``numbers`` as values of ``kind``; of floating point numbers one is NaN."""
    if pa.types.is_floating(kind):
        return pa.array([nan if each == NAN else each for each in numbers], kind)
    return pa.array(numbers, pa.int32()).cast(pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)


NAN = 11


def answered(rows: pa.Table, asked: pa.Table, condition: OrderCondition) -> Pairs:
    """The same as ``by_duckdb``, as the worker finds it."""
    found = Placed(rows, rows.column("k").combine_chunks().cast(pa.int32()))
    keys, values = asked.column("k").combine_chunks().cast(pa.int32()), asked.column("t").combine_chunks()
    answers = answering(found, keys, values, condition)
    ends, numbers = [0, *answers.ends.to_pylist()], answers.rows.to_pylist()
    return sorted((at, no) for at in range(len(asked)) for no in numbers[ends[at] : ends[at + 1]])


@pytest.mark.work(10)
@pytest.mark.parametrize("operator", [">=", ">", "<=", "<"])
def test_the_nearest_row_is_that_of_duckdb(operator: str) -> None:
    chance = Random(operator)
    for number in range(TIMES):
        kind = KINDS[number % len(KINDS)]
        # No two are equal, as any of them may answer.
        pairs = chance.sample([(key, since) for key in range(4) for since in range(12)], 25)
        since = typed([since for _, since in pairs], kind)
        rows = pa.table({"no": range(25), "k": [key for key, _ in pairs], "since": since})
        asked = pa.table({"no": range(60), "k": drawn(chance, 60, 5), "t": drawn(chance, 60, 13, kind)})
        sql = f"SELECT a.no, r.no FROM a ASOF JOIN r ON a.k = r.k AND a.t {operator} r.since"
        ours = answered(rows, asked, OrderCondition("since", operator))
        assert ours == by_duckdb(sql, asked, rows), kind
        assert ours


@pytest.mark.work(10)
def test_the_rows_that_are_valid_are_those_of_duckdb() -> None:
    chance = Random(7)
    sql = "SELECT a.no, r.no FROM a JOIN r ON a.k = r.k AND a.t >= r.since AND (a.t < r.until OR r.until IS NULL)"
    for number in range(TIMES):
        kind = KINDS[number % len(KINDS)]
        since, until = (drawn(chance, 40, 13, kind) for _ in range(2))
        rows = pa.table(
            {"no": range(40), "k": [chance.randrange(4) for _ in range(40)], "since": since, "until": until}
        )
        asked = pa.table({"no": range(60), "k": drawn(chance, 60, 5), "t": drawn(chance, 60, 13, kind)})
        ours = answered(rows, asked, OrderCondition("since", until="until"))
        assert ours == by_duckdb(sql, asked, rows), kind
        assert ours


@pytest.mark.work(10)
@pytest.mark.parametrize(("start", "end"), [(">=", "<="), (">=", "<"), (">", "<="), (">", "<")])
def test_the_rows_in_range_are_those_of_duckdb(tmp_path: Path, start: str, end: str) -> None:
    chance = Random(f"{start}{end}")
    for number in range(TIMES):
        lows, highs = drawn(chance, 40, 30), drawn(chance, 40, 40)
        rows = pa.table({"no": pa.array(range(40)), "lo": lows, "hi": highs})
        asked = pa.table({"no": range(45), "t": range(45)})
        table = Generations(
            tmp_path / str(number),
            StoreLimits(),
            lambda: 1.0,
            Bounds(rows.schema, "lo", "hi", start == ">=", end == "<="),
        )
        table.load(rows.to_batches(), ())
        assert table.opened() is not None
        known = table.probe(asked.select(["t"]), ["no"])
        ours = sorted(
            (at, no)
            for found, places in known.found
            for at, no in zip(places.to_pylist(), found.column("no").to_pylist(), strict=True)
        )
        sql = f"SELECT a.no, r.no FROM a JOIN r ON a.t {start} r.lo AND a.t {end} r.hi"
        assert ours == by_duckdb(sql, asked, rows)

"""The nearest rows, and the rows in range, held against DuckDB's own ASOF and range joins."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from lookup_hints.cache.store.folder import StoreLimits
from lookup_hints.cache.store.ranges import Bounds
from lookup_hints.cache.store.whole import Generations
from lookup_hints.engine.arrow import Placed
from lookup_hints.engine.ordered import answering
from lookup_hints.spi import OrderCondition

duckdb = pytest.importorskip("duckdb")
Pairs = list[tuple[int, int]]


def by_duckdb(sql: str, asked: pa.Table, rows: pa.Table) -> Pairs:
    """The numbers of the rows on the left and on the right that a join ties, ascending."""
    with duckdb.connect() as connection:
        connection.register("a", asked)
        connection.register("r", rows)
        return sorted(connection.sql(sql).fetchall())


def drawn(chance: Random, size: int, most: int) -> pa.Array:
    return pa.array([chance.choice([None, *range(most)]) for _ in range(size)], pa.int64())


@pytest.mark.work(10)
@pytest.mark.parametrize("operator", [">=", ">", "<=", "<"])
def test_the_nearest_row_is_that_of_duckdb(operator: str) -> None:
    chance = Random(operator)
    for _ in range(10):
        pairs = chance.sample(
            [(key, since) for key in range(4) for since in range(12)], 25
        )  # no two are equal
        rows = pa.table(
            {"no": range(25), "k": [key for key, _ in pairs], "since": [since for _, since in pairs]}
        )
        asked = pa.table({"no": range(60), "k": drawn(chance, 60, 5), "t": drawn(chance, 60, 13)})
        found = Placed(rows, rows.column("k").combine_chunks().cast(pa.int32()))
        keys = asked.column("k").combine_chunks().cast(pa.int32())
        answers = answering(
            found, keys, asked.column("t").combine_chunks(), OrderCondition("since", operator)
        )
        ends, numbers = [0, *answers.ends.to_pylist()], answers.rows.to_pylist()
        ours = [(at, no) for at in range(60) for no in numbers[ends[at] : ends[at + 1]]]
        sql = f"SELECT a.no, r.no FROM a ASOF JOIN r ON a.k = r.k AND a.t {operator} r.since"
        assert sorted(ours) == by_duckdb(sql, asked, rows)
        assert ours


@pytest.mark.work(10)
@pytest.mark.parametrize(("start", "end"), [(">=", "<="), (">=", "<"), (">", "<="), (">", "<")])
def test_the_rows_in_range_are_those_of_duckdb(tmp_path: Path, start: str, end: str) -> None:
    chance = Random(f"{start}{end}")
    for number in range(10):
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

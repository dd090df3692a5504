"""How many rows a left side has, by its plan and by its files, is remembered for a minute, under the hash of its analysed plan."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

from lookup_hints.driver.table_sizes import (
    MOST_CHUNKS,
    MOST_FILES,
    MOST_REMEMBERED,
    LeftCosts,
    explained_cost,
    least_rows,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Query:
    """A frame with that analysed plan; ``explain`` tells what it prints."""

    def __init__(self, plan: int, explain: Callable[[], str]) -> None:
        self._plan, self._explain = plan, explain

    def semanticHash(self) -> int:  # noqa: N802 - PySpark's name
        return self._plan

    def explain(self, *, mode: str) -> None:
        assert mode == "cost"
        print(self._explain())


def query(plan: int, explain: Callable[[], str]) -> Any:
    return Query(plan, explain)


def ranged(rows: int) -> str:
    return f"== Optimized Logical Plan ==\nRange (0, {rows}), Statistics(sizeInBytes=1.0 B, rowCount={rows * 1000})"


def test_rows_are_remembered_for_a_minute() -> None:
    clock, numbers = Clock(), count(1)
    costs = LeftCosts(clock)
    found = []
    for clock.now in (0.0, 59.0, 60.0, 61.0):
        found.append(costs.of(query(1, lambda: ranged(next(numbers)))).rows)
    assert found == [995, 995, 1990, 1990]


def explained_anew(costs: LeftCosts, plans: Iterable[int]) -> list[int]:
    """Those of ``plans`` that Spark had to explain, one after the other."""
    asked: list[int] = []

    def explained(plan: int) -> Callable[[], str]:
        def explain() -> str:
            asked.append(plan)
            return ranged(plan)

        return explain

    for plan in plans:
        assert costs.of(query(plan, explained(plan))).rows == plan * 995
    return asked


def test_another_plan_has_rows_of_its_own() -> None:
    assert explained_anew(LeftCosts(Clock()), [1, 2, 1]) == [1, 2]


def test_only_the_last_are_kept() -> None:
    plans = range(1, MOST_REMEMBERED + 2)
    assert explained_anew(LeftCosts(Clock()), [*plans, MOST_REMEMBERED + 1, 1]) == [*plans, 1]


class OfFiles(Query):
    """A frame over files; its Spark answers DESCRIBE."""

    def __init__(self, relation: str, size: str, files: list[str], described: Mapping[str, str]) -> None:
        plan = f"== Optimized Logical Plan ==\nRelation {relation}, Statistics(sizeInBytes={size})"
        super().__init__(1, lambda: plan)
        self._files, self._described = files, described
        self.asked: list[str] = []
        self.sparkSession = self

    def inputFiles(self) -> list[str]:  # noqa: N802 - PySpark's name
        return self._files

    def sql(self, text: str) -> OfFiles:
        self.asked.append(text)
        return self

    def collect(self) -> list[dict[str, str]]:
        return [{"col_name": name, "data_type": kind} for name, kind in self._described.items()]


def rows_of(
    relation: str, size: str, files: list[str], described: Mapping[str, str] | None = None
) -> tuple[int | None, str, list[str]]:
    frame: Any = OfFiles(relation, size, files, described or {})
    found = least_rows(frame)
    return found.rows, found.source, frame.asked


def test_rows_of_parquet_files_nearby_are_those_of_their_footers(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.parquet", "b c.parquet")]
    for rows, file in enumerate(files, start=3):
        write_table(pa.table({"id": range(rows)}), file)
    uris = [file.as_uri() for file in files]
    frame: Any = OfFiles("[id#1L] parquet", "9.0 KiB", uris, {})
    assert least_rows(frame).values == {"id": 4}
    assert rows_of("[id#1L] parquet", "9.0 KiB", uris) == (7, "footers of 2 files", [])
    assert rows_of("[id#1L] parquet", "9.0 KiB", uris[:1]) == (3, "footers of 1 file", [])


@pytest.mark.parametrize(
    ("relation", "size", "files"),
    [
        ("[id#1L] orc", "9.0 KiB", ["file:///none.orc"]),
        ("[id#1L] parquet", "9.0 KiB", ["file:///none.parquet"]),
        ("[id#1L] parquet", "9.0 KiB", ["s3a://bucket/a.parquet"]),
        ("[id#1L] parquet", "9.0 KiB", [f"file:///{number}" for number in range(MOST_FILES + 1)]),
    ],
)
def test_rows_of_other_files_are_told_by_their_bytes(relation: str, size: str, files: list[str]) -> None:
    assert rows_of(relation, size, files) == (9, "EXPLAIN COST", [])


def test_wide_files_tell_their_rows_alone(tmp_path: Path) -> None:
    file = tmp_path / "wide.parquet"
    write_table(pa.table({f"c{number}": [1] for number in range(MOST_CHUNKS + 1)}), file)
    frame: Any = OfFiles("[c0#1L] parquet", "9.0 KiB", [file.as_uri()], {})
    found = least_rows(frame)
    assert (found.rows, found.values) == (1, {})


def test_files_of_large_tables_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OfFiles, "inputFiles", None)
    assert rows_of("[id#1L] parquet", "5.0 GiB", []) == (5 * 2**20, "EXPLAIN COST", [])


NO_FILES: list[str] = []
ORDERS = ("spark_catalog.shop.orders[id#1L] orc", "9.0 KiB", NO_FILES)
ASKED = ["DESCRIBE TABLE EXTENDED `spark_catalog`.`shop`.`orders`"]


def test_what_analyze_table_counted_is_known_whatever_spark_looks_at() -> None:
    counted = rows_of(*ORDERS, {"id": "bigint", "": "", "Statistics": "9216 bytes, 31000 rows"})
    assert counted == (31_000, "ANALYZE TABLE", ASKED)


@pytest.mark.parametrize(
    ("columns", "rows", "source"),
    [
        ({"id": "bigint", "at": "timestamp"}, 460, "bytes of its files, at most 20 for each row"),
        (
            {"id": "int", "# Partition Information": "", "k": "string"},
            2304,
            "bytes of its files, at most 4 for each row",
        ),
        ({"id": "bigint", "name": "string"}, 9, "EXPLAIN COST"),
    ],
)
def test_columns_of_fixed_width_say_how_many_rows_there_must_be(
    columns: dict[str, str], rows: int, source: str
) -> None:
    assert rows_of(*ORDERS, {**columns, "": "", "Statistics": "9216 bytes"}) == (rows, source, ASKED)


def test_values_in_lines_of_text_have_no_width() -> None:
    lines = ("spark_catalog.shop.orders[id#1L] csv", "9.0 KiB", NO_FILES)
    assert rows_of(*lines, {"id": "bigint"}) == (9, "EXPLAIN COST", ASKED)


def test_nothing_is_redirected_meanwhile() -> None:
    stdout, seen = io.StringIO(), []

    def explain() -> str:
        seen.append(sys.stdout)
        print("the planning thread")
        other = Thread(target=print, args=("another thread",))
        other.start()
        other.join()
        return "the plan"

    with redirect_stdout(stdout):
        assert explained_cost(query(1, explain)) == "the plan\n"
        assert seen == [stdout]
    assert stdout.getvalue() == "the planning thread\nanother thread\n"


def test_a_plan_that_cannot_be_explained_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        explained_cost(query(1, lambda: str(1 // 0)))


class ToldElsewhere(Query):
    """As if PySpark told its plans in another way."""

    def explain(self, *, mode: str) -> None:
        sys.stdout.write("the plan\n")


def test_where_pyspark_prints_no_plan_nothing_is_known_and_nothing_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told: Any = ToldElsewhere(1, str)
    assert explained_cost(told) == ""
    assert capsys.readouterr().out == ""

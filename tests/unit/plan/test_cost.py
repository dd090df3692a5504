"""What Spark's EXPLAIN COST says for certain of the rows of a left side."""

from __future__ import annotations

import pytest

from lookup_hints.plan.cost import UNKNOWN, LeftRows, certain_rows, files_of

MILLION = "Range (0, 1000000, step=1, splits=Some(2)), Statistics(sizeInBytes=7.6 MiB, rowCount=1.00E+6)"
FILE = "Relation spark_catalog.default.orders[id#5L,s#7] parquet, Statistics(sizeInBytes=2.0 GiB)"
SMALL = "LocalRelation [a#1, b#2], Statistics(sizeInBytes=32.0 B, rowCount=2)"


def explained(*lines: str) -> str:
    return "\n".join(
        ["== Optimized Logical Plan ==", *lines, "", "== Physical Plan ==", "*(1) Range (0, 1000000)", ""]
    )


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        ([MILLION], 995_000),
        ([SMALL], 1),
        ([f"Project [id#1L AS a#2L], Statistics(sizeInBytes=15.3 MiB)\n+- {MILLION}"], 995_000),
        ([FILE], 2 * 1024 * 1024),
        (["Relation [_c0#25] csv, Statistics(sizeInBytes=7.5 KiB)"], 7),
        (["Sort [id#1L ASC NULLS FIRST], true, Statistics(sizeInBytes=2.0 GiB)", f"+- {FILE}"], 2_097_152),
        (
            [
                "Union false, false, Statistics(sizeInBytes=12.1 MiB)",
                f":- {MILLION}",
                "+- Project [id#5L], Statistics(sizeInBytes=659.5 KiB)",
                "   +- Relation [id#5L] parquet, Statistics(sizeInBytes=100.0 KiB)",
            ],
            995_100,
        ),
        (
            [
                "Join LeftOuter, (k#29L = id#5L), Statistics(sizeInBytes=13.5 TiB)",
                f":- {MILLION}",
                "+- Filter isnotnull(id#5L), Statistics(sizeInBytes=2.0 GiB)",
                f"   +- {FILE}",
            ],
            995_000,
        ),
        (["Join RightOuter, true, Statistics(sizeInBytes=1.0 TiB)", f":- {SMALL}", f"+- {MILLION}"], 995_000),
        (["Join FullOuter, true, Statistics(sizeInBytes=1.0 TiB)", f":- {MILLION}", f"+- {SMALL}"], 995_000),
        (
            [
                "InMemoryRelation [a#1L], StorageLevel(disk, 1 replicas), Statistics(sizeInBytes=78.1 KiB,"
                " rowCount=5.00E+3)",
                "   +- CollectLimit 5000",
                "      +- *(1) Range (0, 1000000, step=1, splits=2)",
            ],
            4975,
        ),
    ],
)
def test_rows_that_nothing_can_take_away_are_certain(lines: list[str], rows: int) -> None:
    assert certain_rows(explained(*lines)) == LeftRows(rows, "EXPLAIN COST")


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["Filter (id#1L > 10), Statistics(sizeInBytes=7.6 MiB)", f"+- {MILLION}"],
        ["Filter (id#1L > 10), Statistics(sizeInBytes=7.6 MiB, rowCount=9.00E+5)", f"+- {MILLION}"],
        ["Aggregate [k#1L], [k#1L], Statistics(sizeInBytes=7.6 MiB)", f"+- {MILLION}"],
        ["Sample 0.0, 0.1, false, 1, Statistics(sizeInBytes=1171.9 KiB)", f"+- {MILLION}"],
        ["GlobalLimit 5, Statistics(sizeInBytes=120.0 B, rowCount=5)", f"+- {MILLION}"],
        ["Join Inner, (a#1 = b#2), Statistics(sizeInBytes=1.0 TiB)", f":- {MILLION}", f"+- {MILLION}"],
        ["Join LeftAnti, (a#1 = b#2), Statistics(sizeInBytes=1.0 MiB)", f":- {MILLION}", f"+- {MILLION}"],
        ["Generate explode(x#1), false, [c#2], Statistics(sizeInBytes=7.6 MiB)", f"+- {MILLION}"],
        ["LogicalRDD [id#30L], false, Statistics(sizeInBytes=8.0 EiB)"],
        ["Relation [id#1] JDBCRelation(orders) [numPartitions=4], Statistics(sizeInBytes=8.0 EiB)"],
        ["Relation [content#1] binaryFile, Statistics(sizeInBytes=2.0 GiB)"],
        ["StreamingRelationV2 rate, Statistics(sizeInBytes=8.0 EiB, rowCount=1.00E+9)"],
        ["LocalRelation <empty>, [a#1], Statistics(sizeInBytes=0.0 B, rowCount=0)"],
        ["Relation [id#1] parquet, Statistics(sizeInBytes=many)"],
    ],
)
def test_all_else_is_unknown(lines: list[str]) -> None:
    assert certain_rows(explained(*lines)) == LeftRows(None, UNKNOWN)


def test_files_whose_rows_are_known_count_by_them() -> None:
    lines = ["Union false, false, Statistics(sizeInBytes=12.1 MiB)", f":- {MILLION}", f"+- {FILE}"]
    asked: list[str] = []

    def counted(relation: str) -> LeftRows | None:
        asked.append(relation)
        return LeftRows(700, "footers of 2 files")

    both = LeftRows(995_700, "EXPLAIN COST, footers of 2 files")
    assert certain_rows(explained(*lines), counted) == both
    assert asked == ["Relation spark_catalog.default.orders[id#5L,s#7] parquet"]
    assert files_of(explained(*lines)) == {asked[0]: 2.0 * 2**30}


def test_what_files_tell_of_columns_is_known_by_the_names_that_they_have_there() -> None:
    def counted(_: str) -> LeftRows:
        return LeftRows(700, "footers of 2 files", {"id": 700, "s": 9, "t": 8})

    project = "Project [id#5L, s#7 AS t#8], Statistics(sizeInBytes=1.0 GiB)"
    assert certain_rows(explained(project, f"+- {FILE}"), counted).values == {"id": 700, "s": 9}


@pytest.mark.parametrize(
    "lines",
    [
        ["Filter (id#5L > 10), Statistics(sizeInBytes=2.0 GiB)", f"+- {FILE}"],
        ["Join Inner, (a#1 = b#2), Statistics(sizeInBytes=1.0 TiB)", f":- {FILE}", f"+- {FILE}"],
        ["Join LeftOuter, true, Statistics(sizeInBytes=1.0 TiB)", f":- {MILLION}", f"+- {FILE}"],
        ["Join RightOuter, true, Statistics(sizeInBytes=1.0 TiB)", f":- {FILE}", f"+- {MILLION}"],
    ],
)
def test_files_whose_rows_do_not_count_are_not_opened(lines: list[str]) -> None:
    assert certain_rows(explained(*lines), pytest.fail) == certain_rows(explained(*lines))


def test_a_text_without_the_plan_is_unknown() -> None:
    assert certain_rows("Error occurred during query planning") == LeftRows(None, UNKNOWN)

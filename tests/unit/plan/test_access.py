"""Ask or read: the decision by itself, over made-up figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from lookup_hints.plan.cost import UNKNOWN, LeftRows
from lookup_hints.plan.decide.access import FEWEST_KEYS, MOST_ROWS, AccessDecision, Case, decide, size_text
from lookup_hints.spi import TableSize
from lookup_hints.spi.lookup_options import AUTO, LOOKUP, SCAN

MILLION = TableSize(1_000_000, 68_000_000, "pg_class")
READING = "reading brings about 1,000,000 rows, 68.0 MB (pg_class)"


def left(rows: int | None) -> Callable[[], LeftRows]:
    return lambda: LeftRows(rows, UNKNOWN if rows is None else "EXPLAIN COST")


def of(size: TableSize) -> Callable[[], TableSize]:
    return lambda: size


def nobody() -> NoReturn:
    raise AssertionError("this figure decides nothing, and costs a trip")


def case(requested: str = AUTO, must_ask: str = "") -> Case:
    return Case(requested, f"'access' = '{requested}' (hint)", must_ask)


@pytest.mark.parametrize(
    ("known", "reads", "reason"),
    [
        (case(SCAN), True, "'access' = 'scan' (hint)"),
        (case(LOOKUP), False, "'access' = 'lookup' (hint)"),
        (case(must_ask="the first rows alone go to a LIMIT"), False, "the first rows alone go to a LIMIT"),
        (case(must_ask="connector 'http' answers keys only"), False, "connector 'http' answers keys only"),
        (case(SCAN, must_ask="the first rows alone go to a LIMIT"), True, "'access' = 'scan' (hint)"),
    ],
)
def test_a_clear_decision_requests_no_figures(known: Case, reads: bool, reason: str) -> None:
    assert decide(known, nobody, nobody) == AccessDecision(reads, reason)


def test_a_table_of_unknown_size_is_asked_and_spark_is_not() -> None:
    size = TableSize(None, 9_000, "never analysed")
    decision = decide(case(), of(size), nobody)
    assert decision == AccessDecision(False, "the table's rows are not known (never analysed)")


@pytest.mark.parametrize(
    ("rows", "most", "reason"),
    [
        (MOST_ROWS + 1, MOST_ROWS, "a table of more than 10,000,000 rows is not read"),
        (1_001, 1_000, "a table of more than 1,000 rows is not read"),
    ],
)
def test_a_table_that_is_too_large_to_be_read_is_asked_and_spark_is_not(
    rows: int, most: int, reason: str
) -> None:
    known = Case(AUTO, "", most_rows=most)
    decision = decide(known, of(TableSize(rows, None, "pg_class")), nobody)
    assert decision == AccessDecision(False, reason, f"reading brings about {rows:,} rows (pg_class)")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (None, f"the rows on the left are {UNKNOWN}"),
        (1_000, "1,000 rows or more on the left (EXPLAIN COST) are few"),
        (
            500_000,
            "500,000 rows or more on the left (EXPLAIN COST) are not more than 0.9 for each row of the table",
        ),
        (
            900_000,
            "900,000 rows or more on the left (EXPLAIN COST) are not more than 0.9 for each row of the table",
        ),
    ],
)
def test_keys_are_looked_up_unless_reading_is_surely_better(rows: int | None, reason: str) -> None:
    assert decide(case(), of(MILLION), left(rows)) == AccessDecision(False, reason, READING)


def test_it_is_read_where_that_is_surely_better() -> None:
    many = "900,001 rows or more on the left (EXPLAIN COST)"
    assert decide(case(), of(MILLION), left(900_001)) == AccessDecision(
        True,
        f"there are {many}, more than 0.9 for each of about 1,000,000 rows, 68.0 MB (pg_class)",
        f"asking takes a key for each of {many}, fewer where keys repeat",
    )


@pytest.mark.parametrize(("rows", "reads"), [(FEWEST_KEYS - 1, False), (FEWEST_KEYS, True)])
def test_a_few_keys_are_looked_up_even_in_a_small_table(rows: int, reads: bool) -> None:
    assert decide(case(), of(TableSize(3, 100, "counted", exact=True)), left(rows)).reads is reads


def test_an_exact_size_is_not_called_an_estimate() -> None:
    assert size_text(TableSize(3, 120, "counted", exact=True)) == "3 rows, 0.0 MB (counted)"

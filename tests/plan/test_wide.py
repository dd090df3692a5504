"""Which left rows are carried through a lookup as structs; the rows that come of it are checked in tests/e2e."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lookup_hints.plan.analysis import Columns
from lookup_hints.plan.draft import Context
from lookup_hints.plan.wide import WIDE_ROWS
from tests.plan.planning import context, planned

COLUMNS: Columns = tuple((f"c{number}", "bigint") for number in range(WIDE_ROWS))


def is_carried(text: str, using: Context | None = None) -> bool:
    sql = planned(text, using or context(analyse=COLUMNS)).sql
    return re.search(r"\(SELECT struct\(o\.\*\) AS `\w+` FROM orders o\) AS", sql) is not None


def test_a_wide_row_is_packed_before_the_lookup_and_taken_apart_behind_it() -> None:
    text = "SELECT o.*, c.name FROM orders o LEFT JOIN customers c ON o.k = c.id"
    assert planned(text, context(analyse=COLUMNS)).sql == (
        "SELECT o.*, c.name FROM (SELECT `__lookup_1`, `__lookup_3` FROM (SELECT struct(o.*) AS `__lookup_1`"
        " FROM orders o) AS `__lookup_2` JOIN LATERAL (SELECT `__lookup_1`.*) AS o LATERAL VIEW OUTER"
        " explode(ask_customers(o.k)) `__lookup_rows` AS `__lookup_3`) AS `__lookup_4`"
        " JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_3`.*) AS c"
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM orders o JOIN customers c ON o.k = c.id",
        "SELECT * FROM orders o JOIN customers c USING (id)",
        "SELECT o.* FROM orders o LEFT SEMI JOIN customers c ON o.k = c.id",
        "SELECT o.*, 1 FROM orders o LEFT JOIN customers c ON o.k = c.id LEFT JOIN texts t ON t.id = c.id",
        "SELECT * FROM (SELECT o.*, name FROM orders o JOIN customers c ON o.k = c.id) t WHERE name > 'a'",
        "INSERT INTO t SELECT o.*, c.name FROM orders o LEFT JOIN customers c ON o.k = c.id",
    ],
)
def test_where_all_columns_come_out_again(text: str) -> None:
    assert is_carried(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT o.k, c.* FROM orders o JOIN customers c ON o.k = c.id",
        "SELECT count(*) FROM orders o JOIN customers c ON o.k = c.id",
        "SELECT * FROM orders o JOIN e USING (k) JOIN customers c ON o.k = c.id",
        "SELECT * FROM (orders o JOIN customers c ON o.k = c.id)",
        "SELECT * FROM orders o, e JOIN customers c ON e.k = c.id",
        "SELECT 1 FROM e WHERE EXISTS (SELECT o.* FROM orders o JOIN customers c ON o.k = c.id AND o.w = e.w)",
        "SELECT * FROM e, LATERAL (SELECT o.* FROM orders o JOIN customers c ON o.k = c.id WHERE o.w = e.w)",
    ],
)
def test_not_elsewhere(text: str) -> None:
    assert not is_carried(text)


def test_narrow_rows_are_not() -> None:
    text = "SELECT * FROM orders o JOIN customers c ON o.k = c.id"
    assert not is_carried(text, context(analyse=COLUMNS[1:]))
    assert not is_carried(text, context())


def test_a_frames_columns_stay_its_own() -> None:
    over_frames = replace(context(analyse=COLUMNS), over_frames=True)
    assert not is_carried("SELECT * FROM orders o JOIN customers c ON o.k = c.id", over_frames)


def test_a_column_that_no_star_shows_keeps_the_row_as_it_is() -> None:
    """Spark's analysis fails where nothing but ``SELECT *`` of the table is left."""

    def analyse(sql: str) -> Columns:
        if "(SELECT * FROM orders o UNION ALL" in sql:
            raise ValueError("_metadata cannot be resolved")
        return COLUMNS

    text = "SELECT *, o._metadata.file_path FROM orders o JOIN customers c ON o.k = c.id"
    assert not is_carried(text, replace(context(), analyse=analyse))

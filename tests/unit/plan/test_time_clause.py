"""Where the time of FOR SYSTEM_TIME AS OF ends."""

from __future__ import annotations

import pytest

from lookup_hints.plan.parse.statement import Statement
from lookup_hints.sql.sql_text import SqlText


@pytest.mark.parametrize(
    "time",
    [
        "o.t",
        "(:day)",
        ":day",
        "?",
        ":day - INTERVAL 1 DAY",
        ":day::date",
        "o.t::decimal(9, 2) + 1",
        "CAST(? AS DATE)",
        "DATE '2024-01-01'",
        "current_timestamp() - INTERVAL 1 DAY",
        "-1",
        "+ o.t - -1",
        "-(o.t)",
        "o.m['a']",
        "o.m[size(o.m[0]) - 1].at[o.n % 2]::date - INTERVAL 1 DAY",
        "array(o.t, o.u)[0]",
        "struct(o.t AS t).t",
        "(o.s).t",
        "o.day || ' 00:00'",
        "CASE WHEN o.t IS NULL THEN CASE o.x WHEN 1 THEN o.u END ELSE o.t END",
        "o.t - INTERVAL -1 DAY",
        "o.t - INTERVAL '1 2' DAY TO HOUR - INTERVAL 1 DAY 2 HOURS",
    ],
)
def test_the_whole_operand_is_the_time(time: str) -> None:
    text = SqlText(f"SELECT 1 FROM o JOIN c FOR SYSTEM_TIME AS OF {time} AS x ON o.a = x.a")
    tokens = Statement(text, lambda _: None).tokens
    at = next(place for place, piece in enumerate(tokens) if piece.text == "c")
    found = tokens.time_clause(at)
    assert found is not None
    assert found.of(text) == time

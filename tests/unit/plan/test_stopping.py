"""Which lookup joins a LIMIT may stop early."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_hints.plan.explain import explain
from tests.unit.plan.planning import context, planned

JOIN = "SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id"


def stops_early(text: str) -> list[bool]:
    return [join.chosen.settings.stops_early for join in planned(text).joins]


@pytest.mark.parametrize(
    "text",
    [
        f"{JOIN} LIMIT 20",
        f"{JOIN} LIMIT 10000 OFFSET 5",
        f"{JOIN} LIMIT :few",
        f"SELECT * FROM ({JOIN}) WHERE name > 'a' LIMIT 20",
        f"WITH j AS ({JOIN}) SELECT * FROM j LIMIT 20",
        f"({JOIN}) UNION ALL SELECT 1, 'a' LIMIT 20",
        f"SELECT count(*) FROM ({JOIN} LIMIT 20)",
        f"SELECT * FROM (SELECT id, name FROM ({JOIN}) j) k WHERE id IN (SELECT max(k) FROM t) LIMIT 20",
        "FROM orders o |> JOIN customers c ON o.k = c.id |> SELECT o.id, c.name |> LIMIT 20",
    ],
)
def test_a_limit_over_rows_as_they_come_may_stop_a_join(text: str) -> None:
    assert stops_early(text) == [True]


@pytest.mark.parametrize(
    "text",
    [
        JOIN,
        f"{JOIN} LIMIT ALL",
        f"{JOIN} LIMIT 10001",
        f"{JOIN} ORDER BY c.name LIMIT 20",
        "SELECT c.name FROM orders o JOIN customers c ON o.k = c.id GROUP BY c.name LIMIT 20",
        "SELECT DISTINCT c.name FROM orders o JOIN customers c ON o.k = c.id LIMIT 20",
        "SELECT o.id, c.name FROM (SELECT * FROM orders LIMIT 20) o JOIN customers c ON o.k = c.id",
        "FROM orders o |> JOIN customers c ON o.k = c.id |> ORDER BY c.name |> LIMIT 20",
        "FROM orders o |> JOIN customers c ON o.k = c.id |> AGGREGATE count(*) AS n |> LIMIT 20",
        "SELECT count(c.name) FROM orders o JOIN customers c ON o.k = c.id LIMIT 20",
        "SELECT rank() OVER (ORDER BY c.name) FROM orders o JOIN customers c ON o.k = c.id LIMIT 20",
        f"SELECT * FROM (SELECT name, count(*) FROM ({JOIN}) GROUP BY name) LIMIT 20",
        f"SELECT * FROM (SELECT * FROM ({JOIN}) ORDER BY name) LIMIT 20",
        f"WITH j AS ({JOIN}) SELECT * FROM (SELECT * FROM j LIMIT 20) UNION ALL SELECT max(id), 'a' FROM j",
        f"SELECT id IN (SELECT j.id FROM ({JOIN}) j) FROM orders LIMIT 20",
    ],
)
def test_a_join_whose_rows_are_all_wanted_is_not_stopped(text: str) -> None:
    assert stops_early(text) == [False]


def test_each_join_of_a_statement_is_judged_by_itself() -> None:
    text = f"SELECT * FROM ({JOIN} LIMIT 20) j JOIN weather w ON w.origin = j.name"
    assert stops_early(text) == [True, False]


def test_a_statement_of_which_few_rows_will_be_taken_is_like_one_with_a_limit() -> None:
    def stops(text: str) -> list[bool]:
        found = planned(text, replace(context(), few_rows=True))
        return [join.chosen.settings.stops_early for join in found.joins]

    assert stops(JOIN) == [True]
    assert stops(f"{JOIN} ORDER BY c.name") == [False]
    assert stops(f"{JOIN} LIMIT 10001") == [True]
    assert stops(f"INSERT INTO t {JOIN}") == [False]
    assert stops(f"SELECT name, count(*) FROM ({JOIN}) GROUP BY name") == [False]
    assert stops(f"SELECT count(*) FROM ({JOIN})") == [False]
    assert stops("SELECT count(*) FROM orders o JOIN customers c ON o.k = c.id") == [False]


def test_explain_says_so() -> None:
    said = "may stop it early, so nothing is read ahead of its rows"
    assert said in explain(planned(f"{JOIN} LIMIT 20"))
    assert said not in explain(planned(JOIN))

"""Text that is nested hundreds deep: it is planned, or refused with the place; nothing foreign comes out."""

from __future__ import annotations

import pytest

from lookup_hints.errors import DdlError, UnsupportedLookup
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.tables.ddl import parse_ddl
from tests.unit.plan.planning import planned

JOIN = "SELECT 1 FROM orders o JOIN customers c ON o.k = c.id"
KEY = "SELECT 1 FROM orders o JOIN customers c ON c.id = "


def nested(opening: str, inner: str, closing: str, depth: int) -> str:
    return opening * depth + inner + closing * depth


def shapes(depth: int) -> dict[str, str]:
    exists = "SELECT 1 FROM customers c WHERE c.id = 1"
    return {
        "conditions": "SELECT 1 FROM orders o JOIN customers c ON " + nested("(", "o.k = c.id", ")", depth),
        "values": KEY.replace("1", nested("(", "o.k", ")", depth)) + "o.k",
        "relations": "SELECT 1 FROM " + nested("(", JOIN.partition("FROM ")[2], ")", depth),
        "statements": nested("(", JOIN, ")", depth),
        "derived tables": nested("SELECT 1 FROM (", JOIN, ")", depth),
        "subqueries": "SELECT 1 FROM orders WHERE x IN " + nested("(", exists, ")", depth),
        "CTEs": nested("WITH a AS (", JOIN, ") SELECT 1 FROM a", depth),
        "CASE": f"{JOIN} AND c.zip = {nested('CASE WHEN x THEN ', 'o.zip', ' END', depth)}",
        "a key of CASE": KEY + nested("CASE WHEN x THEN ", "o.k", " END", depth),
        "calls": KEY + nested("abs(", "o.k", ")", depth),
        "signs": KEY + nested("- ", "o.k", "", depth),
        "NOT": f"{JOIN} AND {nested('NOT ', 'c.zip', '', depth)}",
        "comments": nested("/*", "", "*/", depth) + JOIN,
    }


def refusal(text: str) -> UnsupportedLookup | None:
    try:
        assert planned(text).joins
    except UnsupportedLookup as error:
        return error
    return None


@pytest.mark.work(11)
@pytest.mark.parametrize("shape", shapes(1))
def test_a_statement_is_planned_or_refused_with_its_place(shape: str) -> None:
    assert refusal(shapes(30)[shape]) is None
    for depth in (500, 2000):
        refused = refusal(shapes(depth)[shape])
        assert refused is None or refused.problems[0].at is not None


def test_the_deepest_place_is_shown() -> None:
    with pytest.raises(UnsupportedLookup) as caught:
        planned(shapes(600)["derived tables"])
    (problem,) = caught.value.problems
    assert problem.message.endswith("is nested too deeply: 600 parentheses are open here.")
    assert problem.at is not None
    assert problem.at.start == len("SELECT 1 FROM (") * 600
    assert problem.tip == "Write parts of it as temporary views."


@pytest.mark.parametrize("opening", ["ARRAY<", "STRUCT<a: ", "MAP<INT, "])
def test_types_are_nested_so_deep_and_no_deeper(opening: str) -> None:
    def table(depth: int) -> str:
        return (
            f"CREATE TEMPORARY TABLE t (v {nested(opening, 'INT', '>', depth)}) WITH ('connector' = 'memory')"
        )

    assert parse_ddl(SqlText(table(100))) is not None
    with pytest.raises(DdlError, match="Types are nested here more than 100 deep") as caught:
        parse_ddl(SqlText(table(500)))
    (problem,) = caught.value.problems
    assert problem.at is not None
    assert 100 <= (problem.at.start - len("CREATE TEMPORARY TABLE t (v ")) / len(opening) <= 101

"""Planning takes twice the work for twice the joins, counted in calls of functions."""

from __future__ import annotations

import re
from cProfile import Profile

import pytest

from tests.unit.plan.planning import planned


def each(pattern: str, count: int, separator: str = " ") -> str:
    return separator.join(pattern.replace("#", str(number)) for number in range(count))


def left_joins(count: int) -> str:
    return (
        f"SELECT {each('c#.name', count, ', ')} FROM orders o"
        f" {each('LEFT JOIN customers c# ON o.k = c#.id', count)}"
    )


def stars(count: int) -> str:
    return left_joins(count).replace(".name", ".*")


def inner_joins(count: int) -> str:
    joins = each("JOIN rates r# ON o.k = r#.currency", count)
    return f"SELECT {each('r#.rate', count, ', ')} FROM orders o {joins} WHERE o.x = 1 AND r1.kind = o.kind"


def commas(count: int) -> str:
    return (
        f"SELECT {each('c#.name', count, ', ')} FROM orders o, {each('customers c#', count, ', ')}"
        f" WHERE {each('o.k = c#.id', count, ' AND ')}"
    )


def exists(count: int) -> str:
    found = each("EXISTS (SELECT 1 FROM customers c WHERE o.k# = c.id)", count, " AND ")
    return f"SELECT 1 FROM orders o WHERE {found}"


def scalars(count: int) -> str:
    found = each("(SELECT max(name) FROM customers c WHERE o.k# = c.id)", count, ", ")
    return f"SELECT {found} FROM orders o"


def blocks(count: int) -> str:
    return each("SELECT c#.name FROM orders o JOIN customers c# ON o.k = c#.id", count, " UNION ALL ")


def conditions(count: int) -> str:
    return each("c.name <> 'x#'", count, " AND ")


def terms(count: int) -> str:
    return f"SELECT 1 FROM orders o JOIN customers c ON o.k = c.id AND {conditions(count)}"


def terms_of_where(count: int) -> str:
    return f"SELECT 1 FROM orders o, customers c WHERE o.k = c.id AND {conditions(count)}"


def calls(text: str) -> int:
    profile = Profile()
    profile.runcall(planned, text)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.work(4)
@pytest.mark.parametrize(
    "shape", [left_joins, stars, inner_joins, commas, exists, scalars, blocks, terms, terms_of_where]
)
def test_twice_the_text_is_twice_the_work(shape: object) -> None:
    assert callable(shape)
    calls(shape(2))  # what is done once in a process
    few, many = calls(shape(20)), calls(shape(80))
    assert many < 5 * few


@pytest.mark.work(5)
def test_thousands_of_terms_are_read() -> None:
    (join,) = planned(terms(1500)).joins
    assert len(join.conditions.residual) == 1500


def test_many_lookup_joins_run_in_several_stages() -> None:
    sql = planned(left_joins(100)).sql
    runs = re.findall(r"(?:LATERAL VIEW OUTER inline\(ask_customers\(o\.k\)\) c\d+ ?)+", sql)
    assert [run.count("LATERAL VIEW") for run in runs] == [30, 30, 30, 10]
    assert sql.count("(SELECT /*+ REPARTITION */ struct(") == 3
    assert "REPARTITION" not in planned(left_joins(30)).sql


def test_ordinary_joins_come_before_many_lookup_joins_that_they_do_not_name() -> None:
    text = left_joins(40)
    passed = planned(
        f"{text.replace('LEFT JOIN customers c5 ', 'JOIN zips z ON z.k = o.k LEFT JOIN customers c5 ')}"
    )
    assert "FROM orders o JOIN zips z ON z.k = o.k LATERAL VIEW" in passed.sql
    named = planned(
        f"{text.replace('LEFT JOIN customers c5 ', 'JOIN zips z ON z.k = c1.id LEFT JOIN customers c5 ')}"
    )
    assert "FROM orders o LATERAL VIEW" in named.sql
    bare = planned(
        f"{text.replace('LEFT JOIN customers c5 ', 'JOIN zips z ON z.k = zip LEFT JOIN customers c5 ')}"
    )
    assert "FROM orders o LATERAL VIEW" in bare.sql

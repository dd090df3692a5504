"""Lookup joins wherever a join can stand, against Spark's own: ``shapes.sql``, one statement after the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lookup_hints.statements import split_statements
from tests.queries.test_oracle import CUSTOMERS, ORDERS, PRICES
from tests.queries.worlds import NOT_COMPILED
from tests.spark.oracle import Twins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHAPES = [
    statement.text
    for statement in split_statements((Path(__file__).parent / "shapes.sql").read_text(encoding="utf-8"))
]
# The left side of a scalar subquery is computed twice (once for its distinct keys), and with it the
# lookup joins in it.
ASKED_AGAIN = ("SELECT avg(price) FROM prices p WHERE p.k = c.id", "e.id < c.id")


@pytest.fixture(scope="module")
def twins(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    made = Twins(spark.newSession, tmp_path_factory.mktemp("shapes"))
    made.table("orders", "id INT, k BIGINT, kind STRING, total DOUBLE", ORDERS)
    made.table("zips", "zip STRING, town STRING", [("10115", "Berlin"), ("75001", "Paris")])
    rows = [(1, "10115", 1), (2, "75001", 2), (4, "75001", 3), (9, "x", 4)]
    made.table("e", "id BIGINT, zip STRING, w INT", rows)
    known = [row for row in CUSTOMERS if row[0] is not None]
    made.dimension("customers", "id BIGINT, name STRING, country STRING, zip STRING", known, key="id")
    made.dimension("prices", "k BIGINT, kind STRING, price DOUBLE", PRICES)
    for key, value in NOT_COMPILED.items():
        made.conf(key, value)
    return made


@pytest.mark.parametrize("sql", SHAPES)
def test_the_rows_are_those_of_sparks_own_join_and_no_key_is_asked_for_twice(twins: Twins, sql: str) -> None:
    check(twins, sql)


def check(twins: Twins, sql: str) -> None:
    twins.forget()
    twins.check(sql)
    uses = {name: sql.lower().count(name) for name in ("customers", "prices")}
    for name, count in uses.items():
        asked = twins.calls(name).keys
        tasks = 2 * max(count, 1) * (2 if any(each in sql for each in ASKED_AGAIN) else 1)
        assert max(asked.values(), default=0) <= tasks, f"{name} was asked {asked}; two files make two tasks"

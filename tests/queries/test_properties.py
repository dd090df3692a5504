"""Tables and queries made by Hypothesis, against Spark's own join."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.spark.oracle import Twins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEFT_COLUMNS = "id INT, i INT, l BIGINT, s STRING, d DOUBLE, m DECIMAL(10,3), t DATE"
DIM_COLUMNS = "a BIGINT, b STRING, c INT, e DOUBLE, f DECIMAL(8,2), g DATE"

# Few values, so that rows meet; among them those that must not (1.5 and 1, 1.005 and 1.01).
SMALL = [None, 0, 1, 2]
TEXTS = [None, "", "a", "A", "a ", "é", "x'y", 'q"']
DOUBLES = [None, 0.0, -0.0, 1.0, 1.5, 2.0, float("nan"), float("inf")]
DATES = [None, date(2020, 2, 29), date(1969, 12, 31)]
FINE_DECIMALS = [None, *map(Decimal, ("1.005", "1.500", "1.000", "2.000"))]
COARSE_DECIMALS = [None, *map(Decimal, ("1.01", "1.50", "1.00", "2.00"))]


def rows(random: Random, most: int, *columns: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Up to ``most`` rows of values drawn evenly: Hypothesis' own lists are short and alike."""
    return [tuple(random.choice(values) for values in columns) for _ in range(random.randrange(most))]


# Equalities: same types, and types that Spark casts where one key still stands for one value.
EQUALITIES = [
    "o.l = x.a",
    "x.a = o.i",
    "o.l = x.c",
    "o.s = x.b",
    "o.d = x.e",
    "o.i = x.e",
    "o.m = x.f",
    "o.l = x.f",
    "o.t = x.g",
    "o.d = x.c",
    "o.l + 1 = x.a",
    "upper(o.s) = x.b",
    "x.c = 2",
    "x.b = 'a'",
    "x.g = DATE '2020-02-29'",
]
RESIDUALS = [
    "x.c > 0",
    "x.b <> o.s",
    "x.e <= o.d",
    "(x.c IS NULL OR x.b LIKE 'a%')",
    "x.a BETWEEN 0 AND o.i",
    "CASE WHEN x.c > 1 AND o.i > 0 THEN true ELSE x.b = 'a' END",
    "x.c <=> o.i",
    "coalesce(x.f, 0) < 2",
    "NOT x.c = 1",
]
LEFT_ONLY = ["o.i > 0", "o.s IS NOT NULL", "(o.l = 1 OR o.d > 1)", "o.id % 2 = 0"]
SELECTS = ["*", "o.id, x.*", "o.id, x.b, x.c", "count(*) n", "x.b, count(*) n, max(o.id) m", "b, e, o.s"]
WHERES = ["", " WHERE x.c > 0", " WHERE o.id > 50", " WHERE x.b IS NULL", " WHERE o.i > 0 OR x.c > 1"]


def query(random: Random) -> str:
    """A statement with one or two lookup joins."""
    kind = random.choice(["JOIN", "LEFT JOIN", "INNER JOIN", "LEFT OUTER JOIN"])
    conditions = random.sample(EQUALITIES, random.choice([1, 1, 1, 2]))
    conditions += random.sample(RESIDUALS, random.choice([0, 0, 1, 2]))
    conditions += random.sample(LEFT_ONLY, random.choice([0, 0, 1]))
    random.shuffle(conditions)
    select = random.choice(SELECTS)
    second = ""
    if random.random() < 0.3 and select not in ("*", "b, e, o.s"):
        equality = random.choice(["y.a = x.c", "y.c = o.i AND y.b = x.b", "y.a = x.a + 1 AND y.c > 0"])
        second = f" {random.choice(['JOIN', 'LEFT JOIN'])} dims y ON {equality}"
    options = {
        "async": random.choice(["true", "false"]),
        "batch-size": random.choice(["1", "2", "1000"]),
        "output-mode": random.choice(["ordered", "allow_unordered"]),
    }
    given = ", ".join(f"'{key}'='{value}'" for key, value in options.items())
    group = " GROUP BY x.b" if select.startswith("x.b,") else ""
    return (
        f"SELECT /*+ LOOKUP('table'='x', {given}) */ {select} FROM lefts o"
        f" {kind} dims x ON {' AND '.join(conditions)}{second}{random.choice(WHERES)}{group}"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("properties")


@pytest.mark.timeout(900)
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(seed=st.integers(0, 2**32))
def test_any_query_over_any_rows(spark: SparkSession, folder: Path, seed: int) -> None:
    random = Random(seed)
    ids = range(100)
    twins = Twins(spark.newSession, folder)
    left = rows(random, 40, ids, SMALL, SMALL, TEXTS, DOUBLES, FINE_DECIMALS, DATES)
    twins.table("lefts", LEFT_COLUMNS, left, partitions=1)
    twins.dimension(
        "dims", DIM_COLUMNS, rows(random, 20, SMALL, TEXTS, SMALL, DOUBLES, COARSE_DECIMALS, DATES)
    )
    for _ in range(8):
        twins.check(query(random))

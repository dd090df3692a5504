"""What planning costs: a query of five joins beside Spark's own analysis of it, and a query without a lookup.

``python -m benchmarks.bench_planning [--runs N]``. All ways are timed in turn in one run, on a machine that
may do other things: compare the figures with each other.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.measuring import Figure, Theme, spark_session, theme
from lookup_hints import LookupSession
from lookup_hints.hints.hint_comments import lookup_hints
from lookup_hints.plan.planner import plan
from tests.unit.plan.planning import context, table

DIMENSIONS = ("customers", "products", "stores", "clerks", "days")
COLUMNS = "key BIGINT, name STRING, kind STRING, score DOUBLE"
JOINS = "\n".join(
    f"LEFT JOIN {name} AS {name[:2]} ON o.{name}_key = {name[:2]}.key AND {name[:2]}.score > o.total"
    for name in DIMENSIONS
)
NAMES = ", ".join(f"{name[:2]}.name AS {name}" for name in DIMENSIONS)
QUERY = f"SELECT o.id, o.total, {NAMES}\nFROM orders AS o\n{JOINS}\nWHERE o.total > 10 ORDER BY o.id"
ONE = "SELECT o.id, c.name FROM {} AS o LEFT JOIN {} AS c ON o.customers_key = c.key"
NEW = "(SELECT *, {} AS number FROM orders)"
PLAIN_QUERY = f"SELECT o.id, sum(o.total) AS total, {', '.join(f'o.{name}_key' for name in DIMENSIONS)}\n" + (
    f"FROM orders AS o JOIN orders AS p ON o.id = p.id\nWHERE o.total > 10 GROUP BY o.id, "
    f"{', '.join(f'o.{name}_key' for name in DIMENSIONS)} ORDER BY o.id"
)
ESTIMATED, ASKED = "one join: ask or read by price", "one join: asked, as the table says"
PRICE = "one join: what the price adds"
NEW_ESTIMATED, NEW_ASKED = f"{ESTIMATED}, left side not seen before", f"{ASKED}, left side not seen before"
NEW_PRICE = f"{PRICE}, left side not seen before"
ALONE, ADDED = "five joins: planning alone", "no lookup: what is added"
LIMITS = {ALONE: 20.0, ADDED: 1.0, PRICE: 20.0, NEW_PRICE: 20.0}
WARMING = 10
"""The first runs warm the JVM."""


def main() -> None:
    """Time every way in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    runs: int = parser.parse_args().runs
    with (
        theme("planning", "Planning: five lookup joins, and a statement without any", runs) as found,
        spark_session() as spark,
    ):
        plain, session = spark.newSession(), LookupSession(spark.newSession())
        _make_tables(plain, session)
        _report(found, _timed(_ways(plain, session), runs))


def _timed(ways: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """The median milliseconds of each way."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(runs + WARMING):
        for way, run in ways.items():
            began = time.perf_counter()
            run()
            if number >= WARMING:
                times[way].append((time.perf_counter() - began) * 1000)
    return {way: statistics.median(each) for way, each in times.items()}


def _ways(plain: SparkSession, session: LookupSession) -> dict[str, Callable[[], object]]:
    known = {name: table(name, "both", _SCHEMA, ("key",)) for name in DIMENSIONS}
    numbers = itertools.count()

    def new(text: str) -> str:
        """``text`` as nobody has read it before: neither Spark's parser nor ours shall remember it."""
        return f"{text} -- {next(numbers)}"

    def one(left: str, customers: str) -> Callable[[], object]:
        return lambda: session.prepare(new(ONE.format(left.format(next(numbers)), customers)))

    def plan_alone() -> None:
        text = new(QUERY)
        plan(text, lookup_hints(text), context(tables=known))

    return {
        ALONE: plan_alone,
        "five joins: Spark's own analysis of the same query over views": lambda: plain.sql(new(QUERY)),
        "five joins: planning, and what it asks Spark": lambda: session.prepare(new(QUERY)),
        ESTIMATED: one("orders", "priced"),
        ASKED: one("orders", "asked"),
        NEW_ESTIMATED: one(NEW, "priced"),
        NEW_ASKED: one(NEW, "asked"),
        ADDED: lambda: session.prepare(new(PLAIN_QUERY)),
        "no lookup: Spark's own analysis": lambda: plain.sql(new(PLAIN_QUERY)),
        "no lookup: both, session.sql": lambda: session.sql(new(PLAIN_QUERY)),
    }


def _report(found: Theme, medians: dict[str, float]) -> None:
    medians = {
        **medians,
        PRICE: medians[ESTIMATED] - medians[ASKED],
        NEW_PRICE: medians[NEW_ESTIMATED] - medians[NEW_ASKED],
    }
    for way, median in medians.items():
        found.add(Figure(way, median, " ms", at_most=LIMITS.get(way)))


_SCHEMA = {
    column: {"BIGINT": pa.int64(), "STRING": pa.string(), "DOUBLE": pa.float64()}[kind]
    for column, kind in (each.split() for each in COLUMNS.split(", "))
}


def _make_tables(plain: SparkSession, session: LookupSession) -> None:
    keys = ", ".join(f"id AS {name}_key" for name in DIMENSIONS)
    for spark in (plain, session.spark):
        spark.sql(f"CREATE TEMPORARY VIEW orders AS SELECT id, id * 1.5D AS total, {keys} FROM range(100)")
    nulls = ", ".join(
        f"CAST(NULL AS {column.split()[1]}) AS {column.split()[0]}" for column in COLUMNS.split(", ")
    )
    for name in DIMENSIONS:
        plain.sql(f"CREATE TEMPORARY VIEW {name} AS SELECT {nulls}")
        session.sql(
            f"CREATE TEMPORARY TABLE {name} ({COLUMNS}, PRIMARY KEY (key) NOT ENFORCED)"
            " WITH ('connector' = 'memory', 'rows' = '[]')"
        )
    for name, access in (("priced", "auto"), ("asked", "lookup")):
        session.sql(
            f"CREATE TEMPORARY TABLE {name} ({COLUMNS}, PRIMARY KEY (key) NOT ENFORCED) WITH"
            f" ('connector' = 'memory', 'rows' = '[]', 'lookup.access' = '{access}')"
        )


if __name__ == "__main__":
    main()

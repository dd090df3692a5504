"""What planning costs: queries of 1, 5 and 20 joins beside Spark's own analysis, and one without a lookup.

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
from lookup_hints.sql.sql_text import SqlText
from tests.unit.plan.planning import context, table

DIMENSIONS = ("customers", "products", "stores", "clerks", "days")
COLUMNS = "key BIGINT, name STRING, kind STRING, score DOUBLE"
COUNTS = (1, 5, 20)
"""How many joins a query has; a table may be joined several times, each time by another key."""
ONE = "SELECT o.id, c.name FROM {} AS o LEFT JOIN {} AS c ON o.key_0 = c.key"
NEW = "(SELECT *, {} AS number FROM orders)"
KEYS = ", ".join(f"o.key_{number}" for number in range(5))
PLAIN_QUERY = f"""SELECT o.id, sum(o.total) AS total, {KEYS}
FROM orders AS o JOIN orders AS p ON o.id = p.id
WHERE o.total > 10 GROUP BY o.id, {KEYS} ORDER BY o.id"""
ESTIMATED, ASKED = "one join: ask or read by price", "one join: asked, as the table says"
PRICE = "one join: what the price adds"
NEW_ESTIMATED, NEW_ASKED = f"{ESTIMATED}, left side not seen before", f"{ASKED}, left side not seen before"
NEW_PRICE = f"{PRICE}, left side not seen before"
ALONE, ADDED = "five joins: planning alone", "no lookup: what is added"
VIEWS, SURE, CHOSEN = "Spark's own analysis over views", "asked, as the tables say", "ask or read by price"
LIMITS = {ALONE: 20.0, ADDED: 1.0, PRICE: 20.0, NEW_PRICE: 20.0}
GRACE = 10.0
"""Milliseconds that a statement with lookups may take beyond its share of Spark's own time."""
TIMES_SPARK = 1.5
WARMING = 10
"""The first runs warm the JVM."""


def query(joins: int, tables: str = "") -> str:
    """A star of so many joins; ``tables`` goes before the names of its dimensions."""
    names = [f"{DIMENSIONS[number % len(DIMENSIONS)]}_{number}" for number in range(joins)]
    each = "\n".join(
        f"LEFT JOIN {tables}{name.rpartition('_')[0]} AS {name} ON o.key_{number} = {name}.key"
        f" AND {name}.score > o.total"
        for number, name in enumerate(names)
    )
    columns = ", ".join(f"{name}.name AS n{number}" for number, name in enumerate(names))
    return f"SELECT o.id, o.total, {columns}\nFROM orders AS o\n{each}\nWHERE o.total > 10 ORDER BY o.id"


def main() -> None:
    """Time every way in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    runs: int = parser.parse_args().runs
    with (
        theme("planning", "Planning: 1, 5 and 20 lookup joins, and a statement without any", runs) as found,
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
        text = new(query(5))
        plan(SqlText(text), lookup_hints(SqlText(text)), context(tables=known))

    def of_count(count: int) -> dict[str, Callable[[], object]]:
        return {
            f"star of {count}: {VIEWS}": lambda: plain.sql(new(query(count))),
            f"star of {count}: {SURE}": lambda: session.sql(new(query(count, "asked_"))),
            f"star of {count}: {CHOSEN}": lambda: session.sql(new(query(count, "priced_"))),
        }

    return {
        ALONE: plan_alone,
        **{way: run for count in COUNTS for way, run in of_count(count).items()},
        ESTIMATED: one("orders", "priced_customers"),
        ASKED: one("orders", "asked_customers"),
        NEW_ESTIMATED: one(NEW, "priced_customers"),
        NEW_ASKED: one(NEW, "asked_customers"),
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
    for count in COUNTS:
        for way in (SURE, CHOSEN):
            times = (medians[f"star of {count}: {way}"] - GRACE) / medians[f"star of {count}: {VIEWS}"]
            what = f"star of {count}: {way}, without {GRACE:g} ms / {VIEWS}"
            found.add(Figure(what, times, at_most=TIMES_SPARK))


_SCHEMA = {
    column: {"BIGINT": pa.int64(), "STRING": pa.string(), "DOUBLE": pa.float64()}[kind]
    for column, kind in (each.split() for each in COLUMNS.split(", "))
}


def _make_tables(plain: SparkSession, session: LookupSession) -> None:
    keys = ", ".join(f"id AS key_{number}" for number in range(COUNTS[-1]))
    for spark in (plain, session.spark):
        spark.sql(f"CREATE TEMPORARY VIEW orders AS SELECT id, id * 1.5D AS total, {keys} FROM range(100)")
    nulls = ", ".join(
        f"CAST(NULL AS {column.split()[1]}) AS {column.split()[0]}" for column in COLUMNS.split(", ")
    )
    for name in DIMENSIONS:
        plain.sql(f"CREATE TEMPORARY VIEW {name} AS SELECT {nulls}")
        for kind, access in (("priced", "auto"), ("asked", "lookup")):
            session.sql(
                f"CREATE TEMPORARY TABLE {kind}_{name} ({COLUMNS}, PRIMARY KEY (key) NOT ENFORCED) WITH"
                f" ('connector' = 'memory', 'rows' = '[]', 'lookup.access' = '{access}')"
            )


if __name__ == "__main__":
    main()

"""What planning costs: a query of five joins beside Spark's own analysis of it, and a query without a lookup.

``python benchmarks/bench_planning.py [--runs N]``. All ways are timed in turn in one run, on a machine that
may do other things: compare the figures with each other.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import pyarrow as pa  # noqa: E402 (the path above comes first)
from pyspark.sql import SparkSession  # noqa: E402

from lookup_hints import LookupSession  # noqa: E402
from lookup_hints.hints.validate import lookup_hints  # noqa: E402
from tests.plan.planning import context, table  # noqa: E402

DIMENSIONS = ("customers", "products", "stores", "clerks", "days")
COLUMNS = "key BIGINT, name STRING, kind STRING, score DOUBLE"
JOINS = "\n".join(
    f"LEFT JOIN {name} AS {name[:2]} ON o.{name}_key = {name[:2]}.key AND {name[:2]}.score > o.total"
    for name in DIMENSIONS
)
NAMES = ", ".join(f"{name[:2]}.name AS {name}" for name in DIMENSIONS)
QUERY = f"SELECT o.id, o.total, {NAMES}\nFROM orders AS o\n{JOINS}\nWHERE o.total > 10 ORDER BY o.id"
PLAIN_QUERY = f"SELECT o.id, sum(o.total) AS total, {', '.join(f'o.{name}_key' for name in DIMENSIONS)}\n" + (
    f"FROM orders AS o JOIN orders AS p ON o.id = p.id\nWHERE o.total > 10 GROUP BY o.id, "
    f"{', '.join(f'o.{name}_key' for name in DIMENSIONS)} ORDER BY o.id"
)


def main() -> None:
    """Time every way in turn and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    runs: int = parser.parse_args().runs
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    plain, session = spark.newSession(), LookupSession(spark.newSession())
    _make_tables(plain, session)
    ways = _ways(plain, session)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(runs + 10):
        for way, run in ways.items():
            began = time.perf_counter()
            run()
            if number >= 10:  # the first runs warm the JVM
                times[way].append((time.perf_counter() - began) * 1000)
    _report(times, runs)
    spark.stop()


def _ways(plain: SparkSession, session: LookupSession) -> dict[str, Callable[[], object]]:
    from lookup_hints.plan.planner import plan

    known = {name: table(name, "both", _SCHEMA, ("key",)) for name in DIMENSIONS}
    numbers = itertools.count()

    def new(text: str) -> str:
        """``text`` as nobody has read it before: neither Spark's parser nor ours shall remember it."""
        return f"{text} -- {next(numbers)}"

    def plan_alone() -> None:
        text = new(QUERY)
        plan(text, lookup_hints(text), context(tables=known))

    return {
        "five joins: Spark's own analysis": lambda: plain.sql(new(QUERY)),
        "five joins: our planning, without Spark": plan_alone,
        "five joins: our planning, Spark's part in it": lambda: session.prepare(new(QUERY)),
        "no lookup: Spark alone": lambda: plain.sql(new(PLAIN_QUERY)),
        "no lookup: what we add": lambda: session.prepare(new(PLAIN_QUERY)),
        "no lookup: the whole of session.sql": lambda: session.sql(new(PLAIN_QUERY)),
    }


def _report(times: dict[str, list[float]], runs: int) -> None:
    print(f"milliseconds, median and 9 of 10 of {runs} runs")
    for way, values in times.items():
        nine_of_ten = sorted(values)[int(len(values) * 0.9)]
        print(f"  {way:<46} {statistics.median(values):>8.2f} {nine_of_ten:>8.2f}")


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


if __name__ == "__main__":
    main()

"""From one core to two, and from one executor to two, against a source that is never the limit.

``python -m benchmarks.bench_scale [--rows N] [--runs N]``. The source takes 50 ms for each request of
1000 keys and works on 4 of them at once for each process, so two processes get twice as much from it: what is
measured is what we make of that. And ten times as many rows, to see that memory does not grow with them.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from benchmarks.measuring import (
    Figure,
    Sample,
    Theme,
    WorkerMemory,
    drained,
    in_turn,
    seconds,
    spark_session,
    theme,
)
from lookup_hints import LookupSession

COLUMNS = "(id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
QUERY = "SELECT o.id, c.name FROM {orders} o JOIN {table} c ON o.id = c.id"
FLAT_ROWS = (1_000_000, 10_000_000)


def main() -> None:
    """Time each size of a cluster in a session of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    title = f"Scale: {options.rows:,} rows, 50 ms for each request"
    with theme("scale", title, options.runs) as found:
        for what, one, two in (
            ("cores", "local[1]", "local[2]"),
            ("executors", "local-cluster[1,1,1024]", "local-cluster[2,1,1024]"),
        ):
            samples = {master: _steady(master, options.rows, options.runs) for master in (one, two)}
            found.times(samples, options.rows)
            times = seconds(samples[one]) / seconds(samples[two])
            found.add(Figure(f"speed of 2 {what} / of 1", times, at_least=1.7))
        _memory(found)


def _steady(master: str, rows: int, runs: int) -> list[Sample]:
    with spark_session(master, spark_executor_memory="1g") as spark:
        session = _session(spark, "Steady", ", 'batch-size' = '1000'")
        spark.range(0, rows, 1, 4).createOrReplaceTempView("orders")
        query = QUERY.format(orders="orders", table="steady")
        ways = {master: drained(session, query)}
        in_turn(ways, 1)
        return in_turn(ways, runs)[master]


def _memory(found: Theme) -> None:
    peaks = []
    for rows in FLAT_ROWS:
        with spark_session() as spark, WorkerMemory() as memory:
            session = _session(spark, "Instant", "")
            spark.range(0, rows, 1, 2).createOrReplaceTempView("orders")
            drained(session, QUERY.format(orders="orders", table="instant"))()
        peaks.append(memory.peak / 1e6)
    few, many = peaks
    found.add(Figure("largest resident size of a worker, 10 M rows", many, " MB", at_most=500.0))
    found.add(Figure("the same, 10 M rows / 1 M rows", many / few, at_most=1.25))


def _session(spark: SparkSession, kind: str, options: str) -> LookupSession:
    session = LookupSession(spark)
    session.sql(
        f"CREATE TEMPORARY TABLE {kind.lower()} {COLUMNS}"
        f" WITH ('connector' = 'benchmarks.connectors:{kind}'{options})"
    )
    return session


if __name__ == "__main__":
    main()

"""What the library itself costs: a connector that answers at once, beside a UDF that hands its keys back.

``python -m benchmarks.bench_overhead [--rows N] [--runs N]``
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from benchmarks.measuring import (
    Figure,
    cpu_ratio,
    drained,
    identity_udf,
    in_turn,
    ratio,
    spark_session,
    theme,
)
from lookup_hints import LookupSession

DDL = "CREATE TEMPORARY TABLE {name} (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
QUERY = "SELECT o.id, c.name FROM orders o JOIN instant c ON o.id = c.id"
IDENTITY = "SELECT identity(id) AS id FROM orders"


def main() -> None:
    """Time both ways in turn, and the lookup by the pandas transport."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with (
        theme("overhead", f"Overhead: {options.rows:,} rows, answered from memory", options.runs) as found,
        spark_session() as spark,
    ):
        _make_orders(spark, options.rows)
        without_lookups = spark.newSession()
        without_lookups.udf.register("identity", identity_udf())
        _make_orders(without_lookups, options.rows)
        arrow, pandas = _session(spark, "arrow"), _session(spark.newSession(), "pandas")
        _make_orders(pandas.spark, options.rows)
        ways = {
            "identity UDF": drained(without_lookups, IDENTITY),
            "lookup join": drained(arrow, QUERY),
            "lookup join, transport pandas": drained(pandas, QUERY),
        }
        in_turn(ways, 2)  # starts the workers and warms the JVM
        samples = in_turn(ways, options.runs)
        found.times(samples, options.rows)
        identity = samples["identity UDF"]
        found.add(
            Figure(
                "lookup join / identity UDF",
                ratio(samples["lookup join"], identity),
                at_most=2.5,
                note=f"processor seconds: {cpu_ratio(samples['lookup join'], identity):.2f}",
            )
        )
        found.add(
            Figure(
                "lookup join, transport pandas / identity UDF",
                ratio(samples["lookup join, transport pandas"], identity),
            )
        )


def _make_orders(spark: SparkSession, rows: int) -> None:
    """Keys in no order, nearly all of them different."""
    keys = spark.range(0, rows, 1, 2).selectExpr("xxhash64(id) AS id").localCheckpoint()
    keys.createOrReplaceTempView("orders")


def _session(spark: SparkSession, transport: str) -> LookupSession:
    session = LookupSession(spark)
    spark.conf.set("lookup.transport", transport)
    session.sql(f"{DDL.format(name='instant')} WITH ('connector' = 'benchmarks.connectors:Instant')")
    return session


if __name__ == "__main__":
    main()

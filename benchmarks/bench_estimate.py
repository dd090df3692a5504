"""What an estimate costs beside Spark's own count of distinct keys, over the same left side.

``python -m benchmarks.bench_estimate [--rows N] [--runs N]``
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.measuring import Figure, cpu_ratio, in_turn, ratio, scratch, spark_session, theme
from lookup_hints import LookupSession

KEYS = (1_000, 1_000_000, 10_000_000)
DDL = (
    "CREATE TEMPORARY TABLE numbers (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
    " WITH ('connector' = 'memory', 'rows' = '[]', 'lookup.access' = 'lookup')"
)


def main() -> None:
    """Time both in turn, for keys that repeat often, sometimes and hardly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with (
        theme("estimate", f"EXPLAIN ESTIMATE over {options.rows:,} rows", options.runs) as found,
        spark_session() as spark,
        scratch() as folder,
    ):
        session = LookupSession(spark)
        session.sql(DDL)
        for keys in KEYS:
            for place, left in _left_sides(spark, folder, options.rows, keys).items():
                ways = {"count(DISTINCT)": _count(spark, left), "estimate": _estimate(session, left)}
                in_turn(ways, 1)
                samples = in_turn(ways, options.runs)
                ours, theirs = samples["estimate"], samples["count(DISTINCT)"]
                note = f"processor seconds: {cpu_ratio(ours, theirs):.2f}"
                what = f"{place}, {keys:,} keys: estimate / count(DISTINCT key)"
                found.add(Figure(what, ratio(ours, theirs), at_most=1.3, note=note))


def _left_sides(spark: SparkSession, folder: Path, rows: int, keys: int) -> dict[str, str]:
    """The same rows computed and in files."""
    of_range = f"(SELECT (id * 7919) % {keys} AS k, id FROM range(0, {rows}, 1, 2))"
    path = folder / f"orders_{keys}"
    spark.sql(f"SELECT * FROM {of_range}").write.parquet(str(path))
    return {"range": of_range, "Parquet": f"parquet.`{path}`"}


def _count(spark: SparkSession, left: str) -> Callable[[], None]:
    def count() -> None:
        spark.sql(f"SELECT count(DISTINCT k) FROM {left}").collect()

    return count


def _estimate(session: LookupSession, left: str) -> Callable[[], None]:
    def estimate() -> None:
        session.estimate(f"SELECT p.name FROM {left} AS o LEFT JOIN numbers AS p ON p.id = o.k")

    return estimate


if __name__ == "__main__":
    main()

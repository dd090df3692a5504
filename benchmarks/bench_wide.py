"""What a lookup adds to a query over wide rows: 86 columns on the left, some of them nested, beside two.

``python -m benchmarks.bench_wide [--orders N] [--runs N] [--columns N]``. Reading and writing wide rows costs
Spark itself, and so does passing them by any UDF: each query is timed with a UDF that hands the key back in
place of the lookup, and what counts is the time that the lookup adds to that. Both are handed rows: the
session knows lookups.

What it adds is a difference of two times that move by a tenth and more from round to round, so it takes more
rounds than elsewhere, and the median difference of each width; how far that can be trusted stands beside it.
"""

from __future__ import annotations

import argparse
import random
import statistics
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.bench_postgres import COLUMNS
from benchmarks.measuring import (
    Figure,
    Sample,
    drained,
    identity_udf,
    in_turn,
    outside_jvm_ratio,
    scratch,
    spark_session,
    theme,
)
from benchmarks.postgres_raw import CUSTOMERS, customers_server
from lookup_hints import LookupSession
from tests.servers.postgres import PostgresServer

MEMORY = "4g"
"""A task holds the rows of a window, 128 thousand or some 200 MB of these, while they are looked up."""

COLUMNS_OF_WIDE = 86
"""With what is nested in them 89 fields: Spark compiles whole stages of up to 100 only."""

WARM_UP = 3
"""Rounds before it counts: the first takes nearly twice as long, while Java compiles."""

PASSED_BY = "SELECT o.*, identity(o.customer_id) AS same FROM {orders} o"
JOINED = "SELECT o.*, c.name, c.country, c.zip FROM {orders} o LEFT JOIN customers c ON o.customer_id = c.id"


def main() -> None:
    """Time both widths, with and without the lookup, in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--columns", type=int, default=COLUMNS_OF_WIDE)
    options = parser.parse_args()
    columns = options.columns
    title = f"Wide rows: {options.orders:,} orders of {columns} columns, some nested; {MEMORY} for Spark"
    name = "wide" if columns == COLUMNS_OF_WIDE else f"wide_{columns}"
    with (
        customers_server() as server,
        theme(name, title, options.runs) as found,
        scratch() as folder,
        spark_session(spark_driver_memory=MEMORY) as spark,
    ):
        _write_orders(spark, folder, options.orders, columns)
        spark.udf.register("identity", identity_udf())
        session = _session(spark, server)
        narrow = {
            "narrow, identity UDF": drained(spark, PASSED_BY.format(orders="narrow")),
            "narrow, with the lookup": drained(session, JOINED.format(orders="narrow")),
        }
        wide = {
            "wide, identity UDF": drained(spark, PASSED_BY.format(orders="wide")),
            "wide, with the lookup": drained(session, JOINED.format(orders="wide")),
        }
        in_turn(narrow | wide, WARM_UP)
        samples = in_turn(narrow | wide, options.runs)
        found.times(samples, options.orders)
        of_processors = f"processor seconds: {_added(samples, 'cpu'):.2f} ± {_spread(samples, 'cpu'):.2f}"
        note = f"± {_spread(samples, 'seconds'):.2f}; {of_processors}"
        seconds_added = _added(samples, "seconds")
        found.add(
            Figure("time that the lookup adds, wide / narrow rows", seconds_added, at_most=1.15, note=note)
        )
        outside = outside_jvm_ratio(samples["wide, with the lookup"], samples["narrow, with the lookup"])
        found.add(Figure("processor seconds of workers and PostgreSQL, wide / narrow rows", outside))


def _session(spark: SparkSession, server: PostgresServer) -> LookupSession:
    session = LookupSession(spark)
    session.sql(
        f"CREATE TEMPORARY TABLE customers ({COLUMNS}, PRIMARY KEY (id) NOT ENFORCED)"
        f" WITH ('connector' = 'postgres', 'url' = '{server.url()}')"
    )
    return session


def _added(samples: dict[str, list[Sample]], what: str) -> float:
    """What the lookup adds to wide rows over what it adds to narrow ones: medians over the rounds."""
    times = [[float(getattr(sample, what)) for sample in each] for each in samples.values()]
    narrow_without, narrow, wide_without, wide = times
    return _median_difference(wide, wide_without) / _median_difference(narrow, narrow_without)


def _spread(samples: dict[str, list[Sample]], what: str) -> float:
    """How far the figure moves when rounds are drawn anew from those measured: its standard error."""
    rounds, chance = list(zip(*samples.values(), strict=True)), random.Random(0)
    drawn = [zip(*chance.choices(rounds, k=len(rounds)), strict=True) for _ in range(1000)]
    figures = [_added(dict(zip(samples, map(list, each), strict=True)), what) for each in drawn]
    return statistics.stdev(figures)


def _median_difference(times: list[float], times_without: list[float]) -> float:
    return statistics.median(one - other for one, other in zip(times, times_without, strict=True))


def _write_orders(spark: SparkSession, folder: Path, orders: int, columns: int) -> None:
    nested = [
        "array(order_id, order_id + 1, order_id + 2) AS list",
        "map('one', order_id, 'two', order_id * 2) AS pairs",
        "named_struct('street', concat('street ', order_id), 'zip', order_id % 100000) AS address",
        "array(named_struct('item', order_id, 'price', order_id / 100)) AS items",
        "named_struct('inner', named_struct('deep', array(order_id))) AS nest",
        "timestamp_seconds(order_id) AS moment",
    ]
    plain = columns - 2 - len(nested)
    texts = [f"concat('text {number} of ', order_id) AS t{number}" for number in range(1, plain // 3 + 2)]
    numbers = [f"order_id * {number} AS n{number}" for number in range(1, plain - len(texts) + 1)]
    source = spark.range(0, orders, 1, 2).selectExpr(
        "id AS order_id", f"1 + pmod(xxhash64(id), {CUSTOMERS * 6 // 5}) AS customer_id"
    )
    wide = source.selectExpr("*", *numbers, *texts, *nested)
    assert len(wide.columns) == columns
    for name, frame in (("narrow", source), ("wide", wide)):
        frame.write.parquet(str(folder / name))
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)


if __name__ == "__main__":
    main()

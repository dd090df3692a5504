"""A million orders looked up among a million PostgreSQL customers, beside plain asyncpg doing the same keys.

``python -m benchmarks.bench_postgres [--orders N] [--runs N]``
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.measuring import (
    Figure,
    Sample,
    Theme,
    Way,
    cpu_ratio,
    drained,
    identity_udf,
    in_turn,
    ratio,
    scratch,
    spark_session,
    theme,
)
from benchmarks.postgres_raw import (
    CUSTOMERS,
    ORDERS,
    customers_server,
    order_keys,
    raw_columns,
    raw_one_by_one,
    raw_records,
    raw_sorted,
    skewed_keys,
)
from lookup_hints import LookupSession
from tests.servers.postgres import PostgresServer

COLUMNS = "id BIGINT, name STRING, country STRING, zip STRING"
QUERY = (
    "SELECT o.order_id, c.id, c.name, c.country, c.zip FROM {orders} o LEFT JOIN customers c"
    " ON o.customer_id = c.id"
)
IDENTITY = "SELECT order_id, identity(customer_id) AS customer_id FROM uniform"
ONE_BY_ONE = 20
"""One key per query is timed over this part of the orders."""

AS_THEY_COME = "asyncpg, columns, keys as they come"
SORTED = "asyncpg, columns, sorted keys"
RECORDS = "asyncpg, records"
SINGLE = "asyncpg, one key per query"
UNIFORM = "lookup join"
SKEWED = "lookup join, Zipf keys"
PANDAS = "lookup join, transport pandas"
BY_COLUMNS = "lookup join, columnarInput on"
"""With Spark 4.2's handing of Parquet's columns to Python, which makes columns of what comes back, too."""
FLOOR = "Spark's identity UDF"
"""What Spark takes to hand the same keys to Python and back, with nothing asked: asyncpg has no such part."""


def main() -> None:
    """Time all ways in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=ORDERS)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    title = f"PostgreSQL: {options.orders:,} orders, {CUSTOMERS:,} customers, 17 % misses, local[2]"
    with (
        customers_server() as server,
        theme("postgres", title, options.runs) as found,
        scratch() as folder,
        spark_session() as spark,
    ):
        keys = order_keys(options.orders)
        _report(found, in_turn(_ways(server, spark, folder, keys), options.runs), len(keys))


def _ways(server: PostgresServer, spark: SparkSession, folder: Path, keys: Sequence[int]) -> dict[str, Way]:
    write_orders(folder / "uniform", keys)
    write_orders(folder / "skewed", skewed_keys(len(keys)))
    arrow = session_with(spark, server, folder, transport="arrow")
    pandas = session_with(spark.newSession(), server, folder, transport="pandas")
    by_columns = session_with(spark.newSession(), server, folder, transport="arrow")
    by_columns.spark.conf.set("spark.sql.execution.arrow.pythonUDF.columnarInput.enabled", "true")
    without_lookups = spark.newSession()
    without_lookups.udf.register("identity", identity_udf())
    without_lookups.read.parquet(str(folder / "uniform")).createOrReplaceTempView("uniform")
    expected = raw_columns(server, keys).found
    for session in (
        arrow,
        pandas,
        by_columns,
    ):  # the answer is right; the workers are there and the JVM is warm
        for _ in range(2):
            assert _found(session, "uniform") == expected
    sample = keys[: len(keys) // ONE_BY_ONE]
    return {
        AS_THEY_COME: lambda: raw_columns(server, keys).seconds,
        SORTED: lambda: raw_sorted(server, keys).seconds,
        RECORDS: lambda: raw_records(server, keys).seconds,
        SINGLE: lambda: raw_one_by_one(server, sample).seconds * ONE_BY_ONE,
        UNIFORM: drained(arrow, QUERY.format(orders="uniform")),
        SKEWED: drained(arrow, QUERY.format(orders="skewed")),
        PANDAS: drained(pandas, QUERY.format(orders="uniform")),
        BY_COLUMNS: drained(by_columns, QUERY.format(orders="uniform")),
        FLOOR: drained(without_lookups, IDENTITY),
    }


def _report(found: Theme, samples: dict[str, list[Sample]], orders: int) -> None:
    found.times(samples, orders)
    ours = samples[UNIFORM]
    for way, at_least in ((AS_THEY_COME, 0.7), (SORTED, 0.7), (RECORDS, None), (SINGLE, 20.0)):
        cpu = "" if way == SINGLE else f"processor seconds: {cpu_ratio(samples[way], ours):.2f}"
        speed = ratio(samples[way], ours)
        found.add(Figure(f"speed of the lookup join / {way}", speed, at_least=at_least, note=cpu))
    found.add(Figure("speed with Zipf keys / with uniform keys", ratio(ours, samples[SKEWED]), at_least=1.0))
    note = f"processor seconds: {cpu_ratio(samples[FLOOR], ours):.2f}"
    found.add(Figure(f"time of {FLOOR} / of the lookup join", ratio(samples[FLOOR], ours), note=note))
    note = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled, new in Spark 4.2"
    found.add(Figure("speed with columnarInput off / on", ratio(samples[BY_COLUMNS], ours), note=note))
    found.add(Figure("speed by pandas transport / by Arrow", ratio(ours, samples[PANDAS])))


def write_orders(folder: Path, keys: Sequence[int]) -> None:
    """Orders of the customers ``keys`` as Parquet, in four row groups of two files."""
    ids = pa.array(range(len(keys)), pa.int64())
    table = pa.table({"order_id": ids, "customer_id": pa.array(keys, pa.int64())})
    half = len(keys) // 2
    folder.mkdir()
    for number, part in enumerate((table.slice(0, half), table.slice(half))):
        pq.write_table(part, folder / f"orders_{number}.parquet", row_group_size=half // 2 + 1)


def session_with(
    spark: SparkSession, server: PostgresServer, orders: Path, *, transport: str
) -> LookupSession:
    """A session that knows the customers, and every folder below ``orders`` as a view."""
    spark.conf.set("lookup.transport", transport)
    session = LookupSession(spark)
    for folder in orders.iterdir():
        spark.read.parquet(str(folder)).createOrReplaceTempView(folder.name)
    session.sql(
        f"CREATE TEMPORARY TABLE customers ({COLUMNS}, PRIMARY KEY (id) NOT ENFORCED)"
        f" WITH ('connector' = 'postgres', 'url' = '{server.url()}')"
    )
    return session


def _found(session: LookupSession, orders: str) -> int:
    query = f"SELECT count(id) AS found FROM ({QUERY.format(orders=orders)})"
    return int(session.sql(query).collect()[0].found)


if __name__ == "__main__":
    main()

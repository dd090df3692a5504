"""A million orders looked up among a million PostgreSQL customers, beside plain asyncpg doing the same keys.

``python benchmarks/bench_postgres.py [--orders N] [--runs N]``. Everything runs on this machine and in one
run, in turn; only the ratios mean something.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import pyarrow as pa  # noqa: E402 (the path above comes first)
import pyarrow.parquet as pq  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

from benchmarks.postgres_raw import (  # noqa: E402
    CUSTOMERS,
    ORDERS,
    load,
    order_keys,
    raw_columns,
    raw_one_by_one,
    raw_records,
)
from lookup_hints import LookupSession  # noqa: E402
from tests.servers.postgres import PostgresServer, running_server  # noqa: E402

QUERY = """
SELECT count(*) AS orders, count(c.id) AS found, count(DISTINCT c.country) AS countries, max(c.zip) AS zip,
       max(c.name) AS name
FROM orders o LEFT JOIN customers c ON o.customer_id = c.id
"""


def main() -> None:
    """Time all ways in turn and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=ORDERS)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    keys = order_keys(options.orders)
    with tempfile.TemporaryDirectory() as folder:
        for server in running_server():
            load(server)
            session = _session(server, _written(keys, Path(folder)))
            _looked_up(session, len(keys))  # starts the workers and warms the server
            _report(server, session, keys, options.runs)
            session.spark.stop()


def _report(server: PostgresServer, session: LookupSession, keys: Sequence[int], runs: int) -> None:
    rates: dict[str, list[float]] = {}
    sample = keys[: max(1, len(keys) // 10)]
    for _ in range(runs):
        for timing in (raw_columns(server, keys), raw_records(server, keys), raw_one_by_one(server, sample)):
            rates.setdefault(f"plain asyncpg, {timing.way}", []).append(timing.orders / timing.seconds)
        rates.setdefault("lookup join, Spark local[2]", []).append(len(keys) / _looked_up(session, len(keys)))
    medians = {way: statistics.median(values) for way, values in rates.items()}
    ours = medians["lookup join, Spark local[2]"]
    print(f"{len(keys):,} orders, {CUSTOMERS:,} customers, median of {runs}; ratio: lookup join / that way")
    for way, rate in medians.items():
        print(f"  {way:<32} {rate:>12,.0f} rows/s   {ours / rate:>8.2f}")


def _written(keys: Sequence[int], folder: Path) -> Path:
    """The orders as Parquet, in four row groups of two files."""
    ids = pa.array(range(len(keys)), pa.int64())
    table = pa.table({"order_id": ids, "customer_id": pa.array(keys, pa.int64())})
    half = len(keys) // 2
    for number, part in enumerate((table.slice(0, half), table.slice(half))):
        pq.write_table(part, folder / f"orders_{number}.parquet", row_group_size=half // 2 + 1)
    return folder


def _session(server: PostgresServer, orders: Path) -> LookupSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("bench_postgres")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.read.parquet(str(orders)).createOrReplaceTempView("orders")
    session = LookupSession(spark)
    session.sql(
        "CREATE TEMPORARY TABLE customers (id BIGINT, name STRING, country STRING, zip STRING,"
        f" PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'postgres', 'url' = '{server.url()}')"
    )
    return session


def _looked_up(session: LookupSession, orders: int) -> float:
    """Seconds that the query takes, planning included."""
    start = time.perf_counter()
    row = session.sql(QUERY).collect()[0]
    seconds = time.perf_counter() - start
    assert row.orders == orders
    assert 0 < row.found < orders
    return seconds


if __name__ == "__main__":
    main()

"""A million orders looked up among a million MariaDB customers, beside what one writes with the same driver.

``python -m benchmarks.bench_mysql [--orders N] [--runs N]``
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncmy
import pandas as pd
import psutil
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.bench_postgres import COLUMNS, QUERY, write_orders
from benchmarks.measuring import Figure, Theme, in_turn, ratio, scratch, spark_session, theme, timed
from benchmarks.postgres_raw import CUSTOMERS, ORDERS, ROW, WINDOW, order_keys
from lookup_hints import LookupSession
from tests.servers.mariadb import DATABASE, PASSWORD, SUPERUSER, MariaDbServer, running_mariadb

LOOKUP = "lookup join"
MAPPED = "mapInPandas with asyncmy"
BATCH = 1000
"""Keys of a query where one writes it by hand."""
BARE_BATCH = 1024
"""Keys of a statement of the bare loop."""


def main() -> None:
    """Time both ways in turn, and the processor time of a key."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=ORDERS)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    title = f"MariaDB: {options.orders:,} orders, {CUSTOMERS:,} customers, 17 % misses, local[2]"
    with (
        customers_server() as server,
        theme("mysql", title, options.runs) as found,
        scratch() as folder,
        spark_session() as spark,
    ):
        keys = order_keys(options.orders)
        _measure(found, server, spark, folder, keys, options.runs)


@contextmanager
def customers_server() -> Iterator[MariaDbServer]:
    """A MariaDB with the customers."""
    for server in running_mariadb("--innodb-buffer-pool-size=512M"):
        server.execute(
            "CREATE TABLE customers (id BIGINT PRIMARY KEY, name VARCHAR(40) NOT NULL,"
            " country CHAR(2) NOT NULL, zip VARCHAR(10) NOT NULL) CHARACTER SET utf8mb4;"
            "INSERT INTO customers SELECT seq, CONCAT('customer ', seq), ELT(1 + seq % 3, 'DE', 'FR', 'US'),"
            f" LPAD(seq % 100000, 5, '0') FROM seq_1_to_{CUSTOMERS}; ANALYZE TABLE customers"
        )
        yield server


def _measure(
    found: Theme, server: MariaDbServer, spark: SparkSession, folder: Path, keys: Sequence[int], runs: int
) -> None:
    write_orders(folder / "uniform", keys)
    session = LookupSession(spark)
    orders = spark.read.parquet(str(folder / "uniform"))
    orders.createOrReplaceTempView("uniform")
    session.sql(
        f"CREATE TEMPORARY TABLE customers ({COLUMNS}, PRIMARY KEY (id) NOT ENFORCED)"
        f" WITH ('connector' = 'mysql', 'url' = '{server.url()}')"
    )
    query = QUERY.format(orders="uniform")
    mapped = orders.mapInPandas(
        _enrich_by_hand(server.port), "order_id BIGINT, id BIGINT, name STRING, country STRING, zip STRING"
    )
    expected = sum(key <= CUSTOMERS for key in keys)
    for frame in (
        session.sql(query),
        mapped,
    ):  # the answer is right, and the JVM is warm
        assert frame.selectExpr("count(id)").collect()[0][0] == expected
    ways = {
        LOOKUP: lambda: session.sql(query).write.format("noop").mode("overwrite").save(),
        MAPPED: lambda: mapped.write.format("noop").mode("overwrite").save(),
    }
    samples = in_turn(ways, runs)
    found.times(samples, len(keys))
    faster = ratio(samples[MAPPED], samples[LOOKUP])
    found.add(Figure(f"speed of the lookup join / {MAPPED}", faster, at_least=1.8))
    ours, bare = [], []
    for _ in range(runs):
        ways[LOOKUP]()  # workers that were idle for a minute have ended: they start here
        ours.append(_worker_seconds(server, ways[LOOKUP]))
        bare.append(_bare_loop(server.port, keys))
    per_key = [statistics.median(each) / len(keys) * 1e6 for each in (ours, bare)]
    found.add(
        Figure(
            "processor time of workers / of a bare asyncmy loop",
            statistics.median(mine / its for mine, its in zip(ours, bare, strict=True)),
            at_most=1.5,
            note=f"{per_key[0]:.2f} and {per_key[1]:.2f} us an order",
        )
    )


def _worker_seconds(server: MariaDbServer, way: Any) -> float:
    """Processor seconds of Spark's Python workers."""
    database = psutil.Process(server.pid)

    def spent() -> float:
        times = database.cpu_times()
        return float(times.user + times.system) + time.process_time()

    before = spent()
    sample = timed(way)
    return sample.outside_jvm - (spent() - before)


def _bare_loop(port: int, keys: Sequence[int]) -> float:
    """Processor seconds of a loop over the sorted keys of each window, that ends with Arrow columns."""

    async def run() -> None:
        connection = await _connect(port)
        places = ", ".join("?" * BARE_BATCH)
        statement = await connection.prepare(
            f"SELECT {', '.join(ROW.names)} FROM customers WHERE id IN ({places})"
        )
        for window in (sorted({*keys[start : start + WINDOW]}) for start in range(0, len(keys), WINDOW)):
            for start in range(0, len(window), BARE_BATCH):
                part = window[start : start + BARE_BATCH]
                result = await statement.execute(part + part[-1:] * (BARE_BATCH - len(part)))
                columns = [*zip(*result.rows, strict=True)] if result.rows else [()] * len(ROW)
                arrays = [pa.array(each, field.type) for each, field in zip(columns, ROW, strict=True)]
                pa.table(arrays, schema=ROW)
        await connection.ensure_closed()

    start = time.process_time()
    asyncio.run(run())
    return time.process_time() - start


def _enrich_by_hand(port: int) -> Any:
    """What one writes: a connection for each partition, a query for each thousand keys, a merge."""

    def enrich(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        loop = asyncio.new_event_loop()
        connection = loop.run_until_complete(_connect(port))

        async def rows_of(ids: list[int]) -> list[Any]:
            async with connection.cursor() as cursor:
                marks = ", ".join(["%s"] * len(ids))
                await cursor.execute(
                    f"SELECT id, name, country, zip FROM customers WHERE id IN ({marks})", ids
                )
                return list(await cursor.fetchall())

        try:
            for frame in frames:
                ids = frame["customer_id"].unique().tolist()
                rows: list[Any] = []
                for start in range(0, len(ids), BATCH):
                    rows += loop.run_until_complete(rows_of(ids[start : start + BATCH]))
                customers = pd.DataFrame(rows, columns=["id", "name", "country", "zip"])
                merged = frame.merge(customers, "left", left_on="customer_id", right_on="id")
                merged["id"] = merged["id"].astype("Int64")
                yield merged[["order_id", "id", "name", "country", "zip"]]
        finally:
            connection.close()
            loop.close()

    return enrich


async def _connect(port: int) -> Any:
    return await asyncmy.connect(
        host="127.0.0.1",
        port=port,
        user=SUPERUSER,
        password=PASSWORD.encode(),
        database=DATABASE,
        autocommit=True,
    )


if __name__ == "__main__":
    main()

"""Addresses in ranges of PostgreSQL: found in the table that each executor keeps, against Spark's own join.

``python -m benchmarks.bench_ranges [--runs N] [--ranges N] [--addresses N] [--spark N]``. Ranges do not
overlap and are kept whole (``'lookup.cache' = 'FULL'``); the first run, which reads them, counts. Addresses
are numbers in Parquet files. Spark compares each address with each range, so it is given the first N of
both, and extrapolated.
"""

from __future__ import annotations

import argparse
from tempfile import TemporaryDirectory

from benchmarks.measuring import Figure, WorkerMemory, drained, in_turn, seconds, spark_session, theme, timed
from lookup_hints import LookupSession
from tests.servers.postgres import running_server

RANGES, ADDRESSES, SPARKS = 1_000_000, 10_000_000, 20_000
WIDTH = 4_000
KEPT, JOINED = "in ranges that are kept", "Spark compares each with each"
CACHED = "'lookup.cache' = 'FULL', 'lookup.full-cache.periodic-reload.interval' = '1 h'"
MOST_SECONDS = 60.0


def main() -> None:
    """Time the first lookup, more of them, and Spark's join of a part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ranges", type=int, default=RANGES)
    parser.add_argument("--addresses", type=int, default=ADDRESSES)
    parser.add_argument("--spark", type=int, default=SPARKS)
    options = parser.parse_args()
    title = f"Ranges: {options.addresses:,} addresses in {options.ranges:,} ranges"
    for server in running_server():
        server.execute(f"""
            CREATE TABLE networks (first bigint, last bigint, name text);
            INSERT INTO networks SELECT n * {WIDTH}, n * {WIDTH} + {WIDTH} * 3 / 4, 'network ' || n % 5000
            FROM generate_series(0::bigint, {options.ranges - 1}) AS n;
            ANALYZE networks
        """)
        with (
            theme("ranges", title, options.runs) as found,
            spark_session() as spark,
            TemporaryDirectory() as folder,
        ):
            session = LookupSession(spark)
            server.execute(
                f"CREATE VIEW part AS SELECT * FROM networks WHERE first < {options.spark * WIDTH}"
            )
            for name, ranges, rows, more in (
                ("networks", options.ranges, options.addresses, CACHED),
                ("part", options.spark, options.spark, "'lookup.access' = 'scan'"),
            ):
                session.sql(
                    f"CREATE TEMPORARY TABLE {name} (first BIGINT, last BIGINT, name STRING) WITH"
                    f" ('connector' = 'postgres', 'url' = '{server.url()}', 'table-name' = '{name}', {more})"
                )
                drawn = f"SELECT id, pmod(xxhash64(id), {ranges * WIDTH}) AS ip FROM range(0, {rows}, 1, 2)"
                spark.sql(drawn).write.parquet(f"{folder}/{name}")
                spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(f"hits_{name}")
            query = "SELECT h.id, n.name FROM hits_{0} h LEFT JOIN {0} n ON h.ip BETWEEN n.first AND n.last"
            ways = {
                KEPT: drained(session, query.format("networks")),
                JOINED: drained(session, query.format("part")),
            }
            spark.sql("SELECT count(*) FROM hits_networks").collect()
            with WorkerMemory() as memory:
                first = timed(ways[KEPT])
                samples = in_turn(ways, options.runs)
            found.times({"the first run": [first]}, options.addresses)
            found.times(samples, options.addresses)
            what = "seconds of the first run, which reads the ranges"
            found.add(Figure(what, first.seconds, at_most=MOST_SECONDS))
            found.add(Figure("seconds of later runs", seconds(samples[KEPT])))
            part = options.addresses / options.spark * options.ranges / options.spark
            found.add(Figure("hours of Spark's join, extrapolated", seconds(samples[JOINED]) * part / 3600))
            found.add(Figure("largest worker", memory.peak / 1e6, " MB"))


if __name__ == "__main__":
    main()

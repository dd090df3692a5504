"""Trades as of quotes in PostgreSQL: asked by key and moment, against Spark's own ASOF JOIN over all of them.

``python -m benchmarks.bench_asof [--runs N] [--quotes N] [--largest N] [--jdbc JAR]``. Quotes are of 1,000
symbols, indexed by symbol and moment, and analysed. Trades are Parquet files. The whole table is read by the
connector's own scan and, where the jar of its driver is there, by Spark's JDBC source in 4 partitions. Needs
Spark 4.3.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from benchmarks.jdbc import DEBIAN_JAR, fetching, in_parts, jdbc_reader
from benchmarks.measuring import (
    Figure,
    Theme,
    Way,
    WorkerMemory,
    drained,
    in_turn,
    ratio,
    seconds,
    spark_session,
    theme,
)
from lookup_hints import LookupSession
from tests.servers.postgres import PostgresServer, running_server

QUOTES, SYMBOLS = 10_000_000, 1_000
SIZES = (10_000, 100_000, 1_000_000)
ASKED, SCAN, JDBC = "asked as of", "connector's scan, Spark's ASOF", "Spark JDBC, Spark's ASOF"
TABLES = {ASKED: "asked", SCAN: "read", JDBC: "jdbc"}
QUERY = (
    "SELECT t.id, q.price FROM trades t LEFT ASOF JOIN {table} q MATCH_CONDITION (t.at >= q.since)"
    " ON t.symbol = q.symbol"
)
FASTER = {10_000: 50.0, 1_000_000: 4.0}
"""So many times as fast as the read by JDBC it is to be, for so many trades."""


def main() -> None:
    """Time all ways in turn for each number of trades."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quotes", type=int, default=QUOTES)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--jdbc", type=Path, default=DEBIAN_JAR)
    options = parser.parse_args()
    jar: Path | None = options.jdbc if options.jdbc.exists() else None
    conf = {"spark_jars": str(jar)} if jar else {}
    title = f"As of: {options.quotes:,} quotes of {SYMBOLS:,} symbols, up to {options.largest:,} trades"
    for server in running_server():
        _fill(server, options.quotes)
        with theme("asof", title, options.runs) as found, spark_session(**conf) as spark:
            spark.conf.set("spark.sql.join.asofJoin.enabled", "true")
            session = _session(spark, server, has_jdbc=jar is not None)
            ways = (ASKED, SCAN, JDBC) if jar else (ASKED, SCAN)
            for size in (size for size in SIZES if size <= options.largest):
                _time(found, session, ways, size, options)


def _fill(server: PostgresServer, quotes: int) -> None:
    server.execute(f"""
        CREATE TABLE quotes (symbol int, since timestamptz, price numeric(10,2));
        INSERT INTO quotes
        SELECT n % {SYMBOLS}, timestamptz '2024-01-01 00:00Z' + n * interval '1 second', n % 10007
        FROM generate_series(1, {quotes}) AS n;
        CREATE INDEX ON quotes (symbol, since);
        ANALYZE quotes
    """)


def _session(spark: SparkSession, server: PostgresServer, *, has_jdbc: bool) -> LookupSession:
    session = LookupSession(spark)
    for way, access in ((ASKED, "lookup"), (SCAN, "scan")):
        session.sql(
            f"CREATE TEMPORARY TABLE {TABLES[way]} (symbol INT, since TIMESTAMP, price DECIMAL(10,2)) WITH"
            f" ('connector' = 'postgres', 'url' = '{server.url()}', 'table-name' = 'quotes',"
            f" 'lookup.access' = '{access}')"
        )
    if has_jdbc:
        reader = in_parts(fetching(jdbc_reader(spark, server, "quotes")), "symbol", 0, SYMBOLS, 4)
        reader.load().createOrReplaceTempView(TABLES[JDBC])
    return session


def _time(
    found: Theme, session: LookupSession, ways: tuple[str, ...], size: int, options: argparse.Namespace
) -> None:
    moment = f"make_dt_interval(0, 0, 0, pmod(xxhash64(id, 1), {options.quotes}))"
    drawn = (
        f"SELECT id, CAST(pmod(xxhash64(id), {SYMBOLS}) AS INT) AS symbol,"
        f" TIMESTAMP '2024-01-01 00:00:00Z' + {moment} AS at FROM range(0, {size}, 1, 2)"
    )
    with TemporaryDirectory() as folder:
        session.spark.sql(drawn).write.parquet(f"{folder}/trades")
        session.spark.read.parquet(f"{folder}/trades").createOrReplaceTempView("trades")
        todo: dict[str, Way] = {way: drained(session, QUERY.format(table=TABLES[way])) for way in ways}
        todo[ASKED]()  # the first lookup of a session starts workers
        with WorkerMemory() as memory:
            samples = in_turn(todo, options.runs)
    print(f" {size:,} trades; largest worker {memory.peak / 1e6:,.0f} MB")
    found.times(samples, size)
    found.series[f"{size:,}"] = {way: seconds(each) for way, each in samples.items()}
    for way in ways[1:]:
        faster = ratio(samples[way], samples[ASKED])
        at_least = FASTER.get(size) if way == JDBC and options.quotes == QUOTES else None
        found.add(Figure(f"{size:,} trades: speed {ASKED} / {way}", faster, at_least=at_least))


if __name__ == "__main__":
    main()

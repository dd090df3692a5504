"""A table of PostgreSQL read whole into an aggregate, here and by Spark's JDBC source: 5 columns.

``python -m benchmarks.bench_read [--runs N] [--rows N] [--jdbc JAR]``. JDBC is timed as it
reads where nothing is said, with a fetch size, and with that in two partitions by ranges of the key.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.jdbc import DEBIAN_JAR, fetching, in_parts, jdbc_reader
from benchmarks.measuring import Figure, Way, WorkerMemory, in_turn, ratio, seconds, spark_session, theme
from benchmarks.postgres_raw import CUSTOMERS, customers_server
from lookup_hints import LookupSession
from tests.servers.postgres import PostgresServer

WHOLE, ONE_TASK = "whole table", "whole table, in one task"
JDBC, JDBC_2 = "Spark JDBC", "Spark JDBC, 2 partitions"
JDBC_TUNED = "Spark JDBC, fetchsize 10,000"
COLUMNS = "id BIGINT, name STRING, country STRING, zip STRING, since TIMESTAMP"
AGGREGATE = (
    "SELECT sum(id), sum(length(name)), sum(length(country)), sum(length(zip)), max(since) FROM {table}"
)
"""Little work for Spark, with each value of each column."""


def main() -> None:
    """Time all ways in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=CUSTOMERS)
    parser.add_argument("--jdbc", type=Path, default=DEBIAN_JAR)
    options = parser.parse_args()
    has_jdbc = options.jdbc.exists()
    if not has_jdbc:
        print(f"Spark's JDBC source is not timed: no {options.jdbc} (Debian has libpostgresql-jdbc-java)")
    conf = {"spark_jars": str(options.jdbc)} if has_jdbc else {}
    title = f"Reading a table whole: {options.rows:,} rows of 5 columns into an aggregate, local[2]"
    with (
        customers_server(options.rows) as server,
        theme("read", title, options.runs) as found,
        spark_session(**conf) as spark,
    ):
        tables = _tables(spark, server, options.rows, has_jdbc)
        ways: dict[str, Way] = {name: _summed(spark, query) for name, query in tables.items()}
        in_turn(ways, 1)
        with WorkerMemory() as memory:
            samples = in_turn(ways, options.runs)
        found.times(samples, options.rows)
        found.add(Figure("rows per second, whole table", options.rows / seconds(samples[WHOLE])))
        found.add(Figure("largest worker", memory.peak / 1e6, " MB", at_most=300.0))
        if has_jdbc:
            found.add(
                Figure(f"speed of the {WHOLE} / {JDBC}", ratio(samples[JDBC], samples[WHOLE]), at_least=2.0)
            )
            for other in (JDBC_TUNED, JDBC_2):
                found.add(Figure(f"speed of the {WHOLE} / {other}", ratio(samples[other], samples[WHOLE])))


def _summed(spark: SparkSession, query: str) -> Way:
    return lambda: spark.sql(query).collect()


def _tables(spark: SparkSession, server: PostgresServer, rows: int, has_jdbc: bool) -> dict[str, str]:
    """The query of each way."""
    session = LookupSession(spark)
    views = {WHOLE: ("scanned", ""), ONE_TASK: ("scanned_alone", ", 'lookup.scan.partitions' = '1'")}
    for view, option in views.values():
        session.sql(
            f"CREATE TEMPORARY TABLE customers_{view} ({COLUMNS}) WITH ('connector' = 'postgres',"
            f" 'url' = '{server.url()}', 'table-name' = 'customers'{option})"
        )
        session.sql(AGGREGATE.format(table=f"customers_{view}")).createOrReplaceTempView(view)
    found = {name: f"SELECT * FROM {view}" for name, (view, _) in views.items()}
    if has_jdbc:
        reader = jdbc_reader(spark, server, "customers")
        reader.load().createOrReplaceTempView("jdbc")
        reader = fetching(reader)
        reader.load().createOrReplaceTempView("jdbc_tuned")
        in_parts(reader, "id", 1, rows, 2).load().createOrReplaceTempView("jdbc_2")
        jdbc = {JDBC: "jdbc", JDBC_TUNED: "jdbc_tuned", JDBC_2: "jdbc_2"}
        found |= {name: AGGREGATE.format(table=view) for name, view in jdbc.items()}
    return found


if __name__ == "__main__":
    main()

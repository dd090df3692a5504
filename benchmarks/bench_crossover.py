"""From how many left rows on it is better to read the whole table and join: 1 k to 10 M rows, a table of 1 M.

``python -m benchmarks.bench_crossover [--runs N] [--largest N] [--jdbc JAR]``. The orders are Parquet
files that were not analysed. The whole table is read by the connector's own scan. Where the jar of its
driver is there, Spark's JDBC source reads it, too, in 4 partitions and in one. The planner's own choice
is timed beside them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from math import exp, log
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from benchmarks.bench_postgres import COLUMNS, QUERY
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
from benchmarks.postgres_raw import CUSTOMERS, IDS, customers_server
from lookup_hints import LookupSession
from tests.servers.postgres import PostgresServer

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
LOOKUP, SCAN, JDBC = "lookup join", "whole table, connector's scan", "whole table, Spark JDBC"
ONE_PART = "whole table, Spark JDBC unpartitioned"
AUTO = "as the planner chooses"
TABLES = {LOOKUP: "asked", SCAN: "read", AUTO: "customers", JDBC: "jdbc", ONE_PART: "jdbc_at_once"}
FEW_WAYS = (LOOKUP, SCAN, AUTO)
WORSE = 1.3
"""So many times as long as the better way the planner's choice may take, at every size."""
FASTER_THAN_JDBC = 1.5
"""So many times as fast as Spark's JDBC read and join the better way is to be, where most rows are needed."""
AT_MOST_FOOLED = 1.6
"""The same where the orders are not what Spark's estimates and the files' footers say."""
FOOLING = 2_000_000
FOOLED = {
    "all name one of 100 customers": ("1 + pmod(xxhash64(id % 100), {ids})", "true"),
    "a condition leaves 1 % of them": ("1 + pmod(xxhash64(id), {ids})", "pmod(xxhash64(order_id), 100) = 0"),
    "a condition leaves all of them": ("1 + pmod(xxhash64(id), {ids})", "pmod(xxhash64(order_id), 100) >= 0"),
}
"""What fools it: the customer that an order names, and which orders are asked for."""
WARM_UP = 100_000
"""More rows than this are not asked for once in vain: the smaller queries warmed everything."""


def main() -> None:
    """Time all ways in turn for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--jdbc", type=Path, default=DEBIAN_JAR)
    options = parser.parse_args()
    jar: Path | None = options.jdbc if options.jdbc.exists() else None
    if jar is None:
        print(f"Spark's JDBC source is not timed: no {options.jdbc} (Debian has libpostgresql-jdbc-java)")
    conf = {"spark_jars": str(jar)} if jar else {}
    title = f"Lookup join or whole table: {CUSTOMERS:,} customers, 1 k to {options.largest:,} orders"
    with (
        customers_server() as server,
        theme("crossover", title, options.runs) as found,
        spark_session(**conf) as spark,
    ):
        session = _session(spark, server, jar is not None)
        ways = (*FEW_WAYS, JDBC, ONE_PART) if jar else FEW_WAYS
        for size in (size for size in SIZES if size <= options.largest):
            _time(found, session, ways, size, options.runs)
        _report(found, ways)
        for what, (customer, condition) in FOOLED.items():
            _time_fooled(found, session, what, customer.format(ids=IDS), condition)


def _time_fooled(found: Theme, session: LookupSession, what: str, customer: str, condition: str) -> None:
    rows = f"(SELECT * FROM orders WHERE {condition})"
    with _orders(session, FOOLING, customer):
        samples = in_turn({way: drained(session, _query(way, rows)) for way in FEW_WAYS}, found.runs)
    found.times(samples)
    better = min((LOOKUP, SCAN), key=lambda way: seconds(samples[way]))
    worse = ratio(samples[AUTO], samples[better])
    found.add(Figure(f"{FOOLING:,} orders, {what}: {AUTO} / {better}", worse, at_most=AT_MOST_FOOLED))


@contextmanager
def _orders(session: LookupSession, size: int, customer: str) -> Iterator[None]:
    """A view of so many orders while the block runs; ``customer`` is an expression over ``id``."""
    orders = f"SELECT id AS order_id, {customer} AS customer_id FROM range(0, {size}, 1, 2)"
    with TemporaryDirectory() as folder:
        session.spark.sql(orders).write.parquet(f"{folder}/orders")
        session.spark.read.parquet(f"{folder}/orders").createOrReplaceTempView("orders")
        yield


def _time(found: Theme, session: LookupSession, ways: tuple[str, ...], size: int, runs: int) -> None:
    with _orders(session, size, f"1 + pmod(xxhash64(id), {IDS})"):
        _time_ways(found, session, ways, size, runs)


def _time_ways(found: Theme, session: LookupSession, ways: tuple[str, ...], size: int, runs: int) -> None:
    todo: dict[str, Way] = {way: drained(session, _query(way)) for way in ways}
    if size <= WARM_UP:
        in_turn(todo, 1)
    with WorkerMemory() as memory:
        samples = in_turn(todo, runs)
    print(f" {size:,} orders; largest worker {memory.peak / 1e6:,.0f} MB")
    found.times(samples, size)
    found.series[str(size)] = {way: seconds(each) for way, each in samples.items()}
    better = min((LOOKUP, SCAN), key=lambda way: seconds(samples[way]))
    chosen = ratio(samples[AUTO], samples[better])
    found.add(Figure(f"{size:,} orders: {AUTO} / {better}", chosen, at_most=WORSE))
    if JDBC in samples and size >= CUSTOMERS:
        what = f"{size:,} orders: speed as the planner chooses / Spark JDBC"
        for way, how in ((JDBC, ""), (ONE_PART, ", unpartitioned")):
            faster = ratio(samples[way], samples[AUTO])
            found.add(Figure(f"{what}{how}", faster, at_least=FASTER_THAN_JDBC))


def _query(way: str, orders: str = "orders") -> str:
    return QUERY.format(orders=orders).replace("customers c", f"{TABLES[way]} c")


def _report(found: Theme, ways: tuple[str, ...]) -> None:
    for way in (way for way in ways if way in (SCAN, JDBC)):
        found.add(Figure(f"orders from which on it is faster: {way}", _crossing(found.series, way)))
    if str(SIZES[0]) in found.series:
        few = found.series[str(SIZES[0])]
        found.add(Figure(f"{SIZES[0]:,} orders: {SCAN} / {LOOKUP}", few[SCAN] / few[LOOKUP]))


def _crossing(series: dict[str, dict[str, float]], way: str) -> float:
    """The size at which both take the same time; infinite where none was found."""
    points = [(int(size), log(times[way] / times[LOOKUP])) for size, times in series.items()]
    for (size, above), (larger, below) in pairwise(points):
        if above > 0 >= below:
            part = above / (above - below)
            return exp(log(size) + part * (log(larger) - log(size)))
    return float("inf")


def _session(spark: SparkSession, server: PostgresServer, has_jdbc: bool) -> LookupSession:
    session = LookupSession(spark)
    for way, access in ((LOOKUP, "lookup"), (SCAN, "scan"), (AUTO, "auto")):
        session.sql(
            f"CREATE TEMPORARY TABLE {TABLES[way]} ({COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) WITH"
            f" ('connector' = 'postgres', 'url' = '{server.url()}', 'table-name' = 'customers',"
            f" 'lookup.access' = '{access}')"
        )
    if has_jdbc:
        reader = fetching(jdbc_reader(spark, server, "customers"))
        reader.load().createOrReplaceTempView(TABLES[ONE_PART])
        in_parts(reader, "id", 1, CUSTOMERS, 4).load().createOrReplaceTempView(TABLES[JDBC])
    return session


if __name__ == "__main__":
    main()

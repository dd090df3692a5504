"""How long a small query waits for its lookup, how long a command starts, and how much a ``LIMIT`` asks for.

``python -m benchmarks.bench_latency [--runs N]``
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
from pyarrow.parquet import write_table
from pyspark.sql import SparkSession

from benchmarks.bench_postgres import session_with, write_orders
from benchmarks.measuring import (
    Figure,
    Sample,
    Theme,
    Way,
    drained,
    identity_udf,
    in_turn,
    ratio,
    scratch,
    seconds,
    spark_session,
    theme,
)
from benchmarks.postgres_raw import ORDERS, customers_server, order_keys
from lookup_hints import LookupSession
from tests.servers.postgres import PostgresServer

PLAIN = "SELECT o.order_id, o.customer_id FROM {orders} o"
JOINED = "SELECT o.order_id, c.name, c.country FROM {orders} o LEFT JOIN customers c ON o.customer_id = c.id"
ROW = "SELECT c.name, c.country FROM (SELECT {key} AS id) o JOIN customers c ON o.id = c.id"
FEW = 100
PAUSE = 0.3
STARTS = 5

VISITS = "CREATE TEMPORARY VIEW visits AS SELECT id, id % 50 AS person FROM range(1000)"
RESULT = "SELECT v.id, p.name FROM visits v JOIN people p ON v.person = p.id LIMIT 20"
PLAIN_JOB = """from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.sql("{visits}")
spark.read.parquet("people.parquet").createOrReplaceTempView("people")
spark.sql("{result}").show()
"""
LOOKUP_JOB = """{visits};
CREATE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'memory', 'rows' = '{rows}');
{result};
"""


def main() -> None:
    """Time a query over few rows with and without its lookup, in turn, and count what a LIMIT asks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    runs: int = parser.parse_args().runs
    with (
        customers_server() as server,
        theme("latency", f"Latency: {FEW} rows, and LIMIT 20 over {ORDERS:,}", runs) as found,
        scratch() as folder,
    ):
        with scratch() as jobs:
            _time_starts(found, jobs)
        with spark_session() as spark:
            _time_small_queries(found, spark, server, folder, runs)


def _time_starts(found: Theme, folder: Path) -> None:
    """A whole command, from its start to its end, beside a plain PySpark job with the same join."""
    people = [{"id": number, "name": f"n{number}"} for number in range(50)]
    write_table(pa.Table.from_pylist(people), folder / "people.parquet")
    rows = ", ".join(f'[{each["id"]}, "{each["name"]}"]' for each in people)
    (folder / "plain.py").write_text(PLAIN_JOB.format(visits=VISITS, result=RESULT), encoding="utf-8")
    lookup = LOOKUP_JOB.format(visits=VISITS, result=RESULT, rows=f"[{rows}]")
    (folder / "lookup.sql").write_text(lookup, encoding="utf-8")
    commands = {
        "start: plain PySpark": ["plain.py"],
        "start: lookup-hints run": ["-m", "lookup_hints.cli.main", "run", "lookup.sql"],
    }
    ways = {name: _command(arguments, folder) for name, arguments in commands.items()}
    in_turn(ways, 1)
    samples = in_turn(ways, STARTS)
    found.times(samples)
    plain, lookup_hints = samples.values()
    found.add(
        Figure("lookup-hints run / a plain PySpark job, to the end", ratio(lookup_hints, plain), at_most=1.05)
    )


def _command(arguments: list[str], folder: Path) -> Way:
    def run() -> None:
        subprocess.run([sys.executable, *arguments], cwd=folder, check=True, capture_output=True)

    return run


def _time_small_queries(
    found: Theme, spark: SparkSession, server: PostgresServer, folder: Path, runs: int
) -> None:
    keys = order_keys(ORDERS)
    write_orders(folder / "few", keys[:FEW])
    write_orders(folder / "orders", keys)
    session = session_with(spark, server, folder, transport="arrow")
    spark.udf.register("identity", identity_udf())
    ways = {
        "one row by an identity UDF": lambda: spark.sql("SELECT identity(17)").collect(),
        "one row by key": lambda: session.sql(ROW.format(key=17)).collect(),
        "without the lookup": drained(session, PLAIN.format(orders="few")),
        "with the lookup": drained(session, JOINED.format(orders="few")),
    }
    in_turn(ways, 10, PAUSE)
    samples = in_turn(ways, runs, PAUSE)
    found.times(samples)
    added = _added(samples["one row by key"], samples["one row by an identity UDF"])
    found.add(Figure("time added to an identity UDF by one row by key", added, " ms", at_most=50.0))
    added = _added(samples["with the lookup"], samples["without the lookup"])
    note = f"of {seconds(samples['with the lookup']) * 1000:.0f} ms in all, planning included"
    found.add(Figure(f"time added to {FEW} rows", added, " ms", at_most=150.0, note=note))
    requests = _asked_by_limit(session, folder / "notes")
    found.add(Figure("requests sent by LIMIT 20", len(requests), at_most=4))
    found.add(Figure("keys asked by LIMIT 20", sum(requests)))


def _added(over: list[Sample], under: list[Sample]) -> float:
    """The median over the rounds of the milliseconds that ``over`` took longer."""
    pairs = zip(over, under, strict=True)
    return statistics.median(one.seconds - other.seconds for one, other in pairs) * 1000


def _asked_by_limit(session: LookupSession, notes: Path) -> list[int]:
    """How many keys each request had."""
    session.sql(
        "CREATE TEMPORARY TABLE counted (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH"
        f" ('connector' = 'benchmarks.connectors:Counted', 'notes' = '{notes}')"
    )
    query = "SELECT o.order_id, c.name FROM orders o JOIN counted c ON o.customer_id = c.id LIMIT 20"
    assert len(session.sql(query).collect()) == 20
    return [int(line) for line in notes.read_text(encoding="ascii").splitlines()]


if __name__ == "__main__":
    main()

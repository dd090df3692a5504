"""One job whose lookups are counted, on classic Spark or Spark Connect. See ``test_counts``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lookup_hints import LookupMetrics, LookupSession, register_connector
from lookup_hints.metrics.lookup_metrics import CountsByKey, about_counts
from tests.spark.elsewhere import FailingConnector, Steps

PEOPLE = str([[number, f"name {number}"] for number in range(0, 500, 2)]).replace("'", '"')
RETRIED = (
    "LOOKUP('table'='p', 'async'='{}', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay',"
    " 'fixed-delay'='10ms', 'max-attempts'='2')"
)
CASES = ("query", "other_actions", "write", "view", "retry, async true", "retry, async false")
LUCK = {"most_in_flight", "buffer_full", "limit"}
"""Counts that tell of times, though their unit does not say so."""


def told(counts: LookupMetrics) -> dict[str, Any]:
    """All counts that do not depend on how fast things were."""
    plain = {
        name: getattr(counts, name)
        for name, about in about_counts().items()
        if about.unit != "seconds" and name not in LUCK
    }
    by_key = {name: dict(each.counts) for name, each in plain.items() if isinstance(each, CountsByKey)}
    return {**plain, **by_key, "latencies": counts.latency.total}


def scenario(spark: SparkSession, folder: Path) -> Steps:
    """All steps; each leaves what came new to the counts of its lookups."""
    step = Steps(optional=CASES)
    session = LookupSession(spark)
    register_connector("failing", FailingConnector)
    for name, options in (
        ("people", f"'connector' = 'memory', 'rows' = '{PEOPLE}'"),
        ("failing", f"'connector' = 'failing', 'password' = '-', 'log' = '{folder}/log', 'rows' = '[]'"),
    ):
        session.sql(
            f"CREATE TEMPORARY TABLE {name} (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ({options})"
        )
    orders = spark.range(0, 3000, 1, 3).selectExpr("id", "IF(id % 7 = 0, NULL, id % 600) AS person")
    orders.createOrReplaceTempView("orders")
    join = "orders o {} JOIN people p ON o.person = p.id"

    def counted(work: Callable[[], Any]) -> dict[str, dict[str, Any]]:
        before = session.metrics()
        work()
        new: dict[str, LookupMetrics] = {}
        for name, counts in session.metrics().items():
            since = counts - before.get(name, LookupMetrics())
            new[str(name)] = new.get(str(name), LookupMetrics()) + since
        return {name: told(counts) for name, counts in new.items() if counts.tasks}

    @step
    def query() -> Any:
        frame = session.sql(f"SELECT o.id, p.name FROM {join.format('')}")
        return counted(frame.collect)

    @step
    def other_actions() -> Any:
        frame = session.sql(f"SELECT o.id, p.name AS other FROM {join.format('LEFT')}")

        def act() -> None:
            frame.toPandas()
            frame.filter("other IS NULL").count()
            list(frame.toLocalIterator())
            if hasattr(frame, "toArrow"):  # from PySpark 4.0 on
                frame.toArrow()
            else:
                frame.collect()

        return counted(act)

    @step
    def write() -> Any:
        def work() -> None:
            session.sql(f"CREATE TABLE written USING parquet AS SELECT o.id, p.name FROM {join.format('')}")
            session.sql(f"INSERT INTO written SELECT o.id, 'x' FROM {join.format('LEFT SEMI')}")
            frame = session.sql(f"SELECT p.name AS written FROM {join.format('LEFT')}")
            frame.write.parquet(str(folder / "files"))
            frame.write.format("noop").mode("overwrite").save()

        return counted(work)

    @step
    def view() -> Any:
        session.sql(f"CREATE TEMPORARY VIEW named AS SELECT p.name AS viewed FROM {join.format('')}")
        return counted(lambda: spark.sql("SELECT viewed, count(*) FROM named GROUP BY viewed").collect())

    for asynchronous in ("true", "false"):
        hint = RETRIED.format(asynchronous)
        frame = session.sql(f"SELECT /*+ {hint} */ o.id, p.name AS late FROM {join.format('LEFT')}")
        step.run(f"retry, async {asynchronous}", lambda frame=frame: counted(frame.collect))  # type: ignore[misc]

    @step
    def live() -> Any:
        slow = RETRIED.format("true").replace("10ms", "1s")
        frame = session.sql(
            f"SELECT /*+ {slow} */ p.name AS live FROM range(0, 1200, 1, 6) o LEFT JOIN people p ON o.id = p.id"
        )
        seen = set()
        with session._state.functions.watching(spark) as look, ThreadPoolExecutor() as pool:
            before = sum(moment.counts.rows_in for moment in look().values())
            running = pool.submit(frame.collect)
            while not running.done():
                seen.add(sum(moment.counts.rows_in for moment in look().values()) - before)
                time.sleep(0.1)
        return sorted(seen)

    @step
    def errors() -> Any:
        hint = "LOOKUP('table'='f', 'on-error'='null')"
        text = f"SELECT /*+ {hint} */ f.name FROM orders o LEFT JOIN failing f ON o.person = f.id"
        return counted(session.sql(text).collect)

    @step
    def stream() -> Any:
        for number in range(3):
            orders.filter(f"id % 3 = {number}").coalesce(1).write.parquet(f"{folder}/in/{number}")
        spark.sql(
            "CREATE TABLE arriving (id BIGINT, person BIGINT) USING parquet"
            f" OPTIONS (path '{folder}/in', recursiveFileLookup 'true')"
        )
        session.sql("SET lookup.stream.trigger = available-now")
        session.sql(f"SET lookup.stream.checkpoint = {folder / 'checkpoint'}")

        def work() -> None:
            session.sql(
                "INSERT INTO noop SELECT p.name AS streamed"
                " FROM STREAM arriving WITH (maxFilesPerTrigger = 1) o JOIN people p ON o.person = p.id"
            )
            session.streams.await_all(60)

        total = counted(work)
        batches = [told(batch.total) for batch in session.streams.started[-1].history]
        return {**total, "batches": sorted(batches, key=str)}

    return step


if __name__ == "__main__":
    builder = SparkSession.builder
    builder = builder.remote("local[2]") if "ON_CONNECT" in os.environ else builder.master("local[2]")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    folder = Path(sys.argv[1])
    scenario(spark, folder).tell(folder)
    spark.stop()

"""The driver of the soak: one stream with three lookups, which runs until its folder holds a file ``stop``."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lookup_hints import LookupSession
from lookup_hints.streaming.streams import StartedStream
from tests.processes.soak_clock import FILE
from tests.spark.elsewhere import cluster

COUNTS = ("rows_in", "rows_found", "misses", "dead_letters")

TABLES = (
    """CREATE TEMPORARY TABLE pg (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
    'connector' = 'postgres', 'url' = '${{env:SOAK_POSTGRES}}', 'table-name' = 'people', 'lookup.access' = 'lookup',
    'retry-predicate' = 'exception', 'retry-strategy' = 'fixed_delay', 'fixed-delay' = '300 ms',
    'max-attempts' = '20', 'timeout' = '8 s', 'lookup.max-concurrency' = '4')""",
    """CREATE TEMPORARY TABLE web (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
    'connector' = 'http', 'url' = '{http}/rows/people/{{id}}', 'capacity' = '8', 'request-timeout' = '2 s',
    'retry-predicate' = 'exception', 'retry-strategy' = 'exponential_delay', 'initial-backoff' = '100 ms',
    'max-attempts' = '4', 'timeout' = '6 s', 'lookup.rate-limit' = '1000',
    'on-error' = 'dead-letter', 'lookup.dead-letter.path' = '{folder}/letters')""",
    """CREATE TEMPORARY TABLE kv (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
    'connector' = 'redis', 'url' = '${{env:SOAK_REDIS}}', 'key' = 'person:{{id}}', 'request-timeout' = '2 s',
    'retry-predicate' = 'exception', 'retry-strategy' = 'fixed_delay', 'fixed-delay' = '300 ms',
    'max-attempts' = '20', 'timeout' = '8 s', 'lookup.cache' = 'PARTIAL',
    'lookup.partial-cache.expire-after-write' = '{stale} s', 'lookup.partial-cache.max-rows' = '400')""",
)
SETTINGS = (
    "lookup.stream.trigger = processing-time 1s",
    "lookup.stream.name = soaked",
    "lookup.stream.checkpoint = {folder}/checkpoint",
    "restart-strategy.exponential-delay.initial-backoff = 200 ms",
    "restart-strategy.exponential-delay.max-backoff = 2 s",
    "restart-strategy.exponential-delay.reset-backoff-threshold = 10 s",
)
QUERY = """INSERT INTO parquet.`{folder}/out`
SELECT s.value AS id, s.timestamp AS at, p.name AS pg, h.name AS web, k.name AS kv
FROM STREAM clicks s
LEFT JOIN pg p ON pmod(s.value * 7, {keys}) = p.id
LEFT JOIN web h ON pmod(s.value * 7, {keys}) = h.id
LEFT JOIN kv k ON pmod(s.value * 7, {keys}) = k.id"""


def start(session: LookupSession, given: dict[str, Any]) -> StartedStream:
    """Start the stream."""
    session.sql(
        f"CREATE TABLE clicks USING rate OPTIONS ('rowsPerSecond' = '{given['rate']}', 'numPartitions' = '2')"
    )
    for table in TABLES:
        session.sql(table.format(**given))
    for setting in SETTINGS:
        session.sql(f"SET {setting.format(**given)}")
    session.sql(QUERY.format(**given))
    return session.streams.started[-1]


def told_counts(stream: StartedStream, first: int) -> dict[int, dict[str, dict[str, int]]]:
    """What the lookups counted in the batches from ``first`` on."""
    return {
        batch.number: {
            name.table: {count: int(getattr(counts, count)) for count in COUNTS}
            for name, counts in batch.lookups.items()
        }
        for batch in stream.history
        if batch.number >= first and batch.rows
    }


def live_heap(spark: SparkSession) -> float:
    """The megabytes that the driver's JVM holds after it has looked for garbage."""
    java = spark.sparkContext._jvm
    assert java is not None
    java.System.gc()
    runtime = java.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20


def watch(session: LookupSession, stream: StartedStream, folder: Path) -> None:
    """Write down what the stream counts, and how the driver is, until it shall stop."""
    first, heap_at = 0, 0.0
    status: dict[str, float | str] = {}
    with (folder / "counts.jsonl").open("a", encoding="utf-8") as file:
        while not (folder / "stop").exists():
            counts = told_counts(stream, first)
            file.writelines(json.dumps([number, each]) + "\n" for number, each in counts.items())
            file.flush()
            first = max(counts, default=first - 1) + 1
            if time.monotonic() > heap_at:
                heap_at = time.monotonic() + 20
                status["heap"] = live_heap(session.spark)
            status["restarts"] = len(stream.supervised.restarts)
            status["last"] = stream.supervised.restarts[-1].cause[:300] if status["restarts"] else ""
            (folder / "status.part").write_text(json.dumps(status), encoding="utf-8")
            (folder / "status.part").rename(folder / "status.json")
            session.streams.await_all(1.5)


def main(folder: Path) -> None:
    """Run the stream that ``given.json`` describes."""
    given = json.loads((folder / "given.json").read_text(encoding="utf-8"))
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "500m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.task.maxFailures": "2",  # so that some outages fail the stream, which then starts again
        "spark.python.daemon.module": "tests.processes.soak_clock",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.executorEnv.TMPDIR": str(folder / "tmp"),
        "spark.sql.streaming.numRecentProgressUpdates": "10",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.ui.retainedExecutions": "10",
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
    }
    for name in (FILE, "SOAK_POSTGRES", "SOAK_REDIS"):
        settings[f"spark.executorEnv.{name}"] = given[name]
    with cluster(given["master"], "lookup-hints-soak", settings) as spark:
        session = LookupSession(spark)
        stream = start(session, given)
        watch(session, stream, folder)
        session.streams.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""What runs on a cluster of processes; prints what came of it. See ``test_cluster``."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from lookup_hints import register_connector
from lookup_hints.spi import TEXT, ConnectorError, Option, SyncLookup
from lookup_hints.spi.request_and_answer import LookupRequest
from tests.queries.test_oracle import CUSTOMERS, ORDERS, PRICES, STATEMENTS
from tests.spark.ailing import ill_table, letters
from tests.spark.counting import Calls
from tests.spark.elsewhere import FailingConnector, OpeningConnector, Steps, cluster, names_asked
from tests.spark.oracle import Twins

CHECKED = (
    *("inner", "left", "residual", "composite key", "two lookups", "aggregate", "order by"),
    *("cte twice", "scan", "shuffle", "skip"),
)


class Whereabouts(SyncLookup):
    """Belongs to ``__main__``, as a class of a notebook does, so that workers cannot import it."""

    def lookup(self, request: LookupRequest) -> pa.Table:
        """Each key with the daemon that forked this worker; each executor has one."""
        numbers = request.keys.column("n").to_pylist()
        return pa.table({"n": numbers, "daemon": [os.getppid()] * len(numbers)}, request.schema)


class OfOneExecutor(SyncLookup):
    """A source that the driver reaches, and the executor that is there first."""

    OPTIONS = (Option("first", TEXT, "A folder that who is first makes."),)

    def open(self) -> None:
        """Go there, if the way is open."""
        if TaskContext.get() is not None:
            try:
                Path(self.table.options["first"]).mkdir()
            except FileExistsError:
                raise ConnectorError("no way leads there. Ask for one.", permanent=True) from None

    def lookup(self, request: LookupRequest) -> pa.Table:
        """Nothing is there."""
        return request.schema.empty_table()


def scenario(spark: SparkSession, folder: Path) -> Steps:
    """All steps."""
    step = Steps()
    twins = Twins(spark.newSession, folder)
    twins.table("orders", "id INT, k BIGINT, kind STRING, total DOUBLE", ORDERS)
    twins.table("zips", "zip STRING, town STRING", [("10115", "Berlin"), ("75001", "Paris")])
    twins.dimension("customers", "id BIGINT, name STRING, country STRING, zip STRING", CUSTOMERS, key="id")
    twins.dimension("prices", "k BIGINT, kind STRING, price DOUBLE", PRICES)
    session = twins.session
    register_connector("opening", OpeningConnector)
    register_connector("failing", FailingConnector)

    for name in sorted(names_asked() & set(CHECKED)):
        step.run(f"oracle: {name}", lambda name=name: len(twins.check(STATEMENTS[name])))  # type: ignore[misc]

    @step
    def times_each_key_is_asked() -> Any:
        asked = {}
        for name in ("inner", "aggregate", "order by", "cte twice"):
            twins.forget()
            session.sql(STATEMENTS[name]).collect()
            asked[name] = max(twins.calls("customers").keys.values())
        return asked

    @step
    def class_of_main() -> Any:
        register_connector("whereabouts", Whereabouts)
        session.sql(
            "CREATE TEMPORARY TABLE whereabouts (n BIGINT, daemon BIGINT) WITH ('connector' = 'whereabouts')"
        )
        joined = session.sql("SELECT w.daemon FROM range(0, 40, 1, 8) r JOIN whereabouts w ON r.id = w.n")
        return joined.count(), joined.distinct().count()

    @step
    def doctor() -> Any:
        register_connector("of_one_executor", OfOneExecutor)
        session.sql(
            "CREATE TEMPORARY TABLE of_one (n BIGINT) WITH"
            f" ('connector' = 'of_one_executor', 'first' = '{folder / 'first'}')"
        )
        return str(session.doctor("whereabouts", "of_one")).splitlines()

    @step
    def openings() -> Any:
        opened, log = folder / "opened", folder / "opened.log"
        session.sql(
            "CREATE TEMPORARY TABLE opening (id BIGINT, name STRING) WITH ('connector' = 'opening',"
            f""" 'opened' = '{opened}', 'log' = '{log}', 'rows' = '[[1, "one"]]')"""
        )
        for _ in range(3):
            session.sql("SELECT o.name FROM range(0, 40, 1, 8) r JOIN opening o ON r.id = o.id").collect()
        times = Counter(opened.read_text(encoding="utf-8").split())
        return {
            "processes": len(times),
            "most": max(times.values()),
            "requests": len(Calls.read(log).requests),
        }

    @step
    def metrics() -> Any:
        before = session.metrics()
        session.sql("SELECT o.id, c.zip FROM orders o LEFT JOIN customers c ON o.k = c.id").collect()
        (new,) = (counts for name, counts in session.metrics().items() if name not in before)
        return asdict(new)

    @step
    def a_repeated_task() -> Any:
        def fail_once(names: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            for batch in names:
                yield batch
                if context.attemptNumber() == 0 and context.partitionId() == 0:
                    raise RuntimeError("the first try fails")

        before = session.metrics()
        joined = session.sql(
            "SELECT o.id, twice.name FROM orders o LEFT JOIN customers twice ON o.k = twice.id"
        )
        rows = joined.mapInArrow(fail_once, joined.schema).count()
        (new,) = (counts for name, counts in session.metrics().items() if name not in before)
        return rows, new.rows_in, new.repeated_tasks

    @step
    def a_repeated_task_with_letters() -> Any:
        kept = folder / "letters"
        session.sql(ill_table(folder, f", 'on-error' = 'dead-letter', 'lookup.dead-letter.path' = '{kept}'"))
        seen = folder / "seen"

        def fail_once(names: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            yield from names
            if context.attemptNumber() == 0 and context.partitionId() < 2:
                # The lookup has ended, so its letters are there.
                seen.write_text(
                    " ".join(path.name for path in kept.glob("run=*/*.parquet")), encoding="utf-8"
                )
                raise RuntimeError("the first try fails")

        joined = session.sql("SELECT p.name FROM range(0, 1000, 1, 4) r LEFT JOIN people p ON r.id = p.id")
        rows = joined.mapInArrow(fail_once, joined.schema).count()
        found = sorted(json.loads(str(letter["key"]))["id"] for letter in letters(spark, kept))
        return rows, found, len(list(kept.glob("run=*/*.parquet"))), "-s" in seen.read_text(encoding="utf-8")

    @step
    def a_folder_that_cannot_be_written() -> Any:
        (folder / "a file").touch()
        hint = f"LOOKUP('table'='p', 'dead-letter.path'='{folder}/a file/letters')"
        session.sql(f"SELECT /*+ {hint} */ p.name FROM range(10) r JOIN people p ON r.id = p.id").collect()

    options = f"'connector' = 'failing', 'password' = 'hunter2', 'log' = '{folder}/failing', 'rows' = '[]'"
    session.sql(f"CREATE TEMPORARY TABLE failing (id BIGINT, name STRING) WITH ({options})")

    @step
    def failing() -> Any:
        session.sql("SELECT f.name FROM orders o JOIN failing f ON o.k = f.id").collect()

    @step
    def the_cluster_goes_on() -> Any:
        return len(twins.check(STATEMENTS["inner"]))

    return step


if __name__ == "__main__":
    settings = {
        "spark.sql.shuffle.partitions": "3",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "2",
        "spark.locality.wait": "0",
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1",
    }
    with cluster("local-cluster[2,1,1024]", "lookup-hints-cluster", settings) as spark:
        scenario(spark, Path(sys.argv[1])).tell(Path(sys.argv[1]))

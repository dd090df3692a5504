"""Streams of a client of Spark Connect. See ``test_connect_streams``."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import pyarrow as pa
from lookup_connectors.memory import MemoryConnector
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from lookup_hints import FixedDelayRestart, LookupMetrics, LookupSession, supervise
from lookup_hints.driver import metrics_collector
from lookup_hints.spi import TEXT, ConnectorError, Option
from lookup_hints.spi.request_and_answer import LookupRequest
from tests.spark.elsewhere import Steps

PEOPLE = '[[0, "Ann"], [1, "Bob"], [1, "Bea"]]'
JOIN = "SELECT v.id, p.name FROM {visits} v LEFT JOIN {people} p ON v.person = p.id"


class Unsteady(MemoryConnector):
    """Fails until its file says that it is well."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (*MemoryConnector.OPTIONS, Option("file", TEXT, "Its health."))

    def lookup(self, request: LookupRequest) -> pa.Table:
        """Fail, or answer; every failure is written down, and the third one heals."""
        file = Path(self.table.options["file"])
        failures = len(file.read_text(encoding="utf-8")) if file.exists() else 0
        if failures < 3:
            file.write_text("x" * (failures + 1), encoding="utf-8")
            raise ConnectorError("the source is away")
        return super().lookup(request)

    async def alookup(self, request: LookupRequest) -> pa.Table:
        """The same."""
        return self.lookup(request)


def scenario(spark: SparkSession, folder: Path) -> Steps:
    """All steps."""
    step = Steps()
    session = LookupSession(spark)
    for name, health in (("people", "well"), ("unsteady", "ill"), ("unsteady_too", "ill_too")):
        session.sql(
            f"CREATE TEMPORARY TABLE {name} (id BIGINT, name STRING) WITH ("
            f"'connector' = 'tests.processes.connect_streams_scenario:Unsteady', 'rows' = '{PEOPLE}',"
            f" 'file' = '{folder}/{health}')"
        )
    (folder / "well").write_text("xxx", encoding="utf-8")
    spark.range(0, 40, 1, 1).selectExpr("id", "id % 4 AS person").write.parquet(f"{folder}/visits")
    spark.sql(f"CREATE TABLE visits (id BIGINT, person BIGINT) USING parquet LOCATION '{folder}/visits'")
    session.sql("SET lookup.stream.trigger = available-now")
    session.sql("SET restart-strategy.exponential-delay.initial-backoff = 50 ms")

    def into(table: str, people: str, visits: str = "STREAM visits") -> dict[str, Any]:
        spark.sql(f"CREATE TABLE {table} (id BIGINT, name STRING) USING parquet")
        session.sql(f"SET lookup.stream.checkpoint = '{folder}/checkpoints/{table}'")
        session.sql(f"INSERT INTO {table} {JOIN.format(visits=visits, people=people)}")
        assert session.streams.await_all(120)
        expected = session.sql(JOIN.format(visits="visits", people="people"))
        rows, wanted = (Counter(map(tuple, frame.collect())) for frame in (spark.table(table), expected))
        supervised = session.streams.started[-1].supervised
        return {
            "rows": rows.total(),
            "wrong": (rows - wanted).total() + (wanted - rows).total(),
            "causes": [restart.cause for restart in supervised.restarts],
            "status": supervised.status.value,
        }

    @step
    def insert() -> Any:
        return into("enriched", "people")

    @step
    def counts() -> Any:
        into("counted", "people")
        return [[batch.rows, batch.total.rows_in] for batch in session.streams.started[-1].history]

    @step
    def counts_for_a_listener() -> Any:
        heard: list[list[int]] = []

        class Watch(StreamingQueryListener):
            def onQueryStarted(self, event: Any) -> None: ...  # noqa: N802

            def onQueryProgress(self, event: Any) -> None:  # noqa: N802
                lookups = session.streams.lookups_of(event.progress)
                if lookups:
                    heard.append(
                        [event.progress.numInputRows, sum(each.rows_in for each in lookups.values())]
                    )

            def onQueryIdle(self, event: Any) -> None: ...  # noqa: N802

            def onQueryTerminated(self, event: Any) -> None: ...  # noqa: N802

        watch = Watch()
        spark.streams.addListener(watch)
        for each in range(5):  # the counts come in a response to this thread, or to the listener's
            into(f"heard_{each}", "people")
        ended = time.monotonic()
        while len(heard) < 5 and time.monotonic() < ended + 20:
            time.sleep(0.1)
        spark.streams.removeListener(watch)
        return heard

    @step
    def counts_that_nobody_asks_for() -> Any:
        arrived = session._state.functions._application.counts
        before = sum(arrived.totals.values(), LookupMetrics()).rows_in
        frame = session.sql(JOIN.format(visits="STREAM visits", people="people"))
        with patch.object(metrics_collector, "_EVERY", 0.5):
            query = frame.writeStream.format("noop").start()
            begun = time.monotonic()
            new = 0
            while new < 40 and time.monotonic() < begun + 60:
                time.sleep(0.1)
                new = sum(arrived.totals.values(), LookupMetrics()).rows_in - before
            query.stop()
        return new

    @step
    def view_of_a_stream() -> Any:
        spark.readStream.table("visits").createOrReplaceTempView("arriving")
        return into("of_a_view", "people", "arriving")

    @step
    def restarts() -> Any:
        return into("restarted", "unsteady")

    @step
    def gives_up() -> Any:
        spark.sql("CREATE TABLE given_up (id BIGINT, name STRING) USING parquet")
        frame = session.sql(JOIN.format(visits="STREAM visits", people="unsteady_too"))
        writer = frame.writeStream.option("checkpointLocation", f"{folder}/checkpoints/given_up")
        query = supervise(
            lambda: writer.trigger(availableNow=True).toTable("given_up"), FixedDelayRestart(1, 0.05)
        )
        query.await_termination(100)

    @step
    def stopped() -> Any:
        session.sql("SET lookup.stream.trigger = processing-time 10 min")
        session.sql(f"INSERT INTO noop {JOIN.format(visits='STREAM visits', people='people')}")
        session.streams.stop()
        return session.streams.started[-1].supervised.status.value, len(spark.streams.active)

    @step
    def refused() -> Any:
        session.sql(f"SET lookup.stream.checkpoint = '{folder}/checkpoints/new'")
        session.sql(f"INSERT INTO enriched {JOIN.format(visits='STREAM visits', people='people')}")

    @step
    def refused_type() -> Any:
        spark.sql("CREATE TABLE dates (d DATE, name STRING) USING parquet")
        session.sql(f"INSERT INTO dates {JOIN.format(visits='STREAM visits', people='people')}")

    return step


if __name__ == "__main__":
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    folder = Path(sys.argv[1])
    scenario(spark, folder).tell(folder)
    spark.stop()

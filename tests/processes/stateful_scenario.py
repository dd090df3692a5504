"""Queries with state over a lookup, gone on with by one driver after another. See ``test_stream_restart``.

The argument is a folder with ``arrived/`` (files of visits), ``checkpoints/`` and ``out/``. A driver runs
each query over what has arrived since the last one, and says what the batch query over everything gives.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lookup_hints import LookupSession
from tests.spark.elsewhere import Steps

PEOPLE = '[[0, "Ann"], [1, "Bob"], [1, "Bea"], [3, "Cem"]]'
VISITS = "id BIGINT, person BIGINT, at TIMESTAMP"

AGGREGATIONS = ("windows", "distinct")
"""Their last rows stay in the state until the watermark passes them."""

QUERIES = {
    # name: the streaming query, the batch query over the same data
    "rows": (
        "SELECT v.id, p.name FROM visits v LEFT JOIN people p ON v.person = p.id",
        "SELECT v.id, p.name FROM all_visits v LEFT JOIN all_people p ON v.person = p.id",
    ),
    "windows": (
        "SELECT w.start AS start, name, n FROM (SELECT window(at, '10 seconds') AS w, p.name, count(*) AS n"
        " FROM timed v LEFT JOIN people p ON v.person = p.id GROUP BY window(at, '10 seconds'), p.name)",
        "SELECT w.start AS start, name, n FROM (SELECT window(at, '10 seconds') AS w, p.name, count(*) AS n"
        " FROM all_visits v LEFT JOIN all_people p ON v.person = p.id"
        " GROUP BY window(at, '10 seconds'), p.name)",
    ),
    "distinct": (
        "SELECT DISTINCT p.name, at FROM timed v JOIN people p ON v.person = p.id",
        "SELECT DISTINCT p.name, at FROM all_visits v JOIN all_people p ON v.person = p.id",
    ),
    "dropDuplicates": (
        "SELECT p.name, at FROM timed v JOIN people p ON v.person = p.id",
        "SELECT p.name, at FROM all_visits v JOIN all_people p ON v.person = p.id",
    ),
    "stream-stream join": (
        "SELECT a.id, a.name, b.id AS other FROM"
        " (SELECT v.id, v.at, p.name FROM timed v JOIN people p ON v.person = p.id) a"
        " JOIN again b ON a.id = b.id AND b.at BETWEEN a.at AND a.at + INTERVAL 1 SECOND",
        "SELECT a.id, a.name, a.id AS other FROM"
        " (SELECT v.id, v.at, p.name FROM all_visits v JOIN all_people p ON v.person = p.id) a",
    ),
}


def scenario(spark: SparkSession, folder: Path) -> Steps:
    """All steps."""
    step = Steps()
    session = LookupSession(spark)
    session.sql(
        f"CREATE TEMPORARY TABLE people (id BIGINT, name STRING) WITH ('connector' = 'memory', 'rows' = '{PEOPLE}')"
    )
    arrived = str(folder / "arrived")
    visits = spark.readStream.schema(VISITS).option("maxFilesPerTrigger", 2).parquet(arrived)
    visits.createOrReplaceTempView("visits")
    visits.withWatermark("at", "5 seconds").createOrReplaceTempView("timed")
    visits.withWatermark("at", "5 seconds").createOrReplaceTempView("again")
    spark.read.schema(VISITS).parquet(arrived).createOrReplaceTempView("all_visits")
    spark.sql(
        "CREATE TEMPORARY VIEW all_people AS SELECT * FROM VALUES (0L, 'Ann'), (1L, 'Bob'), (1L, 'Bea'),"
        " (3L, 'Cem') AS t(id, name)"
    )
    for name, (streaming, batch) in QUERIES.items():

        def run(name: str = name, streaming: str = streaming, batch: str = batch) -> Any:
            out, checkpoint = folder / "out" / name, folder / "checkpoints" / name
            frame, expected = session.sql(streaming), session.sql(batch)
            if name == "dropDuplicates":
                frame, expected = frame.dropDuplicates(), expected.dropDuplicates()
            writer = frame.writeStream.option("checkpointLocation", str(checkpoint))
            query = writer.format("parquet").option("path", str(out)).trigger(availableNow=True).start()
            assert query.awaitTermination(120)
            rows, wanted = (
                Counter(map(tuple, each.collect())) for each in (spark.read.parquet(str(out)), expected)
            )
            return {
                "rows": rows.total(),
                "not expected": (rows - wanted).total(),
                "missing": (wanted - rows).total(),
            }

        step.run(name, run)
    return step


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("lookup-hints-stateful")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    scenario(spark, folder).tell(folder)
    spark.stop()

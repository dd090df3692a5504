"""Rows of many columns: what Spark knows of their columns stays known behind a lookup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions

from lookup_hints import LookupSession

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS = 30


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> LookupSession:
    own = LookupSession(spark.newSession())
    numbers = [f"id * {number} AS n{number}" for number in range(COLUMNS)]
    own.spark.range(0, 5, 1, 1).selectExpr("id", *numbers).write.parquet(str(tmp_path / "orders"))
    own.spark.read.parquet(str(tmp_path / "orders")).createOrReplaceTempView("orders")
    own.sql(
        "CREATE TEMPORARY TABLE people (id BIGINT, name STRING) WITH ('connector' = 'memory',"
        " 'rows' = '[[1, \"Ann\"], [3, \"Cy\"]]')"
    )
    return own


def test_a_condition_on_the_left_reaches_the_source(session: LookupSession) -> None:
    frame = session.sql("SELECT o.*, p.name FROM orders o JOIN people p ON o.id = p.id WHERE n5 = 15")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "EqualTo(n5,15)" in plan
    assert [(row.n1, row.name) for row in frame.collect()] == [(3, "Cy")]


def test_columns_that_are_left_out_are_not_read(session: LookupSession) -> None:
    query = "SELECT o.*, p.name FROM orders o JOIN people p ON o.id = p.id"
    frame = session.sql(query)
    plan = frame.select("n2", "name")._jdf.queryExecution().executedPlan().toString()
    assert "n2" in plan
    assert "n7" not in plan


def test_columns_of_a_frame_stay_its_own(session: LookupSession) -> None:
    orders = session.spark.table("orders")
    joined = session.lookup_join(orders, "people", "id")
    assert [(row.n1, row.name) for row in joined.filter(orders.n5 == 15).collect()] == [(3, "Cy")]


def test_a_hidden_column_of_files_can_still_be_named(session: LookupSession, tmp_path: Path) -> None:
    query = (
        f"SELECT o.*, p.name, o._metadata.file_name AS file FROM parquet.`{tmp_path}/orders` o"
        " LEFT JOIN people p ON o.id = p.id"
    )
    found = session.sql(query).collect()
    assert found
    assert all(row.file.endswith(".parquet") for row in found)


def test_a_watermark_stays(session: LookupSession, tmp_path: Path) -> None:
    schema = session.spark.table("orders").schema
    stream = session.spark.readStream.schema(schema).parquet(str(tmp_path / "orders"))
    timed = stream.withColumn("moment", functions.timestamp_seconds("n0")).withWatermark("moment", "1 second")
    timed.createOrReplaceTempView("moments")
    query = "SELECT o.*, p.name FROM moments o LEFT JOIN people p ON o.id = p.id"
    counted = session.sql(query).groupBy(functions.window("moment", "1 minute")).count()
    running = (
        counted.writeStream.outputMode("append")
        .format("memory")
        .queryName("counted_moments")
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination(60)
    progress = running.lastProgress
    assert progress is not None
    assert "watermark" in progress.eventTime

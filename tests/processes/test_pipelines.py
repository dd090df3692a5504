"""Declarative Pipelines: a project of five datasets and a flow, a stream among them, run by ``spark-pipelines``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.spark.versions import SPARK

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(SPARK < (4, 1), reason="Spark has pipelines from 4.1 on"),
]

ROOT = Path(__file__).resolve().parent.parent.parent
TABLES = """
CREATE TEMPORARY TABLE customers (id BIGINT, name STRING, country STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'memory', 'rows' = '[[1, "Ann", "DE"], [2, "Bob", "US"]]');
"""
PROJECT = """
name: orders
storage: file://{folder}/storage
libraries:
  - glob:
      include: datasets/**
configuration:
  spark.lookup.init: {folder}/tables.sql
  spark.sql.shuffle.partitions: "2"
"""
DATASETS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

from lookup_hints import LookupSession

spark = SparkSession.active()
session = LookupSession(spark)


@dp.materialized_view
def orders():
    return spark.range(6).selectExpr("id AS order_id", "CAST(id % 4 AS INT) AS customer_id")


@dp.materialized_view
def named():
    return session.lookup_join(
        spark.read.table("orders"), "customers", on={"customer_id": "id"}, how="left", columns=["name"]
    )


@dp.materialized_view
def known():
    by_id = spark.read.table("orders").withColumnRenamed("customer_id", "id")
    return session.lookup_join(by_id, "customers", on="id", columns={"country": "land"})


@dp.table
def arriving():
    return spark.readStream.table("orders")


@dp.table
def strangers():
    return session.lookup_join(
        spark.readStream.table("arriving"), "customers", on={"customer_id": "id"}, how="left_anti"
    )


dp.create_streaming_table("enriched")


@dp.append_flow(target="enriched")
def enriching():
    return session.lookup_join(
        spark.readStream.table("arriving"), "customers", on={"customer_id": "id"}, capacity=7
    )


@dp.temporary_view
def refused():
    try:
        session.sql("SELECT o.*, c.name FROM orders o JOIN customers c ON o.customer_id = c.id")
    except Exception as error:
        print(f"refused: {error}", flush=True)
    return spark.read.table("orders")
"""


def test_lookup_joins_run_in_the_datasets_and_flows_of_a_pipeline(tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "tables.sql").write_text(TABLES, encoding="utf-8")
    (tmp_path / "datasets" / "orders.py").write_text(DATASETS, encoding="utf-8")
    (tmp_path / "spark-pipeline.yml").write_text(PROJECT.format(folder=tmp_path), encoding="utf-8")
    ran = subprocess.run(
        [str(Path(sys.executable).parent / "spark-pipelines"), "run"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_TESTING": "1",  # lets the server choose a free port
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=540,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:]
    assert "Run is COMPLETED" in ran.stdout
    assert "refused: SQL with lookup tables cannot be planned while a pipeline is defined" in ran.stdout

    def rows(dataset: str) -> list[tuple[object, ...]]:
        table = pq.read_table(tmp_path / "spark-warehouse" / dataset)
        return [tuple(table.column_names), *sorted(tuple(row.values()) for row in table.to_pylist())]

    assert rows("named") == [
        ("order_id", "customer_id", "name"),
        *[(0, 0, None), (1, 1, "Ann"), (2, 2, "Bob"), (3, 3, None), (4, 0, None), (5, 1, "Ann")],
    ]
    assert rows("known") == [("id", "order_id", "land"), (1, 1, "DE"), (1, 5, "DE"), (2, 2, "US")]
    assert rows("strangers") == [("order_id", "customer_id"), (0, 0), (3, 3), (4, 0)]
    assert rows("enriched") == [
        ("order_id", "customer_id", "id", "name", "country"),
        *[(1, 1, 1, "Ann", "DE"), (2, 2, 2, "Bob", "US"), (5, 1, 1, "Ann", "DE")],
    ]

"""What Spark says of the cost of a left side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lookup_hints.driver.table_sizes import explained_cost, least_rows
from lookup_hints.plan.cost import LeftRows

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


def test_rows_of_files_are_told_by_footers_by_analyze_table_or_by_their_bytes(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.range(30_000).repartition(3).write.parquet(f"{tmp_path}/rows")
    frame = spark.read.parquet(f"{tmp_path}/rows")
    assert least_rows(frame.select("id")) == LeftRows(30_000, "footers of 3 files")
    keys = spark.range(30_000).selectExpr(
        "id AS n", "xxhash64(id % 50) AS few", "xxhash64(id) AS many", "'' AS text"
    )
    keys.write.parquet(f"{tmp_path}/keys")
    values = least_rows(spark.read.parquet(f"{tmp_path}/keys")).values
    assert (values["n"], values["many"] >= 30_000, 50 <= values["few"] <= 1000) == (30_000, True, True)
    assert least_rows(frame.filter("id > 5")).rows is None, "how many are left is not known"
    assert least_rows(frame.unionAll(spark.range(0))) == LeftRows(30_000, "footers of 3 files")
    assert least_rows(frame.unionAll(frame)).source == "EXPLAIN COST", "which file is of which is not known"
    for table, kind in (("analysed_for_costs", "orc"), ("read_for_costs", "parquet")):
        spark.sql(
            f"CREATE TABLE {table} USING {kind} LOCATION '{tmp_path}/{table}' AS SELECT xxhash64(id) AS id FROM range(30000)"
        )
    try:
        by_bytes = least_rows(spark.table("analysed_for_costs"))
        assert by_bytes.source == "bytes of its files, at most 8 for each row"
        assert 29_000 < (by_bytes.rows or 0) < 33_000, "hashes do not compress"
        spark.sql("ANALYZE TABLE analysed_for_costs COMPUTE STATISTICS")
        assert least_rows(spark.table("analysed_for_costs")) == LeftRows(30_000, "ANALYZE TABLE")
        both = spark.sql("SELECT id FROM analysed_for_costs UNION ALL SELECT id FROM range(1000)")
        assert least_rows(both) == LeftRows(30_995, "ANALYZE TABLE, EXPLAIN COST")
        assert least_rows(spark.table("read_for_costs")).source.startswith("footers of ")
    finally:
        for table in ("analysed_for_costs", "read_for_costs"):
            spark.sql(f"DROP TABLE {table}")


def test_it_is_what_sparks_own_explain_prints(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = spark.range(1000)
    cost = explained_cost(frame)
    assert capsys.readouterr().out == ""
    frame.explain(mode="cost")
    assert cost == capsys.readouterr().out
    assert "sizeInBytes" in cost

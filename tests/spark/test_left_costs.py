"""What Spark says of the cost of a left side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lookup_hints.execution.left_costs import explained_cost
from lookup_hints.plan.cost import certain_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_analyze_table_counted_is_known_where_a_setting_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As `docs/ask-or-read.md` says."""
    # Spark reads these settings from the active session, which may be that of another test; this makes it ours.
    spark.createDataFrame([(1,)], "id INT")
    table, settings = "analysed_for_costs", ("spark.sql.cbo.planStats.enabled", "spark.sql.cbo.enabled")
    spark.sql(f"CREATE TABLE {table} USING parquet LOCATION '{tmp_path}/rows' AS SELECT id FROM range(30000)")
    try:
        spark.sql(f"ANALYZE TABLE {table} COMPUTE STATISTICS")
        known = []
        for setting in settings:
            for value in ("false", "true"):
                spark.conf.set(setting, value)
                spark.catalog.refreshTable(table)  # Spark remembers what it found with the other value
                known.append(certain_rows(explained_cost(spark.table(table))).rows or 0)
            spark.conf.unset(setting)
    finally:
        for setting in settings:
            spark.conf.unset(setting)
        spark.sql(f"DROP TABLE {table}")
    estimated, counted = known[:2]
    assert known == [estimated, counted, estimated, counted]
    assert 0 < estimated < 1000, "a row for each KiB"
    assert counted == pytest.approx(30_000, rel=0.01)


def test_it_is_what_sparks_own_explain_prints(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = spark.range(1000)
    cost = explained_cost(frame)
    assert capsys.readouterr().out == ""
    frame.explain(mode="cost")
    assert cost == capsys.readouterr().out
    assert "sizeInBytes" in cost

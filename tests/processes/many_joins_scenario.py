"""More lookups than one stage takes, in a Spark with the memory that it has by itself. See ``test_many_joins``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lookup_hints import LookupSession
from lookup_hints.plan.write.struct_packing import MOST_VIEWS
from tests.spark.elsewhere import Steps

COUNT = MOST_VIEWS + 1


def scenario(spark: SparkSession) -> Steps:
    step = Steps()
    session = LookupSession(spark)
    session.sql(
        "CREATE TEMPORARY TABLE c (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
        """ WITH ('connector' = 'memory', 'rows' = '[[1, "a"], [2, "b"], [3, "c"]]')"""
    )
    names = ", ".join(f"c{number}.name AS n{number}" for number in range(COUNT))
    joins = " ".join(f"LEFT JOIN c c{number} ON o.id = c{number}.id" for number in range(COUNT))
    text = f"SELECT o.id, {names} FROM range(1, 5, 1, 2) o {joins}"  # two tasks at once share the memory

    @step
    def spread_by_hash() -> int:
        return session.explain(text).count("/*+ REPARTITION(`__lookup_1`) */")

    @step
    def rows() -> list[list[Any]]:
        return sorted(map(list, session.sql(text).collect()))

    @step
    def spread_by_sort() -> int:
        with_maps = text.replace("FROM range(1, 5, 1, 2)", "FROM (SELECT id, map(1, id) FROM range(9))")
        return session.explain(with_maps).count("/*+ REPARTITION */")

    return step


if __name__ == "__main__":
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    scenario(builder.config("spark.ui.enabled", "false").getOrCreate()).tell(Path(sys.argv[1]))

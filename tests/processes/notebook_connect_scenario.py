"""What a notebook does on Spark Connect; prints what came of it. See ``test_notebook_connect``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from pyspark.sql import SparkSession

from lookup_hints.notebook import magics as magics
from lookup_hints.runs.progress import Progress, following
from tests.spark.elsewhere import Steps

CELL = """
CREATE OR REPLACE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"], [2, "Bob"]]');
SELECT r.id, p.name FROM range(0, 4, 1, 2) r LEFT JOIN people p ON r.id = p.id WHERE r.id < :most ORDER BY r.id
"""


def scenario(spark: SparkSession) -> Steps:
    """All steps."""
    step = Steps()
    shell: Any = InteractiveShell.instance()
    magics.load(shell)
    shell.user_ns["most"] = 2

    def cell(text: str, line: str = "") -> dict[str, str]:
        with capture_output() as captured:
            shell.run_cell_magic("lookup_sql", line, text)
        data: dict[str, str] = captured.outputs[-1].data
        return data

    @step
    def the_session_is_found() -> Any:
        shell.user_ns.pop("spark", None)
        active = magics.find_spark(shell.user_ns)
        return [active is spark, type(active).__module__]

    @step
    def rows() -> Any:
        shell.user_ns["spark"] = spark
        return cell(CELL)["text/plain"]

    @step
    def explained() -> Any:
        return cell(CELL, "--explain")["text/html"]

    @step
    def kept() -> Any:
        cell(CELL, "--into named")
        return [list(row) for row in shell.user_ns["named"].collect()]

    @step
    def wrong() -> Any:
        cell("SELECT\n  nope FROM range(1)")

    @step
    def failing() -> Any:
        cell(
            "CREATE TEMPORARY TABLE gone (id BIGINT) WITH ('connector' = 'sqlite', 'path' = '/no/file.sqlite');\n"
            "SELECT g.id FROM range(3) r JOIN gone g ON r.id = g.id"
        )

    @step
    def followed() -> Any:
        for _ in range(20):  # the server may end a short statement without a last word on its tasks
            told: list[Progress] = []
            with following(spark, told.append):
                spark.sql("SELECT count(DISTINCT id % 1000) FROM range(0, 2000000, 1, 4)").collect()
            if told and told[-1].share == 1.0:
                break
        before = len(told)
        spark.sql("SELECT count(*) FROM range(10)").collect()
        return {"told": before, "after": len(told) - before, "done": told[-1].done, "tasks": told[-1].tasks}

    return step


if __name__ == "__main__":
    builder = SparkSession.builder.remote("local[2]").appName("lookup-hints-notebook")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    scenario(spark).tell(Path(sys.argv[1]))
    spark.stop()

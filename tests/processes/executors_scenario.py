"""What workers do that lack something; tells what came of it. See ``test_executors``."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lookup_hints import LookupSession, async_wait, register_connector
from tests.spark.bare_python import OURS, bare_python
from tests.spark.elsewhere import Steps, cluster

JOIN = "SELECT r.id, t.name FROM range(0, 4, 1, 2) r LEFT JOIN {} t ON r.id = t.id"
WITHOUT_THE_LIBRARY = (
    "without_the_library",
    "without_the_library_by_pandas",
    "reading_a_whole_table_without_the_library",
    "a_function_of_ones_own_without_the_library",
)
COMPLETE = ("with_all_that_is_needed", "shipped_as_an_archive")
CONNECTOR = """
from lookup_connectors.memory import MemoryConnector

class Own(MemoryConnector):
    pass
"""


def scenario(spark: SparkSession, folder: Path) -> Steps:
    """All steps. The interpreter of the workers is Spark's setting when a function is made."""
    step = Steps(optional=(*WITHOUT_THE_LIBRARY, *COMPLETE))
    context = spark.sparkContext

    def workers(python: str) -> LookupSession:
        context.pythonExec = python
        session = LookupSession(spark.newSession())
        session.sql(
            "CREATE TEMPORARY TABLE people (id BIGINT, name STRING)"
            """ WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"]]')"""
        )
        return session

    def named(session: LookupSession, table: str = "people") -> Any:
        return sorted(tuple(row) for row in session.sql(JOIN.format(table)).collect())

    lacking = bare_python(folder / "lacking")

    @step
    def without_the_library() -> Any:
        return named(workers(lacking))

    @step
    def without_the_library_by_pandas() -> Any:
        session = workers(lacking)
        session.sql("SET lookup.transport = pandas")
        return named(session)

    @step
    def reading_a_whole_table_without_the_library() -> Any:
        return workers(lacking).sql("SELECT count(*) FROM people").collect()

    @step
    def a_function_of_ones_own_without_the_library() -> Any:
        frame = workers(lacking).spark.range(2)
        return async_wait(frame, lambda number: number, ["id"], "n BIGINT").collect()

    @step
    def a_doctor_of_workers_without_the_library() -> Any:
        return str(workers(lacking).doctor())

    @step
    def without_a_driver() -> Any:
        session = workers(bare_python(folder / "driverless", without=["asyncpg"], beside=OURS))
        session.sql(
            "CREATE TEMPORARY TABLE remote (id BIGINT, name STRING) WITH ('connector' = 'postgres',"
            " 'url' = 'postgresql://app:hunter2@127.0.0.1:1/none', 'table-name' = 'people')"
        )
        return named(session, "remote")

    @step
    def a_doctor_of_workers_without_a_driver() -> Any:
        context.pythonExec = str(folder / "driverless" / "bin" / "python")
        session = LookupSession(spark.newSession())
        session.sql(
            "CREATE TEMPORARY TABLE remote (id BIGINT, name STRING) WITH ('connector' = 'postgres',"
            " 'url' = 'postgresql://app:hunter2@127.0.0.1:1/none')"
        )
        session.sql(
            "CREATE TEMPORARY TABLE people (id BIGINT, name STRING)"
            """ WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"]]')"""
        )
        return str(session.doctor(timeout=5))

    @step
    def without_pyarrow() -> Any:
        return named(workers(bare_python(folder / "no_pyarrow", without=["pyarrow"], beside=OURS)))

    @step
    def without_pandas() -> Any:
        session = workers(bare_python(folder / "no_pandas", without=["pandas"], beside=OURS))
        session.sql("SET lookup.transport = pandas")
        return named(session)

    @step
    def with_another_version_of_the_library() -> Any:
        other = folder / "other" / "lookup_hints"
        shutil.copytree(OURS[0], other)
        source = other / "version.py"
        source.write_text(source.read_text().replace('__version__ = "', '__version__ = "9.'))
        return named(workers(bare_python(folder / "otherwise", beside=[other, OURS[1]])))

    @step
    def without_the_users_module() -> Any:
        modules = folder / "modules"
        modules.mkdir()
        (modules / "my_own_connectors.py").write_text(CONNECTOR)
        sys.path.append(str(modules))
        importlib.invalidate_caches()
        register_connector("own", "my_own_connectors:Own")
        session = workers(bare_python(folder / "moduleless", beside=OURS))
        session.sql(
            """CREATE TEMPORARY TABLE own (id BIGINT, name STRING) WITH ('connector' = 'own', 'rows' = '[]')"""
        )
        return named(session, "own")

    @step
    def with_all_that_is_needed() -> Any:
        return named(workers(bare_python(folder / "complete", beside=OURS)))

    # Last, as what is shipped stays.
    @step
    def shipped_as_an_archive() -> Any:
        whole = folder / "whole"
        for package in OURS:
            shutil.copytree(package, whole / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        context.addPyFile(shutil.make_archive(str(folder / "lookup_hints"), "zip", whole))
        return named(workers(lacking))

    return step


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = ""  # executors have what their interpreter has, and no more
    settings = {
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "1",
        "spark.locality.wait": "0",
    }
    with cluster("local-cluster[1,2,1024]", "lookup-hints-executors", settings) as spark:
        scenario(spark, Path(sys.argv[1])).tell(Path(sys.argv[1]))

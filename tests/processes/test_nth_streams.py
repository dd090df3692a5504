"""Every n-th call fails while a streaming query runs: right rows or a cause, no query left, and each row once after.

Each path runs on Spark over a checkpoint of its own. ``tests/nth_call.py`` says what fails, and how. Usually some of
the calls fail; with ``EXAMPLES=1000`` in the environment each does.
"""

from __future__ import annotations

import io
import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookup_hints import FixedDelayRestart, LookupSession, supervise
from lookup_hints.cli.main import main
from tests.kinds import EXAMPLES
from tests.nth_call import FILES, MEMORY, PROCESSES, SOCKETS, Survivor, survive
from tests.spark.failing_calls import tables_of
from tests.spark.test_nth_calls import JVM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(900)
PARTS = 6
MOST = EXAMPLES * 3 // 5
PATIENCE = 120.0
CONNECTIONS = [each for each in SOCKETS if each.name in ("getaddrinfo", "connect", "bind")]
"""A call to the JVM fails by itself: that parts of it fail, within one machine, adds nothing."""

THEIRS = "leaves files (out|checkpoint|log)"
"""What Spark and the source write."""
CALLBACKS = rf"{THEIRS}|leaves (threads Thread-# \(run\)|opened socket)"
"""And where py4j waits for more batches of Python."""

NAMED = {0: "Ann", 2: "Bob", 4: "Cem"}
NAMES = """CREATE OR REPLACE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'sqlite', 'path' = '{folder}/people.db')"""
TROUBLED = """CREATE OR REPLACE TEMPORARY TABLE people (id BIGINT, name STRING) WITH (
'connector' = 'tests.spark.ailing:TroubledConnector', 'rows' = '[[0, "Ann"], [2, "Bob"], [4, "Cem"]]',
'troubles' = '{folder}/troubles', 'log' = '{folder}/log')"""
INSERT = """INSERT INTO {sink} WITH (checkpointLocation = '{folder}/checkpoint', trigger = 'available-now')
SELECT v.id, p.name FROM STREAM nth_visits v LEFT JOIN people p ON v.id = p.id"""
FILES_OF_TABLES = {"nth_visits": ("in", "id BIGINT"), "nth_enriched": ("out", "id BIGINT, name STRING")}
RESTARTS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "10 ms",
}
Rows = list[tuple[Any, ...]]


def _write_names(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "people.db")) as database, database:
        database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
        database.executemany("INSERT INTO people VALUES (?, ?)", NAMED.items())
    (folder / "in").mkdir()


def _new_visits(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream that three more visits reach in each run."""
    first = 3 * len(list((folder / "in").iterdir()))
    ids = pa.array(range(first, first + 3), pa.int64())
    pq.write_table(pa.table({"id": ids}), folder / "in" / f"{first}.parquet")
    (folder / "troubles").write_text("ill\n")
    return spark.readStream.schema("id BIGINT").parquet(str(folder / "in"))


def _written(spark: SparkSession, *paths: Path) -> Rows:
    return sorted(map(tuple, spark.read.parquet(*map(str, paths)).collect()))


def _insert(table: str, spark: SparkSession, folder: Path, sink: str = "") -> Rows:
    """An INSERT in a session of its own, to its end."""
    own = spark.newSession()
    visits = _new_visits(own, folder)
    if not sink:
        visits.createOrReplaceTempView("nth_visits")
    for key, value in RESTARTS.items():
        own.conf.set(key, value)
    session = LookupSession(own)
    for text in (table, INSERT):
        session.sql(text.format(folder=folder, sink=sink or f"parquet.`{folder}/out`"))
    assert session.streams.await_all(PATIENCE)
    (stream,) = session.streams.started
    for batch in stream.history:
        assert batch.rows == batch.total.rows_in, batch
    return _written(own, folder / "out")


def _insert_into_table(spark: SparkSession, folder: Path) -> Rows:
    """The same from a table into another one, whose files stay when they are dropped."""
    for name, (place, columns) in FILES_OF_TABLES.items():
        spark.sql(f"CREATE TABLE {name} ({columns}) USING parquet LOCATION '{folder}/{place}'")
    try:
        return _insert(NAMES, spark, folder, "nth_enriched")
    finally:
        for name in FILES_OF_TABLES:
            spark.sql(f"DROP TABLE {name}")


def _supervise(spark: SparkSession, folder: Path) -> Rows:
    """A query of Python that looks up in each batch once more."""
    own = spark.newSession()
    visits, session = _new_visits(own, folder), LookupSession(own)
    session.sql(NAMES.format(folder=folder))
    joined = session.lookup_join(visits, "people", {"id": "id"}, how="left").select(visits["id"], "name")

    def write(batch: DataFrame, number: int) -> None:
        session.invalidate("people", batch.select("id"))
        found = session.sql(
            "SELECT b.id, p.name FROM {batch} b LEFT JOIN people p ON b.id = p.id AND b.name = p.name",
            batch=batch,
        )
        found.write.mode("overwrite").parquet(f"{folder}/out/{number}")

    writer = joined.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
    query = supervise(writer.trigger(availableNow=True), FixedDelayRestart(3, 0.01))
    assert query.await_termination(PATIENCE)
    return _written(own, *(folder / "out").iterdir())


class JobFailed(Exception):
    """A job ended with another code than 0; the text is what it said."""


def _job(spark: SparkSession, folder: Path) -> Rows:
    """A file that `lookup-hints run` runs in the session of all."""
    _new_visits(spark, folder).createOrReplaceTempView("nth_visits")
    (folder / "job.sql").write_text(
        f"{NAMES};\n{INSERT};\n".format(folder=folder, sink=f"parquet.`{folder}/out`")
    )
    told = io.StringIO()
    with (
        redirect_stdout(told),
        redirect_stderr(told),
        mock.patch.dict(os.environ, {"TMPDIR": str(folder)}),
        mock.patch.object(tempfile, "tempdir", str(folder)),
    ):
        try:
            code = main(["run", str(folder / "job.sql")])
        finally:
            spark.catalog.dropTempView("nth_visits")
    if code:
        raise JobFailed(told.getvalue())
    return _written(spark, folder / "out")


def _held_by(spark: SparkSession) -> Counter[str]:
    """What Spark holds; a query that was left is stopped, so that it is left to no other run."""
    running = spark.streams.active
    for each in running:
        each.stop()
    return Counter([*tables_of(spark), *(f"query {each.name}" for each in running)])


PATHS: dict[str, Callable[[SparkSession, Path], Rows]] = {
    "insert": partial(_insert, NAMES),
    "table": _insert_into_table,
    "restart": partial(_insert, TROUBLED),
    "batches": _supervise,
    "job": _job,
}


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", PATHS)
def test_each_call_for_a_stream_may_fail(name: str, part: int, spark: SparkSession, tmp_path: Path) -> None:
    path = Survivor(
        partial(PATHS[name], spark),
        _write_names,
        (*FILES, *MEMORY, *PROCESSES, *CONNECTIONS, JVM),
        excused=CALLBACKS if name == "batches" else THEIRS,
        elsewhere=lambda: _held_by(spark),
        through=("pyspark", "py4j"),
        has_threads=True,
    )
    outcome = survive(path, tmp_path, part, PARTS, lasting=[False], most=MOST)
    assert outcome.failures
    outcome.check()

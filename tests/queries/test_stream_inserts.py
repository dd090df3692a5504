"""INSERT INTO ... FROM STREAM: each sink gets the rows of the same INSERT without a stream."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lookup_hints.streaming.restart_strategy import ExponentialDelayRestart, FixedDelayRestart, NoRestart
from lookup_hints.streaming.supervisor import Status
from tests.spark.counting import Calls
from tests.spark.stream_place import JOIN, Place, new_place
from tests.spark.versions import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    yield from new_place(spark, tmp_path)


INSERTS = {
    "by position": ("n INT, who STRING", "", "SELECT v.id, p.name"),
    "by name": ("who STRING, n INT", "BY NAME", "SELECT v.id AS n, p.name AS who"),
    "named columns": ("a INT DEFAULT 7, who STRING, z DOUBLE, n BIGINT", "(n, WHO)", "SELECT v.id, p.name"),
    "two columns of one name": ("a BIGINT, b BIGINT", "", "SELECT v.id, v.id"),
    "nested": (
        "s STRUCT<`a b`: STRING, c: ARRAY<BIGINT>>",
        "",
        "SELECT named_struct('a b', p.name, 'c', array(v.id, p.id))",
    ),
    "semi join": (
        "n BIGINT",
        "",
        "SELECT v.id FROM STREAM visits v LEFT SEMI JOIN people p ON v.person = p.id",
    ),
    "lookup_get": (
        "n BIGINT, who STRING, place STRING",
        "",
        "SELECT v.id, lookup_get('names', 'name', v.person), lookup_get('names', 'country', person, '??')"
        " FROM STREAM visits v WHERE lookup_get('names', 'country', v.person, 'none') IS NOT NULL",
    ),
    "without a lookup": ("n BIGINT", "", "SELECT id FROM STREAM visits WHERE id > 10"),
}


@pytest.mark.parametrize("name", INSERTS)
def test_a_table_gets_the_rows_of_the_insert_without_a_stream(place: Place, name: str) -> None:
    columns, middle, query = INSERTS[name]
    query = query if "FROM" in query else f"{query} {JOIN}"
    for table in ("streamed", "plain"):
        place.sql(f"CREATE TABLE {table} ({columns}) USING parquet")
    place.stream(f"INSERT INTO streamed {middle} {query}")
    place.sql(f"INSERT INTO plain {middle} {query.replace('STREAM', '')}")
    expected = place.sql("SELECT * FROM plain")
    assert len(expected) > 10
    assert sorted(map(repr, place.sql("SELECT * FROM streamed"))) == sorted(map(repr, expected))


def test_a_partitioned_table_stays_so(place: Place) -> None:
    place.sql("CREATE TABLE parted (n BIGINT, country STRING) USING parquet PARTITIONED BY (country)")
    place.stream(f"INSERT INTO parted SELECT v.id, p.country {JOIN}")
    assert place.sql("SELECT count(*) FROM parted WHERE country = 'US'") == [(8,)]
    assert list((place.folder / "tables" / "parted").glob("country=US/*.parquet"))


def test_files_below_a_path(place: Place) -> None:
    place.stream(f"INSERT INTO json.`{place.folder}/out` SELECT v.id, p.name {JOIN}")
    assert place.spark.read.json(str(place.folder / "out")).count() == 48


def test_the_sinks_of_spark_need_no_checkpoint(place: Place) -> None:
    place.stream(f"INSERT INTO noop SELECT v.id {JOIN}")
    place.stream(f"INSERT INTO memory WITH (queryName = 'in_memory_{place.database}') SELECT v.id {JOIN}")
    assert place.sql(f"SELECT count(*) FROM in_memory_{place.database}") == [(48,)]
    place.stream(f"INSERT INTO console WITH (numRows = 3) SELECT p.name {JOIN} WHERE p.name = 'Bea'")
    assert [stream.batches for stream in place.session.streams.started] == [1, 1, 1]
    assert {stream.settings.strategy for stream in place.session.streams.started} == {NoRestart()}


def test_a_view_of_a_stream_needs_no_word_stream(place: Place) -> None:
    place.spark.readStream.table("visits").createOrReplaceTempView("arriving")
    for table, joined in (("one", ""), ("two", "LEFT JOIN people p ON v.person = p.id")):
        place.sql(f"CREATE TABLE {table} (n BIGINT) USING parquet")
        place.checkpoint(table)
        place.stream(f"INSERT INTO {table} SELECT v.id FROM arriving v {joined}")
    assert place.sql("SELECT count(*) FROM one") + place.sql("SELECT count(*) FROM two") == [(40,), (48,)]


def test_a_view_of_a_stream_goes_to_sinks_that_are_no_tables(place: Place) -> None:
    place.spark.readStream.table("visits").createOrReplaceTempView("arriving")
    place.stream("INSERT INTO noop SELECT v.id FROM arriving v LEFT JOIN people p ON v.person = p.id")
    place.stream(f"INSERT INTO orc.`{place.folder}/out` SELECT id FROM arriving")
    assert place.spark.read.orc(str(place.folder / "out")).count() == 40
    assert "No stream is read here" in place.refusal("INSERT INTO console SELECT id FROM visits")
    if SPARK >= (4, 1):  # 3.5 explains an INSERT into nothing, and 4.0 cannot explain a stream
        insert = "INSERT INTO noop SELECT v.id FROM arriving v JOIN people p ON v.person = p.id"
        assert place.session.explain(insert).startswith("== Streaming query into noop ==")


def test_update_and_complete_reach_a_sink_that_takes_them(place: Place) -> None:
    counts = f"SELECT p.country, count(*) AS n {JOIN} GROUP BY p.country"
    name = f"counted_{place.database}"
    place.sql("SET lookup.stream.output-mode = complete")
    place.stream(f"INSERT INTO memory WITH (queryName = '{name}') {counts}")
    expected = place.sql(counts.replace("STREAM", ""))
    assert sorted(map(repr, place.sql(f"SELECT * FROM {name}"))) == sorted(map(repr, expected))


@pytest.mark.parametrize("trigger", ["available-now", "once", "processing-time 10 ms", None])
@pytest.mark.filterwarnings("ignore:.*Trigger.Once")
def test_every_trigger_gives_the_rows_of_the_batch(place: Place, trigger: str | None) -> None:
    place.sql("CREATE TABLE out (n BIGINT, who STRING) USING parquet")
    place.spark.conf.unset("lookup.stream.trigger")
    if trigger is not None:
        place.sql(f"SET lookup.stream.trigger = {trigger}")
    query = f"SELECT v.id, p.name {JOIN}"
    place.sql(f"INSERT INTO out {query}")
    (stream,) = place.session.streams.started
    if trigger in ("available-now", "once"):
        assert place.session.streams.await_all(150)
        assert stream.supervised.status is Status.FINISHED
    else:
        stream.supervised.query.processAllAvailable()
        place.visit(40, 60)
        stream.supervised.query.processAllAvailable()
        place.session.streams.stop()
        assert stream.supervised.status is Status.STOPPED
    expected = place.sql(query.replace("STREAM", ""))
    assert sorted(map(repr, place.sql("SELECT * FROM out"))) == sorted(map(repr, expected))


def test_a_row_that_is_late_is_found_by_a_retry_within_the_batch(place: Place) -> None:
    file, log = place.folder / "late.sqlite", place.folder / "late.log"
    with closing(sqlite3.connect(file)) as source, source:
        source.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
    place.sql(
        "CREATE TEMPORARY TABLE late (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH"
        f" ('connector' = 'tests.spark.counting:LoggedSqlite', 'path' = '{file}', 'table-name' = 't',"
        f" 'log' = '{log}')"
    )
    place.sql("CREATE TABLE out (n BIGINT, who STRING) USING parquet")

    def arrive() -> None:
        """The row comes once it has been asked for."""
        while not Calls.read(log).requests:
            assert not over.wait(0.02)
        with closing(sqlite3.connect(file)) as source, source:
            source.execute("INSERT INTO t VALUES (3, 'late')")

    over = threading.Event()
    arriving = threading.Thread(target=arrive)
    arriving.start()
    hint = (
        "/*+ LOOKUP('table'='l', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay',"
        " 'fixed-delay'='100ms', 'max-attempts'='300') */"
    )
    try:
        place.stream(
            f"INSERT INTO out SELECT {hint} v.id, l.name FROM STREAM visits v JOIN late l ON v.person = l.id"
            " WHERE v.person = 3"
        )
    finally:
        over.set()
        arriving.join()
    assert sorted(place.sql("SELECT * FROM out")) == [(n, "late") for n in range(3, 40, 5)]
    (stream,) = place.session.streams.started
    assert stream.batches == 1


def test_parameters_reach_the_query(place: Place) -> None:
    place.sql("CREATE TABLE out (n BIGINT) USING parquet")
    insert = f"INSERT INTO out SELECT v.id {JOIN}"
    place.session.sql(f"{insert} WHERE v.id < :n", {"n": 3})
    assert place.session.streams.await_all(150)
    place.checkpoint("second")
    place.sql("CREATE TABLE out2 (n BIGINT) USING parquet")
    place.session.sql(f"{insert} WHERE v.id < ?".replace("out", "out2"), [2])
    assert place.session.streams.await_all(150)
    assert place.sql("SELECT count(*) FROM out") + place.sql("SELECT count(*) FROM out2") == [(4,), (3,)]


def test_the_strategy_is_that_of_the_session_when_the_query_starts(place: Place) -> None:
    for number, kind in enumerate(("exponential-delay", "fixed-delay", "none")):
        place.sql(f"CREATE TABLE out{number} (n BIGINT) USING parquet")
        place.checkpoint(str(number))
        place.sql(f"SET restart-strategy.type = {kind}")
        place.stream(f"INSERT INTO out{number} SELECT v.id {JOIN}")
    strategies = [stream.settings.strategy for stream in place.session.streams.started]
    assert strategies == [ExponentialDelayRestart(), FixedDelayRestart(), NoRestart()]

"""INSERT INTO ... FROM STREAM: each sink gets the rows of the same INSERT without a stream, or a reason."""

from __future__ import annotations

import itertools
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookup_hints import LookupSession
from lookup_hints.cli.main import main
from lookup_hints.driver.statement_scope import StatementScope
from lookup_hints.errors import ConnectorError, QueryError
from lookup_hints.streaming.restart_strategy import ExponentialDelayRestart, FixedDelayRestart, NoRestart
from lookup_hints.streaming.supervisor import Status
from tests.spark.counting import Calls
from tests.spark.versions import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(180)
_numbers = itertools.count()
PEOPLE = '[[0, "Ann", "US"], [1, "Bob", "DE"], [1, "Bea", "FR"], [3, "Cem", null]]'
JOIN = "FROM STREAM visits v LEFT JOIN people p ON v.person = p.id"


def _visits(ids: range) -> pa.Table:
    columns = {"id": ids, "person": [each % 5 for each in ids], "at": [each * 1_000_000 for each in ids]}
    kinds = (pa.int64(), pa.int64(), pa.timestamp("us", "UTC"))
    return pa.table(
        {name: pa.array(values, kind) for (name, values), kind in zip(columns.items(), kinds, strict=True)}
    )


class Place:
    """A session with a database, a folder, a stream of visits and a lookup table of its own."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark.newSession(), folder
        self.session = LookupSession(self.spark)
        self.database = f"streams_{next(_numbers)}"
        self.sql(f"CREATE DATABASE {self.database} LOCATION '{folder}/tables'")
        self.sql(f"USE {self.database}")
        self.sql("CREATE TABLE visits (id BIGINT, person BIGINT, at TIMESTAMP) USING parquet")
        for part in range(2):  # written by hand, as a job for each test would take longer than many of them
            pq.write_table(_visits(range(part, 40, 2)), folder / "tables" / "visits" / f"part-{part}.parquet")
        self.sql(
            "CREATE TEMPORARY TABLE people (id BIGINT, name STRING, country STRING) WITH ("
            f"'connector' = 'tests.spark.counting:CountingConnector', 'rows' = '{PEOPLE}', 'log' = '{folder}/log')"
        )
        self.sql(
            "CREATE TEMPORARY TABLE names (id BIGINT, name STRING, country STRING, PRIMARY KEY (id) NOT ENFORCED)"
            """ WITH ('connector' = 'memory', 'rows' = '[[0, "Ann", "US"], [1, null, "DE"], [3, "Cem", null]]')"""
        )
        self.checkpoint("first")
        self.sql("SET lookup.stream.trigger = available-now")

    def visit(self, first: int, end: int) -> None:
        """Let more visits arrive, in two files."""
        rows = f"SELECT /*+ REPARTITION(2) */ id, id % 5, timestamp_seconds(id) FROM range({first}, {end})"
        self.sql(f"INSERT INTO visits {rows}")

    def sql(self, text: str) -> list[tuple[object, ...]]:
        """The rows of a statement."""
        return [tuple(row) for row in self.session.sql(text).collect()]

    def checkpoint(self, name: str) -> None:
        """Set the checkpoint of the next query."""
        self.sql(f"SET lookup.stream.checkpoint = '{self.folder}/checkpoints/{name}'")

    def stream(self, text: str) -> None:
        """Run a streaming INSERT to its end."""
        self.sql(text)
        assert self.session.streams.await_all(150)

    def refusal(self, text: str) -> str:
        """Why a statement is refused; nothing runs after it."""
        with pytest.raises(QueryError) as caught:
            self.session.sql(text)
        assert not self.session.streams.running
        return str(caught.value)


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    made = Place(spark, tmp_path)
    yield made
    made.session.streams.stop()
    made.sql("USE default")
    made.sql(f"DROP DATABASE {made.database} CASCADE")


# --- sinks -----------------------------------------------------------------------------------------

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


def test_an_insert_that_fails_is_taken_for_a_stream_only_if_it_reads_one(place: Place) -> None:
    place.spark.readStream.table("visits").createOrReplaceTempView("arriving")
    place.sql("CREATE TABLE out (n BIGINT) USING parquet")
    for joined in ("", "LEFT JOIN people p ON v.person = p.id"):
        refusal = place.refusal(f"INSERT OVERWRITE out SELECT v.id FROM arriving v {joined}")
        assert "INSERT OVERWRITE cannot stand in an INSERT that reads a stream." in refusal
    assert "There is no table nothing." in place.refusal("INSERT INTO nothing SELECT id FROM arriving")
    for failing in ("INSERT INTO nothing SELECT id FROM visits", "INSERT INTO out SELECT nobody FROM visits"):
        with pytest.raises(Exception, match=r"TABLE_OR_VIEW_NOT_FOUND|UNRESOLVED_COLUMN"):
            place.session.sql(failing)
    assert not place.session.streams.started


def test_update_and_complete_reach_a_sink_that_takes_them(place: Place) -> None:
    counts = f"SELECT p.country, count(*) AS n {JOIN} GROUP BY p.country"
    name = f"counted_{place.database}"
    place.sql("SET lookup.stream.output-mode = complete")
    place.stream(f"INSERT INTO memory WITH (queryName = '{name}') {counts}")
    expected = place.sql(counts.replace("STREAM", ""))
    assert sorted(map(repr, place.sql(f"SELECT * FROM {name}"))) == sorted(map(repr, expected))


# --- refusals --------------------------------------------------------------------------------------


def test_without_a_checkpoint_a_table_is_not_written(place: Place) -> None:
    place.sql("CREATE TABLE out (n BIGINT) USING parquet")
    place.spark.conf.unset("lookup.stream.checkpoint")
    assert place.refusal(f"INSERT INTO out SELECT v.id {JOIN}").startswith(
        "line 1, column 13: The query that writes to out has no checkpoint: after a restart its rows would be"
        " doubled. SET lookup.stream.checkpoint = '/folder/of/its/own', or write"
        " WITH ('checkpointLocation' = '...') after the sink."
    )
    place.spark.conf.set("spark.sql.streaming.checkpointLocation", str(place.folder / "all"))
    assert "but the query has no name" in place.refusal(f"INSERT INTO out SELECT v.id {JOIN}")
    place.sql("SET lookup.stream.name = named")
    place.stream(f"INSERT INTO out SELECT v.id {JOIN}")
    assert (place.folder / "all" / "named" / "commits").is_dir()
    place.spark.conf.unset("spark.sql.streaming.checkpointLocation")


def test_a_stream_whose_server_is_away_does_not_start(place: Place) -> None:
    place.sql("CREATE TABLE out (n BIGINT, who STRING) USING parquet")
    with socket.socket() as closed:  # bound, and nothing listens
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        place.sql(
            "CREATE TEMPORARY TABLE gone (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH"
            f" ('connector' = 'redis', 'key' = 'p:{{id}}', 'url' = 'redis://127.0.0.1:{port}/0')"
        )
        with pytest.raises(ConnectorError) as refused:
            place.session.sql(
                "INSERT INTO out SELECT v.id, p.name FROM STREAM visits v LEFT JOIN gone p ON v.person = p.id"
            )
    assert str(refused.value) == (
        f"table gone: 127.0.0.1 port {port} is closed: nothing listens there. Check host and port, and"
        " firewalls and routes from this machine. The stream has not been started."
    )
    assert not place.session.streams.started
    assert not (place.folder / "checkpoints").exists()


def test_two_statements_do_not_share_a_checkpoint(place: Place) -> None:
    for table in ("one", "two"):
        place.sql(f"CREATE TABLE {table} (n BIGINT) USING parquet")
    place.stream(f"INSERT INTO one SELECT v.id {JOIN}")
    error = place.refusal(f"INSERT INTO two SELECT v.id {JOIN}")
    assert "/checkpoints/first' belongs to the query that writes to one. Each query needs" in error
    place.stream(f"INSERT INTO one SELECT v.id {JOIN};")  # the same again goes on
    assert place.sql("SELECT count(*) FROM one") == [(48,)]


def test_two_queries_do_not_write_to_the_same_files(place: Place) -> None:
    place.sql("CREATE TABLE out (n BIGINT) USING parquet")
    place.sql("SET lookup.stream.trigger = processing-time 1 h")
    place.sql(f"INSERT INTO out SELECT v.id {JOIN}")
    with pytest.raises(QueryError, match=r"belongs to the query that writes to out, which is running\."):
        place.session.sql(f"INSERT INTO out SELECT v.id {JOIN}")
    place.checkpoint("second")
    with pytest.raises(
        QueryError, match="Another streaming query is writing to out: two queries cannot write"
    ):
        place.session.sql(f"INSERT INTO out SELECT v.id {JOIN}")


def test_files_that_another_checkpoint_wrote_are_refused(place: Place) -> None:
    place.sql("CREATE TABLE out (n BIGINT) USING parquet")
    place.stream(f"INSERT INTO out SELECT v.id {JOIN}")
    place.checkpoint("second")
    error = place.refusal(f"INSERT INTO out SELECT v.id {JOIN}")
    assert "out was written by a streaming query with another checkpoint" in error
    assert "Spark would treat its first batches as written and skip them" in error


def test_rows_that_no_streaming_query_wrote_are_not_hidden(place: Place) -> None:
    place.sql("CREATE TABLE out (n BIGINT) USING parquet")
    place.sql("INSERT INTO out VALUES (1)")
    error = place.refusal(f"INSERT INTO out SELECT v.id {JOIN}")
    assert "out holds rows that no streaming query wrote: Spark would hide them." in error
    assert place.sql("SELECT * FROM out") == [(1,)]


@pytest.mark.parametrize("sink", ["out", "parquet.`{folder}/o[u]t {{1}}`"])
def test_a_start_that_spark_refused_can_be_tried_again(place: Place, sink: str) -> None:
    place.sql("CREATE TABLE out (id BIGINT) USING parquet")
    sink = sink.format(folder=place.folder)
    for _ in range(2):
        with pytest.raises(Exception, match="output mode"):
            place.session.sql(f"INSERT INTO {sink} SELECT count(*) AS id {JOIN}")
        place.sql("REFRESH TABLE out")  # as another application finds it
    place.stream(f"INSERT INTO {sink} SELECT v.id {JOIN}")
    assert place.sql(f"SELECT count(*) FROM {sink}") == [(48,)]
    place.checkpoint("second")
    error = place.refusal(f"INSERT INTO {sink} SELECT v.id {JOIN}")
    assert "was written by a streaming query with another checkpoint" in error


def test_rows_that_the_log_of_a_refused_start_hides_are_seen(place: Place) -> None:
    sink = f"parquet.`{place.folder}/out`"
    with pytest.raises(Exception, match="output mode"):
        place.session.sql(f"INSERT INTO {sink} SELECT count(*) AS id {JOIN}")
    assert (place.folder / "out" / "_spark_metadata").exists()
    pq.write_table(pa.table({"id": [1]}), place.folder / "out" / "one.parquet")
    error = place.refusal(f"INSERT INTO {sink} SELECT v.id {JOIN}")
    assert "holds rows that no streaming query wrote: Spark would hide them." in error


@pytest.mark.parametrize(
    ("sink", "error"),
    [
        (
            "INSERT INTO nothing",
            "line 1, column 13: There is no table nothing. Create it first, or write to files",
        ),
        (
            "INSERT INTO a_view",
            "expects a table but" if SPARK >= (4, 0) else "Inserting into a view is not allowed",
        ),
        ("INSERT INTO a_date", 'Cannot safely cast `d` "BIGINT" to "DATE"'),
        ("INSERT INTO two_columns", "not enough data columns"),
        ("INSERT INTO a_date BY NAME", "Cannot write extra columns `id`"),
        ("INSERT OVERWRITE a_date", "INSERT OVERWRITE cannot stand in an INSERT that reads a stream."),
        ("INSERT INTO a_date PARTITION (d = 1)", "PARTITION cannot stand"),
        ("INSERT INTO a_date WITH (trigger = 'now')", "'trigger' cannot be 'now'"),
        (
            "INSERT INTO a_bigint WITH (trigger = 'continuous 1s')",
            "Continuous processing takes no lookup joins",
        ),
    ],
)
def test_a_sink_that_will_not_do_is_refused_with_the_reason(place: Place, sink: str, error: str) -> None:
    place.sql("CREATE TABLE a_date (d DATE) USING parquet")
    place.sql("CREATE TABLE a_bigint (d BIGINT) USING parquet")
    place.sql("CREATE TABLE two_columns (a BIGINT, b BIGINT) USING parquet")
    place.sql("CREATE VIEW a_view AS SELECT 1 AS n")
    assert error in place.refusal(f"{sink} SELECT v.id {JOIN}")


@pytest.mark.skipif(SPARK < (4, 0), reason="older Sparks have no tables of rate, nor another such sink")
def test_a_sink_that_takes_no_stream_is_refused_with_what_to_do(place: Place) -> None:
    place.sql("CREATE TABLE sampled USING rate")
    error = place.refusal(f"INSERT INTO sampled SELECT v.at, v.id {JOIN}")
    assert "sampled cannot take a stream" in error
    assert "foreachBatch" in error


def test_a_path_is_no_stream(place: Place) -> None:
    place.sql("CREATE TABLE out (n BIGINT) USING parquet")
    error = place.refusal(f"INSERT INTO out SELECT id FROM STREAM parquet.`{place.folder}/tables/visits`")
    assert "No stream is read here, and Spark reads a path after STREAM as it is now." in error


# --- triggers, going on, explaining ----------------------------------------------------------------


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


def test_a_second_start_goes_on_where_the_first_ended(place: Place) -> None:
    place.sql("CREATE TABLE out (n BIGINT, who STRING) USING parquet")
    insert = f"INSERT INTO out SELECT v.id, p.name {JOIN}"
    place.stream(insert)
    place.visit(40, 60)
    place.stream(insert)
    expected = place.sql(f"SELECT v.id, p.name {JOIN}".replace("STREAM", ""))
    assert len(expected) == 72
    assert sorted(map(repr, place.sql("SELECT * FROM out"))) == sorted(map(repr, expected))


def test_nothing_of_the_dimension_is_in_the_checkpoint(place: Place) -> None:
    place.sql("CREATE TABLE out (n BIGINT, who STRING) USING parquet")
    place.stream(f"INSERT INTO out SELECT v.id, p.name {JOIN}")
    files = [path for path in (place.folder / "checkpoints").rglob("*") if path.is_file()]
    assert len(files) >= 4
    for path in files:
        content = path.read_bytes()
        assert b"lookup_" not in content, path
        assert b"Ann" not in content, path


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


def test_a_batch_that_fails_and_runs_again_counts_as_it_ran_last(place: Place) -> None:
    once = place.folder / "once"

    def fail_once(number: int) -> int:
        """One of two tasks fails, once the other one has ended."""
        if number == 38 and not once.exists():
            once.touch()
            time.sleep(3)
            raise ValueError("only once")
        return number

    place.spark.udf.register("fail_once", fail_once, "long")
    place.sql("SET restart-strategy.type = fixed-delay")
    place.sql("CREATE TABLE out (n BIGINT, who STRING) USING parquet")
    place.stream(f"INSERT INTO out SELECT fail_once(v.id), p.name {JOIN.replace('people', 'names')}")
    (stream,) = place.session.streams.started
    assert len(stream.supervised.restarts) == 1
    ((batch, counts),) = [(each, each.lookups.values()) for each in stream.history]
    assert (batch.rows, [each.rows_in for each in counts]) == (40, [40])
    assert len(place.sql("SELECT * FROM out")) == 40


def test_explain_says_where_a_stream_would_go_and_starts_nothing(place: Place) -> None:
    place.sql("CREATE TABLE out (n BIGINT) USING parquet")
    insert = f"INSERT INTO out SELECT v.id {JOIN}"
    for told in (place.session.explain(insert), str(place.sql(f"EXPLAIN {insert}")[0][0])):
        assert told.startswith("== Streaming query into out ==")
        assert "LEFT lookup join with people AS p" in told
        if SPARK != (4, 0):  # it cannot explain a stream: "Error occurred during query planning"
            assert "StreamingRelation" in told or "FileSource[" in told
    assert place.session.streams.started == ()


def test_a_statement_waits_for_its_end_when_told_so(place: Place) -> None:
    place.sql("CREATE TABLE out (n BIGINT) USING parquet")
    place.sql("SET 'table.dml-sync' = 'true'")
    ((name, _),) = place.sql(f"INSERT INTO out SELECT v.id {JOIN}")
    assert name == "out"
    assert place.sql("SELECT count(*) FROM out") == [(48,)]


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


# --- files -----------------------------------------------------------------------------------------

JOB = """CREATE OR REPLACE TEMPORARY TABLE people (id BIGINT, name STRING)
WITH ('connector' = '{connector}', 'rows' = '[[1, "Ann"]]', 'password' = 'hunter2', 'log' = '{folder}/log');
SET restart-strategy.type = fixed-delay;
SET restart-strategy.fixed-delay.delay = 2 s;
CREATE TABLE numbers_{name} USING parquet AS SELECT id AS value FROM range(50);
INSERT INTO noop WITH (queryName = 'other_{name}') SELECT * FROM STREAM numbers_{name};
INSERT INTO parquet.`{folder}/out` WITH (checkpointLocation = '{folder}/checkpoint')
SELECT n.value, p.name FROM STREAM numbers_{name} n JOIN people p ON n.value = p.id;
{more}
"""


def run_job(folder: Path, more: str = "") -> int:
    job, name = folder / "job.sql", f"job_{next(_numbers)}"
    connector = "tests.spark.elsewhere:FailingConnector"
    text = JOB.format(folder=folder, name=name, connector=connector, more=more)
    job.write_text(text, encoding="utf-8")
    return main(["run", str(job)])


def test_a_statement_that_fails_after_the_start_leaves_no_query(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ConnectionError("no answer")

    place.sql("CREATE TABLE out (n BIGINT) USING parquet")
    place.sql("SET lookup.stream.trigger = processing-time 1 h")
    insert = f"INSERT INTO out SELECT v.id {JOIN}"
    with monkeypatch.context() as patch:
        patch.setattr(StatementScope, "rows", fail)
        with pytest.raises(ConnectionError):
            place.session.sql(insert)
    (stream,) = place.session.streams.started
    assert stream.supervised.status is Status.STOPPED
    assert not place.spark.streams.active
    place.sql("SET lookup.stream.trigger = available-now")
    place.stream(insert)
    assert place.sql("SELECT count(*) FROM out") == [(48,)]


def test_a_file_ends_with_the_failure_that_its_strategy_does_not_bear(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_job(tmp_path) == 1
    printed = capsys.readouterr()
    assert "2 streaming queries run; Ctrl-C stops them" in printed.out
    assert "no answer from app:***@source" in printed.err
    assert "out`: failed, no batch, 1 restart, " in printed.out
    assert "into noop: stopped" in printed.out
    assert "hunter2" not in printed.out + printed.err
    assert not spark.streams.active


def test_a_statement_that_fails_stops_the_queries_before_it(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_job(tmp_path, "SELECT nothing_of_this_name;") == 1
    printed = capsys.readouterr()
    assert "error in the statement at line 9" in printed.err
    assert "into noop: stopped" in printed.out
    assert not spark.streams.active


def test_the_estimate_of_a_stream_is_what_its_last_batch_did(place: Place) -> None:
    place.sql("CREATE TABLE streamed (id BIGINT, name STRING) USING parquet")
    insert = f"INSERT INTO streamed SELECT v.id, p.name {JOIN}"
    with pytest.raises(QueryError, match=r"has had no batch yet\. Start it"):
        place.session.estimate(insert)
    place.stream(insert)
    estimate = place.session.estimate(insert)
    (found,) = estimate.lookups
    calls = Calls.read(place.folder / "log")
    assert estimate.ran.startswith("Measured in micro-batch 0 of ")
    assert [each and each.most for each in (found.rows, found.keys, found.requests)] == [
        40,
        sum(calls.keys.values()),
        len(calls.requests),
    ]

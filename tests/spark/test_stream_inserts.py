"""INSERT INTO ... FROM STREAM: what is refused and why, what goes on after an end, and what a failure leaves.

That each sink gets the rows of the same INSERT without a stream is in ``tests/queries``.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookup_hints.cli.main import main
from lookup_hints.driver.statement_scope import StatementScope
from lookup_hints.errors import ConnectorError, QueryError
from lookup_hints.streaming.supervisor import Status
from tests.spark.counting import Calls
from tests.spark.stream_place import JOIN, Place, new_place
from tests.spark.versions import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(180)
_numbers = itertools.count()


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    yield from new_place(spark, tmp_path)


# --- refusals --------------------------------------------------------------------------------------


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


# --- going on, explaining --------------------------------------------------------------------------


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

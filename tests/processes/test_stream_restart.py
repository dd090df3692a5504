"""Streams that begin again: another driver on the same checkpoint, a database that goes away and comes back."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession
from lookup_hints.streaming.supervisor import Status
from tests.processes.stateful_scenario import AGGREGATIONS, QUERIES
from tests.servers.postgres import PostgresServer, running_server
from tests.spark.elsewhere import ROOT, Outcomes, outcomes_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)
_numbers = itertools.count()


def wait_until(condition: Callable[[], bool], seconds: float = 150.0) -> None:
    """Wait until ``condition`` holds, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.05)


# --- another driver --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_drivers(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Outcomes, Outcomes, Path]:
    """What the first driver and, over more data, the second one gave."""
    folder = tmp_path_factory.mktemp("stateful")
    outcomes = []
    for first in (100, 200):
        for begin in range(first, first + 100, 25):  # one after the other: a stream takes files by their age
            arriving = f"SELECT id, id % 5 AS person, timestamp_seconds(id) AS at FROM range({begin}, {begin + 25}, 1, 1)"
            spark.sql(arriving).write.mode("append").parquet(str(folder / "arrived"))
        outcomes.append(outcomes_of("tests.processes.stateful_scenario", folder, seconds=200))
        (folder / "outcomes.json").unlink()
    return outcomes[0], outcomes[1], folder


@pytest.mark.parametrize("name", QUERIES)
def test_a_second_driver_goes_on_from_the_checkpoint_of_the_first(
    two_drivers: tuple[Outcomes, Outcomes, Path], name: str
) -> None:
    first, second, _ = two_drivers
    before, after = first.gave(name), second.gave(name)
    assert before["rows"] > 20
    assert after["rows"] > before["rows"] + 20
    assert (before["not expected"], after["not expected"]) == (0, 0), "nothing is doubled or made up"
    if name in AGGREGATIONS:
        assert 0 < after["missing"] <= 8
    else:
        assert (before["missing"], after["missing"]) == (0, 0)


def test_the_state_knows_nothing_of_the_lookup(two_drivers: tuple[Outcomes, Outcomes, Path]) -> None:
    _, _, folder = two_drivers
    files = [path for path in (folder / "checkpoints").rglob("*") if path.is_file()]
    assert len(files) > 40
    assert not [path for path in files if b"lookup_" in path.read_bytes()]


# --- a database that goes away ---------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of the test's own, as it is killed."""
    for running in running_server():
        running.execute(
            "CREATE TABLE people (id bigint PRIMARY KEY, name text);"
            "INSERT INTO people SELECT n, 'name ' || n FROM generate_series(0, 49) n;"
        )
        yield running


@pytest.fixture
def session(spark: SparkSession, server: PostgresServer) -> Iterator[LookupSession]:
    own = LookupSession(spark.newSession())
    own.spark.conf.set("my.dsn", server.url())
    database = f"restarts_{next(_numbers)}"
    own.sql(f"CREATE DATABASE {database}")
    own.sql(f"USE {database}")
    own.sql(
        "CREATE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH"
        " ('connector' = 'postgres', 'url' = '${conf:my.dsn}', 'table-name' = 'people')"
    )
    own.sql("CREATE TABLE visits (id BIGINT, person BIGINT) USING parquet")
    yield own
    own.streams.stop()
    own.sql("USE default")
    own.sql(f"DROP DATABASE {database} CASCADE")


def visit(session: LookupSession, first: int, end: int) -> None:
    """Let visits arrive, each in a file of its own."""
    for number in range(first, end):
        session.sql(
            f"INSERT INTO visits SELECT id, id % 60 FROM range({number * 20}, {number * 20 + 20}, 1, 1)"
        )


def test_a_killed_database_loses_and_doubles_nothing(
    session: LookupSession, server: PostgresServer, tmp_path: Path
) -> None:
    session.sql(f"SET lookup.stream.checkpoint = '{tmp_path}/checkpoint'")
    session.sql("SET restart-strategy.exponential-delay.initial-backoff = 200 ms")
    session.sql("SET restart-strategy.exponential-delay.max-backoff = 1 s")
    session.sql("CREATE TABLE out (id BIGINT, name STRING) USING parquet")
    visit(session, 0, 10)
    session.sql(
        "INSERT INTO out SELECT v.id, p.name FROM STREAM visits WITH ('maxFilesPerTrigger' = '1') v"
        " LEFT JOIN people p ON v.person = p.id"
    )
    (stream,) = session.streams.started
    wait_until(lambda: (stream.batches or 0) >= 2)
    server.kill()
    visit(session, 10, 15)
    wait_until(lambda: len(stream.supervised.restarts) >= 2)
    assert stream.supervised.status is not Status.FAILED
    server.start()
    wait_until(lambda: stream.supervised.status is Status.RUNNING and (stream.batches or 0) >= 15)
    session.streams.stop()

    rows = session.sql("SELECT id, name FROM out ORDER BY id").collect()
    expected = [(n, f"name {n % 60}" if n % 60 < 50 else None) for n in range(300)]
    assert [tuple(row) for row in rows] == expected, "each visit once, with its name"
    causes = {restart.cause for restart in stream.supervised.restarts}
    assert all("people" in cause for cause in causes), causes


def test_the_strategy_gives_up_and_the_last_failure_is_raised(
    session: LookupSession, server: PostgresServer, tmp_path: Path
) -> None:
    session.sql(f"SET lookup.stream.checkpoint = '{tmp_path}/checkpoint'")
    for key, value in (
        ("type", "fixed-delay"),
        ("fixed-delay.attempts", "2"),
        ("fixed-delay.delay", "10 ms"),
    ):
        session.sql(f"SET restart-strategy.{key} = {value}")
    session.sql("CREATE TABLE out (id BIGINT, name STRING) USING parquet")
    visit(session, 0, 1)
    session.sql(
        "INSERT INTO out SELECT v.id, p.name FROM STREAM visits v LEFT JOIN people p ON v.person = p.id"
    )
    (stream,) = session.streams.started
    wait_until(lambda: bool(stream.batches))
    server.stop()
    visit(session, 1, 2)
    with pytest.raises(Exception, match="people") as caught:
        session.streams.await_all(120)
    assert "StreamingQueryException" in type(caught.value).__name__
    assert len(stream.supervised.restarts) == 2
    assert stream.supervised.status is Status.FAILED


def test_full_failover_starts_all_queries_of_the_script_again(
    session: LookupSession, server: PostgresServer, tmp_path: Path
) -> None:
    session.sql("SET restart-strategy.exponential-delay.initial-backoff = 100 ms")
    session.sql("SET execution.failover-strategy = full")
    visit(session, 0, 2)
    for name, query in {
        "asking": "SELECT v.id FROM STREAM visits v JOIN people p ON v.person = p.id",
        "counting": "SELECT id FROM STREAM visits",
    }.items():
        session.sql(f"CREATE TABLE {name} (id BIGINT) USING parquet")
        session.sql(f"SET lookup.stream.checkpoint = '{tmp_path}/{name}'")
        session.sql(f"INSERT INTO {name} {query}")
    asking, counting = session.streams.started
    wait_until(lambda: bool(asking.batches) and bool(counting.batches))
    server.kill()
    visit(session, 2, 3)
    wait_until(lambda: bool(counting.supervised.restarts))
    assert counting.supervised.restarts[0].cause.startswith("asking failed: ")
    server.start()
    wait_until(lambda: count_of(session, "asking") == 50)
    wait_until(lambda: count_of(session, "counting") == 60)
    session.streams.stop()
    assert count_of(session, "counting") == 60
    assert session.sql("SELECT DISTINCT id FROM counting").count() == 60


def count_of(session: LookupSession, table: str) -> int:
    """How many rows a table has that a stream writes: what Spark listed before is asked for anew."""
    session.spark.catalog.refreshTable(table)
    return session.sql(f"SELECT * FROM {table}").count()


# --- a file ----------------------------------------------------------------------------------------

JOB = """
CREATE TABLE visits USING rate OPTIONS ('rowsPerSecond' = '20');
CREATE TABLE out (id BIGINT, name STRING) USING parquet;
CREATE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"], [2, "Bob"]]');
SET lookup.stream.checkpoint = '{folder}/one';
SET lookup.stream.name = enriched;
INSERT INTO out SELECT v.value, p.name FROM STREAM visits v JOIN people p ON v.value % 4 = p.id;
INSERT INTO noop WITH (queryName = 'second', checkpointLocation = '{folder}/two') SELECT * FROM STREAM visits;
"""


def batches_done(checkpoint: Path) -> int:
    """How many batches a checkpoint knows as done."""
    return max((int(path.name) + 1 for path in (checkpoint / "commits").glob("[0-9]*")), default=0)


@contextmanager
def running_job(job: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """`lookup-hints run` of a file in a process group of its own, none of which is left at the end, and its output."""
    program = Path(sys.executable).with_name("lookup-hints")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    output = job.parent / "output"
    with output.open("ab") as log:
        process = subprocess.Popen(
            [program, "run", job, "--master", "local[2]", "--conf", "spark.ui.enabled=false"],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=job.parent,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path},
            # Where the tests run in the background, a shell had them ignore it, and this would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            start_new_session=True,
        )
    watchdog = threading.Timer(200, process.kill)
    watchdog.start()
    try:
        yield process, output
    finally:
        watchdog.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_queries_of_a_file_cleanly(ending: signal.Signals, tmp_path: Path) -> None:
    job = tmp_path / "job.sql"
    job.write_text(JOB.format(folder=tmp_path), encoding="utf-8")
    with running_job(job) as (process, output):
        wait_until(lambda: "2 streaming queries run; Ctrl-C stops them" in output.read_text(encoding="utf-8"))
        # A second commit: what the first batch did has been told.
        wait_until(lambda: all(batches_done(tmp_path / query) >= 2 for query in ("one", "two")))
        if ending is signal.SIGINT:
            os.killpg(process.pid, ending)  # a terminal tells Spark's JVM and workers too
        else:
            process.send_signal(ending)
        process.wait(60)
    told = output.read_text(encoding="utf-8")
    assert process.returncode == 128 + ending, told
    assert f"stopped by {ending.name}" in told
    assert "streaming query enriched into out: stopped, batches so far " in told
    assert "streaming query second into noop: stopped, batches so far " in told
    assert " asked for, " in told, "what the lookups did"
    assert "restart 1" not in told, "a stop is not a failure"


def test_a_killed_driver_loses_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    job = tmp_path / "job.sql"
    sink, table = f"parquet.`{tmp_path}/out`", "CREATE TABLE out (id BIGINT, name STRING) USING parquet;"
    text = JOB.format(folder=tmp_path).replace("INTO out", f"INTO {sink}").replace(table, "")
    job.write_text(text, encoding="utf-8")
    done = 0
    for _ in range(2):
        with running_job(job) as (process, _):
            wait_until(lambda done=done: batches_done(tmp_path / "one") >= done + 3, 120)  # type: ignore[misc]
            os.killpg(process.pid, signal.SIGKILL)
        done = batches_done(tmp_path / "one")
    with running_job(job) as (process, _):
        wait_until(lambda: batches_done(tmp_path / "one") >= done + 2, 120)
        process.send_signal(signal.SIGINT)
        process.wait(60)

    values = [row.value for row in spark.read.parquet(str(tmp_path / "out")).orderBy("value").collect()]
    assert len(values) > 20
    assert values == [value for value in range(values[-1] + 1) if value % 4 in (1, 2)]

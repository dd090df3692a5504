"""`session.metrics()` on Spark: by names that people know, each task once."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from lookup_hints import LookupMetrics, LookupName, LookupSession
from lookup_hints.cli.main import main
from lookup_hints.errors import QueryError

ROWS = '[{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}]'


PEOPLE = (
    "CREATE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
    f" WITH ('connector' = 'memory', 'rows' = '{ROWS}')"
)
INTO_NOOP = (
    "INSERT INTO noop SELECT late.name FROM STREAM arriving WITH (maxFilesPerTrigger = 1) o"
    " JOIN people late ON o.id = late.id"
)


def arriving(session: LookupSession, folder: Path, *, batches: int) -> None:
    """A stream with a file for each batch: of one row, of two, of three and so on."""
    files = folder / "in"
    files.mkdir()
    session.sql("DROP TABLE IF EXISTS arriving")
    session.sql(f"CREATE TABLE arriving (id BIGINT) USING json LOCATION '{files}'")
    for number in range(batches):
        (files / f"{number}.json").write_text("".join(f'{{"id": {each}}}\n' for each in range(number + 1)))
    session.sql("SET lookup.stream.trigger = available-now")
    session.sql(f"SET lookup.stream.checkpoint = {folder / 'checkpoint'}")


@pytest.fixture
def session(spark: SparkSession) -> Iterator[LookupSession]:
    session = LookupSession(spark.newSession())
    session.sql(PEOPLE)
    session.spark.range(0, 4, 1, 2).createOrReplaceTempView("orders")
    yield session
    session.streams.stop()


def test_a_lookup_is_counted_under_its_table_alias_connector_and_line(
    session: LookupSession, tmp_path: Path
) -> None:
    file = tmp_path / "two.sql"
    file.write_text(
        "SELECT p.name FROM orders o JOIN people p ON o.id = p.id;\n\n"
        "SELECT name FROM orders o LEFT JOIN people ON o.id = people.id;\n"
    )
    for frame in session.run_script(file):
        frame.collect()
    counted = {(name.table, name.alias, name.connector, name.line) for name in session.metrics()}
    assert counted == {("people", "p", "memory", 1), ("people", "people", "memory", 3)}
    assert sorted(map(str, session.metrics())) == ["people AS p, line 1", "people, line 3"]
    assert all(counts.rows_in == 4 for counts in session.metrics().values())


def test_the_function_carries_the_alias_and_so_do_the_pages_of_spark(session: LookupSession) -> None:
    text = session.explain("SELECT `p 1`.name FROM orders o JOIN people `p 1` ON o.id = `p 1`.id")
    assert "lookup_p_1_" in text.partition("== Spark plan ==")[2]


def test_two_runs_of_a_query_are_no_repeats_of_its_tasks(session: LookupSession) -> None:
    frame = session.sql("SELECT two.name FROM orders o JOIN people two ON o.id = two.id")
    frame.collect()
    frame.collect()
    (counts,) = session.metrics().values()
    assert (counts.rows_in, counts.repeated_tasks) == (8, 0)


def test_a_statement_is_run_and_measured(session: LookupSession) -> None:
    text = session.explain_analyze("SELECT an.name FROM orders o LEFT JOIN people an ON o.id = an.id")
    measured = [" ".join(line.split()) for line in text.partition("  measured\n")[2].splitlines()]
    assert measured[0] == "rows 4 in, 2 found, 4 out"
    assert measured[1] == "keys 4 asked, 2 found (50 %), 2 missed"
    assert measured[2].startswith("requests 2 of 2 keys each, at most 1 of 100 in flight in one task;")
    assert measured[3].startswith("latency p50 ")
    assert "== Spark SQL ==" in text


def test_a_statement_that_writes_is_measured_while_it_writes(session: LookupSession, tmp_path: Path) -> None:
    text = session.explain_analyze(
        f"INSERT OVERWRITE DIRECTORY '{tmp_path / 'out'}' USING parquet"
        " SELECT w.name FROM orders o JOIN people w ON o.id = w.id"
    )
    assert "rows      4 in, 2 found, 2 out" in text
    assert session.spark.read.parquet(str(tmp_path / "out")).count() == 2


def test_only_what_has_a_lookup_and_an_end_is_measured(session: LookupSession, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="has no lookup join to measure"):
        session.explain_analyze("SELECT 1")
    session.sql(f"CREATE TABLE arriving_late (id BIGINT) USING json LOCATION '{tmp_path}'")
    with pytest.raises(QueryError, match="A streaming query has no end at which it could be measured"):
        session.explain_analyze(
            "INSERT INTO noop SELECT p.name FROM STREAM arriving_late s JOIN people p ON s.id = p.id"
        )


def test_micro_batches_are_told_apart(session: LookupSession, tmp_path: Path) -> None:
    arriving(session, tmp_path, batches=3)
    session.sql(INTO_NOOP)
    session.streams.await_all(60)
    (stream,) = session.streams.started
    assert [batch.number for batch in stream.history] == [0, 1, 2]
    assert [batch.total.rows_in for batch in stream.history] == [batch.rows for batch in stream.history]
    assert sorted(batch.rows for batch in stream.history) == [1, 2, 3]
    ((name, total),) = session.metrics().items()
    assert isinstance(name, LookupName)
    assert sum((batch.total for batch in stream.history), LookupMetrics()) == total


def test_a_listener_of_the_users_own_gets_the_counts_of_each_batch(
    session: LookupSession, tmp_path: Path
) -> None:
    heard: list[tuple[int, LookupMetrics]] = []

    class Watch(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...  # noqa: N802

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            lookups = session.streams.lookups_of(event.progress)
            if event.progress.numInputRows:
                heard.append((event.progress.numInputRows, sum(lookups.values(), LookupMetrics())))

        def onQueryIdle(self, event: Any) -> None: ...  # noqa: N802

        def onQueryTerminated(self, event: Any) -> None: ...  # noqa: N802

    watch = Watch()
    session.spark.streams.addListener(watch)
    try:
        arriving(session, tmp_path, batches=10)
        session.sql(INTO_NOOP.replace("late", "heard"))
        session.streams.await_all(60)
        ended = time.monotonic()
        while len(heard) < 10 and time.monotonic() < ended + 20:
            time.sleep(0.1)
    finally:
        session.spark.streams.removeListener(watch)
    assert [counts.rows_in for _, counts in heard] == [rows for rows, _ in heard]
    assert len(heard) == 10
    (total,) = session.metrics().values()
    assert sum((counts for _, counts in heard), LookupMetrics()) == total


def test_the_lines_of_ten_batches_add_up_to_the_sum(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = LookupSession(spark)
    arriving(session, tmp_path, batches=10)
    file = tmp_path / "stream.sql"
    file.write_text(
        f"{PEOPLE};\nSET lookup.stream.trigger = available-now;\n"
        f"SET lookup.stream.checkpoint = {tmp_path / 'lines'};\n{INTO_NOOP.replace('late', 'lines')};\n"
    )
    try:
        assert main(["run", "-v", str(file)]) == 0
    finally:
        session.sql("DROP TABLE IF EXISTS people")
        for key in ("lookup.stream.trigger", "lookup.stream.checkpoint"):
            spark.conf.unset(key)  # the session is that of all tests
    out = capsys.readouterr().out
    line = re.compile(
        r"^\S+ batch (\d+): ([\d,]+) rows?, (\d+) keys?, (\d+) requests?, \d+ % found, p99 ", re.M
    )
    found = [tuple(map(int, match.groups())) for match in line.finditer(out)]
    assert [number for number, *_ in found] == list(range(10))
    (summary,) = [each.split() for each in out.splitlines() if each.split()[1:2] == ["lines"]]
    titles = ["line", "lookup", "rows in", "rows out", "keys", "requests"]
    sums = dict(zip(titles, summary, strict=False))
    assert sum(rows for _, rows, _, _ in found) == 55 == int(sums["rows in"])
    assert sum(keys for _, _, keys, _ in found) == int(sums["keys"])
    assert sum(requests for *_, requests in found) == int(sums["requests"])

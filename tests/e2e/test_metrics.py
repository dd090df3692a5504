"""`session.metrics()` on Spark: by names that people know, each task once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lookup_hints import LookupMetrics, LookupName, LookupSession
from lookup_hints.errors import QueryError

ROWS = '[{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}]'


@pytest.fixture
def session(spark: SparkSession) -> Iterator[LookupSession]:
    session = LookupSession(spark.newSession())
    session.sql(
        "CREATE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
        f" WITH ('connector' = 'memory', 'rows' = '{ROWS}')"
    )
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
    orders = tmp_path / "in"
    orders.mkdir()
    session.sql(f"CREATE TABLE arriving (id BIGINT) USING json LOCATION '{orders}'")
    for number in range(3):
        (orders / f"{number}.json").write_text("".join(f'{{"id": {each}}}\n' for each in range(number + 1)))
    session.sql("SET lookup.stream.trigger = available-now")
    session.sql(f"SET lookup.stream.checkpoint = {tmp_path / 'checkpoint'}")
    session.sql(
        "INSERT INTO noop SELECT late.name FROM STREAM arriving WITH (maxFilesPerTrigger = 1) o"
        " JOIN people late ON o.id = late.id"
    )
    session.streams.await_all(60)
    (stream,) = session.streams.started
    functions = session._state.functions
    batches = [functions.metrics_of_batch(stream.supervised.query.id, number) for number in range(3)]
    rows = [sum(counts.rows_in for counts in batch.values()) for batch in batches]
    assert sorted(rows) == [1, 2, 3]
    ((name, total),) = session.metrics().items()
    assert isinstance(name, LookupName)
    assert sum((sum(batch.values(), LookupMetrics()) for batch in batches), LookupMetrics()) == total

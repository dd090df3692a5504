"""What a streaming INSERT says, and how it runs: texts and options, without Spark."""

from __future__ import annotations

import pytest

from lookup_hints.cli.check import check_script
from lookup_hints.errors import OptionError, QueryError
from lookup_hints.spi.option_values import TRIGGER
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import own_setting
from lookup_hints.streaming.insert import (
    StreamSettings,
    names_a_stream,
    read_insert,
    shown_insert,
    stream_settings,
    stream_sources,
    written_options,
)
from lookup_hints.streaming.restart_strategy import ExponentialDelayRestart, NoRestart

QUERY = "SELECT * FROM STREAM s"


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t SELECT * FROM STREAM s",
        "insert into t select * from stream(s)",
        "INSERT INTO t SELECT * FROM a JOIN /* c */ STREAM `s` x ON a.k = x.k",
        "-- c\nINSERT INTO t WITH ('a' = 'b') SELECT 1 FROM STREAM a.b.c",
        "INSERT INTO t (a) WITH q AS (SELECT 1 FROM STREAM s) SELECT * FROM q",
        "INSERT INTO t FROM STREAM s |> WHERE x",
    ],
)
def test_an_insert_that_reads_a_stream_is_found(text: str) -> None:
    assert names_a_stream(SqlText(text))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM STREAM s",
        "INSERT INTO t SELECT stream FROM s",
        "INSERT INTO stream SELECT * FROM s",
        "INSERT INTO t SELECT * FROM `stream` s",
        "INSERT INTO t SELECT * FROM stream",
        "INSERT INTO t SELECT 'FROM STREAM s' FROM s -- FROM STREAM s",
        "INSERT INTO t VALUES (1)",
        "",
    ],
)
def test_other_statements_are_not(text: str) -> None:
    assert not names_a_stream(SqlText(text))


def test_a_mistyped_strategy_is_told_the_nearest_one() -> None:
    with pytest.raises(OptionError) as caught:
        own_setting(SqlText("SET restart-strategy.type = fixed"))
    assert "one of none, fixed-delay, exponential-delay, failure-rate. Did you mean 'fixed-delay'?\n" in str(
        caught.value
    )


def test_the_streams_of_a_query_are_found_with_their_options_and_aliases() -> None:
    query = (
        "SELECT 1 FROM STREAM a.`b c` WITH ('maxFilesPerTrigger' = '1', n = 2) AS x"
        " JOIN stream(d) USING (k) LEFT JOIN STREAM e y ON y.k = x.k WHERE stream > 1"
    )
    assert [
        (source.name, dict(source.options), source.has_alias, query[source.start : source.end])
        for source in stream_sources(SqlText(query))
    ] == [
        (
            ("a", "b c"),
            {"maxFilesPerTrigger": "1", "n": "2"},
            True,
            "STREAM a.`b c` WITH ('maxFilesPerTrigger' = '1', n = 2)",
        ),
        (("d",), {}, False, "stream(d)"),
        (("e",), {}, True, "STREAM e"),
    ]


@pytest.mark.parametrize(
    "after", ["", " WHERE id > 1", ")", " UNION ALL SELECT 1", "; ", " |> WHERE x", ", t"]
)
def test_a_stream_without_an_alias(after: str) -> None:
    (source,) = stream_sources(SqlText(f"SELECT * FROM STREAM s{after}"))
    assert not source.has_alias


def test_the_parts_of_a_plain_insert() -> None:
    insert = read_insert(SqlText(f"INSERT INTO TABLE a.`b c` {QUERY};"))
    assert insert.sink == ("a", "b c")
    assert insert.shown_sink == "a.`b c`"
    assert (insert.columns, insert.by_name, dict(insert.options)) == (None, False, {})
    assert insert.query == f"{'':26}{QUERY};", "at its place, so that places in errors stay true"


@pytest.mark.parametrize(
    ("middle", "columns", "by_name"),
    [
        ("", None, False),
        ("BY NAME ", None, True),
        ("(a, `B c`) ", ("a", "B c"), False),
        ("WITH ('x' = '1') (a) ", ("a",), False),
        ("WITH ('x' = '1') BY NAME ", None, True),
    ],
)
@pytest.mark.parametrize(
    "query", [QUERY, f"({QUERY})", f"WITH q AS ({QUERY}) SELECT * FROM q", "FROM STREAM s"]
)
def test_columns_and_by_name(middle: str, columns: tuple[str, ...] | None, by_name: bool, query: str) -> None:
    insert = read_insert(SqlText(f"INSERT INTO t {middle}{query}"))
    assert (insert.columns, insert.by_name) == (columns, by_name)
    assert insert.query.strip() == query


def test_options_are_written_as_spark_writes_them() -> None:
    insert = read_insert(
        SqlText(
            "INSERT INTO kafka WITH ('topic' = 't', kafka.acks 'all', failOnDataLoss = false, n = 3,"
            f" 'CheckpointLocation' '/c', trigger = 'once', 'queryName' == 'q') {QUERY}"
        )
    )
    written = written_options(insert)
    assert written.ours == {"checkpoint": "/c", "trigger": ("once", True), "name": "q"}
    assert written.others == {"topic": "t", "kafka.acks": "all", "failOnDataLoss": "false", "n": "3"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            f"INSERT OVERWRITE t {QUERY}",
            "line 1, column 8: INSERT OVERWRITE cannot stand in an INSERT that reads a stream."
            " A stream adds rows: write INSERT INTO.",
        ),
        (
            f"INSERT INTO t PARTITION (day = 1) {QUERY}",
            "line 1, column 15: PARTITION cannot stand in an INSERT that reads a stream."
            " Give the partition column in the query; each row goes to the partition of its value.",
        ),
        (f"INSERT INTO t REPLACE WHERE a = 1 {QUERY}", "line 1, column 15: REPLACE cannot stand"),
        (f"INSERT INTO 't' {QUERY}", "line 1, column 13: The name of the sink is missing before"),
        (f"INSERT t {QUERY}", "line 1, column 8: INTO is missing before t."),
        (f"INSERT INTO t AS x {QUERY}", "line 1, column 15: The query is missing before AS."),
        (f"INSERT INTO t WITH ('a' = b) {QUERY}", "line 1, column 27: The value of 'a' must be a literal."),
        (
            f"INSERT INTO t WITH ('a' = 'b', 'A' = 'c') {QUERY}",
            "line 1, column 32: The option 'A' is given twice.",
        ),
        (
            f"INSERT INTO t WITH ('a' = 'b' {QUERY}",
            "line 1, column 31: ',' or ')' after an option is missing before SELECT.",
        ),
        ("INSERT INTO t", "line 1, column 14: The query is missing."),
        ("INSERT INTO t WITH ('a'", "line 1, column 24: The value of 'a' must be a literal."),
    ],
)
def test_what_a_stream_cannot_do_is_refused_at_its_place(text: str, error: str) -> None:
    with pytest.raises(QueryError) as caught:
        read_insert(SqlText(text))
    assert str(caught.value).startswith(error)


def test_values_of_options_are_never_shown() -> None:
    text = (
        f"INSERT INTO kafka WITH ('kafka.sasl.jaas.config' = 'hunter2', 'a' = hunter) {QUERY} WHERE x = 'y'"
    )
    assert "hunter2" not in shown_insert(SqlText(text))
    assert shown_insert(SqlText(text)).endswith("WHERE x = 'y'")
    with pytest.raises(OptionError) as caught:
        read_insert(SqlText(text))
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(read_insert(SqlText(text.replace("hunter)", "'b')"))))


def test_wrong_values_are_told_all_at_once() -> None:
    with pytest.raises(OptionError) as caught:
        written_options(
            read_insert(SqlText(f"INSERT INTO t WITH (trigger = 'now', outputMode = 'all') {QUERY}"))
        )
    assert "'trigger' cannot be 'now': it must be one of processing-time <duration>" in str(caught.value)
    assert "'outputMode' cannot be 'all': it must be one of append, update, complete." in str(caught.value)


# --- triggers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("available-now", ("availableNow", True)),
        ("AVAILABLE_NOW", ("availableNow", True)),
        ("available now", ("availableNow", True)),
        ("once", ("once", True)),
        ("processing-time 10s", ("processingTime", "10000 milliseconds")),
        ("processing-time 1 min", ("processingTime", "60000 milliseconds")),
        ("processing-time 0", ("processingTime", "0 milliseconds")),
        ("real-time 5 min", ("realTime", "300000 milliseconds")),
        ("continuous 1s", ("continuous", "1000 milliseconds")),
    ],
)
def test_triggers(text: str, trigger: tuple[str, str | bool]) -> None:
    assert TRIGGER.parse(text) == trigger


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("sometimes", "it must be one of processing-time <duration> | available-now"),
        ("availble-now", "Did you mean 'available-now'?"),
        ("10s", "it must be one of"),
        ("processing-time", "processing-time needs a time, as in 'processing-time 10s'"),
        ("processing-time 3m", "'m' is not a unit"),
        ("once 10s", "once takes no time"),
        ("continuous 0", "it must be at least 1 ms"),
    ],
)
def test_what_is_no_trigger_is_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the text is checked)
        TRIGGER.parse(text)
    assert error in str(caught.value)


# --- settings --------------------------------------------------------------------------------------


def settings(with_options: str = "", *, keeps_rows: bool = True, **session: str) -> StreamSettings:
    insert = read_insert(SqlText(f"INSERT INTO t {with_options} {QUERY}"))
    conf = {
        "name": "lookup.stream.name",
        "checkpoint": "lookup.stream.checkpoint",
        "root": "spark.sql.streaming.checkpointLocation",
        "restart": "restart-strategy.type",
        "failover": "jobmanager.execution.failover-strategy",
        "sync": "table.dml-sync",
    }
    given = {conf[key]: value for key, value in session.items()}
    return stream_settings(written_options(insert), given.get, keeps_rows=keeps_rows)


def test_without_options_there_is_no_checkpoint_and_no_restart() -> None:
    assert settings() == StreamSettings(
        checkpoint=None,
        trigger=None,
        output_mode="append",
        name=None,
        sync=False,
        strategy=NoRestart(),
        failover="region",
    )


def test_with_a_checkpoint_a_query_is_restarted() -> None:
    assert settings(checkpoint="/a").strategy == ExponentialDelayRestart()
    assert settings(checkpoint="/a", restart="off").strategy == NoRestart()


def test_the_statement_wins_over_the_session() -> None:
    written = settings("WITH (checkpointLocation = '/b', queryName = 'b')", checkpoint="/a", name="a")
    assert (written.checkpoint, written.name) == ("/b", "b")


def test_a_folder_of_all_checkpoints_holds_that_of_a_named_query() -> None:
    assert settings(root="/all/", name="flights").checkpoint == "/all/flights"
    assert settings(root="/all").checkpoint is None, "Spark would make up a name that no restart knows"
    assert settings(root="/all", name="flights", checkpoint="/own").checkpoint == "/own"


def test_a_sink_that_keeps_nothing_leaves_the_sessions_checkpoint_to_others() -> None:
    assert settings(checkpoint="/a", keeps_rows=False).checkpoint is None
    assert settings("WITH (checkpointLocation = '/b')", checkpoint="/a", keeps_rows=False).checkpoint == "/b"


def test_names_of_flink_are_known() -> None:
    assert settings(failover="full").failover == "full"
    assert settings(sync="true").sync
    assert own_setting(SqlText("SET 'table.dml-sync' = 'true'")) == ("table.dml-sync", "true")


# --- check -----------------------------------------------------------------------------------------


def test_a_file_is_checked_without_spark() -> None:
    table = "CREATE TEMPORARY TABLE d (id INT) WITH ('connector' = 'memory', 'rows' = '[]');\n"
    good = (
        f"{table}SET lookup.stream.trigger = once;\nINSERT INTO t SELECT 1 FROM STREAM s JOIN d ON s.k = d.id"
    )
    assert check_script(good) == []
    findings = check_script(
        f"{table}SET lookup.stream.trigger = twice;\nSET restart-strategy.type = maybe;\n"
        "INSERT OVERWRITE t SELECT 1 FROM STREAM s;\n"
        "INSERT INTO t WITH (trigger = 'x') SELECT 1 FROM STREAM s;\n"
        "INSERT INTO t SELECT /*+ LOOKUP('table'='d') */ 1 FROM STREAM s JOIN d ON s.k > d.id"
    )
    assert "'x'" not in findings[3].excerpt, "values of options are never shown"
    assert [finding.line for finding in findings] == [2, 3, 4, 5, 6]
    assert [finding.column for finding in findings] == [29, 29, 8, 13, 75]

"""The session's own statements: DDL, SHOW, SET, EXPLAIN, scripts, enable and disable; and its errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lookup_hints import LookupSession, disable, enable, register_retry_predicate
from lookup_hints.errors import DdlError, HintError, OptionError, QueryError, UnsupportedLookup
from lookup_hints.plan.key_casts import ANSI
from lookup_hints.process.running_task import running_statement
from lookup_hints.pyspark_internals import all_settings, load_sql
from tests.spark.versions import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PEOPLE = """CREATE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"], [2, "Bob"]]')"""

COLUMNAR_INPUT = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[LookupSession]:
    """A session of its own, with one lookup table and one view."""
    own = LookupSession(spark.newSession())
    own.sql(PEOPLE)
    own.sql("CREATE OR REPLACE TEMPORARY VIEW visits AS SELECT id, id % 3 AS person FROM range(6)")
    yield own
    disable(own.spark)


def test_a_jvm_can_load_sql_by_itself(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "lookup_hints"):
        load_sql(spark.sparkContext._gateway)
        assert not caplog.messages
        load_sql(None)
    assert caplog.messages == ["Spark's SQL is loaded by the first statement"]


JOIN = "SELECT v.id, p.name FROM visits v LEFT JOIN people p ON v.person = p.id"


def texts(session: LookupSession, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in session.sql(sql).collect()]


# --- tables ----------------------------------------------------------------------------------------


def test_two_sessions_of_one_spark_session_see_the_same_tables(session: LookupSession) -> None:
    assert len(LookupSession(session.spark).sql(JOIN).collect()) == 6


def test_spark_suggests_columns_that_the_statement_does_not_name(session: LookupSession) -> None:
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN") as caught:
        session.sql("SELECT p.nane FROM visits v JOIN people p ON v.person = p.id")
    assert "`p`.`name`" in str(caught.value)
    assert "line 1 pos 7" in str(caught.value)


def test_another_spark_session_does_not_see_them(session: LookupSession) -> None:
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        LookupSession(session.spark.newSession()).sql("SELECT * FROM people")


def test_describe(session: LookupSession) -> None:
    assert texts(session, "DESCRIBE people") == [("id", "bigint", "key"), ("name", "string", None)]
    extended = {name: kind for name, kind, _ in texts(session, "DESC EXTENDED people")}
    assert extended["connector"] == "memory"


def test_show(session: LookupSession) -> None:
    session.sql("CREATE OR REPLACE TEMPORARY VIEW plain AS SELECT 1 AS one")
    shown = {(name, temporary) for _, name, temporary in texts(session, "SHOW TABLES")}
    assert {("people", True), ("plain", True)} <= shown
    assert ("", "people", True) in texts(session, "SHOW TABLES LIKE 'peo*'")
    assert texts(session, "SHOW LOOKUP TABLES") == [("people", "memory")]
    assert texts(session, "SHOW COLUMNS IN people") == [("id",), ("name",)]
    ((statement,),) = texts(session, "SHOW CREATE TABLE people")
    session.sql("DROP TABLE people")
    session.sql(str(statement))
    assert len(session.sql(JOIN).collect()) == 6


def test_a_worker_that_has_read_a_whole_table_is_used_again(session: LookupSession) -> None:
    session.sql(
        "CREATE TEMPORARY TABLE worker (pid BIGINT) WITH ('connector' = 'tests.spark.counting:WorkerNumber',"
        " 'rows' = '[]')"
    )
    pids: list[object] = []
    while len(set(pids)) == len(pids):  # Spark takes its idle workers in turn
        assert len(pids) < 50
        pids.append(texts(session, "SELECT pid FROM worker")[0][0])


def test_a_task_knows_the_run_of_a_statement_that_it_belongs_to(session: LookupSession) -> None:
    def statements(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"name": [running_statement()]})

    frame = session.spark.range(0, 8, 1, 8).mapInArrow(statements, "name STRING")
    # limit(7) runs a job over one task, and more jobs until it has its rows
    runs = [{row.name for row in frame.limit(7).collect()} for _ in range(2)]
    assert [len(names) for names in runs] == [1, 1]
    assert None not in runs[0] | runs[1]
    assert runs[0] != runs[1]


@pytest.mark.skipif(SPARK < (4, 2), reason="Sparks before 4.2 hand over nothing but rows")
@pytest.mark.parametrize(
    ("said", "first"), [(None, None), (None, "SELECT count(*) FROM people"), ("true", None)]
)
def test_spark_reads_rows_for_lookups_where_nothing_else_was_said(
    spark: SparkSession, tmp_path: Path, said: str | None, first: str | None
) -> None:
    session = LookupSession(spark.newSession())
    if said is not None:
        session.spark.conf.set(COLUMNAR_INPUT, said)
    session.sql(PEOPLE)
    if first is not None:
        session.sql(first).collect()
    spark.range(1, 3, 1, 1).write.parquet(str(tmp_path / "orders"))
    session.spark.read.parquet(str(tmp_path / "orders")).createOrReplaceTempView("orders")
    joined = session.sql("SELECT o.id, p.name FROM orders o JOIN people p ON o.id = p.id")
    assert len(joined.collect()) == 2
    plan = joined._jdf.queryExecution().executedPlan().toString()
    assert ("ColumnarToRow" in plan) == (said is None)
    assert session.spark.conf.get(COLUMNAR_INPUT) == (said or "false")


def test_drop(session: LookupSession) -> None:
    session.sql("DROP TABLE people")
    assert texts(session, "SHOW LOOKUP TABLES") == []
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        session.sql(JOIN)


def test_a_name_that_is_taken(session: LookupSession) -> None:
    with pytest.raises(DdlError, match=r"The lookup table 'people' exists already\. Write CREATE OR REPLACE"):
        session.sql(PEOPLE)
    session.sql(PEOPLE.replace("TABLE people", "TABLE IF NOT EXISTS people").replace("Ann", "Zoe"))
    assert ("Ann",) in texts(session, "SELECT name FROM people")
    session.sql(PEOPLE.replace("CREATE", "CREATE OR REPLACE").replace("Ann", "Zoe"))
    assert ("Zoe",) in texts(session, "SELECT name FROM people")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("'connector' = 'memry'", "No connector is called 'memry'. Did you mean 'memory'?"),
        (
            "'connector' = 'sqlite', 'pth' = 'x'",
            "table t: connector 'sqlite' has no option 'pth'. Did you mean 'path'?",
        ),
        ("'connector' = 'sqlite'", "table t: the option 'path' is missing."),
        (
            "'connector' = 'memory', 'rows' = '[]', 'capacity' = 'many'",
            "table t: 'capacity' cannot be 'many': write a whole number.",
        ),
        (
            "'connector' = 'sqlite', 'path' = '${conf:no.such.key}'",
            "Spark's configuration has no key 'no.such.key', for the option 'path'.",
        ),
        ("'connector' = 'no_such_module:Thing'", "Connector 'no_such_module:Thing' cannot be imported"),
    ],
)
def test_bad_options(session: LookupSession, options: str, error: str) -> None:
    with pytest.raises(OptionError) as caught:
        session.sql(f"CREATE TEMPORARY TABLE t (id INT) WITH ({options})")
    assert error in str(caught.value)


def test_columns_from_the_source(session: LookupSession, tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "source.sqlite"
    with closing(sqlite3.connect(path)) as source, source:
        source.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, score REAL)")
        source.execute("INSERT INTO t VALUES (1, 'one', 1.5)")
    source.close()
    session.sql(f"CREATE TEMPORARY TABLE t WITH ('connector' = 'sqlite', 'path' = '{path}')")
    assert texts(session, "DESCRIBE t") == [
        ("id", "bigint", "key"),
        ("name", "string", None),
        ("score", "double", None),
    ]
    rows = texts(session, "SELECT v.id, t.score FROM visits v JOIN t ON v.id = t.id")
    assert rows == [(1, 1.5)]


def test_a_connector_that_cannot_tell_its_columns(session: LookupSession) -> None:
    with pytest.raises(Exception, match="Give a column list"):
        session.sql("CREATE TEMPORARY TABLE t WITH ('connector' = 'memory', 'rows' = '[]')")


# --- settings --------------------------------------------------------------------------------------


def test_session_options_and_precedence(session: LookupSession) -> None:
    session.sql("SET table.exec.async-lookup.buffer-capacity = 7")
    session.sql("SET 'table.exec.async-lookup.timeout' = '2 min'")
    explained = session.explain(JOIN)
    assert "7 requests in flight per task (session)" in explained
    assert "120 s" in explained
    hinted = JOIN.replace("SELECT", "SELECT /*+ LOOKUP('table'='p', 'capacity'='3') */", 1)
    assert "3 requests in flight" in session.explain(hinted)
    session.sql(PEOPLE.replace("CREATE", "CREATE OR REPLACE").replace("WITH (", "WITH ('capacity' = '5', "))
    assert "5 requests in flight per task (table)" in session.explain(JOIN)
    assert "3 requests in flight" in session.explain(hinted)


def test_other_settings_may_hold_anything(session: LookupSession) -> None:
    for number, text in enumerate(["\0", "a -> b\nlookup.capacity -> 3", "", " -> "]):
        session.spark.conf.set(f"some.setting.{number}", text)
    session.spark.conf.set("table.exec.async-lookup.buffer-capacity", "7")
    assert "7 requests in flight" in session.explain(JOIN)


def test_all_settings_are_what_spark_says_of_each(session: LookupSession) -> None:
    odd = {
        "lookup.my.a": "x -> y\nz",
        "lookup.my.b": "",
        "lookup.my.c": "${spark.app.name}",
        "lookup.my.é": "Map(ü)",
    }
    for key, value in odd.items():
        session.spark.conf.set(key, value)
    try:
        known = session._statements.scope.settings()
        everything = all_settings(session.spark.conf)
        assert everything is not None
        assert odd.keys() <= everything.keys()
        assert "spark.master" in everything
        said = {key: session.spark.conf.get(key, None) for key in everything}
        assert {key: known(key) for key in everything} == said
        assert known("lookup.my.d") is None
        assert known(ANSI) == session.spark.conf.get(ANSI)
    finally:
        for key in odd:
            session.spark.conf.unset(key)


def test_where_the_jvm_is_out_of_reach_each_setting_is_asked_for(
    session: LookupSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(session.spark.conf), "_jconf", property(lambda _: 1 / 0), raising=False)
    assert all_settings(session.spark.conf) is None


def test_a_setting_among_comments(session: LookupSession) -> None:
    assert texts(session, "-- c\nSET table.exec.async-lookup.timeout = 100 s -- why") == [
        ("table.exec.async-lookup.timeout", "100 s")
    ]
    assert "100 s" in session.explain(JOIN)


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        (
            "table.exec.async-lookup.buffer-capasity = 1",
            "No session option is called 'table.exec.async-lookup.buffer-capasity'."
            " Did you mean 'table.exec.async-lookup.buffer-capacity'?",
        ),
        (
            "table.exec.async-lookup.buffer-capacity = many",
            "'table.exec.async-lookup.buffer-capacity' cannot be 'many': write a whole number.",
        ),
    ],
)
def test_a_wrong_setting_fails_at_once(session: LookupSession, setting: str, error: str) -> None:
    with pytest.raises(OptionError) as caught:
        session.sql(f"SET {setting}")
    assert error in str(caught.value)
    assert "capacity     100 requests" in session.explain(JOIN)


def test_a_wrong_setting_from_elsewhere_fails_the_query(session: LookupSession) -> None:
    session.spark.conf.set("table.exec.async-lookup.timeout", "3m")
    with pytest.raises(
        OptionError, match=r"session: 'table.exec.async-lookup.timeout' cannot be '3m': 'm' is not a unit"
    ):
        session.sql(JOIN)


def test_a_wish_that_the_connector_cannot_fulfil_is_explained(session: LookupSession, tmp_path: Path) -> None:
    session.sql(
        f"CREATE TEMPORARY TABLE t (id BIGINT) WITH ('connector' = 'sqlite', 'path' = '{tmp_path}/x',"
        " 'lookup.async' = 'true')"
    )
    explained = session.explain("SELECT 1 FROM visits v JOIN t ON v.id = t.id")
    assert "sync: connector 'sqlite' can do sync only; 'async'='true' has no effect" in explained


# --- hints -----------------------------------------------------------------------------------------


def test_all_mistakes_of_a_hint_at_once(session: LookupSession) -> None:
    wrong = JOIN.replace(
        "SELECT", "SELECT /*+ LOOKUP('table'='p', 'capasity'='1', 'timeout'='1.5s', 'async'='yes') */", 1
    )
    with pytest.raises(HintError) as caught:
        session.sql(wrong)
    text = str(caught.value)
    assert "Did you mean 'capacity'?" in text
    assert "'timeout' cannot be '1.5s'" in text
    assert "'async' cannot be 'yes': write true or false" in text
    assert sum(set(line.strip()) == {"^"} for line in text.splitlines()) == 3


def test_a_wrong_hint_can_be_a_warning(session: LookupSession, caplog: pytest.LogCaptureFixture) -> None:
    session.sql("SET lookup.on-invalid-hint = warn")
    wrong = JOIN.replace("SELECT", "SELECT /*+ LOOKUP('table'='nobody') */", 1)
    with caplog.at_level(logging.WARNING, "lookup_hints"):
        assert len(session.sql(wrong).collect()) == 6
    assert "LOOKUP names 'nobody'" in caplog.text


def test_a_text_of_nothing_but_a_hint_is_left_to_spark(session: LookupSession) -> None:
    session.sql("SET lookup.on-invalid-hint = warn")
    for text in ("/*+ LOOKUP('table'='c') */", "/*+ LOOKUP('table'='c') */ ;", "-- LOOKUP", ""):
        assert session.prepare(text).plan is None
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        session.sql("/*+ LOOKUP('table'='c') */")


def test_a_hint_in_a_statement_without_lookup_tables(session: LookupSession) -> None:
    with pytest.raises(HintError, match="no lookup join in this query block has that alias"):
        session.sql("SELECT /*+ LOOKUP('table'='v') */ v.id FROM visits v JOIN visits w ON v.id = w.id")


def test_a_registered_retry_predicate(session: LookupSession) -> None:
    register_retry_predicate("always-more", lambda rows: True)
    hinted = JOIN.replace(
        "SELECT",
        "SELECT /*+ LOOKUP('table'='p', 'retry-predicate'='always_more', 'retry-strategy'='fixed-delay',"
        " 'fixed-delay'='1 ms', 'max-attempts'='2') */",
        1,
    )
    before = session.metrics()
    assert len(session.sql(hinted).collect()) == 6
    new = [counts for name, counts in session.metrics().items() if name not in before]
    assert sum(counts.retried_keys for counts in new) == 2 * sum(counts.keys for counts in new) > 0


# --- other statements ------------------------------------------------------------------------------


def test_a_statement_without_a_lookup_goes_to_spark_untouched(session: LookupSession) -> None:
    odd = "SELECT 'it''s' AS `a``b`, /* people's */ 1"
    assert session.prepare(odd).plan is None
    assert texts(session, odd) == [tuple(row) for row in session.spark.sql(odd).collect()]


def test_a_session_its_counts_and_its_plans_show_themselves(session: LookupSession) -> None:
    for table in session.tables():
        session.sql(f"DROP TABLE {table.name}")
    none = f"0 lookup tables on Spark {session.spark.version}"
    assert (repr(session), session._repr_html_()) == (none, f"<div>{none}</div>")
    session.sql(PEOPLE)
    assert repr(session).splitlines() == [
        f"1 lookup table on Spark {session.spark.version}",
        "table   connector  key  columns",
        "people  memory     id   id BIGINT, name STRING",
    ]
    assert ">id BIGINT, name STRING</td>" in session._repr_html_()
    query = "SELECT count(p.name) FROM range(3) r JOIN people p ON r.id = p.id"
    session.sql(query).collect()
    assert "people AS p, line 1 " in repr(session.metrics())
    plan = session.explain(query)
    assert repr(plan) == str(plan)
    assert "\n== Spark plan ==\n" in repr(plan)
    assert "<pre>== Lookup joins ==\n" in plan._repr_html_()  # type: ignore[attr-defined]


def test_explain_runs_nothing_and_shows_all(session: LookupSession) -> None:
    hinted = JOIN.replace(
        "SELECT",
        "SELECT /*+ LOOKUP('table'='p', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay',"
        " 'fixed-delay'='10s', 'max-attempts'='3', 'output-mode'='allow_unordered') */",
        1,
    )
    for explained in (session.explain(hinted), texts(session, f"EXPLAIN EXTENDED {hinted}")[0][0]):
        for part in (
            "LEFT lookup join with people AS p",
            "runner       async",
            "keys         id = v.person",
            "columns      name",
            "capacity     100 requests",
            "output mode  allow_unordered",
            "timeout      300 s",
            "retry        lookup_miss, fixed_delay 10 s, max-attempts 3",
            "batch size   at most 8,192 keys in one request",
            "LATERAL VIEW OUTER inline(lookup_",
            "Physical Plan ==",
        ):
            assert part in str(explained)


@pytest.mark.parametrize(
    "explain", ["-- c\nEXPLAIN ", "/* c */ EXPLAIN ", "EXPLAIN/* c */ EXTENDED ", "EXPLAIN\n"]
)
def test_explain_is_found_among_comments(session: LookupSession, explain: str) -> None:
    ((text,),) = texts(session, explain + JOIN)
    assert "LEFT lookup join with people AS p" in str(text)
    assert ("Parsed Logical Plan" in str(text)) == ("EXTENDED" in explain)


def test_mistakes_below_explain_are_shown_at_their_place(session: LookupSession) -> None:
    asked = JOIN.replace("LEFT", "RIGHT").replace("SELECT", "SELECT /*+ LOOKUP('table'='p') */", 1)
    with pytest.raises(UnsupportedLookup) as caught:
        session.sql(f"EXPLAIN\n/* c */ {asked}")
    assert str(caught.value).startswith("line 2, column 70: The lookup join with p cannot run: a RIGHT JOIN")


def test_a_misspelt_create_is_not_told_to_spark(session: LookupSession) -> None:
    wrong = PEOPLE.replace("TABLE", "TABL").replace("Ann", "hunter2")
    for run in (
        session.sql,
        lambda text: session.sql(text, x=1),
        lambda text: session.sql(f"EXPLAIN {text}"),
    ):
        with pytest.raises(DdlError, match=r"WITH \('connector' = \.\.\.\)") as caught:
            run(wrong)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(
        QueryError, match=r"Variables in braces \(x\) cannot stand in a statement with a lookup"
    ):
        session.sql(PEOPLE, x=1)


def test_a_prepared_statement_shows_no_secrets(session: LookupSession) -> None:
    secret = PEOPLE.replace("people", "folk").replace("Ann", "hunter2")
    create = session.prepare(secret)
    assert repr(create).startswith("Prepared(statement=CreateLookupTable(name='folk'")
    assert "hunter2" not in repr(create)
    session.run(create)
    query = session.prepare(JOIN.replace("people", "folk") + " WHERE v.id < :most", {"most": "hunter2"})
    assert query.plan is not None
    assert "hunter2" not in repr(query)


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (
            [1],
            "line 2, column 20: There are 2 parameter markers (?) and 1 value for them. Each marker takes one value,"
            " in the order of the text.\nWHERE v.id = ? AND ? = '?'\n                   ^",
        ),
        (
            [],
            "line 2, column 14: There are 2 parameter markers (?) and 0 values for them. Each marker takes one value,"
            " in the order of the text.\nWHERE v.id = ? AND ? = '?'\n             ^",
        ),
        (
            (1, "?", 3),
            "There are 2 parameter markers (?) and 3 values for them. Each marker takes one value, in the order of"
            " the text.",
        ),
    ],
)
def test_each_parameter_marker_takes_one_value(
    session: LookupSession, args: list[object], error: str
) -> None:
    text = f"{JOIN}\nWHERE v.id = ? AND ? = '?'"
    with pytest.raises(QueryError) as caught:
        session.sql(text, args)
    assert str(caught.value) == error
    assert session.sql(text, [1, "?"]).count() == 1


def test_explain_of_an_insert_writes_nothing(session: LookupSession, tmp_path: Path) -> None:
    session.sql(
        f"CREATE TABLE explained (id BIGINT, name STRING) USING parquet LOCATION '{tmp_path}/explained'"
    )
    assert "lookup_" in session.explain(f"INSERT INTO explained {JOIN}")
    assert session.sql("SELECT * FROM explained").count() == 0
    session.sql("DROP TABLE explained")


def test_enable_and_disable(session: LookupSession) -> None:
    spark = session.spark
    enable(spark)
    assert spark.sql(JOIN).count() == 6
    assert spark.sql("SELECT {x} AS x", x=1).collect()[0].x == 1
    with pytest.raises(
        QueryError, match=r"Variables in braces \(x\) cannot stand in a statement with a lookup"
    ):
        spark.sql(JOIN + " WHERE v.id = {x}", x=1)
    disable(spark)
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql(JOIN)
    disable(spark)


def test_a_script(session: LookupSession, tmp_path: Path) -> None:
    script = tmp_path / "job.sql"
    script.write_text(
        f"-- a job; with a comment\n{PEOPLE.replace('people', 'folk')};\n"
        "CREATE OR REPLACE TEMPORARY VIEW joined AS SELECT v.id, f.name FROM visits v JOIN folk f ON v.person = f.id;\n"
        "SELECT count(*) AS n FROM joined WHERE id < :most;",
        encoding="utf-8",
    )
    frames = session.run_script(script, {"most": 4})
    assert len(frames) == 3
    assert frames[-1].collect()[0].n == 2


def test_a_lookup_table_is_not_written_to(session: LookupSession) -> None:
    with pytest.raises(UnsupportedLookup, match="people is a lookup table: it is asked, never written to"):
        session.sql("DELETE FROM people WHERE id = 1")
    with pytest.raises(UnsupportedLookup, match="people is a lookup table: it is asked, never written to"):
        session.sql("INSERT INTO people SELECT 1, 'x'")


def test_a_function_of_the_users_own_in_on(session: LookupSession) -> None:
    session.spark.udf.register("shout", lambda text: text.upper(), "string")
    with pytest.raises(
        UnsupportedLookup, match=r"A function of your own .* of a LEFT JOIN, compute its left"
    ):
        session.sql("SELECT 1 FROM visits v LEFT JOIN people p ON v.person = p.id AND shout(p.name) = 'ANN'")
    for place in ("AND", "WHERE"):
        sql = f"SELECT v.id FROM visits v JOIN people p ON v.person = p.id {place} shout(p.name) = 'ANN'"
        assert sorted(texts(session, sql)) == [(1,), (4,)]


@contextmanager
def logged_errors() -> Iterator[list[str]]:
    """What PySpark logs of errors, beside raising them."""
    logged: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(record.getMessage())

    handler, log = Kept(), logging.getLogger("SQLQueryContextLogger")
    log.addHandler(handler)
    try:
        yield logged
    finally:
        log.removeHandler(handler)


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        (f"{JOIN} WHERE v.nope = 1", "v.nope", "`v`.`nope` cannot be resolved"),
        (f"CREATE TEMPORARY VIEW w AS\n{JOIN}\nWHERE v.nope = 1", "v.nope", "`v`.`nope` cannot be resolved"),
        (f"{JOIN} WHERE p.name = = 'Ann'", "= 'Ann'", "Syntax error at or near '='"),
        (JOIN.replace("v.id,", "/*+ LOOKUP('table'='p') */ v.id,") + " GROUP )", ")", "Syntax error"),
        (JOIN.replace("visits v", "visits v TABLESAMPLE (9 PERCENT)"), "TABLESAMPLE", "Syntax error"),
    ],
)
def test_sparks_errors_are_about_the_users_text(
    session: LookupSession, text: str, at: str, said: str
) -> None:
    with logged_errors() as logged, pytest.raises(Exception, match=said) as caught:
        session.sql(text)
    assert logged == [], "the error itself says it"
    before = text[: text.rindex(at)]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n") - 1
    told = str(caught.value)
    if SPARK >= (4, 0) or "Syntax" in said:  # older ones give no place of what they cannot resolve
        assert f"line {line} pos {column}" in told.replace("line 1, pos", "line 1 pos")
    assert "CAST(NULL AS" not in told
    assert "EXPLAIN" not in told


def test_a_statement_that_runs_logs_no_error(session: LookupSession) -> None:
    """Though the planner has Spark analyse parts of it that cannot be analysed alone."""
    with logged_errors() as logged:
        texts(
            session, f"SELECT * FROM ({JOIN}) x WHERE EXISTS (SELECT 1 FROM people q WHERE q.id = x.id + 0)"
        )
    assert logged == []


LOOKED_FOR = [
    pytest.param("SHOW PARTITIONS {name}", id="show-partitions"),
    pytest.param("BEGIN EXECUTE IMMEDIATE 'SELECT * FROM {name}'; END", id="execute-immediate"),
]


@pytest.mark.parametrize("statement", LOOKED_FOR)
def test_a_lookup_table_that_spark_itself_looks_for_is_told(session: LookupSession, statement: str) -> None:
    if "IMMEDIATE" in statement and SPARK < (4, 0):
        pytest.skip("a statement of Spark 4")

    def run(name: str) -> None:
        session.sql(statement.format(name=name))

    with pytest.raises(UnsupportedLookup, match="Spark looks for the lookup table people itself") as raised:
        run("people")
    assert "Write the table's name in a query: FROM people." in str(raised.value)
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        run("nobody")


def test_temporary_tables_are_dropped_as_in_flink_and_as_in_spark(spark: SparkSession) -> None:
    session = LookupSession(spark.newSession())
    create = "CREATE TEMPORARY TABLE {} (id INT) WITH ('connector' = 'memory', 'rows' = '[]')"
    for name, drop in {
        "a": "DROP TEMPORARY TABLE a",
        "b": "DROP TEMP TABLE IF EXISTS B",
        "c": "DROP TABLE c",
    }.items():
        session.sql(create.format(name))
        assert session.sql(drop).collect() == []
    assert session.tables() == ()
    session.spark.range(1).createOrReplaceTempView("seen")
    session.sql("DROP TEMPORARY TABLE seen")
    assert not session.spark.catalog.tableExists("seen")
    for nothing in ("DROP TEMPORARY TABLE IF EXISTS nope", "DROP TABLE IF EXISTS nope"):
        session.sql(nothing)
    session.sql(create.format("known"))
    with pytest.raises(DdlError) as caught:
        session.sql("DROP TEMPORARY TABLE knwon")
    assert (
        str(caught.value) == "There is no temporary table 'knwon'. Did you mean 'known'? Or write IF EXISTS."
    )

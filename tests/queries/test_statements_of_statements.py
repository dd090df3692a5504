"""Statements that hold a query in another way than INSERT does: EXECUTE IMMEDIATE, DESCRIBE QUERY, functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import ParseException

from lookup_hints.errors import UnsupportedLookup
from tests.spark.oracle import Twins
from tests.spark.versions import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

since_4_0 = pytest.mark.skipif(SPARK < (4, 0), reason="a statement of Spark 4.0")


@pytest.fixture(scope="module")
def twins(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    made = Twins(spark.newSession, tmp_path_factory.mktemp("held"))
    made.table("o", "n INT, k BIGINT", [(1, 1), (2, 5), (3, 2)], partitions=1)
    made.dimension("c", "id BIGINT, name STRING", [(1, "x"), (2, "y'")], key="id")
    return made


@since_4_0
@pytest.mark.parametrize(
    ("sql", "args"),
    [
        ("EXECUTE IMMEDIATE 'SELECT o.n, c.* FROM o LEFT JOIN c ON o.k = c.id'", None),
        (
            "EXECUTE IMMEDIATE 'SELECT n, :y AS y, c.name FROM o JOIN c ON o.k = c.id AND c.name = :x'"
            " USING 'x' AS x, 1.50 AS y;",
            None,
        ),
        (
            "EXECUTE IMMEDIATE 'SELECT ?, c.name FROM o JOIN c ON o.k = c.id WHERE n < ? AND name = ?'"
            " USING (CAST(5 AS BIGINT), wanted, 'x')",
            None,
        ),
        ("EXECUTE IMMEDIATE query USING 3 AS m", None),
        ("execute immediate 'SELECT :a FROM c WHERE id = :b' USING :one AS a, 1 AS b", {"one": "it's"}),
        ("EXECUTE IMMEDIATE 'SELECT ? FROM c WHERE id = ?' USING ?, 1", [7]),
        ("EXECUTE IMMEDIATE 'SELECT n FROM o WHERE n = ?' USING 1", None),
        ("EXECUTE IMMEDIATE 'DESCRIBE QUERY SELECT name FROM c WHERE id = ?' USING 1", None),
    ],
)
def test_what_execute_immediate_runs_is_a_lookup_join(twins: Twins, sql: str, args: Any) -> None:
    for session in twins.sessions:
        session.sql("DECLARE OR REPLACE VARIABLE wanted INT DEFAULT 3")
        session.sql(
            "DECLARE OR REPLACE VARIABLE query STRING DEFAULT 'TABLE c |> WHERE id < :m |> SELECT name'"
        )
    twins.forget()
    assert twins.check(sql, args)
    if "= c.id" in sql:
        assert twins.calls("c").keys, "it is asked by key"


@since_4_0
def test_execute_immediate_fills_variables_makes_tables_and_is_explained(twins: Twins) -> None:
    session = twins.session
    session.sql("DECLARE OR REPLACE VARIABLE found STRING")
    assert (
        session.sql("EXECUTE IMMEDIATE 'SELECT name FROM c WHERE id = ?' INTO found USING 2").collect() == []
    )
    assert session.spark.sql("SELECT found").collect()[0][0] == "y'"
    session.sql("EXECUTE IMMEDIATE 'SELECT max(name) FROM c WHERE id = 1' INTO found")
    assert session.spark.sql("SELECT found").collect()[0][0] == "x"
    sql = "EXECUTE IMMEDIATE 'SELECT n FROM o JOIN c ON o.k = c.id WHERE n < ?' USING 5"
    assert "INNER lookup join with c" in session.explain(sql)
    assert "INNER lookup join with c" in session.sql(f"EXPLAIN {sql}").collect()[0][0]
    create = 'CREATE TEMPORARY TABLE made (id INT) WITH ("connector" = "memory", "rows" = "[[4]]")'
    session.sql(f"EXECUTE IMMEDIATE '{create}'")
    assert session.sql("SELECT * FROM made").collect()[0].id == 4
    session.sql("EXECUTE IMMEDIATE 'DROP TABLE made'")
    for wrong in ("EXECUTE IMMEDIATE 'SELECT * FROM c WHERE id = ?'", "EXECUTE IMMEDIATE 'SELECT * FRO c'"):
        with pytest.raises(Exception) as caught:  # noqa: PT011 (Spark's own error, or ours)
            session.sql(wrong).collect()
        assert "please report" not in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "DESCRIBE QUERY SELECT o.n, c.*, upper(c.name) FROM o LEFT JOIN c ON o.k = c.id",
        "DESC SELECT /*+ LOOKUP('table'='c') */ * FROM o JOIN c ON o.k = c.id;",
        "DESC QUERY WITH t AS (SELECT id FROM c) SELECT * FROM t",
        "DESCRIBE QUERY TABLE c",
        "DESCRIBE FROM c SELECT name",
    ],
)
def test_the_columns_of_a_query_are_described(twins: Twins, sql: str) -> None:
    twins.forget()
    assert twins.check(sql)
    assert not twins.calls("c").keys, "nothing is asked for it"


@since_4_0
def test_sql_functions_look_up(twins: Twins) -> None:
    for session in (twins.plain, twins.session):
        session.sql(
            "CREATE OR REPLACE TEMPORARY FUNCTION f(x BIGINT) RETURNS STRING"
            " RETURN (SELECT max(name) FROM c WHERE id = x)"
        )
        session.sql(
            "CREATE OR REPLACE TEMPORARY FUNCTION g(a BIGINT COMMENT 'a key', b STRING DEFAULT 'none')"
            " RETURNS TABLE (id BIGINT, name STRING) RETURN SELECT id, coalesce(name, b) FROM c WHERE c.id = a"
        )
        session.sql(
            "CREATE OR REPLACE TEMPORARY FUNCTION h(w STRING) RETURNS BIGINT"
            " RETURN (SELECT count(*) FROM o JOIN c ON o.k = c.id AND c.name = w) + 10"
        )
    twins.forget()
    assert twins.check("SELECT n, f(k) AS f, h('x') AS h FROM o WHERE f(k + 1) IS NOT NULL OR n < 3")
    assert twins.calls("c").keys, "it is asked by key"
    assert twins.check("SELECT o.n, g.* FROM o LEFT JOIN LATERAL g(o.k) AS g UNION ALL SELECT 0, * FROM g(2)")
    with pytest.raises(UnsupportedLookup, match=r"A function that outlives the session") as caught:
        twins.session.sql(
            "CREATE FUNCTION f(x BIGINT) RETURNS STRING RETURN (SELECT name FROM c WHERE id = x)"
        )
    assert "Write CREATE TEMPORARY FUNCTION." in str(caught.value)


@since_4_0
def test_functions_and_scripts_read_a_table_whole_by_its_name(twins: Twins) -> None:
    for session in (twins.plain, twins.session):
        session.sql(
            "CREATE OR REPLACE TEMPORARY FUNCTION whole() RETURNS TABLE (id BIGINT, name STRING) RETURN TABLE c"
        )
        session.sql(
            "CREATE OR REPLACE TEMPORARY FUNCTION above(a BIGINT) RETURNS TABLE (id BIGINT, name STRING)"
            " RETURN TABLE c |> WHERE id > a"
        )
    assert twins.check(
        "SELECT o.n, w.name FROM o JOIN whole() w ON o.k = w.id UNION ALL SELECT * FROM above(1)"
    )
    assert twins.check(
        "BEGIN DECLARE s INT DEFAULT 0; FOR r AS TABLE c DO SET s = s + r.id; END FOR;"
        " IF EXISTS (TABLE c) THEN TABLE c |> EXTEND s AS s; END IF; END"
    )


@pytest.mark.parametrize(
    "sql",
    [
        "TABLE c",
        "WITH q AS (TABLE c) TABLE q",
        "TABLE o UNION ALL TABLE c",
        "SELECT n FROM o WHERE (k, 'x') IN (TABLE c)",
        "INSERT INTO written TABLE c",
        "CREATE TABLE written AS TABLE c",
        "CREATE TEMPORARY VIEW held AS TABLE c",
        "EXPLAIN INSERT INTO written TABLE c",
    ],
)
def test_a_table_that_is_named_whole_is_read_only_where_it_may_be(twins: Twins, sql: str) -> None:
    twins.dimension("sealed", "id BIGINT, name STRING", [(1, "x")], key="id", scan="false")
    with pytest.raises(UnsupportedLookup, match=r"'scan' = 'false'"):
        twins.session.sql(sql.replace("TABLE c", "TABLE sealed")).collect()
    twins.session.spark.conf.set("lookup.on-scan", "error")
    try:
        with pytest.raises(UnsupportedLookup, match=r"lookup\.on-scan"):
            twins.session.sql(sql).collect()
    finally:
        twins.session.spark.conf.unset("lookup.on-scan")


def test_what_is_no_query_is_left_to_spark(twins: Twins) -> None:
    """A word TABLE before the table that is written, and a column of that name."""
    for session in (twins.plain, twins.session):
        session.sql("CREATE OR REPLACE TEMPORARY VIEW p AS SELECT n, k AS table FROM o")
    assert twins.check("SELECT p.n, c.name FROM p JOIN c ON (table = c.id) WHERE (table IS NOT NULL)")
    for wrong in ("TABLE c WHERE id = 1", "TABLE c AS x", "SELECT * FROM (TABLE c GROUP BY id)"):
        with pytest.raises(ParseException, match="PARSE_SYNTAX_ERROR"):
            twins.session.sql(wrong)


@pytest.mark.parametrize(
    ("table", "args"),
    [
        ("IDENTIFIER(:t)", {"t": "c"}),
        ("IDENTIFIER(?)", ["c"]),
        ("IDENTIFIER('`c`')", None),
        pytest.param("IDENTIFIER('C' || lower(''))", None, id="expression"),
    ],
)
def test_a_table_may_be_named_by_an_expression(twins: Twins, table: str, args: Any) -> None:
    sql = f"SELECT o.n, q.name, IDENTIFIER('q' || '.id') FROM o LEFT JOIN {table} AS q ON o.k = q.id"
    twins.forget()
    assert twins.check(sql, args)
    assert twins.calls("c").keys, "it is asked by key"
    assert "LEFT lookup join with c" in twins.session.sql(f"EXPLAIN {sql}", args).collect()[0][0]


@pytest.mark.skipif(SPARK < (4, 3), reason="a sign of Spark 4.3")
def test_a_pipe_may_be_one_character(twins: Twins) -> None:
    assert twins.check("FROM o | LEFT JOIN c ON o.k = c.id | WHERE n | 1 = 1 OR n | 2 = 2 | SELECT n, name")

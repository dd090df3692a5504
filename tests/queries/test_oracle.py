"""Hand-written statements against Spark's own join: rows, names and types; and how often keys are asked for."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lookup_hints.errors import UnsupportedLookup
from tests.spark.oracle import Twins
from tests.spark.versions import SPARK, since

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = [
    (number, None if number % 10 == 0 else number % 9, ["a", "b", "c", None][number % 4], number * 1.5)
    for number in range(1, 41)
]
CUSTOMERS = [
    (1, "Ann", "DE", "10115"),
    (2, "Bob", "US", None),
    (3, "Cy", None, "75001"),
    (4, "Di", "FR", "75001"),
    (None, "Nobody", "XX", "0"),
    (7, "Ed", "US", "94105"),
]
PRICES = [
    (1, "a", 1.0),
    (1, "a", 2.0),
    (1, "b", 3.0),
    (2, "c", None),
    (2, None, 9.0),
    (3, "b", 5.0),
    (3, "b", 5.0),
]


@pytest.fixture(scope="module")
def twins(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    made = Twins(spark.newSession, tmp_path_factory.mktemp("twins"))
    made.table("orders", "id INT, k BIGINT, kind STRING, total DOUBLE", ORDERS)
    made.table("zips", "zip STRING, town STRING", [("10115", "Berlin"), ("75001", "Paris")])
    made.dimension("customers", "id BIGINT, name STRING, country STRING, zip STRING", CUSTOMERS, key="id")
    made.dimension("prices", "k BIGINT, kind STRING, price DOUBLE", PRICES)
    return made


STATEMENTS = {
    "inner": "SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id",
    "left": "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.k = c.id",
    "all columns": "SELECT * FROM orders o LEFT JOIN customers c ON o.k = c.id",
    "no alias": "SELECT orders.id, customers.* FROM orders JOIN customers ON orders.k = customers.id",
    "residual": "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.k = c.id AND c.country <> 'DE'",
    "two-sided residual": "SELECT * FROM orders o LEFT JOIN prices p ON o.k = p.k AND p.price < o.total",
    "residual with OR": "SELECT * FROM orders o LEFT JOIN customers c ON o.k = c.id"
    " AND (c.country = 'US' OR c.zip IS NULL OR o.total > 50)",
    "left-only condition": "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.k = c.id AND o.total > 20",
    "many rows per key": "SELECT o.id, p.price FROM orders o JOIN prices p ON o.k = p.k",
    "composite key": "SELECT o.id, p.price FROM orders o LEFT JOIN prices p ON o.k = p.k AND o.kind = p.kind",
    "constant in the key": "SELECT o.id, p.price FROM orders o JOIN prices p ON o.k = p.k AND p.kind = 'b'",
    "constant alone": "SELECT o.id, p.price FROM orders o LEFT JOIN prices p ON p.kind = 'c'",
    "NULL constant": "SELECT o.id, p.price FROM orders o LEFT JOIN prices p ON p.kind = NULL",
    "expression key": "SELECT o.id, c.name FROM orders o JOIN customers c ON o.k + 1 = c.id",
    "narrower key": "SELECT o.id, c.name FROM orders o JOIN customers c ON o.id = c.id",
    "double key": "SELECT o.id, c.kind FROM orders o LEFT JOIN prices c ON o.total = c.price",
    "two lookups": "SELECT o.id, c.name, p.price FROM orders o LEFT JOIN customers c ON o.k = c.id"
    " JOIN prices p ON p.k = o.k",
    "keyed by another's result": "SELECT o.id, c.name, p.price FROM orders o JOIN customers c ON o.k = c.id"
    " LEFT JOIN prices p ON p.k = length(c.name) AND p.kind = lower(left(c.name, 1))",
    "the same table twice": "SELECT a.name, b.name FROM orders o JOIN customers a ON o.k = a.id"
    " LEFT JOIN customers b ON b.id = a.id + 1",
    "after ordinary joins": "SELECT * FROM orders o FULL JOIN zips z ON o.kind = z.zip LEFT JOIN customers c ON o.k = c.id",
    "time clause and hint": "SELECT /*+ LOOKUP('table'='c', 'async'='false') */ c.name FROM orders o"
    " JOIN customers FOR SYSTEM_TIME AS OF o.total AS c ON o.k = c.id",
    "column aliases": "SELECT * FROM orders o JOIN customers c(a, b, d, e) ON o.k = c.a AND c.d = 'US'",
    "unqualified": "SELECT name, total FROM orders JOIN customers c ON k = c.id AND country = 'US'",
    "aggregate": "SELECT c.country, count(*), sum(o.total) s FROM orders o LEFT JOIN customers c ON o.k = c.id"
    " GROUP BY c.country HAVING count(*) > 1",
    "window": "SELECT o.id, c.name, row_number() OVER (PARTITION BY c.country ORDER BY o.id) n"
    " FROM orders o JOIN customers c ON o.k = c.id",
    "distinct": "SELECT DISTINCT c.country FROM orders o LEFT JOIN customers c ON o.k = c.id",
    "order by": "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.k = c.id ORDER BY c.name, o.id",
    "union": "SELECT c.name FROM orders o JOIN customers c ON o.k = c.id"
    " UNION ALL SELECT c.zip FROM orders o JOIN customers c ON o.k = c.id WHERE o.total > 30",
    "cte": "WITH q AS (SELECT o.*, c.name FROM orders o LEFT JOIN customers c ON o.k = c.id)"
    " SELECT name, count(*) n FROM q GROUP BY name",
    "cte twice": "WITH q AS (SELECT o.*, c.name FROM orders o LEFT JOIN customers c ON o.k = c.id)"
    " SELECT a.name, b.id FROM q a JOIN q b ON a.id = b.id",
    "subquery": "SELECT s.name FROM (SELECT c.name, o.total FROM orders o JOIN customers c ON o.k = c.id) s"
    " WHERE s.total > 10",
    "in subquery": "SELECT id FROM orders WHERE k IN (SELECT c.id FROM orders o JOIN customers c ON o.k = c.id"
    " WHERE c.country = 'US')",
    "lateral view after": "SELECT o.id, part FROM orders o JOIN customers c ON o.k = c.id"
    " LATERAL VIEW explode(split(c.name, '')) t AS part",
    "where": "SELECT o.id FROM orders o LEFT JOIN customers c ON o.k = c.id WHERE c.id IS NULL AND o.total > 3",
    "count only": "SELECT count(*) FROM orders o JOIN prices p ON o.k = p.k",
    "scan": "SELECT name, zip FROM customers WHERE country IS NOT NULL",
    "scan star": "SELECT * FROM customers c ORDER BY id",
    "scan count": "SELECT count(*) FROM prices",
    "struct of the row": "SELECT o.id, struct(c.*) s FROM orders o LEFT JOIN customers c ON o.k = c.id",
    "except": "SELECT * EXCEPT (c.zip, total) FROM orders o LEFT JOIN customers c ON o.k = c.id",
    "qualify": "SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id"
    " QUALIFY row_number() OVER (PARTITION BY c.id ORDER BY o.id) = 1",
    "shuffle": "SELECT /*+ LOOKUP('table'='c', 'shuffle'='true') */ o.id, c.name FROM orders o"
    " JOIN customers c ON o.k = c.id",
    "skip": "SELECT /*+ LOOKUP('table'='c', 'on-error'='skip') */ o.id, c.name FROM orders o"
    " LEFT JOIN customers c ON o.k = c.id AND c.country = 'US'",
    "small batches, unordered": "SELECT /*+ LOOKUP('table'='p', 'batch-size'='1', 'capacity'='2',"
    " 'output-mode'='allow_unordered') */ o.id, p.price FROM orders o LEFT JOIN prices p ON o.k = p.k",
}
STATEMENTS = since(STATEMENTS, {"qualify": (4, 2), "except": (4, 0)})


@pytest.mark.parametrize("start", range(0, len(STATEMENTS), 8))
def test_the_rows_are_those_of_sparks_own_join(twins: Twins, start: int) -> None:
    twins.check_all(list(STATEMENTS.values())[start : start + 8])


ASKED_ONCE = [
    "inner",
    "residual",
    "aggregate",
    "window",
    "distinct",
    "order by",
    "cte",
    "cte twice",
    "subquery",
    "where",
    "count only",
]


@pytest.mark.parametrize("name", ASKED_ONCE)
def test_each_key_is_asked_for_once_in_each_task(twins: Twins, name: str) -> None:
    twins.forget()
    twins.session.sql(STATEMENTS[name]).collect()
    keys = twins.calls("prices").keys if name == "count only" else twins.calls("customers").keys
    assert keys, "something was asked"
    assert max(keys.values()) <= 2, f"two files make two tasks; more means that Spark asked again: {keys}"
    assert ("None",) not in keys


def test_each_branch_of_a_union_asks_once(twins: Twins) -> None:
    twins.forget()
    twins.session.sql(STATEMENTS["union"]).collect()
    keys = twins.calls("customers").keys
    assert max(keys.values()) <= 4, f"two branches of two tasks each: {keys}"


def test_a_condition_on_the_left_alone_saves_lookups(twins: Twins) -> None:
    twins.forget()
    twins.session.sql(
        "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.k = c.id AND o.id < 4"
    ).collect()
    assert set(twins.calls("customers").keys) == {("1",), ("2",), ("3",)}


def test_a_where_on_the_left_goes_below_the_lookup(twins: Twins) -> None:
    twins.forget()
    twins.session.sql(
        "SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id WHERE o.id < 3"
    ).collect()
    assert set(twins.calls("customers").keys) == {("1",), ("2",)}


def test_only_the_named_columns_are_asked_for(twins: Twins) -> None:
    twins.forget()
    twins.session.sql("SELECT c.zip FROM orders o JOIN customers c ON o.k = c.id").collect()
    assert twins.calls("customers").columns == {"id", "zip"}


def test_limit_asks_for_little(spark: SparkSession, tmp_path: Path) -> None:
    twins = Twins(spark.newSession, tmp_path)
    twins.session.spark.range(0, 1_000_000, 1, 2).createOrReplaceTempView("numbers")
    twins.dimension("names", "key BIGINT, name STRING", [(1, "one")], latency="200 ms")
    rows = twins.session.sql(
        "SELECT id, n.name FROM numbers LEFT JOIN names n ON id = n.key LIMIT 5"
    ).collect()
    assert len(rows) == 5
    asked = sum(twins.calls("names").keys.values())
    # Spark sees the first rows once PySpark's output buffer of 64 KiB is full: some windows later.
    assert 0 < asked < 200_000


def test_ambiguous_names_are_refused_by_spark_itself(twins: Twins) -> None:
    with pytest.raises(Exception, match="AMBIGUOUS_REFERENCE"):
        twins.session.sql("SELECT 1 FROM orders o JOIN customers c ON k = id")


def test_unknown_columns_are_refused_by_spark_itself(twins: Twins) -> None:
    with pytest.raises(Exception, match=r"UNRESOLVED_COLUMN.*nope"):
        twins.session.sql("SELECT c.nope FROM orders o JOIN customers c ON o.k = c.id")


def test_parameters_by_name_and_by_position(twins: Twins) -> None:
    by_name = "SELECT c.name FROM orders o LEFT JOIN customers c ON o.k = c.id AND c.country = :land WHERE o.id < :n"
    twins.check(by_name, {"land": "US", "n": 9})
    by_position = (
        "SELECT c.name, ? FROM orders o LEFT JOIN customers c ON c.country = ? AND o.k = c.id AND o.id < ?"
    )
    twins.check(by_position, ["x", "US", 9])


def test_insert_ctas_and_views(twins: Twins) -> None:
    for spark in twins.sessions:
        spark.sql("DROP TABLE IF EXISTS enriched")
        spark.sql("DROP TABLE IF EXISTS enriched_too")
    session = twins.session
    session.sql(
        "CREATE TABLE enriched USING parquet AS SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id"
    )
    session.sql(
        "INSERT INTO enriched SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.k = c.id WHERE o.id < 0"
    )
    session.sql(
        "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id"
    )
    twins.plain.sql(
        "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id"
    )
    expected = twins.check("SELECT * FROM v")
    assert sorted(map(repr, twins.session.sql("SELECT * FROM enriched").collect())) == sorted(
        map(repr, twins.session.sql("SELECT * FROM v").collect())
    )
    assert len(expected) > 5
    session.sql("DROP TABLE enriched")


REVIEWED = {
    "a chain of comparisons": "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.k = c.id"
    " AND c.active = o.open >= o.late",
    "an unqualified key beside a later table of that name": "SELECT o.id, c.name, p.price FROM orders o"
    " LEFT JOIN customers c ON o.k = c.id JOIN prices p ON p.k = c.id",
    "IS DISTINCT FROM before": "SELECT o.id, c.name FROM orders o JOIN zips z ON z.zip IS DISTINCT FROM o.kind"
    " JOIN customers c ON o.k = c.id",
    "a CTE that hides one of its name": "WITH q AS (SELECT * FROM orders) SELECT * FROM (WITH q AS"
    " (SELECT id, k FROM q WHERE id < 20) SELECT q.id, c.name FROM q JOIN customers c ON q.k = c.id) s",
    "a residual that refers to an outer query": "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM orders i"
    " JOIN customers c ON i.k = c.id AND c.zip > 'a' WHERE i.id = o.id)",
    "the order inside EXISTS": "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM orders i"
    " JOIN customers c ON i.k = c.id WHERE i.id = o.id AND c.country = 'US' ORDER BY c.name)",
    "a CTE without AS": "WITH q (SELECT * FROM orders), r AS (SELECT 1 AS one)"
    " SELECT q.id, c.name FROM q JOIN customers c ON q.k = c.id",
    "texts as keys": "SELECT v.t, c.name FROM VALUES ('1'), ('02'), (' 3') AS v (t) JOIN customers c ON v.t = c.id",
    "a literal of another type": "SELECT o.id, c.name FROM orders o JOIN customers c ON c.id = '2' AND o.k = 1",
    "a scalar subquery as key": "SELECT o.id, c.name FROM orders o JOIN customers c ON c.id ="
    " (SELECT max(k) - 1 FROM orders)",
    "words as names": "SELECT comment.id, end.name FROM orders comment JOIN customers end ON comment.k = end.id",
    "LIMIT ALL": "SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id ORDER BY c.name LIMIT ALL",
}


@pytest.mark.parametrize("name", REVIEWED)
def test_statements_that_once_went_wrong(twins: Twins, name: str) -> None:
    for spark in twins.sessions:
        spark.sql(
            "CREATE OR REPLACE TEMPORARY VIEW flagged AS SELECT *, total > 9 AS open, id > 20 AS late FROM orders"
        )
    sql = REVIEWED[name]
    if "active" in sql:
        sql = sql.replace("orders o", "flagged o").replace("c.active", "(c.country IS NULL)")
    twins.check(sql)


@pytest.mark.parametrize(
    ("one", "other", "left", "right"),
    [
        ("BIGINT", "DECIMAL(38,30)", [(1,), (2,)], [("1",), ("1.000000000000000000000000000001",)]),
        ("DECIMAL(38,2)", "DECIMAL(38,18)", [("1.01",)], [("1.005",), ("1.01",)]),
        ("DECIMAL(38,18)", "DECIMAL(38,2)", [("1.005",), ("1.01",)], [("1.01",)]),
    ],
)
def test_decimals_that_do_not_fit_one_type_are_refused_or_equal(
    spark: SparkSession, tmp_path: Path, one: str, other: str, left: list[object], right: list[object]
) -> None:
    twins = Twins(spark.newSession, tmp_path)
    rows = [[tuple(Decimal(str(value)) for value in row) for row in side] for side in (left, right)]  # type: ignore[attr-defined]
    lefts = [tuple(int(value) for value in row) for row in rows[0]] if one == "BIGINT" else rows[0]
    twins.table("ones", f"a {one}", lefts)
    twins.dimension("others", f"b {other}", rows[1])
    sql = "SELECT a, b FROM ones LEFT JOIN others ON a = b"
    try:
        twins.check(sql)
    except UnsupportedLookup as error:
        assert "so one key may equal several values of the column" in str(error)  # noqa: PT017


def test_a_double_that_equals_several_keys_fails_the_query(spark: SparkSession, tmp_path: Path) -> None:
    twins = Twins(spark.newSession, tmp_path)
    twins.table("ones", "a DOUBLE", [(1.0,), (float(2**60),)])
    twins.dimension("others", "b BIGINT", [(1,), (2**60,), (2**60 + 1,)])
    with pytest.raises(Exception, match=r"The key 1.15\S+ is too large to be looked up as BIGINT: it equals"):
        twins.session.sql("SELECT a, b FROM ones LEFT JOIN others ON a = b").collect()


def test_words_that_only_look_like_a_lookup_table_are_sparks_business(twins: Twins) -> None:
    session = twins.session
    session.sql("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1 AS customers, 2 AS prices")
    assert [tuple(row) for row in session.sql("SELECT prices, customers FROM v").collect()] == [(2, 1)]
    if SPARK >= (4, 0):  # which has pipes
        session.sql("SELECT 1 AS x |> SELECT x AS customers").collect()
    with pytest.raises(Exception, match="SCHEMA_NOT_FOUND"):
        session.sql("USE customers")
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        session.sql("SELEC o.id FROM orders o JOIN customers c ON o.k = c.id")
    with pytest.raises(Exception, match=r"no_such_column"):
        session.sql(
            "SELECT 1 FROM orders o JOIN customers FOR SYSTEM_TIME AS OF o.no_such_column c ON o.k = c.id"
        )

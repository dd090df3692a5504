"""Hand-written statements against Spark's own join: rows, names and types; and how often keys are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.oracle import Twins

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
    " JOIN customers FOR SYSTEM_TIME AS OF o.ts AS c ON o.k = c.id",
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


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_rows_are_those_of_sparks_own_join(twins: Twins, name: str) -> None:
    twins.check(STATEMENTS[name])


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
    twins.dimension("names", "key BIGINT, name STRING", [(1, "one")], latency="100 ms")
    rows = twins.session.sql(
        "SELECT id, n.name FROM numbers LEFT JOIN names n ON id = n.key LIMIT 5"
    ).collect()
    assert len(rows) == 5
    asked = sum(twins.calls("names").keys.values())
    assert 0 < asked < 50_000


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

"""MariaDB through Spark: the async runner against a real server, with Spark's own join as the oracle."""

from __future__ import annotations

import re
from random import Random
from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession
from tests.servers.mariadb import MariaDbServer
from tests.servers.spark.test_filtered_reads import COLUMNS as GOODS
from tests.servers.spark.test_filtered_reads import QUERIES, SEED, query, rows
from tests.spark.answers import answers
from tests.spark.warm import thrice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = """
CREATE OR REPLACE DATABASE spark; USE spark;
CREATE TABLE `Customers` (
  id BIGINT UNSIGNED, part VARCHAR(9) CHARACTER SET latin1, token UUID, balance DECIMAL(12, 2), seen TIMESTAMP(6) NULL,
  extra JSON, flags BIT(3), mood ENUM('glad', 'sad'), lasts TIME, PRIMARY KEY (id, part)
);
INSERT INTO `Customers` VALUES
  (1, 'a', '00000000-0000-0000-0000-000000000001', 1.50, '2020-01-01 00:00:00', '{"n": 1}', b'101', 'glad', '838:59:59'),
  (1, 'b', '00000000-0000-0000-0000-000000000002', -0.01, '1999-12-31 23:59:59.999999', NULL, NULL, NULL, '-00:00:01'),
  (2, 'a', NULL, NULL, NULL, 'null', b'000', 'sad', NULL);
CREATE TABLE large AS SELECT seq AS id, REPEAT('x', 200) AS name FROM seq_1_to_100000;
ALTER TABLE large ADD PRIMARY KEY (id);
CREATE TABLE quotes (sym INT, since TIMESTAMP(6), price DECIMAL(10, 2), PRIMARY KEY (sym, since));
INSERT INTO quotes SELECT seq % 20, TIMESTAMP '2024-03-10 00:00:00' + INTERVAL 7 * seq SECOND, seq FROM seq_1_to_4000;
ANALYZE TABLE large, quotes
"""
COLUMNS = (
    "id DECIMAL(20,0), part STRING, token STRING, balance DECIMAL(12,2), seen TIMESTAMP, extra STRUCT<n: INT>,"
    " flags BIGINT, mood STRING, lasts INTERVAL DAY TO SECOND"
)


@pytest.fixture
def session(spark: SparkSession, mariadb_server: MariaDbServer) -> LookupSession:
    mariadb_server.execute(SOURCE)
    own = LookupSession(spark.newSession())
    own.spark.conf.set("my.dsn", mariadb_server.url(database="spark"))
    own.sql(
        f"CREATE TEMPORARY TABLE customers ({COLUMNS}, PRIMARY KEY (id, part) NOT ENFORCED) WITH"
        " ('connector' = 'mysql', 'url' = '${conf:my.dsn}', 'table-name' = 'Customers')"
    )
    own.sql(
        "CREATE TEMPORARY VIEW orders AS SELECT * FROM VALUES (1, 1L, 'a'), (2, 1L, 'b'), (3, 2L, 'a'), (4, 1L, 'A'),"
        " (5, CAST(NULL AS BIGINT), 'a'), (6, 1L, '日'), (7, -1L, 'a'), (8, 1L, 'a ') AS orders (n, id, part)"
    )
    return own


@pytest.mark.parametrize(
    "source", ["'table-name' = 'Customers'", "'query' = 'SELECT * FROM Customers # all'"]
)
def test_every_type_by_a_composite_key_equals_sparks_own_join(session: LookupSession, source: str) -> None:
    session.sql(
        f"CREATE OR REPLACE TEMPORARY TABLE customers ({COLUMNS}, PRIMARY KEY (id, part) NOT ENFORCED) WITH"
        f" ('connector' = 'mysql', 'url' = '${{conf:my.dsn}}', {source})"
    )
    session.sql("SELECT * FROM customers").createOrReplaceTempView("read_whole")
    assert session.spark.table("read_whole").count() == 3
    query = "SELECT o.n, c.* FROM orders o LEFT JOIN {} c ON o.id = c.id AND o.part = c.part"
    looked_up = thrice(session, query.format("customers"))
    joined = session.spark.sql(query.format("read_whole")).collect()
    assert looked_up == sorted(map(tuple, joined), key=repr)
    assert sum(row[1] is not None for row in looked_up) == 3


def test_columns_and_key_come_from_the_server_and_the_dsn_is_shown_nowhere(
    session: LookupSession, mariadb_server: MariaDbServer
) -> None:
    options = "WITH ('connector' = 'mysql', 'url' = '${conf:my.dsn}', 'table-name' = 'Customers')"
    session.sql(f"CREATE TEMPORARY TABLE told {options}")
    described = [tuple(row) for row in session.sql("DESCRIBE told").collect()]
    assert ("id", "decimal(20,0)", "key") in described
    assert ("part", "string", "key") in described
    assert ("seen", "timestamp", None) in described
    secret = mariadb_server.url().split("@")[0].rsplit(":", 1)[1]
    session.sql(
        "CREATE TEMPORARY TABLE nowhere (id BIGINT) WITH ('connector' = 'mysql', 'url' = '${conf:my.dsn}')"
    )
    with pytest.raises(Exception, match="nowhere") as caught:
        session.sql("SELECT c.id FROM orders o JOIN nowhere c ON o.id = c.id").collect()
    shown = [
        str(caught.value),
        session.explain("SELECT c.mood FROM orders o JOIN customers c ON o.id = c.id"),
    ]
    assert not [text for text in shown if secret in text]


def test_a_large_table_is_read_in_parts_each_row_once(session: LookupSession) -> None:
    session.sql(
        "CREATE TEMPORARY TABLE large (id BIGINT, name STRING) WITH ('connector' = 'mysql', 'url' = '${conf:my.dsn}')"
    )
    query = "SELECT count(*), count(DISTINCT id), sum(id), sum(length(name)) FROM large"
    assert session.sql(query).collect() == [(100_000, 100_000, 5_000_050_000, 20_000_000)]
    told = session.explain("SELECT * FROM orders o JOIN large l ON o.id = l.id")
    assert re.search(r"about (9\d|10\d),\d{3} rows, [\d.]+ MB \(information_schema\)", told), told
    assert re.search(r"read by +at most 2 tasks at once", session.explain("SELECT id FROM large"))
    assert session.sql("SELECT id FROM large").rdd.getNumPartitions() == 2
    assert len(session.sql("SELECT id FROM large LIMIT 7").collect()) == 7


@pytest.mark.parametrize("source", ["'table-name' = 'quotes'", "'query' = 'SELECT * FROM quotes'"])
def test_of_many_rows_of_a_key_the_server_finds_those_that_held(session: LookupSession, source: str) -> None:
    session.sql(
        "CREATE TEMPORARY TABLE quotes (sym INT, since TIMESTAMP, price DECIMAL(10,2), PRIMARY KEY (sym, since)"
        " NOT ENFORCED) WITH ('connector' = 'mysql', 'url' = '${conf:my.dsn}', 'lookup.valid-from' = 'since',"
        f" {source})"
    )
    session.sql(
        "CREATE TEMPORARY VIEW trades AS SELECT id AS no, CAST(id % 21 AS INT) AS sym,"
        " TIMESTAMP '2024-03-10 00:00:00Z' + make_dt_interval(0, 0, 0, (id * 7919) % 30000) AS at FROM range(500)"
    )
    text = (
        "SELECT t.no, q.price FROM trades t LEFT JOIN quotes FOR SYSTEM_TIME AS OF t.at AS q ON q.sym = t.sym"
    )
    assert ("chosen by the source" in session.explain(text)) == ("table-name" in source), (
        "a query has no sizes"
    )
    session.sql("SELECT * FROM quotes").createOrReplaceTempView("read_whole")
    expected = session.spark.sql(
        "SELECT t.no, max_by(q.price, q.since) FROM trades t LEFT JOIN read_whole q ON q.sym = t.sym AND q.since <= t.at"
        " GROUP BY t.no"
    ).collect()
    assert sorted(session.sql(text).collect()) == sorted(expected)


def test_any_filter_below_any_join_gives_the_rows_of_ordinary_tables(
    session: LookupSession, mariadb_server: MariaDbServer
) -> None:
    random = Random(SEED)
    # The database has no infinity.
    given = [(*row[:-1], 2.5 if row[-1] == float("inf") else row[-1]) for row in rows(random)]
    mariadb_server.execute(
        "CREATE OR REPLACE TABLE spark.goods (id BIGINT, small INT, name VARCHAR(9), active BOOLEAN,"
        " price DECIMAL(10, 2), since DATE, weight DOUBLE)"
    )
    mariadb_server.insert("spark.goods", given)
    session.spark.createDataFrame(given, GOODS).createOrReplaceTempView("plain")
    sources = {"goods": "'table-name' = 'goods'", "asked": "'query' = 'SELECT * FROM goods'"}
    for name, source in sources.items():
        session.sql(
            f"CREATE TEMPORARY TABLE {name} ({GOODS}) WITH"
            f" ('connector' = 'mysql', 'url' = '${{conf:my.dsn}}', {source})"
        )
    session.sql("SELECT * FROM VALUES (-1), (1), (2), (NULL) AS o (n)").createOrReplaceTempView("o")
    texts = [query(random) for _ in range(QUERIES)]
    frames = []
    for text in texts:
        named = text.replace("{g}", random.choice([*sources]))
        frames += [session.spark.sql(text.replace("{g}", "plain")), session.sql(named)]
    found = iter(answers(frames))
    for text in texts:
        wanted = next(found)
        next(found).require(wanted, text, ordered=False)
    assert any("    filters " in session.explain(text.replace("{g}", "goods")) for text in texts)

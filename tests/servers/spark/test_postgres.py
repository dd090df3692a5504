"""PostgreSQL through Spark: the async runner against a real server, with Spark's own join as the oracle."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession
from lookup_hints.errors import DdlError, UnsupportedLookup
from tests.servers.postgres import PostgresServer, running_server
from tests.spark.warm import thrice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = """
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE SCHEMA shop;
CREATE TABLE shop."Customers" (
  id bigint, part text, token uuid, balance numeric(12, 2), seen timestamptz, extra jsonb, tags text[],
  mood mood, PRIMARY KEY (id, part)
);
INSERT INTO shop."Customers" VALUES
  (1, 'a', '00000000-0000-0000-0000-000000000001', 1.50, '2020-01-01 00:00:00+02', '{"n": 1}', '{x,NULL}', 'glad'),
  (1, 'b', '00000000-0000-0000-0000-000000000002', -0.01, '1969-12-31 23:59:59.999999Z', NULL, '{}', NULL),
  (2, 'a', NULL, NULL, NULL, 'null', NULL, 'sad');
"""
COLUMNS = (
    "id BIGINT, part STRING, token STRING, balance DECIMAL(12,2), seen TIMESTAMP, extra STRUCT<n: INT>,"
    " tags ARRAY<STRING>, mood STRING"
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    for running in running_server():
        running.execute(SOURCE)
        yield running


@pytest.fixture
def session(spark: SparkSession, server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> LookupSession:
    own = LookupSession(spark.newSession())
    own.spark.conf.set("my.dsn", server.url())
    own.sql(
        f"CREATE TEMPORARY TABLE customers ({COLUMNS}, PRIMARY KEY (id, part) NOT ENFORCED) WITH"
        " ('connector' = 'postgres', 'url' = '${conf:my.dsn}', 'table-name' = 'shop.\"Customers\"')"
    )
    own.sql(
        "CREATE TEMPORARY VIEW orders AS SELECT * FROM VALUES (1, 1L, 'a'), (2, 1L, 'b'), (3, 2L, 'a'),"
        " (4, 2L, 'zz'), (5, CAST(NULL AS BIGINT), 'a'), (6, 1L, 'a') AS orders (n, id, part)"
    )
    return own


def test_every_type_by_a_composite_key_equals_sparks_own_join(session: LookupSession) -> None:
    session.sql("SELECT * FROM customers").createOrReplaceTempView("read_whole")
    assert session.spark.table("read_whole").count() == 3
    query = "SELECT o.n, c.* FROM orders o LEFT JOIN {} c ON o.id = c.id AND o.part = c.part"
    looked_up = thrice(session, query.format("customers"))
    joined = session.spark.sql(query.format("read_whole")).collect()
    assert looked_up == sorted(map(tuple, joined), key=repr)
    assert len(looked_up) == 6


def test_a_text_that_is_no_uuid_is_a_miss(session: LookupSession) -> None:
    rows = thrice(
        session,
        "SELECT t, c.id FROM VALUES ('00000000-0000-0000-0000-000000000002'), ('no uuid'),"
        " ('00000000-0000-0000-0000-00000000000A') AS v (t) LEFT JOIN customers c ON v.t = c.token",
    )
    assert rows == [
        ("00000000-0000-0000-0000-000000000002", 1),
        ("00000000-0000-0000-0000-00000000000A", None),
        ("no uuid", None),
    ]


def test_columns_and_key_come_from_the_server(session: LookupSession) -> None:
    session.sql(
        "CREATE TEMPORARY TABLE told WITH ('connector' = 'postgres', 'url' = '${conf:my.dsn}',"
        " 'table-name' = 'shop.\"Customers\"')"
    )
    described = [tuple(row) for row in session.sql("DESCRIBE told").collect()]
    assert ("id", "bigint", "key") in described
    assert ("part", "string", "key") in described
    assert ("seen", "timestamp", None) in described


def test_the_dsn_is_shown_nowhere(session: LookupSession, server: PostgresServer) -> None:
    secret = server.url().split("@")[0].rsplit(":", 1)[1]
    query = "SELECT c.mood FROM orders o JOIN customers c ON o.id = c.id"
    shown = [
        session.explain(query),
        str(session.sql("SHOW CREATE TABLE customers").collect()),
        str(session.sql("DESCRIBE EXTENDED customers").collect()),
        repr(session.prepare(query)),
    ]
    session.sql(
        "CREATE TEMPORARY TABLE nowhere (id BIGINT) WITH ('connector' = 'postgres', 'url' = '${conf:my.dsn}')"
    )
    with pytest.raises(Exception, match="nowhere") as caught:
        session.sql("SELECT c.id FROM orders o JOIN nowhere c ON o.id = c.id").collect()
    shown.append(str(caught.value))
    assert not [text for text in shown if secret in text]


def test_connections_are_few_and_shared(session: LookupSession, server: PostgresServer) -> None:
    session.spark.range(0, 20_000, 1, 4).createOrReplaceTempView("many")
    hint = "/*+ LOOKUP('table'='c', 'batch-size'='50', 'capacity'='100') */"
    query = f"SELECT {hint} count(c.id) AS n FROM many o LEFT JOIN customers c ON o.id = c.id"
    assert session.sql(query).collect()[0].n == 3

    async def connections() -> int:
        import asyncpg

        connection = await asyncpg.connect(server.url())
        try:
            count = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            return int(await connection.fetchval(count))
        finally:
            await connection.close()

    # Pools of four in each of the two worker processes, and the one that counts; pools of other tests'
    # tables may still be idle in the same processes.
    assert asyncio.run(connections()) <= 1 + 2 * 4 * 3


def test_a_large_table_is_read_in_parts_each_row_once(session: LookupSession, server: PostgresServer) -> None:
    server.execute(
        "CREATE TABLE IF NOT EXISTS large AS SELECT id, repeat('x', 200) AS name FROM generate_series(1, 100000) AS id"
    )
    for name, option in (("parted", ""), ("alone", ", 'lookup.scan.partitions' = '1'")):
        session.sql(
            f"CREATE TEMPORARY TABLE {name} (id BIGINT, name STRING) WITH ('connector' = 'postgres',"
            f" 'url' = '${{conf:my.dsn}}', 'table-name' = 'large'{option})"
        )
        query = f"SELECT count(*), count(DISTINCT id), sum(id), sum(length(name)) FROM {name}"
        assert session.sql(query).collect() == [(100_000, 100_000, 5_000_050_000, 20_000_000)]
    assert re.search(r"read by +at most 2 tasks at once", session.explain("SELECT id FROM parted"))
    assert session.sql("SELECT id FROM parted").rdd.getNumPartitions() == 2
    assert session.sql("SELECT id FROM alone").rdd.getNumPartitions() == 1
    assert len(session.sql("SELECT id FROM parted LIMIT 7").collect()) == 7
    joined = "SELECT count(*) FROM parted a JOIN range(5) r ON a.id % 50000 = r.id"
    assert session.sql(joined).collect() == [(10,)]


def test_an_address_finds_its_network(spark: SparkSession, server: PostgresServer) -> None:
    server.execute("""
        CREATE TABLE geo (network cidr PRIMARY KEY, country text);
        INSERT INTO geo VALUES ('81.0.0.0/8', 'EU'), ('81.2.69.160/27', 'GB'), ('2001:218::/32', 'JP'), ('::/0', '?')
    """)
    own = LookupSession(spark.newSession())
    own.sql(
        f"CREATE TEMPORARY TABLE geo WITH ('connector' = 'postgres', 'url' = '{server.url()}',"
        " 'network-column' = 'network')"
    )
    found = own.sql("""
        SELECT o.id, g.ip, g.network, g.country
        FROM VALUES (1, '81.2.69.161'), (2, '2001:218::7'), (3, '::ffff:81.9.9.9'), (4, '10.0.0.1'), (5, '-')
             AS o(id, ip) LEFT JOIN geo AS g ON o.ip = g.ip AND g.network <> '::/0' ORDER BY o.id
    """)
    assert [tuple(row) for row in found.collect()] == [
        (1, "81.2.69.161", "81.2.69.160/27", "GB"),
        (2, "2001:218::7", "2001:218::/32", "JP"),
        (3, "::ffff:81.9.9.9", "81.0.0.0/8", "EU"),
        (4, None, None, None),
        (5, None, None, None),
    ]
    for text in (
        "SELECT * FROM geo",
        "SELECT g.country FROM VALUES ('81.0.0.0/8') AS o(net) JOIN geo g ON o.net = g.network",
    ):
        with pytest.raises(UnsupportedLookup, match="ip"):
            own.sql(text)


def test_of_many_rows_of_a_key_the_server_finds_those_that_held(
    spark: SparkSession, server: PostgresServer
) -> None:
    server.execute("""
        CREATE TABLE quotes (sym int, since timestamptz, price numeric(10,2), PRIMARY KEY (sym, since));
        INSERT INTO quotes SELECT n % 20, timestamptz '2024-03-10 00:00Z' + n * interval '7 seconds', n
        FROM generate_series(1, 4000) AS n;
        ANALYZE quotes
    """)
    own = LookupSession(spark.newSession())
    own.sql(
        "CREATE TEMPORARY TABLE quotes (sym INT, since TIMESTAMP, price DECIMAL(10,2), PRIMARY KEY (sym, since)"
        f" NOT ENFORCED) WITH ('connector' = 'postgres', 'url' = '{server.url()}', 'lookup.valid-from' = 'since')"
    )
    own.sql(
        "CREATE TEMPORARY VIEW trades AS SELECT id AS no, CAST(id % 21 AS INT) AS sym,"
        " TIMESTAMP '2024-03-10 00:00:00Z' + make_dt_interval(0, 0, 0, (id * 7919) % 30000) AS at FROM range(500)"
    )
    text = (
        "SELECT t.no, q.price FROM trades t LEFT JOIN quotes FOR SYSTEM_TIME AS OF t.at AS q ON q.sym = t.sym"
    )
    assert "chosen by the source" in own.explain(text)
    hinted = text.replace("SELECT", "SELECT /*+ LOOKUP('table'='q', 'cache'='partial') */", 1)
    assert "chosen by the worker" in own.explain(hinted)
    own.sql("SELECT * FROM quotes").createOrReplaceTempView("read_whole")
    expected = own.spark.sql(
        "SELECT t.no, max_by(q.price, q.since) FROM trades t LEFT JOIN read_whole q ON q.sym = t.sym AND q.since <= t.at"
        " GROUP BY t.no"
    ).collect()
    found = own.sql(text).collect()
    assert sorted(found) == sorted(expected)
    assert sorted(own.sql(hinted).collect()) == sorted(expected)
    (counted, *_) = own.metrics().values()
    assert counted.keys == len({(row.sym, row.at) for row in own.spark.sql("SELECT * FROM trades").collect()})
    assert sum(row.price is not None for row in found) > 400


def test_a_function_gives_the_password_on_each_worker(
    session: LookupSession, server: PostgresServer, tmp_path: Path
) -> None:
    server.execute("CREATE ROLE told LOGIN PASSWORD 's3cret'; GRANT USAGE ON SCHEMA shop TO told")
    server.execute('GRANT SELECT ON shop."Customers" TO told')
    calls = tmp_path / "calls"
    (tmp_path / "told_logins.py").write_text(
        f"""
import os

def password():
    with open({str(calls)!r}, "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    return "s3cret", 60
"""
    )
    session.spark.sparkContext.addPyFile(str(tmp_path / "told_logins.py"))
    session.sql(
        f"CREATE TEMPORARY TABLE told (id BIGINT, part STRING, mood STRING) WITH ('connector' = 'postgres',"
        f" 'host' = '127.0.0.1', 'port' = '{server.port}', 'database' = 'postgres', 'user' = 'told',"
        " 'sslmode' = 'disable', 'password' = '${call:told_logins:password}',"
        " 'table-name' = 'shop.\"Customers\"')"
    )
    query = "SELECT /*+ LOOKUP('table'='c') */ o.n, c.mood FROM orders o JOIN told c ON o.id = c.id AND o.part = c.part"
    assert "s3cret" not in session.explain(query)
    assert not calls.exists(), "planning calls nothing"
    rows = session.sql(query).collect()
    assert sorted((row.n, row.mood) for row in rows) == [(1, "glad"), (2, None), (3, "sad"), (6, "glad")]
    assert str(os.getpid()) not in calls.read_text().split(), "workers called it"


def test_a_query_is_a_table_whose_key_is_declared(session: LookupSession, server: PostgresServer) -> None:
    session.spark.conf.set("my.dsn", server.url())
    session.sql(
        "CREATE TEMPORARY TABLE lots (PRIMARY KEY (ID, part) NOT ENFORCED) WITH ('connector' = 'postgres',"
        " 'url' = '${conf:my.dsn}', 'query' = 'SELECT id, part, upper(mood::text) AS mood FROM shop.\"Customers\"')"
    )
    assert "PRIMARY KEY (`id`, `part`)" in session.sql("SHOW CREATE TABLE lots").collect()[0][0]
    query = "SELECT o.n, c.mood FROM orders o JOIN lots c ON o.id = c.id AND o.part = c.part"
    assert "may run all of it" not in session.explain(query)
    rows = session.sql(query).collect()
    assert sorted((row.n, row.mood) for row in rows) == [(1, "GLAD"), (2, None), (3, "SAD"), (6, "GLAD")]
    session.sql(
        "CREATE TEMPORARY TABLE few (id BIGINT, mood STRING) WITH ('connector' = 'postgres', 'url' = '${conf:my.dsn}',"
        " 'query' = 'SELECT id, mood::text AS mood FROM shop.\"Customers\" LIMIT 2')"
    )
    told = session.explain("SELECT o.n, c.mood FROM orders o JOIN few c ON o.id = c.id")
    assert "the query of few has LIMIT: the database may run all of it for each request" in told


def test_a_declared_key_must_be_a_column_of_the_source(
    session: LookupSession, server: PostgresServer
) -> None:
    with pytest.raises(DdlError) as refused:
        session.sql(
            "CREATE TEMPORARY TABLE t (PRIMARY KEY (idd) NOT ENFORCED) WITH ('connector' = 'postgres',"
            " 'url' = '${conf:my.dsn}', 'query' = 'SELECT 1 AS id')"
        )
    assert "PRIMARY KEY names 'idd', which is no column of its source. Did you mean 'id'?" in str(
        refused.value
    )

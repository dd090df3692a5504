"""Reads that leave rows out, against ordinary tables of the same rows: any filter, each type of join."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from lookup_connectors.postgres.lookup_sql import literal

from lookup_hints import LookupSession
from tests.servers.postgres import PostgresServer, running_server
from tests.spark.answers import answers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED, QUERIES = int(os.environ.get("SEED", "0")), int(os.environ.get("QUERIES", "12"))
COLUMNS = "id BIGINT, small INT, name STRING, active BOOLEAN, price DECIMAL(10,2), since DATE, weight DOUBLE"
VALUES: tuple[tuple[Any, ...], ...] = (
    (None, -1, 0, 1, 2, 2**62),
    (None, -1, 0, 1, 2),
    (None, "", "a", "A", "a ", "é", "b"),
    (None, True, False),
    (None, *map(Decimal, ("0.00", "1.50", "-0.01", "2.00"))),
    (None, date(2020, 2, 29), date(1969, 12, 31), date(9999, 12, 31)),
    (None, 0.0, 1.5, float("inf")),  # SQLite has no NaN
)
CONDITIONS = (
    *("g.id = 1", "g.id > 0", "2 >= g.id", "g.id BETWEEN 0 AND 1", "g.id IN (1, 2, 7)", "g.id < 1.5"),
    *("g.id IS NULL", "g.id IS NOT NULL", "g.small = 1", "g.small < 4611686018427387904", "g.small = '1'"),
    *(
        "g.name = 'a'",
        "g.name IN ('a', 'é')",
        "g.name IS NULL",
        "g.name > 'A'",
        "g.name = ''",
        "g.name <> 'a'",
    ),
    *("g.active", "NOT g.active", "g.active = false", "g.active IS NULL", "g.active IS NOT NULL"),
    *("g.price = 1.5", "g.price > 0", "g.price IN (2, -0.01)", "g.price <= 1.505", "g.price IS NULL"),
    *("g.since >= DATE '2020-02-29'", "g.since = '1969-12-31'", "g.since IS NULL", "g.since < '2020-02-29'"),
    *("g.weight > 1", "g.weight = 0", "g.weight IS NULL", "coalesce(g.small, 1) = 1", "g.id <=> NULL"),
    *("g.id = 1 OR g.name = 'a'", "NOT (g.id = 1)", "(g.id > 0 AND g.active)", "(g.id = 1) IS NULL"),
)
JOINS = (
    *("o JOIN {g} g ON {on}", "o LEFT JOIN {g} g ON {on}", "o RIGHT JOIN {g} g ON {on}"),
    *("o FULL JOIN {g} g ON {on}", "{g} g JOIN o ON {on}", "{g} g LEFT JOIN o ON {on}"),
    *("{g} g RIGHT JOIN o ON {on}", "{g} g FULL JOIN o ON {on}", "{g} g, o", "{g} g CROSS JOIN o", "{g} g"),
    *("{g} g LEFT SEMI JOIN o ON {on}", "{g} g LEFT ANTI JOIN o ON {on}"),
    *("o LEFT SEMI JOIN {g} g ON {on}", "o LEFT ANTI JOIN {g} g ON {on}"),
    "o JOIN {g} g ON {on} RIGHT JOIN o AS p ON p.n = o.n",
    "o AS p LEFT JOIN (o JOIN {g} g ON {on}) ON p.n = o.n",
)
LINKS = ("g.small > o.n", "g.small + 0 = o.n", "g.id >= o.n", "true")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    yield from running_server()


def rows(random: Random) -> list[tuple[Any, ...]]:
    return [tuple(map(random.choice, VALUES)) for _ in range(40)]


def tables(
    session: LookupSession, server: PostgresServer, folder: Path, given: list[tuple[Any, ...]]
) -> tuple[str, ...]:
    """The same rows as an ordinary table, and in PostgreSQL and SQLite."""
    session.spark.createDataFrame(given, COLUMNS).createOrReplaceTempView("plain")
    values = ", ".join(f"({', '.join(map(in_postgres, row))})" for row in given)
    server.execute(
        "DROP TABLE IF EXISTS goods; CREATE TABLE goods (id bigint, small int, name text, active boolean,"
        f" price numeric(10, 2), since date, weight float8); INSERT INTO goods VALUES {values}"
    )
    file = folder / "goods.db"
    with sqlite3.connect(file) as connection:
        connection.execute("DROP TABLE IF EXISTS goods")
        connection.execute(
            "CREATE TABLE goods (id INTEGER, small INTEGER, name TEXT, active BOOLEAN, price TEXT,"
            " since DATE, weight REAL)"
        )
        kept = [tuple(str(v) if isinstance(v, date | Decimal) else v for v in row) for row in given]
        connection.executemany("INSERT INTO goods VALUES (?, ?, ?, ?, ?, ?, ?)", kept)
    connection.close()
    session.sql(
        f"CREATE OR REPLACE TEMPORARY TABLE served ({COLUMNS})"
        f" WITH ('connector' = 'postgres', 'url' = '{server.url()}', 'table-name' = 'goods')"
    )
    session.sql(
        f"CREATE OR REPLACE TEMPORARY TABLE filed ({COLUMNS})"
        f" WITH ('connector' = 'sqlite', 'path' = '{file}', 'table-name' = 'goods')"
    )
    return "served", "filed"


def in_postgres(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'::float8" if isinstance(value, float) else literal(value)


def query(random: Random) -> str:
    """A join of some type, with conditions on the lookup table in ON and in WHERE."""
    join = random.choice(JOINS)
    on = " AND ".join([random.choice(LINKS), *random.sample(CONDITIONS, random.choice([0, 1, 1, 2]))])
    where = " AND ".join(random.sample(CONDITIONS, random.choice([0, 1, 1, 2])))
    is_hidden = join.startswith(("o LEFT SEMI", "o LEFT ANTI"))
    return f"SELECT * FROM {join.replace('{on}', on)}" + (f" WHERE {where}" * bool(where and not is_hidden))


def test_any_filter_below_any_join_gives_the_rows_of_ordinary_tables(
    spark: SparkSession, server: PostgresServer, tmp_path: Path
) -> None:
    random = Random(SEED)
    session = LookupSession(spark.newSession())
    given = rows(random)
    names = tables(session, server, tmp_path, given)
    session.sql("SELECT * FROM VALUES (-1), (1), (2), (NULL) AS o (n)").createOrReplaceTempView("o")
    filtered = 0
    texts = [query(random) for _ in range(QUERIES)]
    for some in (texts[start : start + 6] for start in range(0, QUERIES, 6)):
        frames = []
        for text in some:
            frames.append(session.spark.sql(text.replace("{g}", "plain")))
            frames += [session.sql(text.replace("{g}", name)) for name in names]
            filtered += "    filters " in session.explain(text.replace("{g}", "served"))
        found = iter(answers(frames))
        for text in some:
            wanted = next(found)
            for name in names:
                next(found).require(wanted, text.replace("{g}", name), ordered=False)
    assert filtered, "the queries are such that some rows are left out at the source"


def test_views_over_different_filters_read_different_rows(
    spark: SparkSession, server: PostgresServer, tmp_path: Path
) -> None:
    session = LookupSession(spark.newSession())
    given = [(1, 1, "a", True, None, None, 0.5), (2, 2, "b", False, None, None, 0.5)]
    for name in tables(session, server, tmp_path, given):
        for number in (1, 2):
            session.sql(f"SELECT name FROM {name} WHERE small >= {number}").createOrReplaceTempView(
                f"v{number}"
            )
        both = session.sql("SELECT * FROM v1 UNION ALL SELECT * FROM v2 ORDER BY 1").collect()
        assert [row[0] for row in both] == ["a", "b", "b"]

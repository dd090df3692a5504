"""Rows that share a declared primary key: `multiple-match`, asked, read and from caches, against Spark."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from lookup_connectors.memory import put_rows

from lookup_hints import LookupSession
from lookup_hints.errors import OptionError, UnsupportedLookup
from tests.queries.worlds import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()

ROWS = pa.table(
    {
        "id": pa.array([3, 1, 2, 1, None, 1, None, 2], pa.int64()),
        "part": pa.array(["a", "b", "a", "b", "a", None, "a", "b"]),
        "name": pa.array([f"row {at}" for at in range(8)]),
        "place": pa.array(range(8), pa.int64()),
    }
)
WAYS: dict[str, dict[str, str]] = {
    "asked": {"lookup.access": "lookup"},
    "asked one by one": {"lookup.access": "lookup", "lookup.async": "false"},
    "read": {"lookup.access": "scan"},
    "partial": {"lookup.access": "lookup", "lookup.cache": "PARTIAL", "lookup.partial-cache.expire-after-write": "1 h"},
    "full": {
        "lookup.access": "lookup",
        "lookup.cache": "FULL",
        "lookup.full-cache.periodic-reload.interval": "1 h",
    },
}  # fmt: skip
QUERIES = [
    "SELECT o.n, c.name AS found FROM orders o JOIN customers c ON o.id = c.id{part}",
    "SELECT o.n, c.name AS found FROM orders o LEFT JOIN customers c ON o.id = c.id{part}",
    "SELECT o.n, c.name AS found FROM orders o LEFT JOIN customers c ON o.id = c.id{part} AND c.place > 1",
    "SELECT o.n, 'semi' AS found FROM orders o LEFT SEMI JOIN customers c ON o.id = c.id{part}",
    "SELECT o.n, 'anti' AS found FROM orders o LEFT ANTI JOIN customers c ON o.id = c.id{part}",
    "SELECT count(*), 'rows' AS found FROM orders o JOIN customers c ON o.id = c.id{part}",
    "SELECT o.n, c.name AS found FROM orders o JOIN customers c ON o.id = c.id AND o.part = c.part",
]


@pytest.fixture
def session(spark: SparkSession) -> LookupSession:
    own = LookupSession(spark.newSession())
    for key, value in QUICK.items():
        own.spark.conf.set(key, value)
    own.sql(
        "CREATE TEMPORARY VIEW orders AS SELECT * FROM VALUES (1, 1L, 'a'), (2, 1L, 'b'), (3, 2L, 'a'), (4, 2L, 'b'),"
        " (5, 3L, 'a'), (6, 9L, 'a'), (7, CAST(NULL AS BIGINT), 'a'), (8, 1L, CAST(NULL AS STRING)) AS t(n, id, part)"
    )
    return own


def create(session: LookupSession, key: str, match: str, rows: pa.Table = ROWS, **options: str) -> None:
    data = f"multiple_{next(_numbers)}"
    put_rows(data, rows)
    given = {"connector": "memory", "data": data, "multiple-match": match, **options}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    session.sql(
        "CREATE OR REPLACE TEMPORARY TABLE customers (id BIGINT, part STRING, name STRING, place BIGINT,"
        f" PRIMARY KEY ({key}) NOT ENFORCED) WITH ({listed})"
    )


def together(part: str) -> str:
    """All queries in one statement, as Spark takes long to begin one."""
    return " UNION ALL ".join(query.format(part=part) for query in QUERIES)


def expected(session: LookupSession, query: str, key: str) -> list[tuple[object, ...]]:
    """Spark's answer over the rows, of which row_number() = 1 leaves the first of each key."""
    listed = "id BIGINT, part STRING, name STRING, place BIGINT"
    session.spark.createDataFrame(ROWS.to_pylist(), listed).createOrReplaceTempView("every_row")
    has_null = " OR ".join(f"{name.strip()} IS NULL" for name in key.split(","))
    session.spark.sql(
        "SELECT id, part, name, place FROM (SELECT *, row_number() OVER"
        f" (PARTITION BY {key} ORDER BY place) AS r FROM every_row) WHERE r = 1 OR {has_null}"
    ).createOrReplaceTempView("plain_customers")
    return answer(session, query.replace("customers", "plain_customers"))


def answer(session: LookupSession, query: str) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in session.sql(query).collect()), key=repr)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("key", "part"), [("id", ""), ("id, part", " AND o.part = c.part"), ("id, part", "")]
)
def test_the_first_row_of_a_key_counts(session: LookupSession, way: str, key: str, part: str) -> None:
    create(session, key, "first", **WAYS[way])
    text = together(part)
    wanted = expected(session, text, key)
    for _ in range(2 if way == "partial" else 1):
        assert answer(session, text) == wanted


@pytest.mark.parametrize("way", WAYS)
def test_several_rows_of_a_key_are_an_error_that_names_it(session: LookupSession, way: str) -> None:
    create(session, "id", "error", **WAYS[way])
    with pytest.raises(
        Exception, match=r"rows have the primary key id = [12], and 'multiple-match' = 'error' allows"
    ):
        session.sql(QUERIES[0].format(part="")).collect()
    with pytest.raises(Exception, match=r"3 rows have the primary key id = 1, and"):
        session.sql("SELECT * FROM orders o JOIN customers c ON o.id = c.id WHERE o.n = 1").collect()
    assert len(session.sql(QUERIES[3].format(part="")).collect()) == 6, "a key is there, however often"


@pytest.mark.parametrize("way", [way for way in WAYS if way != "read"])
def test_a_key_with_one_row_is_found_beside_others_with_several(session: LookupSession, way: str) -> None:
    create(session, "id", "error", **WAYS[way])
    query = "SELECT o.n, c.name FROM orders o JOIN customers c ON o.id = c.id WHERE o.n >= 5 AND o.n < 8"
    assert answer(session, query) == [(5, "row 0")]


def test_a_key_with_several_rows_fails_as_others_do(session: LookupSession) -> None:
    create(session, "id", "error", **{"lookup.access": "lookup", "on-error": "skip"})
    assert answer(session, QUERIES[1].format(part="")) == [(5, "row 0"), (6, None), (7, None)]


def test_a_composite_key_is_named_whole(session: LookupSession) -> None:
    create(session, "id, part", "error", **WAYS["asked"])
    with pytest.raises(Exception, match=r"2 rows have the primary key id = 1, part = 'b', and"):
        session.sql(QUERIES[0].format(part="")).collect()


def test_rows_are_counted_whole_where_the_table_is_read(session: LookupSession) -> None:
    create(session, "id", "first", **WAYS["read"])
    right = "SELECT o.n, c.name FROM orders o RIGHT JOIN customers c ON o.id = c.id"
    assert answer(session, right) == expected(session, right, "id")
    with_filter = "SELECT o.n, c.name FROM orders o JOIN customers c ON o.id = c.id WHERE c.place > 1"
    assert answer(session, with_filter) == expected(session, with_filter, "id")
    count = "SELECT count(*) FROM customers c"
    assert answer(session, count) == expected(session, count, "id")


def test_other_columns_are_no_keys(session: LookupSession) -> None:
    create(session, "id", "first")
    query = "SELECT o.n, c.name FROM orders o JOIN customers c ON o.part = c.part"
    assert "Whole table customers is read" in session.explain(query)
    assert answer(session, query) == expected(session, query, "id")
    with_both = "SELECT o.n, c.name FROM orders o JOIN customers c ON o.part = c.part AND o.id = c.id"
    assert "keys         id = o.id\n" in session.explain(with_both)
    create(session, "id", "first", scan="false")
    with pytest.raises(UnsupportedLookup):
        session.sql(query)


def test_explain_says_it(session: LookupSession) -> None:
    create(session, "id", "first", **WAYS["asked"])
    query = QUERIES[0].format(part="")
    assert "one row of   id: others are left out ('multiple-match' = 'first', table)" in session.explain(
        query
    )
    assert "one row of" not in session.explain(QUERIES[3].format(part=""))
    create(session, "id", "error", **WAYS["read"])
    assert "one row of    id: several are an error ('multiple-match' = 'error', table)" in session.explain(
        query
    )


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (
            "id BIGINT",
            "'multiple-match' = 'first'",
            "table t: 'multiple-match' = 'first' needs a PRIMARY KEY, of which there is one row."
            " Declare PRIMARY KEY (...) NOT ENFORCED.",
        ),
        (
            "id BIGINT, place BIGINT, PRIMARY KEY (id, place) NOT ENFORCED",
            "'multiple-match' = 'error', 'lookup.valid-from' = 'place'",
            "table t: 'multiple-match' = 'error' needs a table without 'lookup.valid-from', whose keys have several"
            " rows. Leave one of them out.",
        ),
        ("id BIGINT", "'multiple-match' = 'last'", "it must be one of all, first, error."),
    ],
)
def test_where_it_says_nothing_it_is_refused(
    session: LookupSession, columns: str, options: str, said: str
) -> None:
    put_rows("nothing", ROWS.slice(0, 0))
    with pytest.raises(OptionError) as refused:
        session.sql(
            f"CREATE TEMPORARY TABLE t ({columns}) WITH ('connector' = 'memory', 'data' = 'nothing', {options})"
        )
    assert said in str(refused.value)

"""``<=>`` as a key: the rows are those of Spark's own join, and a NULL asks for the rows that have NULL."""

from __future__ import annotations

from datetime import date
from math import nan
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lookup_hints.errors import UnsupportedLookup
from tests.queries.worlds import QUICK, Data, Worlds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# 0, an empty text and the first day of 1970 have the bits that NULL has in Arrow.
LEFT = pa.table(
    {
        "no": range(8),
        "k": pa.array([None, 0, 1, 2, None, 3, 0, 9], pa.int32()),
        "s": ["", None, "a", "b", None, "", "a", None],
        "x": [0.0, -0.0, nan, None, 1.5, None, nan, 7.0],
        "d": pa.array([None, date(1970, 1, 1), None, date(2024, 2, 29)] * 2, pa.date32()),
    }
)
RIGHT = pa.table(
    {
        "k": pa.array([None, None, 0, 1, 1, 2, None, 3], pa.int64()),
        "s": ["", None, None, "a", "x", None, "a", ""],
        "x": [nan, None, 0.0, -0.0, None, 1.5, nan, 1.0],
        "d": pa.array([date(1970, 1, 1), None, None, date(2024, 2, 29)] * 2, pa.date32()),
        "name": [f"row {number}" for number in range(8)],
    }
)
FULL = {"lookup.cache": "FULL", "lookup.full-cache.periodic-reload.interval": "1 h"}
PARTIAL = {"lookup.cache": "PARTIAL", "lookup.partial-cache.missing-ttl": "1 h"}
PARTIAL["lookup.partial-cache.expire-after-write"] = "1 h"
TABLES = {
    "hits": Data(LEFT),
    "plain": Data(RIGHT),
    "partial": Data(RIGHT, options=PARTIAL),
    "full": Data(RIGHT, options=FULL),
}
LOOKUPS = frozenset({"plain", "partial", "full"})
CONDITIONS = [
    *(f"c.{name} <=> h.{name}" for name in "ksxd"),
    "h.k IS NOT DISTINCT FROM c.k AND equal_null(h.s, c.s)",
    "h.k = c.k AND c.s <=> h.s",
    "h.k + 1 <=> c.k AND c.name <> 'row 1'",
    "h.k <=> c.k AND h.no > 2",
    "c.k <=> NULL AND c.s = h.s",
    "(c.k <=> h.k AND c.s = 'a') OR (c.k <=> h.k AND h.no > 3)",
]


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(spark, tmp_path_factory.mktemp("null_safe"), TABLES, QUICK)


def joins(table: str) -> list[str]:
    """Each kind of join by each condition."""
    kinds = {"INNER": "c.name", "LEFT": "c.name", "LEFT SEMI": "''", "LEFT ANTI": "''"}
    return [
        " UNION ALL ".join(
            f"SELECT '{kind}' AS kind, h.no, {name} FROM hits h {kind} JOIN {table} c ON {condition}"
            for kind, name in kinds.items()
        )
        for condition in CONDITIONS
    ]


@pytest.mark.parametrize("table", sorted(LOOKUPS))
def test_every_join_gives_sparks_rows_and_asks(worlds: Worlds, table: str) -> None:
    world = worlds.world(LOOKUPS)
    for _ in range(2):  # of the second time a cache knows the answers
        world.forget()
        answers = worlds.check_all(joins(table), LOOKUPS)
        assert all(answer.rows for answer in answers)
    calls = world.calls(table)
    if table == "plain":
        assert calls.requests
        assert not calls.scans
    else:
        assert not calls.requests, "a NULL is a key of the cache, too"


def test_other_places_of_the_key(worlds: Worlds) -> None:
    texts = [
        "SELECT h.no, c.name FROM hits h, plain c WHERE c.k <=> h.k AND c.s = 'a'",
        "SELECT h.no FROM hits h WHERE EXISTS (SELECT 1 FROM plain c WHERE c.k <=> h.k AND h.no > 1)",
        "SELECT h.no FROM hits h WHERE h.s IN (SELECT c.s FROM plain c WHERE c.k <=> h.k)",
        "SELECT h.no, (SELECT max(c.name) FROM plain c WHERE c.k <=> h.k) AS name FROM hits h",
        "SELECT h.no, c.name FROM hits h, LATERAL (SELECT name FROM plain WHERE plain.k <=> h.k) c",
        "SELECT h.no, c.name FROM plain c RIGHT JOIN hits h ON c.k <=> h.k",
        "SELECT h.no, c.name FROM hits h FULL JOIN plain c ON c.k <=> h.k",
        "SELECT h.no, c.name, g.no AS other FROM hits h JOIN plain c ON c.s = h.s"
        " FULL JOIN hits g ON g.no = h.no + 5 WHERE c.k <=> h.k",
        "SELECT * FROM hits |> LEFT JOIN plain c ON c.s <=> hits.s |> SELECT no, name",
    ]
    assert all(answer.rows for answer in worlds.check_all(texts, LOOKUPS))


def test_a_frame_is_joined_by_a_condition(worlds: Worlds) -> None:
    session = worlds.world(LOOKUPS).session
    frame = session.spark.table("hits")
    found = session.lookup_join(frame, "plain", condition="plain.k <=> df.k", how="left").select("no", "name")
    expected = worlds.plain.sql("SELECT no, name FROM hits LEFT JOIN plain ON plain.k <=> hits.k")
    assert sorted(map(str, found.collect())) == sorted(map(str, expected.collect()))


def test_explain_says_which_keys_are_null_safe(worlds: Worlds) -> None:
    session = worlds.world(LOOKUPS).session
    shown = session.explain("SELECT h.no, c.name FROM hits h JOIN plain c ON c.k = h.k AND h.s <=> c.s")
    assert "k = h.k, s <=> h.s" in shown


def test_what_cannot_be_asked_for_null_says_what_to_write(worlds: Worlds) -> None:
    session = worlds.world(LOOKUPS).session
    session.sql(
        "CREATE OR REPLACE TEMPORARY TABLE remote (id BIGINT, name STRING)"
        " WITH ('connector' = 'http', 'url' = 'http://127.0.0.1:1/{id}')"
    )
    with pytest.raises(UnsupportedLookup) as caught:
        session.explain(
            "SELECT /*+ LOOKUP('table' = 'r') */ r.name FROM hits h JOIN remote r ON r.id <=> h.k"
        )
    assert "its source cannot be asked for rows in which id is NULL" in str(caught.value)
    assert "Write = if NULL need not equal NULL." in str(caught.value)

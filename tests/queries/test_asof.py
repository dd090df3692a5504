"""ASOF JOIN, which Spark has since 4.3: asked by its keys, or read whole where Spark has to join."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lookup_hints import LookupSession, disable
from lookup_hints.driver.spark_versions import spark_version
from lookup_hints.errors import UnsupportedLookup
from lookup_hints.plan.decide import access
from tests.queries.worlds import QUICK, Data, World, Worlds
from tests.spark.counting import Calls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENABLED = "spark.sql.join.asofJoin.enabled"
LOOKUPS = frozenset({"quotes", "names"})
TABLES = {
    "trades": Data(pa.table({"no": [1, 2, 3, 4, 5], "ts": [5, 15, 25, 35, 45], "k": [1, 2, 1, 2, None]})),
    "quotes": Data(
        pa.table(
            {
                "k": [1, 1, 2, 2, 3],
                "qt": [0, 20, 10, 30, 0],
                "price": [7, 8, 9, 10, 11],
                "path": [[0], [0, 1], [2], [], [3]],
            }
        )
    ),
    "names": Data(pa.table({"k": [1, 2], "name": ["a", "b"]}), ("k",)),
}
TEXTS = [
    "SELECT * FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.qt) ON t.k = q.k",
    "SELECT * FROM trades ASOF JOIN quotes MATCH_CONDITION (trades.ts >= quotes.qt) ON trades.k = quotes.k",
    "SELECT * FROM trades t LEFT ASOF JOIN quotes q MATCH_CONDITION (t.ts < q.qt) ON t.k = q.k",
    "SELECT * FROM trades t LEFT OUTER ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.qt) USING (k)",
    "SELECT * FROM trades t INNER ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.qt)",
    "SELECT * FROM quotes q ASOF JOIN trades t MATCH_CONDITION (q.qt >= t.ts) ON t.k = q.k",
    "SELECT * FROM quotes q LEFT ASOF JOIN trades t MATCH_CONDITION (q.qt <= t.ts) ON t.k = q.k WHERE q.k = 2",
    "SELECT * FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.qt) ON t.k = q.k WHERE q.price = 7",
    "SELECT * FROM trades t ASOF JOIN (quotes q JOIN names n ON n.k = q.k) MATCH_CONDITION (t.ts >= q.qt)"
    " ON t.k = q.k WHERE q.price IN (7, 9) AND q.k = 1",
    "SELECT * FROM trades t ASOF JOIN (SELECT * FROM quotes WHERE price > 7) q MATCH_CONDITION (t.ts >= q.qt) ON t.k = q.k",
    "WITH d AS (SELECT * FROM quotes) SELECT * FROM trades t ASOF JOIN d MATCH_CONDITION (t.ts >= d.qt) ON t.k = d.k",
    "SELECT * FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.qt) ON t.k = q.k LEFT JOIN names n ON n.k = q.k",
    "SELECT * FROM trades t JOIN names n ON n.k = t.k ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.qt) ON n.k = q.k",
    "SELECT t.no, q.price FROM names n, trades t ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.qt) ON n.k = q.k"
    " WHERE t.k = n.k",
    "SELECT asof.no, n.name FROM trades asof JOIN names n ON n.k = asof.k",
]  # fmt: skip


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    if spark_version(spark) < (4, 3):
        pytest.skip("this Spark knows no ASOF JOIN")
    return Worlds(spark, tmp_path_factory.mktemp("asof"), TABLES, {**QUICK, ENABLED: "true"}, "memory")


@pytest.fixture
def world(worlds: Worlds) -> Iterator[World]:
    found = worlds.world(LOOKUPS)
    yield found
    for key in ("lookup.on-scan", ENABLED):
        found.session.spark.conf.unset(key)
    found.session.spark.conf.set(ENABLED, "true")


def test_it_gives_sparks_rows(worlds: Worlds) -> None:
    for text, answer in zip(TEXTS, worlds.check_all(TEXTS, LOOKUPS), strict=True):
        assert answer.rows, text


ASKED = [
    f"SELECT * FROM trades t {kind} ASOF JOIN quotes q MATCH_CONDITION ({match}) ON t.k = q.k"
    for kind in ("INNER", "LEFT")
    for match in (
        "t.ts >= q.qt",
        "t.ts > q.qt",
        "q.qt >= t.ts",
        "t.ts < q.qt",
        "t.ts - 5 >= q.qt",
        "15 <= q.qt",
    )
]
ASKED += [
    "SELECT * FROM trades t ASOF JOIN (SELECT k, qt AS price, price AS qt FROM quotes) q MATCH_CONDITION (t.ts >= q.price)"
    " ON t.k = q.k",
    "SELECT * FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.qt) ON (SELECT min(k) FROM names) = q.k",
    "SELECT * FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.qt) ON t.k = q.k AND t.no <> 3",
]
READ = [
    ("MATCH_CONDITION (t.ts >= q.qt) ON t.k = q.k AND q.price > 7", "conditions beside its keys take part in choosing"),
    ("MATCH_CONDITION (t.ts >= q.qt + 1) ON t.k = q.k", "its MATCH_CONDITION does not compare one of its columns"),
    ("MATCH_CONDITION (CAST(t.ts AS DOUBLE) >= q.qt) ON t.k = q.k",
     r"CAST(t.ts AS DOUBLE) compares DOUBLE with qt, which is BIGINT"),
    ("MATCH_CONDITION (array(t.k) >= q.path) ON t.k = q.k",
     "its MATCH_CONDITION compares path, which is ARRAY<BIGINT>"),
    ("MATCH_CONDITION (t.ts >= q.qt) ON t.k < q.k", "no equality between an expression of the left side"),
]  # fmt: skip


def test_the_nearest_row_is_sparks(worlds: Worlds, world: World) -> None:
    worlds.check_all(ASKED, LOOKUPS)
    for text in ASKED:
        assert "asked: " in world.session.explain(text), text


def test_what_spark_has_to_join_is_read(worlds: Worlds, world: World) -> None:
    reasons = {f"SELECT * FROM trades t LEFT ASOF JOIN quotes q {match}": why for match, why in READ}
    worlds.check_all(reasons, LOOKUPS)
    for text, why in reasons.items():
        assert why in world.session.explain(text)
        with pytest.raises(UnsupportedLookup, match=re.escape(why)):
            world.session.sql(text.replace("SELECT", "SELECT /*+ LOOKUP('table'='q') */"))


THROUGH = [
    "(SELECT * FROM quotes WHERE price <> 8) q MATCH_CONDITION (t.ts >= q.qt) ON t.k = q.k",
    "(SELECT k, qt + 1 AS qt, price FROM quotes) q MATCH_CONDITION (t.ts >= q.qt) ON t.k = q.k",
    "(SELECT k, qt + 1 AS qt, qt AS price FROM quotes) q MATCH_CONDITION (t.ts >= q.qt) ON t.k = q.k",
]


def test_what_a_query_changes_is_not_chosen_among_all_rows(worlds: Worlds) -> None:
    worlds.check_all([f"SELECT * FROM trades t LEFT ASOF JOIN {right}" for right in THROUGH], LOOKUPS)


def test_a_table_on_the_left_is_read(world: World) -> None:
    assert "read because  an ASOF JOIN needs every row of its left side" in world.session.explain(TEXTS[5])


def test_where_spark_does_not_take_the_syntax_what_is_asked_runs_and_the_rest_says_so(
    worlds: Worlds, world: World
) -> None:
    for text in TEXTS[:4]:
        worlds.answer(text)
    world.session.spark.conf.set(ENABLED, "false")
    for text in TEXTS[:4]:
        worlds.check(text, LOOKUPS)
    plain = "SELECT * FROM trades t ASOF JOIN trades q MATCH_CONDITION (t.ts >= q.ts) ON t.k = q.k"
    for text in (f"SELECT * FROM trades t LEFT ASOF JOIN quotes q {READ[0][0]}", plain):
        with pytest.raises(Exception, match=r"ASOF_JOIN.*spark\.sql\.join\.asofJoin\.enabled"):
            world.session.sql(text).collect()
    with pytest.raises(Exception, match="nowhere"):
        world.session.sql(TEXTS[0].replace("t.ts", "t.nowhere"))


def test_a_table_that_is_read_in_the_middle_of_the_statement_gives_sparks_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if spark_version(spark) < (4, 3):
        pytest.skip("this Spark knows no ASOF JOIN")
    monkeypatch.setattr(access, "FEWEST_KEYS", 100)
    session, log = LookupSession(spark.newSession()), tmp_path / "log"
    batch = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}
    for key, value in {**QUICK, ENABLED: "true", **batch}.items():
        session.spark.conf.set(key, value)
    session.sql(
        "CREATE TEMPORARY VIEW trades AS SELECT id AS no, id * 7 % 60 AS k, id * 11 % 97 AS ts"
        " FROM range(0, 20000, 1, 1)"
    )
    quotes = [[k, at, k * 100 + at] for k in range(50) for at in range(k % 7, 90, 13)]
    session.sql(
        "CREATE TEMPORARY TABLE quotes (k BIGINT, qt BIGINT, price BIGINT, PRIMARY KEY (k, qt) NOT ENFORCED)"
        f" WITH ('connector' = 'tests.spark.counting:ByKey', 'rows' = '{quotes}', 'log' = '{log}',"
        " 'lookup.valid-from' = 'qt')"
    )
    listed = ", ".join(f"({k}, {at}, {price})" for k, at, price in quotes)
    session.sql(f"CREATE TEMPORARY VIEW plain AS SELECT * FROM VALUES {listed} AS q(k, qt, price)")
    # Spark does not know how many rows are left of a condition.
    left = "SELECT t.no, q.qt, q.price FROM (SELECT * FROM trades WHERE no >= 0) t LEFT"
    nearest = f"{left} ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.qt) ON t.k = q.k"
    as_of = f"{left} JOIN quotes FOR SYSTEM_TIME AS OF t.ts AS q ON t.k = q.k"
    try:
        told = session.explain(f"{nearest} UNION ALL {as_of}")
        assert told.count("may read     each executor reads the table when it has asked for") == 2
        ours = [sorted(map(tuple, session.sql(text).collect()), key=str) for text in (nearest, as_of)]
        calls = Calls.read(log)
        assert calls.scans == 2
        assert calls.requests, "it was asked before"
        sparks = session.sql(nearest.replace("quotes q", "plain q")).collect()
        assert ours == [sorted(map(tuple, sparks), key=str)] * 2
    finally:
        disable(session.spark)

"""Derived tables, CTEs and views over one lookup table, and lists of constants: which keys are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.queries.worlds import Data, World, Worlds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKUPS = frozenset({"c"})
TABLES = {
    "o": Data(pa.table({"no": [1, 2, 3, 4], "k": [1, 2, 9, None]})),
    "c": Data(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "x": [None, 5, 6]}), ("id",)),
}
VIEWS = {
    "v": "SELECT id AS i, name AS n, coalesce(x, 7) AS z FROM c WHERE id > 1",
    "vv": "SELECT i AS a, upper(n) AS b FROM v",
}
ASKED_BY_ORDERS = {("1",), ("2",), ("9",)}


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(spark, tmp_path_factory.mktemp("through"), TABLES, views=VIEWS)


@pytest.fixture
def world(worlds: Worlds) -> World:
    found = worlds.world(LOOKUPS)
    found.forget()
    return found


@pytest.mark.parametrize(
    "text",
    [
        "SELECT o.no, d.name FROM o JOIN (SELECT id, name FROM c WHERE x > 5) d ON o.k = d.id",
        "SELECT o.no, d.z FROM o LEFT JOIN (SELECT id, coalesce(x, 0) AS z FROM c WHERE name > 'a') d ON o.k = d.id",
        "WITH q AS (SELECT id, name FROM c) SELECT o.no, q.name FROM o LEFT JOIN q ON o.k = q.id",
        "SELECT o.no, v.n, v.z FROM o LEFT JOIN v ON o.k = v.i",
        "SELECT o.no, vv.b FROM o LEFT JOIN vv ON o.k = vv.a",
        "SELECT o.no FROM o WHERE EXISTS (SELECT 1 FROM v WHERE v.i = o.k)",
        "SELECT o.no, v.n FROM v JOIN o ON o.k = v.i",
        "SELECT o.no, v.* FROM o, v WHERE o.k = v.i",
        "SELECT * FROM o WHERE k IN (SELECT id FROM (SELECT id FROM c WHERE x > 4))",
        "SELECT * FROM o WHERE k IN (SELECT id FROM (SELECT * FROM (SELECT id, x FROM c WHERE x > 4)) WHERE x > 5)",
        "SELECT * FROM o WHERE k IN (SELECT * FROM (SELECT id FROM c WHERE x > 4))",
        "SELECT * FROM o WHERE k IN (WITH q AS (SELECT id FROM (SELECT * FROM c)) SELECT id FROM q)",
        "WITH q AS (SELECT i FROM (SELECT id AS i FROM c)) SELECT * FROM o WHERE k IN (SELECT i FROM q)",
        "SELECT * FROM o WHERE EXISTS (SELECT 1 FROM (SELECT id AS i FROM c) WHERE i = k)",
        "SELECT * FROM o WHERE NOT EXISTS (SELECT 1 FROM (SELECT id AS i FROM c WHERE x > 5) WHERE i = o.k)",
        "SELECT * FROM o WHERE k IS NOT NULL AND k NOT IN (SELECT id FROM (SELECT id FROM c WHERE x > 5))",
        "SELECT no, name FROM o LEFT JOIN (SELECT id, name FROM c) ON k = id",
        "SELECT * FROM o JOIN (SELECT id AS k, name FROM c) USING (k)",
        "SELECT * FROM o JOIN (SELECT * FROM c) ON k = id JOIN o p ON p.k = id",
    ],
)
def test_keys_of_the_left_side_are_asked_once(worlds: Worlds, world: World, text: str) -> None:
    worlds.check(text, LOOKUPS)
    assert world.calls("c").keys.keys() == ASKED_BY_ORDERS
    assert set(world.calls("c").keys.values()) == {1}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("SELECT * FROM c WHERE id IN (1, 3, 1, NULL, 8)", {"1", "3", "8"}),
        ("SELECT * FROM c WHERE id = 1 OR (id = 2 AND x > 1)", {"1", "2"}),
        ("SELECT * FROM c WHERE id IN ('1', '01', '3')", {"1", "3"}),
        ("SELECT i FROM v WHERE i IN (2, 3)", {"2", "3"}),
        ("SELECT d.n FROM (SELECT id, name AS n FROM c WHERE id IN (2, 5)) d", {"2", "5"}),
        ("SELECT o.no, c.name FROM o LEFT JOIN c ON o.k > c.id WHERE c.id IN (1, 2)", {"1", "2"}),
        ("SELECT o.no, c.name FROM o JOIN c ON o.k = c.id WHERE c.x IN (5, 6)", {"1", "2", "9"}),
    ],
)
def test_a_list_of_constants_is_asked_for(worlds: Worlds, world: World, text: str, keys: set[str]) -> None:
    worlds.check(text, LOOKUPS)
    assert world.calls("c").keys == {(key,): 1 for key in keys}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT o.no FROM o JOIN (SELECT DISTINCT id FROM c) d ON o.k = d.id",
        "SELECT o.no FROM o JOIN (SELECT id + 1 AS i FROM c) d ON o.k = d.i",
        "SELECT o.no, d.id FROM o RIGHT JOIN (SELECT id FROM c) d ON o.k = d.id",
        "SELECT o.no FROM o WHERE k NOT IN (SELECT id FROM (SELECT id FROM c WHERE x > 5))",
        "WITH q (i, i, n) AS (SELECT name, x, id FROM c) SELECT o.no, q.* FROM o JOIN q ON o.k = q.n",
    ],
)
def test_what_is_not_looked_through_is_read(worlds: Worlds, world: World, text: str) -> None:
    worlds.check(text, LOOKUPS)
    assert not world.calls("c").keys


def replace_by_frame(spark: Any) -> None:
    spark.sql("SELECT i + 1 AS i, n, z FROM w").createOrReplaceTempView("w")


def replace_by_sql(spark: Any) -> None:
    spark.sql("CREATE OR REPLACE TEMP VIEW w AS SELECT 2L AS i, 'other' AS n, 1L AS z")


@pytest.mark.parametrize("change", [replace_by_frame, replace_by_sql])
def test_a_view_that_was_replaced_is_not_the_old_one(worlds: Worlds, world: World, change: Any) -> None:
    """Whoever replaces it: our session is not told."""
    text = "SELECT o.no, w.n FROM o JOIN w ON o.k = w.i"
    for session in (worlds.plain, world.session):
        session.sql(f"CREATE OR REPLACE TEMPORARY VIEW w AS {VIEWS['v']}")
    assert "through" in world.session.explain(text)
    change(worlds.plain)
    change(world.session.spark)
    ours = sorted(map(tuple, world.session.sql(text).collect()))
    assert ours == sorted(map(tuple, worlds.plain.sql(text).collect()))
    assert not world.calls("c").keys


@pytest.mark.parametrize(
    ("setting", "made_with", "now"),
    [
        ("spark.sql.session.timeZone", "UTC", "Asia/Kolkata"),
        ("spark.sql.ansi.enabled", "false", "true"),
    ],
)
def test_a_view_keeps_the_settings_that_it_was_made_with(
    worlds: Worlds, world: World, setting: str, made_with: str, now: str
) -> None:
    text = "SELECT o.no, t.h, t.i FROM o JOIN t ON o.k = t.id"
    made = "SELECT id, hour(timestamp_seconds(id)) AS h, 0 AS i FROM c"
    if "ansi" in setting:
        made = "SELECT id, 0 AS h, CAST(name AS INT) AS i FROM c"
    sessions = (worlds.plain, world.session.spark)
    before = worlds.plain.conf.get(setting) or ""
    create = f"CREATE OR REPLACE TEMPORARY VIEW t AS {made}"
    try:
        for spark in sessions:
            spark.conf.set(setting, made_with)
        worlds.plain.sql(create)
        world.session.sql(create)
        assert "through" in world.session.explain(text)
        for spark in sessions:
            spark.conf.set(setting, now)
        ours = sorted(map(repr, world.session.sql(text).collect()))
        assert ours == sorted(map(repr, worlds.plain.sql(text).collect()))
        assert not world.calls("c").keys
    finally:
        for spark in sessions:
            spark.conf.set(setting, before)


def test_how_a_query_runs_does_not_change_what_a_view_means(world: World) -> None:
    world.session.sql(f"CREATE OR REPLACE TEMPORARY VIEW w AS {VIEWS['v']}")
    world.session.spark.conf.set("spark.sql.shuffle.partitions", "3")
    assert "through" in world.session.explain("SELECT o.no, w.n FROM o JOIN w ON o.k = w.i")


def test_a_view_that_was_dropped_is_gone(world: World) -> None:
    from pyspark.errors import AnalysisException

    world.session.sql(f"CREATE OR REPLACE TEMPORARY VIEW gone AS {VIEWS['v']}")
    world.session.spark.catalog.dropTempView("gone")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        world.session.sql("SELECT o.no FROM o JOIN gone ON o.k = gone.i")


@pytest.mark.parametrize(("made", "now"), [({"n": 1}, {"n": 100}), ([1], [100])])
def test_a_view_keeps_the_values_of_the_statement_that_made_it(
    worlds: Worlds, world: World, made: Any, now: Any
) -> None:
    value = ":n" if isinstance(made, dict) else "?"
    text = f"SELECT o.no, p.z FROM o JOIN p ON o.k = p.i AND o.no < {value}"
    for session in (worlds.plain, world.session):
        session.sql(f"CREATE OR REPLACE TEMPORARY VIEW p AS SELECT id AS i, x + {value} AS z FROM c", made)
    ours, theirs = (session.sql(text, now).collect() for session in (world.session, worlds.plain))
    assert sorted(map(tuple, ours)) == sorted(map(tuple, theirs))
    assert ours


def test_a_view_keeps_the_variables_that_stood_in_it(worlds: Worlds, world: World) -> None:
    for session in (worlds.plain, world.session):
        for text in (
            "SET n=1",
            "CREATE OR REPLACE TEMPORARY VIEW p AS SELECT id AS i, x + ${n} AS z FROM c",
            "SET n=100",
        ):
            session.sql(text)
    ours, theirs = (
        session.sql("SELECT o.no, p.z FROM o JOIN p ON o.k = p.i").collect()
        for session in (world.session, worlds.plain)
    )
    assert sorted(map(tuple, ours)) == sorted(map(tuple, theirs))
    assert ours


def test_explain_says_what_is_looked_through(world: World) -> None:
    told = world.session.explain("SELECT o.no, d.n FROM o JOIN (SELECT id, name AS n FROM c) d ON o.k = d.id")
    assert "through      derived table d" in told
    assert "keys         id = o.k" in told


def test_the_statement_explain_knows_views_too(world: World) -> None:
    """A text that names only the view concerns its lookup table."""
    world.session.sql(f"CREATE OR REPLACE TEMPORARY VIEW w AS {VIEWS['v']}")
    told = world.session.sql("EXPLAIN SELECT o.no, w.n FROM o LEFT JOIN w ON o.k = w.i").collect()[0][0]
    assert "through      view w" in told
    assert "keys         id = o.k" in told


def test_names_differ_by_case_where_spark_says_so(worlds: Worlds, world: World) -> None:
    text = "SELECT o.no, d.N FROM o JOIN (SELECT id, name AS N, x AS n FROM c) d ON o.k = d.id"
    sessions = (worlds.plain, world.session.spark)
    for spark in sessions:
        spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        worlds.check(text, LOOKUPS)
    finally:
        for spark in sessions:
            spark.conf.set("spark.sql.caseSensitive", "false")

"""FOR SYSTEM_TIME AS OF: what is asked for behind it, and what is said of a time that does not choose the rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lookup_hints.errors import UnsupportedLookup
from tests.queries.worlds import Data, World, Worlds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKUPS = frozenset({"c"})
TABLES = {
    "o": Data(pa.table({"no": [1, 2, 3, 4], "k": [1, 2, 9, None]})),
    "c": Data(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "x": [None, 5, 6]}), ("id",)),
}
VIEWS = {
    "v": "SELECT id, name, x FROM c WHERE id > 0",
    "groups": "SELECT id, max(name) AS name FROM c GROUP BY id",
    "orders": "SELECT no, k, current_timestamp() AS proc_time, TIMESTAMP '2020-01-01 00:00:00' AS ts FROM o",
}
ASKED = ["c", "v", "(SELECT * FROM c)", "d", "(SELECT * FROM (SELECT id, name FROM v WHERE id < 9))"]
READ = ["groups", "(SELECT DISTINCT id, name FROM c)", "(SELECT id, max(x) AS name FROM d GROUP BY id)"]
JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]
SILENT = [
    "SELECT c.name FROM o JOIN c FOR SYSTEM_TIME AS OF PROCTIME() ON o.k = c.id",
    "SELECT c.name FROM o JOIN c FOR SYSTEM_TIME AS OF now() ON o.k = c.id",
    "SELECT c.name FROM orders o JOIN c FOR SYSTEM_TIME AS OF o.proc_time ON o.k = c.id",
    "SELECT c.name FROM (SELECT *, now() AS p FROM o) o JOIN c FOR SYSTEM_TIME AS OF p ON o.k = c.id",
    "SELECT c.name FROM (SELECT k, proc_time AS p FROM orders) o JOIN c FOR SYSTEM_TIME AS OF o.p ON o.k = c.id",
    "SELECT c.name FROM (SELECT * FROM orders) o JOIN c FOR SYSTEM_TIME AS OF o.proc_time ON o.k = c.id",
    "WITH q AS (SELECT o.* FROM orders o) SELECT c.name FROM q JOIN c FOR SYSTEM_TIME AS OF q.proc_time ON q.k = c.id",
    "SELECT v.name FROM orders o LEFT JOIN v FOR SYSTEM_TIME AS OF o.proc_time ON o.k = v.id",
    "SELECT x.name FROM orders o JOIN c x FOR SYSTEM_TIME AS OF o.proc_time ON o.k = x.id JOIN o p ON p.k = x.id",
    "SELECT b FROM orders o LEFT JOIN c AS x(a, b, z) FOR SYSTEM_TIME AS OF o.proc_time ON o.k = x.a",
    "SELECT x.name FROM orders o, (SELECT * FROM c) x FOR SYSTEM_TIME AS OF now() WHERE o.k = x.id",
]
WARNED = [
    ("SELECT c.name FROM orders o JOIN c FOR SYSTEM_TIME AS OF o.ts ON o.k = c.id", "o.ts", "c"),
    ("SELECT x.name FROM orders o JOIN groups FOR SYSTEM_TIME AS OF ts x ON o.k = x.id", "ts", "x"),
    ("SELECT x.name FROM orders o FULL JOIN c AS x FOR SYSTEM_TIME AS OF o.ts ON o.k = x.id", "o.ts", "x"),
    ("SELECT x.name FROM (SELECT ts AS proc_time, k FROM orders) o"
     " JOIN (SELECT * FROM c) FOR SYSTEM_TIME AS OF o.proc_time AS x ON o.k = x.id", "o.proc_time", "x"),
    ("SELECT c.name, v.x FROM orders o JOIN c FOR SYSTEM_TIME AS OF o.ts ON o.k = c.id"
     " JOIN v FOR SYSTEM_TIME AS OF o.ts ON o.k = v.id", "o.ts", "c and v"),
]  # fmt: skip


def note(time: str, names: str) -> str:
    return (
        f"FOR SYSTEM_TIME AS OF {time} does not choose the rows of {names}: they are those of now, as {time} is"
        " not known to be processing time (current_timestamp(), or a column made of it)."
    )


def new_worlds(spark: SparkSession, folders: pytest.TempPathFactory) -> Worlds:
    return Worlds(spark, folders.mktemp("times"), TABLES, connector="memory", views=VIEWS)


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return new_worlds(spark, tmp_path_factory)


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds.world(LOOKUPS)


@pytest.fixture(params=["warn", "error", "allow"])
def on_event_time(world: World, request: pytest.FixtureRequest) -> Iterator[str]:
    conf = world.session.spark.conf
    conf.set("lookup.on-event-time", request.param)
    yield request.param
    conf.unset("lookup.on-event-time")


def over(relation: str, join: str, ctes: str = "WITH d AS (SELECT id, name, x FROM c) ") -> str:
    name = "NULL" if join in ("LEFT SEMI JOIN", "LEFT ANTI JOIN") else "x.name"
    return (
        f"{ctes}SELECT '{join}' AS j, o.no, {name} AS name FROM orders o"
        f" {join} {relation} FOR SYSTEM_TIME AS OF o.proc_time AS x ON o.k = x.id"
    )


@pytest.mark.parametrize("relation", ASKED)
def test_what_is_one_table_is_asked(world: World, relation: str) -> None:
    assert "LEFT lookup join with c" in world.session.explain(over(relation, "LEFT JOIN"))


@pytest.mark.parametrize("relation", READ)
def test_what_is_more_than_one_table_is_read_whole(world: World, relation: str) -> None:
    assert "(1)" not in world.session.explain(over(relation, "LEFT JOIN")).partition("== Spark SQL ==")[0]


def test_a_table_of_sparks_own_keeps_the_clause(world: World) -> None:
    with pytest.raises(Exception, match=r"(?i)time travel"):
        world.session.sql(
            "SELECT 1 FROM c JOIN o FOR SYSTEM_TIME AS OF current_timestamp() AS x ON x.k = c.id"
        )


def test_a_time_that_is_no_column_is_refused_behind_a_derived_table_too(world: World) -> None:
    text = over("(SELECT * FROM c)", "JOIN").replace("o.proc_time", "TIMESTAMP '2020-01-01'")
    with pytest.raises(
        UnsupportedLookup, match=r"knows only the present. Write PROCTIME\(\) or current_timestamp\(\), or"
    ):
        world.session.sql(text)


def test_a_wrong_name_in_the_time_is_an_error(world: World) -> None:
    with pytest.raises(UnsupportedLookup, match=r"its time o.nosuch cannot be computed"):
        world.session.sql(over("(SELECT * FROM c)", "JOIN").replace("o.proc_time", "o.nosuch"))


@pytest.mark.parametrize("text", SILENT)
def test_nothing_is_said_of_processing_time(
    world: World, on_event_time: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "lookup_hints"):
        world.session.sql(text)
    assert not caplog.messages
    assert "does not choose" not in world.session.explain(text)


@pytest.mark.parametrize(("text", "time", "names"), WARNED)
def test_another_time_is_warned_of_once_or_refused(
    world: World, on_event_time: str, text: str, time: str, names: str, caplog: pytest.LogCaptureFixture
) -> None:
    if on_event_time == "error":
        with pytest.raises(
            UnsupportedLookup, match=r"'lookup.on-event-time' = 'error' \(session\) forbids that"
        ):
            world.session.sql(text)
        return
    with caplog.at_level(logging.WARNING, "lookup_hints"):
        world.session.sql(text)
    assert caplog.messages == ([note(time, names)] if on_event_time == "warn" else [])
    assert f"Note: {note(time, names)}" in world.session.explain(text)


def test_a_table_may_forbid_it_and_a_view_of_it_does_too(worlds: Worlds, world: World) -> None:
    session = world.session
    session.sql(
        "CREATE TEMPORARY TABLE strict (id BIGINT, name STRING) WITH ('connector' = 'memory',"
        f" 'data' = '{worlds.folder}/c', 'lookup.on-event-time' = 'error')"
    )
    session.sql("CREATE TEMPORARY VIEW over_strict AS SELECT * FROM strict")
    for table in ("strict", "over_strict", "(SELECT DISTINCT * FROM strict)"):
        text = f"SELECT x.name FROM orders o JOIN {table} FOR SYSTEM_TIME AS OF o.ts AS x ON o.k = x.id"
        with pytest.raises(
            UnsupportedLookup, match=r"'lookup.on-event-time' = 'error' \(table\) forbids that"
        ):
            session.sql(text)

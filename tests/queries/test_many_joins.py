"""A hundred lookup joins in one statement: more than Spark's analyzer, its tasks and its stack take as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lookup_hints.plan.write.packing import MOST_VIEWS
from tests.queries.worlds import Data, Worlds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY = 100
TABLES = {
    "o": Data(pa.table({"no": [1, 2, 3], "k": [1, 2, 9]})),
    "c": Data(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}), ("id",)),
}
CONF = {"spark.sql.shuffle.partitions": "1"}


def joined(joins: list[str]) -> str:
    names = ", ".join(f"c{number}.name AS n{number}" for number in range(MANY))
    return f"SELECT o.no, {names} FROM o {' '.join(joins)}"


def one_kind(kind: str) -> str:
    return joined(
        [f"{kind} c c{number} ON o.k = c{number}.id AND c{number}.name <> 'z'" for number in range(MANY)]
    )


def mixed() -> str:
    joins = []
    for number in range(MANY):
        joins.append(f"{('LEFT JOIN', 'JOIN')[number % 2]} c c{number} ON o.k = c{number}.id")
        joins += [f"JOIN o o{number} ON o{number}.no = o.no"] if number % 4 == 0 else []
    return joined(joins)


EXPECTED = {
    "LEFT JOIN": [(1, *["a"] * MANY), (2, *["b"] * MANY), (3, *[None] * MANY)],
    "JOIN": [(1, *["a"] * MANY), (2, *["b"] * MANY)],
}


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(spark, tmp_path_factory.mktemp("many"), TABLES, CONF, "memory", is_small=True)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("text", "kind"),
    [(one_kind("LEFT JOIN"), "LEFT JOIN"), (one_kind("JOIN"), "JOIN"), (mixed(), "JOIN")],
    ids=["left", "inner", "mixed"],
)
def test_a_hundred_lookup_joins_run(worlds: Worlds, text: str, kind: str) -> None:
    session = worlds.world(frozenset({"c"})).session
    assert session.explain(text).count(" lookup join with c") == MANY
    assert sorted(map(tuple, session.sql(text).collect())) == EXPECTED[kind]


@pytest.mark.timeout(900)
def test_rows_go_on_to_the_next_stage_without_memory_for_sorting_them(worlds: Worlds) -> None:
    session = worlds.world(frozenset({"c"})).session
    count = MOST_VIEWS + 1
    names = ", ".join(f"c{number}.name AS n{number}" for number in range(count))
    joins = " ".join(f"LEFT JOIN c c{number} ON o.id = c{number}.id" for number in range(count))
    text = f"SELECT o.id, {names} FROM range(1, 5, 1, 2) o {joins}"  # two tasks at once share the memory
    session.spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        assert session.explain(text).count("/*+ REPARTITION(`__lookup_1`) */") == 1
        found = sorted(map(tuple, session.sql(text).collect()))
        with_maps = text.replace("FROM range(1, 5, 1, 2)", "FROM (SELECT id, map(1, id) FROM range(9))")
        assert session.explain(with_maps).count("/*+ REPARTITION */") == 1, "maps have no hash"
    finally:
        session.spark.conf.set("spark.sql.shuffle.partitions", CONF["spark.sql.shuffle.partitions"])
    assert found == [(number, *[name] * count) for number, name in ((1, "a"), (2, "b"), (3, "c"), (4, None))]

"""A hundred lookup joins in one statement: more than Spark's analyzer, its tasks and its stack take as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.queries.worlds import Data, Worlds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY = 100
TABLES = {
    "o": Data(pa.table({"no": [1, 2, 3], "k": [1, 2, 9]})),
    "c": Data(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}), ("id",)),
}


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
    return Worlds(spark, tmp_path_factory.mktemp("many"), TABLES, connector="memory", is_small=True)


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

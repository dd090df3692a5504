"""No lookup join multiplies relations that Spark's own plan does not: a star, a snowflake, and what is between."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.queries.retail import DIMENSIONS, QUERIES, SIZES, tables
from tests.queries.worlds import Worlds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUPS = {
    "a snowflake whose branches meet": "SELECT 1 FROM sales s, homes h, shops p WHERE h.shop = p.id AND s.shop = p.id"
}
"""The queries whose keys come from a group with more rows than the largest table: its equalities multiply them."""

_PRODUCT = re.compile(r"\bJoin (?:Inner|Cross)(?:, (?:left|right)Hint=.*)?$", re.MULTILINE)


@pytest.fixture(scope="module", params=["with primary keys", "without primary keys"])
def worlds(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Worlds:
    keyed = request.param == "with primary keys"
    return Worlds(spark, tmp_path_factory.mktemp("retail"), tables(keyed=keyed))


def products(frame: DataFrame) -> int:
    """The joins without a condition in the optimized plan."""
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    return len(_PRODUCT.findall(plan))


def choices(text: str) -> list[frozenset[str]]:
    """Which of its dimensions are lookup tables: each, and all."""
    named = [name for name in DIMENSIONS if re.search(rf"\b{name}\b", text)]
    return [*(frozenset((name,)) for name in named), frozenset(named)]


@pytest.mark.parametrize("title", QUERIES)
def test_no_plan_has_a_product_that_sparks_has_not(worlds: Worlds, title: str) -> None:
    text = QUERIES[title]
    own = products(worlds.plain.sql(text))
    found = {tuple(sorted(names)): products(worlds.world(names).session.sql(text)) for names in choices(text)}
    assert {names: count for names, count in found.items() if count > own} == {}


@pytest.mark.parametrize("title", QUERIES)
def test_the_rows_are_sparks_and_no_pair_of_keys_is_made_up(worlds: Worlds, title: str) -> None:
    """No table is asked for more keys than the group of relations that gives them has rows."""
    text = QUERIES[title]
    given = GROUPS.get(title)
    most = max(SIZES.values()) if given is None else worlds.plain.sql(given).count()
    for names in {choices(text)[0], choices(text)[-1]}:
        world = worlds.world(names)
        world.forget()
        worlds.check(text, names)
        for name in names:
            assert world.calls(name).keys.total() <= most, name


def test_a_product_is_seen(worlds: Worlds) -> None:
    assert products(worlds.plain.sql("SELECT h.id, c.id FROM homes h, circles c")) == 1
    assert products(worlds.plain.sql("SELECT h.id, c.id FROM homes h JOIN circles c ON h.id < c.id")) == 0

"""CTEs with lookups that are read more than once, each time with other conditions; other tables are Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.queries.worlds import Data, Worlds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = {
    "inventory": Data(
        pa.table(
            {
                "inv_i": [number % 4 for number in range(40)],
                "inv_w": [number % 3 for number in range(40)],
                "inv_d": [number % 5 for number in range(40)],
                "qoh": list(range(40)),
            }
        )
    ),
    "item": Data(pa.table({"i_sk": [0, 1, 2, 3]}), ("i_sk",)),
    "w": Data(pa.table({"w_sk": [0, 1, 2], "w_name": ["a", "b", "c"]}), ("w_sk",)),
    "date_dim": Data(pa.table({"d_sk": [0, 1, 2, 3, 4], "d_moy": [0, 1, 2, 1, 2]}), ("d_sk",)),
}
BY_MONTH = (
    "(SELECT w_name, w_sk, i_sk, d_moy, avg(qoh) mean FROM inventory, item, w, date_dim"
    " WHERE inv_i = i_sk AND inv_w = w_sk AND inv_d = d_sk GROUP BY w_name, w_sk, i_sk, d_moy)"
)
JOINED = "(SELECT inv_i, inv_d, w.* FROM inventory LEFT JOIN w ON inv_w = w_sk JOIN item ON inv_i = i_sk)"
PAIRS = "a.w_sk = b.w_sk AND a.i_sk = b.i_sk AND a.d_moy = 1 AND b.d_moy = 2"
TEXTS = [
    f"WITH inv AS {BY_MONTH} SELECT a.mean, b.mean FROM inv a, inv b WHERE {PAIRS}",
    f"WITH inv AS {BY_MONTH} SELECT a.*, inv.mean FROM inv a JOIN inv ON {PAIRS.replace('b.', 'inv.')}",
    f"WITH inv (w_name, w_sk, i_sk, d_moy, mean) AS {BY_MONTH} SELECT * FROM inv a, (inv) AS b WHERE {PAIRS}",
    f"WITH inv AS {BY_MONTH} SELECT a.m, b.mean FROM inv AS a(x, w_sk, i_sk, d_moy, m), inv b WHERE {PAIRS}",
    f"WITH x AS {JOINED} SELECT * FROM x WHERE inv_d = 3 UNION ALL SELECT * FROM x WHERE inv_i = 2 AND w_name > 'a'",
    f"WITH x AS {JOINED}, y AS (SELECT * FROM x WHERE w_sk > 0) SELECT x.w_name, y.inv_d FROM x, y"
    " WHERE x.inv_i = y.inv_i AND x.inv_d < 2 AND y.w_name > 'a'",
    f"WITH x AS {JOINED} SELECT * FROM item WHERE EXISTS (SELECT 1 FROM x WHERE x.inv_i = i_sk AND w_name = 'a')"
    " AND i_sk IN (SELECT inv_i FROM x WHERE inv_d < 2)",
    f"WITH x AS {JOINED} SELECT * FROM (TABLE x) UNION ALL SELECT * FROM x WHERE w_sk = 1",
]  # fmt: skip


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(spark, tmp_path_factory.mktemp("ctes"), TABLES)


def test_each_reader_sees_the_rows_that_its_conditions_let_through(worlds: Worlds) -> None:
    for text, answer in zip(TEXTS, worlds.check_all(TEXTS, frozenset({"w"})), strict=True):
        assert answer.rows, text


@pytest.mark.parametrize("lookups", [{"item"}, {"date_dim"}, {"w", "item"}, {"w", "item", "date_dim"}])
def test_a_shared_cte_with_either_dimension_looked_up(worlds: Worlds, lookups: set[str]) -> None:
    worlds.check(TEXTS[0], frozenset(lookups))


def test_such_a_cte_is_computed_once(worlds: Worlds) -> None:
    world = worlds.world(frozenset({"w"}))
    world.forget()
    worlds.check(TEXTS[0], frozenset({"w"}))
    assert set(world.calls("w").keys.values()) == {1}

"""FOR SYSTEM_TIME AS OF: where the clause may stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.queries.worlds import Worlds
from tests.spark.test_times import ASKED, JOINS, LOOKUPS, READ, new_worlds, over

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return new_worlds(spark, tmp_path_factory)


def test_it_may_stand_behind_a_cte_a_derived_table_and_a_view(worlds: Worlds) -> None:
    first, *others = JOINS
    worlds.check_all(
        (
            " UNION ALL ".join([over(relation, first), *(over(relation, join, ctes="") for join in others)])
            for relation in (*ASKED, *READ)
        ),
        LOOKUPS,
    )

"""TPC-H at scale 0.01: the 22 queries with their tables as lookup tables, against Spark's own joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lookup_hints.errors import UnsupportedLookup
from tests.sql.tpch.data import tables
from tests.sql.tpch.pairs import QUERIES, Pair, pairs, reason_of, refused_pairs
from tests.sql.worlds import Worlds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Small data and many statements: what is compiled or planned again at run time costs more than it saves.
CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
}
PAIRS = list(pairs())


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    folder = tmp_path_factory.mktemp("tpch")
    return Worlds(spark, folder, tables(tmp_path_factory.mktemp("tpchgen")), CONF)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_query_gives_what_it_gives_without_lookups(worlds: Worlds, pair: Pair) -> None:
    refusal = refused_pairs().get(str(pair))
    if refusal is None:
        worlds.check(pair.text, pair.lookups)
        return
    with pytest.raises(UnsupportedLookup) as caught:
        worlds.world(pair.lookups).session.sql(pair.text)
    assert reason_of(caught.value) == refusal


def test_the_answers_say_something(worlds: Worlds) -> None:
    empty = {query for query, text in QUERIES.items() if not worlds.answer(text).rows}
    assert not empty


def test_the_refused_pairs_are_pairs() -> None:
    assert refused_pairs().keys() <= set(map(str, PAIRS))

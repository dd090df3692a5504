"""Random join trees against Spark's own joins. ``make test-queries`` runs thousands of them."""

from __future__ import annotations

import os
from importlib.metadata import version
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.queries.batches import CONF, Both
from tests.queries.trees import Trees, as_it_was_known, tables, views
from tests.queries.worlds import Worlds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = 24
EXAMPLES = int(os.environ.get("TREES", "150"))
# Some shapes cannot be a lookup join at all (see docs/sql-support.md); more than this share must run.
LEAST_RUNNING = 0.95
HAS_ASOF = tuple(map(int, version("pyspark").split(".")[:2])) >= (4, 3)


@st.composite
def queries(draw: st.DrawFn) -> str:
    """A query over a random join tree."""
    values = draw(st.sampled_from([False, False, True]))
    corrected = draw(st.sampled_from([False, False, True]))
    random = draw(st.randoms(use_true_random=False))
    return Trees(random, asof=HAS_ASOF, values=values, corrected=corrected).query()


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp("trees")
    conf = {**CONF, "spark.sql.join.asofJoin.enabled": "true"}
    return Both(Worlds(spark, folder, tables(), conf, "memory", views(), is_small=True))


# It would hide the failure that it is about.
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.timeout(3600)
@settings(
    max_examples=max(1, EXAMPLES // (BATCH * 3 // 4)),
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
@given(texts=st.lists(queries(), min_size=BATCH // 2, max_size=BATCH))
def test_a_tree_of_joins_gives_sparks_rows(both: Both, texts: list[str]) -> None:
    both.check(texts)


def test_most_trees_run(both: Both) -> None:
    """The suite cannot pass by refusing everything."""
    texts = [Trees(Random(seed), asof=HAS_ASOF, values=seed % 2 == 1).query() for seed in range(100)]
    pairs = both.pairs(texts)  # without those that Spark itself refuses
    assert len(pairs) >= LEAST_RUNNING * len(texts)
    assert sum(pair.ours is not None for pair in pairs) >= LEAST_RUNNING * len(pairs)


def test_most_trees_with_what_was_known_then_run(both: Both) -> None:
    drawn = [Trees(Random(seed), asof=HAS_ASOF, corrected=True).query() for seed in range(100)]
    pairs = both.pairs([text for text in drawn if as_it_was_known(text) != text])
    assert len(pairs) >= 40
    # Where a rewritten statement is one that Spark refuses, the table cannot be read in its place.
    assert sum(pair.ours is not None for pair in pairs) >= 0.9 * len(pairs)

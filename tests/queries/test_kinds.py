"""Each of Spark's join types, with the lookup table on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.queries.flights_data import tables
from tests.queries.kinds import ASKED, KINDS, Kind
from tests.queries.worlds import Worlds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    folder = tmp_path_factory.mktemp("kinds")
    known = tables(tmp_path_factory.mktemp("csv"))
    few = {name: known[name] for name in ("airlines", "first_day")}
    return Worlds(spark, folder, few)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_its_rows_are_sparks_and_come_as_the_page_says(worlds: Worlds, kind: Kind) -> None:
    world = worlds.world(frozenset({"airlines"}))
    for text, becomes in kind.queries():
        world.forget()
        worlds.check(text, frozenset({"airlines"}))
        shown = world.session.explain(text)
        reasons = [line.partition("read because")[2].strip() for line in shown.splitlines()]
        assert [reason for reason in reasons if reason] == ([] if becomes == ASKED else [becomes]), text
        assert bool(world.calls("airlines").keys) == (becomes == ASKED), text

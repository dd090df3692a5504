"""Rows go on to the next stage of many lookup joins without memory for sorting them."""

from __future__ import annotations

import pytest

from tests.processes.many_joins_scenario import COUNT
from tests.spark.elsewhere import outcomes_of


@pytest.mark.timeout(500)
def test_rows_go_on_to_the_next_stage_in_the_memory_that_spark_has_by_itself(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    outcomes = outcomes_of(
        "tests.processes.many_joins_scenario", tmp_path_factory.mktemp("many"), seconds=400
    )
    assert outcomes.gave("spread_by_hash") == 1
    found = ((1, "a"), (2, "b"), (3, "c"), (4, None))
    assert outcomes.gave("rows") == [[number, *[name] * COUNT] for number, name in found]
    assert outcomes.gave("spread_by_sort") == 1, "maps have no hash"

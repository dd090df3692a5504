"""How many keys are asked for where a few rows are wanted: by the statement, by ``prepare``, by the DataFrame."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession
from lookup_hints.engine.adaptive_batch_size import PAUSE_ROWS
from tests.spark.counting import Calls

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOIN = "SELECT v.id, p.name FROM range(0, 100000, 1, 1) AS v LEFT JOIN people AS p ON v.id = p.id"
TRIES = 3
"""Spark has a moment to stop a task; a machine with too much to do may need longer."""


@pytest.fixture
def asked(spark: SparkSession, tmp_path: Path) -> Callable[[Callable[[LookupSession], object]], int]:
    """How many keys an action asks for, in a session of its own."""
    numbers = itertools.count()

    def count(action: Callable[[LookupSession], object]) -> int:
        session, log = LookupSession(spark.newSession()), tmp_path / f"log_{next(numbers)}"
        session.sql(
            "CREATE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH"
            f" ('connector' = 'tests.spark.counting:CountingConnector', 'log' = '{log}', 'rows' = '[]', 'lookup.access' = 'lookup')"
        )
        action(session)
        return sum(Calls.read(log).keys.values())

    return count


FEW: dict[str, Callable[[LookupSession], object]] = {
    "LIMIT in the statement": lambda session: session.sql(f"{JOIN} LIMIT 5").collect(),
    "few_rows of prepare": lambda session: (
        session.run(session.prepare(JOIN, few_rows=True)).limit(5).collect()
    ),
}
ALONE: dict[str, Callable[[DataFrame], object]] = {
    "limit": lambda frame: frame.limit(5).collect(),
    "show": lambda frame: frame.show(5),
    "head": lambda frame: frame.head(5),
    "take": lambda frame: frame.take(5),
}


@pytest.mark.parametrize("way", FEW)
def test_what_the_planner_knows_of_asks_for_few_keys(
    asked: Callable[[Callable[[LookupSession], object]], int], way: str
) -> None:
    counts = [asked(FEW[way])]
    while counts[-1] > PAUSE_ROWS and len(counts) < TRIES:
        counts.append(asked(FEW[way]))
    assert 5 <= counts[-1] <= PAUSE_ROWS, counts


@pytest.mark.parametrize("way", ALONE)
def test_a_step_of_the_frame_comes_too_late_to_be_known(
    asked: Callable[[Callable[[LookupSession], object]], int], way: str
) -> None:
    """As docs/performance.md says."""
    assert asked(lambda session: ALONE[way](session.sql(JOIN))) > PAUSE_ROWS

"""One job counts the same on classic Spark and Spark Connect: all that does not depend on time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.elsewhere import Outcomes, names_of, outcomes_of
from tests.spark.versions import needs_connect_server

pytestmark = pytest.mark.timeout(600)

PEOPLE = "people AS p, line 1"
STEPS = {
    "query": 3,
    "other_actions": 12,
    "write": 12,
    "view": 3,
    "retry, async true": 3,
    "retry, async false": 3,
    "stream": 3,
}
"""Steps of the scenario, each with its tasks."""


def outcomes(request: pytest.FixtureRequest, folder: Path, **environment: str) -> Outcomes:
    names = names_of(request)
    return outcomes_of("tests.processes.counts_scenario", folder, seconds=280, NAMES=names, **environment)


@pytest.fixture(scope="module")
def classic(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes(request, tmp_path_factory.mktemp("classic"))


@pytest.fixture(scope="module")
def connect(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    # SPARK_TESTING lets the server choose a free port.
    return outcomes(request, tmp_path_factory.mktemp("connect"), ON_CONNECT="1", SPARK_TESTING="1")


@pytest.mark.parametrize(("step", "tasks"), STEPS.items(), ids=STEPS)
def test_rows_and_keys_are_those_of_the_job(classic: Outcomes, step: str, tasks: int) -> None:
    counts = classic.gave(step)[PEOPLE]
    assert counts["tasks"] == tasks
    assert counts["rows_in"] == 1000 * tasks
    assert counts["null_key_rows"] == 429 * tasks // 3, "every seventh row of 3,000"
    assert counts["hits"] + counts["misses"] == counts["keys"]
    assert counts["repeated_tasks"] == 0
    attempts = 3 if "retry" in step else 1
    assert counts["retried_keys"] == counts["misses"] * (attempts - 1)
    assert counts["requests"] == counts["latencies"] == tasks * attempts


def test_each_request_that_failed_is_counted(classic: Outcomes) -> None:
    (counts,) = classic.gave("errors").values()
    assert counts["errors_by_class"] == {"ConnectorError": counts["errors"]}
    assert counts["errors"] == counts["requests"] > 0


def test_counts_grow_while_a_statement_runs(classic: Outcomes) -> None:
    assert any(0 < rows < 1200 for rows in classic.gave("live"))


def test_micro_batches_add_up(classic: Outcomes) -> None:
    stream = classic.gave("stream")
    assert [batch["rows_in"] for batch in stream["batches"]] == [1000] * 3
    for name in ("keys", "hits", "misses", "requests", "bytes_in"):
        assert sum(batch[name] for batch in stream["batches"]) == stream[PEOPLE][name]


@needs_connect_server
def test_on_connect_they_grow_whenever_tasks_end(connect: Outcomes) -> None:
    between = [rows for rows in connect.gave("live") if 0 < rows < 1200]
    assert between
    assert all(rows % 200 == 0 for rows in between), "each of the six tasks has 200 rows"


@needs_connect_server
@pytest.mark.parametrize("step", [*STEPS, "errors"])
def test_connect_counts_the_same(classic: Outcomes, connect: Outcomes, step: str) -> None:
    gave: Any = connect.gave(step)
    assert gave == classic.gave(step)

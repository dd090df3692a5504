"""Streams through Spark Connect: started by INSERT, restarted after failures, stopped."""

from __future__ import annotations

import pytest

from tests.spark.elsewhere import Outcomes, outcomes_of
from tests.spark.versions import needs_connect_server

pytestmark = [pytest.mark.timeout(400), needs_connect_server]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    # SPARK_TESTING lets the server choose a free port.
    folder = tmp_path_factory.mktemp("connect")
    return outcomes_of("tests.processes.connect_streams_scenario", folder, seconds=350, SPARK_TESTING="1")


@pytest.mark.parametrize("step", ["insert", "view_of_a_stream"])
def test_an_insert_gives_the_rows_of_the_batch(outcomes: Outcomes, step: str) -> None:
    assert outcomes.gave(step) == {"rows": 50, "wrong": 0, "causes": [], "status": "finished"}


def test_its_micro_batches_are_counted(outcomes: Outcomes) -> None:
    assert outcomes.gave("counts") == [[40, 40]]


def test_a_listener_of_the_users_own_gets_the_counts_of_each_batch(outcomes: Outcomes) -> None:
    assert outcomes.gave("counts_for_a_listener") == [[40, 40]] * 5


def test_counts_leave_the_server_though_nobody_asks_for_them(outcomes: Outcomes) -> None:
    assert outcomes.gave("counts_that_nobody_asks_for") == 40


def test_a_failed_query_is_started_again(outcomes: Outcomes) -> None:
    gave = outcomes.gave("restarts")
    assert (gave["rows"], gave["wrong"], gave["status"]) == (50, 0, "finished")
    assert len(gave["causes"]) == 3
    assert all("the source is away" in cause for cause in gave["causes"])


def test_the_last_failure_is_raised_when_the_strategy_gives_up(outcomes: Outcomes) -> None:
    assert "the source is away" in outcomes.failed("gives_up")


def test_queries_are_stopped(outcomes: Outcomes) -> None:
    assert outcomes.gave("stopped") == ["stopped", 0]


def test_what_would_lose_rows_is_refused(outcomes: Outcomes) -> None:
    assert "was written by a streaming query with another checkpoint" in outcomes.failed("refused")
    assert "Cannot safely cast" in outcomes.failed("refused_type")

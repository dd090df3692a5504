"""What breaks in the middle of a lookup, or of a read, takes no row with it, and leaves none twice."""

from __future__ import annotations

import pytest

from tests.spark.elsewhere import Outcomes, outcomes_of

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes_of("tests.processes.worker_loss_scenario", tmp_path_factory.mktemp("loss"), seconds=350)


@pytest.mark.parametrize("step", ["worker", "executor", "executor_of_a_stream"])
def test_the_answer_stays_right(outcomes: Outcomes, step: str) -> None:
    gave = outcomes.gave(step)
    assert gave["killed"] == 1
    assert gave["workers"] >= 2, "another process has asked again"
    assert gave["right"]


def test_a_part_of_a_read_that_fails_is_read_again_alone(outcomes: Outcomes) -> None:
    assert outcomes.gave("read_in_parts") == {"right": True, "tries": [1, 1, 2, 1, 1]}

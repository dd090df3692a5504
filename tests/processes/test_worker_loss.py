"""What breaks in the middle of a lookup, or of a read, takes no row with it, and leaves none twice."""

from __future__ import annotations

import pytest

from tests.processes.worker_loss_scenario import KILLED
from tests.spark.elsewhere import Outcomes, names_of, outcomes_of

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    folder = tmp_path_factory.mktemp("loss")
    return outcomes_of("tests.processes.worker_loss_scenario", folder, seconds=350, NAMES=names_of(request))


@pytest.mark.parametrize("step", KILLED)
def test_the_answer_stays_right(outcomes: Outcomes, step: str) -> None:
    gave = outcomes.gave(step)
    assert gave["killed"] == 1
    assert gave["workers"] >= 2, "another process has asked again"
    assert gave["right"]


def test_a_part_of_a_read_that_fails_is_read_again_alone(outcomes: Outcomes) -> None:
    assert outcomes.gave("read_in_parts") == {"right": True, "tries": [1, 1, 2, 1, 1]}

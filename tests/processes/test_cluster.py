"""A cluster of real processes: executors that share nothing with the driver but the network and the files."""

from __future__ import annotations

import socket

import pytest

from tests.processes.cluster_scenario import CHECKED
from tests.spark.elsewhere import Outcomes, names_of, outcomes_of

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    folder = tmp_path_factory.mktemp("cluster")
    return outcomes_of("tests.processes.cluster_scenario", folder, seconds=540, NAMES=names_of(request))


@pytest.mark.parametrize("name", CHECKED)
def test_the_rows_are_those_of_sparks_own_join(outcomes: Outcomes, name: str) -> None:
    assert outcomes.gave(f"oracle: {name}") > 0


def test_each_key_is_asked_for_once_in_each_task(outcomes: Outcomes) -> None:
    asked = outcomes.gave("times_each_key_is_asked")
    assert max(asked.values()) <= 2, f"two files make two tasks: {asked}"


def test_a_class_of_a_notebook_works_on_all_executors(outcomes: Outcomes) -> None:
    rows, executors = outcomes.gave("class_of_main")
    assert rows == 40
    assert executors == 2


def test_a_doctor_looks_from_the_driver_and_from_each_executor_once(outcomes: Outcomes) -> None:
    lines = outcomes.gave("doctor")
    assert lines[1].startswith("  ok      versions    driver, 2 executors: Python ")
    found = [line.partition(":")[0] for line in lines if "  lookup  " in line]
    assert found[:2] == ["  ok      lookup      driver", "  ok      lookup      2 executors"]
    assert found[2] == "  ok      lookup      driver"
    # Which of the two comes first is Spark's to say.
    assert sorted(line.partition(" (")[0] for line in found[3:]) == [
        *("  fail    lookup      1 of 2 executors", "  ok      lookup      1 of 2 executors")
    ]
    assert "): no way leads there. Ask for one." in "\n".join(lines)
    assert lines[-1] == "broken: of_one"


def test_a_connector_is_opened_once_in_each_worker_process(outcomes: Outcomes) -> None:
    openings = outcomes.gave("openings")
    assert openings["requests"] == 3 * 8, "three queries of eight tasks"
    assert openings["most"] == 1
    assert openings["processes"] < 8


def test_counts_arrive_from_the_executors(outcomes: Outcomes) -> None:
    metrics = outcomes.gave("metrics")
    assert (metrics["rows_in"], metrics["rows_out"], metrics["rows_found"]) == (40, 40, 20)
    assert metrics["null_key_rows"] == 4
    assert metrics["requests"] == 2, "one for each task"
    assert metrics["hits"] + metrics["misses"] == metrics["keys"]


def test_a_task_that_spark_repeats_counts_once_and_the_repeat_apart(outcomes: Outcomes) -> None:
    rows, rows_in, repeated = outcomes.gave("a_repeated_task")
    assert (rows, rows_in, repeated) == (40, 40, 1)


def test_a_task_that_spark_repeats_leaves_its_letters_once(outcomes: Outcomes) -> None:
    rows, found, files, was_there_before = outcomes.gave("a_repeated_task_with_letters")
    assert rows == 1000
    assert found == [7, 107, 207, 307, 407, 507, 607, 707, 807, 907]
    assert files == 4
    assert was_there_before, "letters are in the folder before their task ends"


def test_a_folder_that_a_worker_cannot_write_to_fails_the_task_and_names_the_machine(
    outcomes: Outcomes,
) -> None:
    error = outcomes.failed("a_folder_that_cannot_be_written")
    assert "The dead letters of table people cannot be written to " in error
    assert f"/a file/letters on {socket.gethostname()}: " in error


def test_a_failing_lookup_fails_the_query_and_says_why(outcomes: Outcomes) -> None:
    error = outcomes.failed("failing")
    assert "in table failing" in error
    assert "no answer from app:***@source" in error
    assert "hunter2" not in error
    assert outcomes.gave("the_cluster_goes_on") == 20

"""The magics on a session of Spark Connect."""

from __future__ import annotations

import re

import pytest

from tests.spark.elsewhere import Outcomes, outcomes_of
from tests.spark.versions import needs_connect_server

pytestmark = [pytest.mark.timeout(400), needs_connect_server]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    folder = tmp_path_factory.mktemp("connect")
    return outcomes_of("tests.processes.notebook_connect_scenario", folder, seconds=350, SPARK_TESTING="1")


def test_the_session_is_found(outcomes: Outcomes) -> None:
    assert outcomes.gave("the_session_is_found") == [True, "pyspark.sql.connect.session"]


def test_rows_and_counts_are_shown(outcomes: Outcomes) -> None:
    text = outcomes.gave("rows")
    assert re.findall(r"^ *(\d) +(\S+)$", text, re.MULTILINE) == [("0", "NULL"), ("1", "Ann")]
    assert "\np: 2 keys asked for, 1 found, 1 missed, " in text


def test_plan_and_frame(outcomes: Outcomes) -> None:
    assert "people AS p" in outcomes.gave("explained")
    assert outcomes.gave("kept") == [[0, None], [1, "Ann"]]


def test_errors_are_short(outcomes: Outcomes) -> None:
    said = outcomes.failed("wrong").splitlines()
    assert said[0].startswith("CellFailed: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column")
    assert said[1:] == ["line 2, column 3:", "  nope FROM range(1)", "  ^^^^"]
    said = outcomes.failed("failing").splitlines()
    assert "/no/file.sqlite" in said[0]
    assert said[1:] == [
        "line 2, column 29:",
        "SELECT g.id FROM range(3) r JOIN gone g ON r.id = g.id",
        "                            ^^^^^^^^^^^^^^^^^^^^^^^^^^",
    ]


def test_a_statement_is_followed(outcomes: Outcomes) -> None:
    followed = outcomes.gave("followed")
    assert followed["told"] > 0
    assert followed["after"] == 0, "nobody listens after the block"
    assert followed["done"] == followed["tasks"] == 6, "four tasks, and one for each of two aggregates"

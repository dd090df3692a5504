"""What the administrator does not allow is not to be had by SQL, on classic Spark and on Spark Connect."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.elsewhere import Outcomes, outcomes_of
from tests.spark.versions import needs_connect_server

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(
    scope="module", params=["classic", pytest.param("connect", marks=needs_connect_server)], name="outcomes"
)
def _outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    environment = {"ON_CONNECT": "yes", "SPARK_TESTING": "1"} if request.param == "connect" else {}
    folder: Any = tmp_path_factory.mktemp("security")
    return outcomes_of("tests.processes.security_scenario", folder, seconds=240, **environment)


def test_what_is_allowed_runs(outcomes: Outcomes) -> None:
    assert sorted(outcomes.gave("allowed")) == [[1, "n1"], [2, "n2"]]
    assert outcomes.gave("python_is_trusted") == [0, 2, 4]


@pytest.mark.parametrize(
    "step", ["a_host", "another_statement_that_sets", "a_reset", "a_new_session", "a_host_in_a_reference"]
)
def test_no_host_that_is_not_allowed(outcomes: Outcomes, step: str) -> None:
    said = outcomes.failed(step)
    assert "table t (option 'url'): the host " in said
    assert "'lookup.security.allowed-hosts' (LOOKUP_SECURITY_ALLOWED_HOSTS)" in said


def test_a_statement_that_sets_a_switch_is_refused(outcomes: Outcomes) -> None:
    assert outcomes.failed("a_statement_that_sets").startswith(
        "NotAllowed: line 1, column 5: 'spark.lookup.security.allowed-hosts' cannot be changed by a statement."
    )


def test_no_connector_that_is_not_allowed(outcomes: Outcomes) -> None:
    said = outcomes.failed("a_connector")
    assert "the connector 'tests.spark.counting:CountingConnector' is not allowed here" in said


def test_no_file_behind_a_link(outcomes: Outcomes) -> None:
    assert "/open/link', which is a link to another place, is not allowed" in outcomes.failed(
        "a_file_behind_a_link"
    )


def test_no_redirect_to_a_host_that_is_not_allowed(outcomes: Outcomes) -> None:
    said = outcomes.failed("a_redirect")
    assert "(option 'allowed-origins'): the host 'localhost:" in said, "on-error does not hide it"


def test_workers_refuse_what_their_own_environment_does_not_allow(outcomes: Outcomes) -> None:
    said = outcomes.failed("what_workers_do_not_allow")
    assert "(option 'header.X-A'): the environment variable 'PATH' is not allowed here" in said

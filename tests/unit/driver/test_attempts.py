"""The attempts at a statement: which comes after which, and what is said of a planner that failed."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from lookup_hints.driver.attempts import NotTaken, PlannerFailures, first_that_works
from lookup_hints.errors import InternalError, Problem, QueryError

FAILED = InternalError("the planner failed (KeyError: 'x'); please report this with the statement")
NOT_TAKEN = NotTaken(Problem("Spark takes this statement, but not the one that it becomes."))


def raising(error: Exception) -> Callable[..., str]:
    def fail(*_: object) -> str:
        raise error

    return fail


def test_a_statement_whose_lookup_succeeds_is_not_tried_otherwise() -> None:
    untried = raising(AssertionError("tried"))
    assert first_that_works(lambda: "asked", untried, PlannerFailures(), stream=untried) == "asked"


def test_a_failure_of_the_planner_that_reading_makes_good_is_logged_with_its_place_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = PlannerFailures()
    with caplog.at_level(logging.WARNING, logger="lookup_hints"):
        found = first_that_works(raising(FAILED), lambda reason: f"read: {reason}", failures, line=7)
    assert found == f"read: asking failed ({FAILED})"
    assert failures.count == 1
    assert caplog.messages == [f"Statement at line 7: its lookup tables are read whole, because {FAILED}"]


def test_a_rewrite_that_spark_rejects_is_read_whole_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = PlannerFailures()
    found = first_that_works(raising(NOT_TAKEN), lambda reason: reason, failures)
    assert found == "Spark does not take the text that asking it becomes"
    assert (failures.count, caplog.messages) == (0, [])


@pytest.mark.parametrize(
    "read", [lambda _: None, raising(QueryError(Problem("c cannot be read."))), raising(FAILED)]
)
@pytest.mark.parametrize("error", [FAILED, NOT_TAKEN])
def test_the_first_error_is_raised_if_reading_fails_too(error: Exception, read: Callable[[str], str]) -> None:
    failures = PlannerFailures()
    with pytest.raises(type(error)) as caught:
        first_that_works(raising(error), read, failures)
    assert caught.value is error
    assert failures.count == 0


def test_what_spark_refuses_may_run_as_a_stream_and_is_else_refused_with_its_own_error() -> None:
    refused = ValueError("a streaming source cannot be read")
    untried = raising(AssertionError("tried"))
    assert first_that_works(raising(refused), untried, PlannerFailures(), stream=lambda: "stream") == "stream"
    with pytest.raises(ValueError, match="cannot be read"):
        first_that_works(raising(refused), untried, PlannerFailures())

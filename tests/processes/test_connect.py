"""Spark Connect: the client has no JVM, and analyses a frame anew at each action."""

from __future__ import annotations

import pytest

from tests.queries.test_dataframe import JOINS
from tests.queries.test_oracle import STATEMENTS
from tests.spark.elsewhere import Outcomes, names_of, outcomes_of
from tests.spark.versions import needs_connect_server

pytestmark = [pytest.mark.timeout(600), needs_connect_server]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    outcomes = outcomes_of(
        "tests.processes.connect_scenario",
        tmp_path_factory.mktemp("connect"),
        seconds=540,
        SPARK_TESTING="1",  # lets the server choose a free port
        NAMES=names_of(request),
    )
    assert outcomes.gave("connect_is_what_runs") == "pyspark.sql.connect.session"
    return outcomes


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_rows_are_those_of_sparks_own_join(outcomes: Outcomes, name: str) -> None:
    assert outcomes.gave(f"oracle: {name}") > 0


def test_each_key_is_asked_for_once_in_each_task(outcomes: Outcomes) -> None:
    asked = outcomes.gave("times_each_key_is_asked")
    assert max(asked.values()) <= 2, f"two files make two tasks: {asked}"


def test_planning_asks_the_server_for_settings_once(outcomes: Outcomes) -> None:
    assert outcomes.gave("trips_for_settings") == 1


def test_tables_are_created_shown_and_described(outcomes: Outcomes) -> None:
    assert outcomes.gave("tables") == [
        [["customers", "counting"], ["people", "memory"], ["prices", "counting"]],
        [["id"], ["name"]],
        [["id", "bigint", "key"], ["name", "string", None]],
        [["", "people", True]],
    ]


def test_lookup_tables_have_names_in_sparks_own_api(outcomes: Outcomes) -> None:
    *counts, joined, listed, shown, refused, dropped, home = outcomes.gave("names_of_spark")
    assert counts == [2, 3, 2]
    assert joined == [[1, "Ann"], [2, "Bob"]]
    assert listed == shown == ["people"]
    assert "The lookup table people is not read whole: 'scan' = 'false' in its WITH forbids it" in refused
    assert dropped == []
    assert home == "pyspark.sql.connect.dataframe"


def test_the_configuration_names_the_tables_of_a_session(outcomes: Outcomes) -> None:
    assert outcomes.gave("tables_of_the_configuration") == [["Bob"]]


def test_parameters_by_name_and_by_position(outcomes: Outcomes) -> None:
    assert outcomes.gave("parameters") == [8, 40]


def test_a_doctor_looks_from_here_and_from_the_servers_executor(outcomes: Outcomes) -> None:
    lines = outcomes.gave("doctor")
    assert lines[1].startswith("  ok      versions    driver, 1 executor: Python ")
    assert [line.partition(":")[0] for line in lines if "  lookup  " in line] == [
        *("  ok      lookup      driver", "  ok      lookup      1 executor")
    ]
    assert lines[-1] == "all is well"


def test_an_estimate_counts_and_looks_up_a_sample(outcomes: Outcomes) -> None:
    with_sample, alone = outcomes.gave("estimate")
    assert "at most 3 keys of customers were looked up" in with_sample
    assert "keys of it were looked up: they lead to" in with_sample
    assert alone.startswith("The left side was run and counted; no lookup was made.\n\n(1) customers AS c")


def test_explain(outcomes: Outcomes) -> None:
    for explained in outcomes.gave("explain"):
        for part in (
            "LEFT lookup join with customers AS c",
            "LATERAL VIEW OUTER inline(lookup_",
            "== Spark plan",
        ):
            assert part in explained


def test_enable_and_disable(outcomes: Outcomes) -> None:
    assert outcomes.gave("enabled") == [40, [[1]]]
    assert "TABLE_OR_VIEW_NOT_FOUND" in outcomes.failed("disabled")


@pytest.mark.parametrize("name", ["check_enabling", "check_disabling", "check_planning"])
def test_each_call_to_the_server_may_fail(outcomes: Outcomes, name: str) -> None:
    assert outcomes.gave(name) is None


def test_temporary_views_over_a_lookup(outcomes: Outcomes) -> None:
    assert outcomes.gave("temporary_view") == [40, 0]


def test_create_table_as_and_insert(outcomes: Outcomes) -> None:
    assert outcomes.gave("writing") == 43


def test_functions_of_frames(outcomes: Outcomes) -> None:
    assert outcomes.gave("frame_functions") == [20, 6]


def test_a_failing_lookup_fails_the_query_and_says_why(outcomes: Outcomes) -> None:
    error = outcomes.failed("failing")
    assert "no answer from app:***@source" in error
    assert "hunter2" not in error


def test_on_error(outcomes: Outcomes) -> None:
    assert outcomes.gave("failing_is_null") == [[40, 0]]
    asked_nothing = sorted(row for (row,) in outcomes.gave("failing_is_skipped"))
    assert asked_nothing == [10, 20, 30, 40], "rows with a NULL key, which cannot fail"


def test_mistakes_are_shown(outcomes: Outcomes) -> None:
    assert "No LOOKUP option is called 'capasity'. Did you mean 'capacity'?" in outcomes.failed("wrong_hint")
    assert "`c`.`nope` cannot be resolved" in outcomes.failed("unknown_column")


def test_a_retry_predicate_of_the_users_own(outcomes: Outcomes) -> None:
    assert outcomes.gave("retry_predicate") == 40


def test_a_connector_class_of_a_notebook(outcomes: Outcomes) -> None:
    assert sorted(outcomes.gave("class_of_main")) == [[0, 0], [1, 1], [2, 4]]


def test_a_frame_keeps_its_rows_when_other_functions_are_registered(outcomes: Outcomes) -> None:
    assert outcomes.gave("evaluated_again") == {
        "the new frame has other rows": True,
        "the old one has its own": True,
    }


def test_by_way_of_pandas(outcomes: Outcomes) -> None:
    assert outcomes.gave("pandas_transport") == 42


def test_answers_are_remembered_and_invalidated(outcomes: Outcomes) -> None:
    partial, full = outcomes.gave("answers_are_remembered_and_invalidated")
    assert partial == ["first", "first", "second", "second", "third"]
    # A key of a whole table that was invalidated is asked for until the table is read again.
    assert full == ["first", "first", "second", "third", "third"]


def test_a_table_is_read_where_spark_counts_enough_rows(outcomes: Outcomes) -> None:
    explained, found = outcomes.gave("asked_or_read_by_price")
    assert "rows or more on the left (EXPLAIN COST), more than 0.9 for each of" in explained
    assert found == 20_000


def test_views_are_looked_through(outcomes: Outcomes) -> None:
    assert outcomes.gave("views_are_looked_through") == [
        [[[1, "Ann"], [2, "Bob"]], True],
        [[[1, None], [2, "Bob"]], True],
    ]


def test_lookups_are_counted(outcomes: Outcomes) -> None:
    """``test_counts`` says how much."""
    assert outcomes.gave("metrics") == [40, 40]


@pytest.mark.parametrize("name", JOINS)
def test_lookup_join_gives_the_rows_of_df_join(outcomes: Outcomes, name: str) -> None:
    assert outcomes.gave(f"lookup_join: {name}") > 0


def test_columns_of_the_frame_stay_its_own(outcomes: Outcomes) -> None:
    assert sorted(outcomes.gave("columns_of_the_frame")) == [[1, "Ann", 1.5], [2, "Bob", 3.0]]


def test_frames_in_braces_stand_in_sql(outcomes: Outcomes) -> None:
    assert outcomes.gave("frames_in_braces") == 20


def test_a_policy_of_python(outcomes: Outcomes) -> None:
    assert outcomes.gave("retry_of_a_policy") == 3


def test_functions_of_ones_own(outcomes: Outcomes) -> None:
    columns, right = outcomes.gave("functions_of_ones_own")
    assert columns == ["id", "k", "kind", "total", "double", "triple"]
    assert right == 36


def test_streams(outcomes: Outcomes) -> None:
    assert outcomes.gave("streams") == [True, 40, True]


def test_what_connect_cannot_do(outcomes: Outcomes) -> None:
    """Rows of the table in docs/connect.md."""
    assert outcomes.failed("no_spark_context")
    assert outcomes.failed("no_lookup_in_a_micro_batch")

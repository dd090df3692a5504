"""Options of LOOKUP hints: names, values, and several hints for one table."""

from __future__ import annotations

import pytest

from lookup_hints.errors import HintError
from lookup_hints.hints.hint_comments import LookupHint, lookup_hints, merged, read_hints
from lookup_hints.sql.sql_text import SqlText


def only(call: str) -> LookupHint:
    (hint,) = lookup_hints(SqlText(f"SELECT /*+ {call} */ 1"))
    return hint


def test_options_are_typed_and_know_their_places() -> None:
    text = (
        "SELECT /*+ LOOKUP('table'='c', 'ASYNC'='True', 'output-mode'='Allow-Unordered',\n"
        "  'capacity'=10, 'timeout'='3 min', 'retry-predicate'='lookup-miss, exception') */ 1"
    )
    (hint,) = lookup_hints(SqlText(text))
    assert hint.table == "c"
    assert hint.select == 0
    assert hint.options == {
        "async": True,
        "output-mode": "allow_unordered",
        "capacity": 10,
        "timeout": 180.0,
        "retry-predicate": ("lookup_miss", "exception"),
    }
    assert {key: text[at.start : at.end] for key, at in hint.places.items()} == {
        "table": "'c'",
        "async": "'True'",
        "output-mode": "'Allow-Unordered'",
        "capacity": "10",
        "timeout": "'3 min'",
        "retry-predicate": "'lookup-miss, exception'",
    }


def test_within_one_hint_the_last_value_of_a_key_wins() -> None:
    hint = only("LOOKUP('table'='a', 'capacity'='1', 'TABLE'='b', 'Capacity'='2')")
    assert (hint.table, hint.options) == ("b", {"capacity": 2})


def test_an_incomplete_retry_is_left_to_the_planner_who_knows_the_defaults() -> None:
    assert only("LOOKUP('table'='c', 'max-attempts'='3')").options == {"max-attempts": 3}


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("'capasity'='1'", "No LOOKUP option is called 'capasity'. Did you mean 'capacity'?"),
        ("'time-out'='1'", "No LOOKUP option is called 'time-out'. Did you mean 'timeout'?"),
        ("'output_mode'='ordered'", "No LOOKUP option is called 'output_mode'. Did you mean 'output-mode'?"),
        ("'async'='yes'", "'async' cannot be 'yes': write true or false."),
        ("'capacity'='0'", "'capacity' cannot be '0': it must be between 1 and 2147483647."),
        ("'capacity'='100.0'", "'capacity' cannot be '100.0': write a whole number."),
        ("'timeout'='3m'", "'timeout' cannot be '3m': 'm' is not a unit;"),
        ("'output-mode'='orderd'", "it must be one of ordered, allow_unordered. Did you mean 'ordered'?"),
    ],
)
def test_a_bad_option_is_named_with_what_to_try(call: str, sentence: str) -> None:
    with pytest.raises(HintError) as caught:
        only(f"LOOKUP('table'='c', {call})")
    assert sentence in str(caught.value)
    assert len(caught.value.problems) == 1


def test_a_hint_without_a_table_is_an_error() -> None:
    with pytest.raises(
        HintError, match=r"line 1, column 12: This LOOKUP hint names no table\. Name the alias"
    ):
        only("LOOKUP('async'='true')")


def test_an_empty_table_name_is_an_error() -> None:
    with pytest.raises(HintError, match="'table' cannot be '': it must not be empty"):
        only("LOOKUP('table'='')")


def test_a_call_of_the_wrong_form_does_not_also_miss_its_table() -> None:
    with pytest.raises(HintError) as caught:
        only("LOOKUP(c)")
    assert [problem.message for problem in caught.value.problems] == ["c is not an option."]


def test_all_mistakes_of_all_hints_are_shown_at_once_and_underlined() -> None:
    text = (
        "SELECT /*+ LOOKUP('table'='c', 'asynk'='true') */ 1\n"
        "FROM (SELECT /*+ LOOKUP('timeout'='never') */ 2)"
    )
    with pytest.raises(HintError) as caught:
        lookup_hints(SqlText(text))
    assert str(caught.value) == (
        "line 1, column 32: No LOOKUP option is called 'asynk'. Did you mean 'async'?\n"
        "SELECT /*+ LOOKUP('table'='c', 'asynk'='true') */ 1\n"
        "                               ^^^^^^^\n"
        "line 2, column 35: 'timeout' cannot be 'never': write a whole number and a unit,"
        " as in '10s', '500 ms', '3 min' or '1 h'.\n"
        "FROM (SELECT /*+ LOOKUP('timeout'='never') */ 2)\n"
        "                                  ^^^^^^^\n"
        "line 2, column 18: This LOOKUP hint names no table."
        " Name the alias of the lookup table: 'table' = '...'.\n"
        "FROM (SELECT /*+ LOOKUP('timeout'='never') */ 2)\n"
        "                 ^^^^^^^^^^^^^^^^^^^^^^^^^"
    )


def test_hints_that_are_right_can_be_had_beside_the_problems_of_the_others() -> None:
    hints, problems = read_hints(SqlText("SELECT /*+ LOOKUP('table'='a') LOOKUP(b) */ 1"))
    assert [hint.table for hint in hints] == ["a"]
    assert [problem.message for problem in problems] == ["b is not an option."]


def test_hints_for_one_table_are_merged_and_the_first_wins() -> None:
    hints = lookup_hints(
        SqlText(
            "SELECT /*+ LOOKUP('table'='C', 'capacity'='1') LOOKUP('table'='d')"
            " LOOKUP('table'='c', 'capacity'='2', 'async'='true') */ 1"
        )
    )
    c, d = merged(hints)
    assert (c.table, c.options, c.at) == ("C", {"capacity": 1, "async": True}, hints[0].at)
    assert c.places["capacity"] == hints[0].places["capacity"]
    assert c.places["async"] == hints[2].places["async"]
    assert d == hints[1]


def test_hints_of_different_query_blocks_stay_apart() -> None:
    hints = lookup_hints(
        SqlText(
            "SELECT /*+ LOOKUP('table'='c', 'capacity'='1') */ 1"
            " FROM (SELECT /*+ LOOKUP('table'='c', 'capacity'='2') */ 2)"
        )
    )
    assert merged(hints) == hints

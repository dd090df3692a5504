"""Finding LOOKUP calls in hint comments, and taking them out again."""

from __future__ import annotations

import pytest

from lookup_hints.hints.dialect import Lookup, place_of
from lookup_hints.hints.hint_comments import hint_comments, removals
from lookup_hints.sql.sql_text import SqlText


def lookups(text: str) -> list[tuple[int, Lookup]]:
    """Each LOOKUP, with the place of its SELECT."""
    return [(comment.select, hint) for comment in hint_comments(SqlText(text)) for hint in comment.lookups]


def only(text: str) -> Lookup:
    ((_, hint),) = lookups(text)
    return hint


def messages(text: str) -> list[str]:
    return [problem.message for problem in only(text).problems]


def without_lookups(text: str) -> str:
    for edit in reversed(removals(SqlText(text))):
        text = text[: edit.at.start] + "".join(map(str, edit.new)) + text[edit.at.end :]
    return text


def test_a_call_knows_its_select_its_place_and_its_arguments() -> None:
    text = "SELECT 1 UNION ALL\nSELECT /*+ LOOKUP('table'='c', 'async' = true) */ 2"
    ((select, hint),) = lookups(text)
    assert text[select:].startswith("SELECT /*+")
    at = place_of(hint, text)
    assert text[at.start : at.end] == "LOOKUP('table'='c', 'async' = true)"
    assert (at.line, at.column) == (2, 12)
    assert hint.options == {"table": "c", "async": "true"}
    key, value = (place_of(side, text) for side in (hint.expressions[0].this, hint.expressions[1].expression))
    assert text[key.start : key.end] == "'table'"
    assert text[value.start : value.end] == "true"
    assert hint.problems == ()


@pytest.mark.parametrize(
    "hint",
    [
        "/*+ LOOKUP('table'='c') */",
        "/*+lookup('table'='c')*/",
        "/*+ `Lookup` ( 'table' = 'c' ) */",
        '/*+ LOOKUP("table"="c") */',
        "/*+ LOOKUP( -- the customers\n 'table' /* by alias */ = 'c') */",
        "/* why */ /*+ LOOKUP('table'='c') */",
        "-- why\n/*+ BROADCAST(x) */ /*+ LOOKUP('table'='c') */",
        "/*+ BROADCAST(x) LOOKUP('table'='c') COALESCE(3) */",
        "/*+ BROADCAST(x), LOOKUP('table'='c'), COALESCE(3) */",
        "/*+ BROADCAST(x),\n     LOOKUP('table'='c') */",
    ],
)
def test_every_way_to_write_a_call_is_read(hint: str) -> None:
    text = f"select {hint} 1"
    ((select, read),) = lookups(text)
    assert (select, read.options, read.problems) == (0, {"table": "c"}, ())


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT /* LOOKUP('table'='c') */ 1",
        "SELECT -- /*+ LOOKUP('table'='c') */\n 1",
        "SELECT '/*+ LOOKUP(''table''=''c'') */'",
        "SELECT /*+ BROADCAST(lookup) */ 1",
        "SELECT /*+ LOOKUPS('table'='c') */ 1",
        "SELECT lookup('table'='c')",
    ],
)
def test_a_lookup_outside_hints_is_nothing(text: str) -> None:
    assert lookups(text) == []
    assert removals(SqlText(text)) == ()


def test_several_calls_in_several_comments_and_blocks_keep_their_selects() -> None:
    text = (
        "SELECT /*+ LOOKUP('table'='a') LOOKUP('table'='b') */ /*+ LOOKUP('table'='c') */ 1"
        " FROM (SELECT /*+ LOOKUP('table'='d') */ 2)"
    )
    hints = lookups(text)
    assert [hint.options["table"] for _, hint in hints] == ["a", "b", "c", "d"]
    assert [select for select, _ in hints] == [0, 0, 0, text.index("SELECT", 1)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("LOOKUP('table'='c' 'async'='true')", "A comma is missing after the value of 'table'."),
        ("LOOKUP(c)", "c is not an option."),
        ("LOOKUP('c')", "'c' is not an option."),
        ("LOOKUP(a.b)", "a.b is not an option."),
        ("LOOKUP(table=c)", "The key table is not in quotes."),
        ("LOOKUP('table' 'c')", "A '=' is missing after 'table'."),
        ("LOOKUP('table' => 'c')", "A '=' is missing after 'table'."),
        ("LOOKUP('table' =)", "The value of 'table' is missing."),
        ("LOOKUP('table' = c)", "The value of 'table' is not a literal."),
        ("LOOKUP('table' = lower('c'))", "The value of 'table' is not a literal."),
        ("LOOKUP('table' = 'a' || 'b')", "|| 'b' is not an option."),
        ("LOOKUP('table'='c)", "This quote is never closed."),
        ("LOOKUP('table'='c'", "This LOOKUP has no closing parenthesis."),
        ("LOOKUP('table'='c',)", "An option is missing beside this comma."),
        ("LOOKUP(,'table'='c')", "An option is missing beside this comma."),
        ("LOOKUP", "LOOKUP has no options."),
    ],
)
def test_a_mistake_of_form_is_named(call: str, message: str) -> None:
    assert messages(f"SELECT /*+ {call} */ 1") == [message]


def test_all_mistakes_of_form_are_named_at_once_with_their_places() -> None:
    text = (
        "SELECT /*+ LOOKUP('table' => 'c', oops, 'a' = ['x', 'y'],\n"
        " 'b' = , 'timeout'='3 s' 'async'='true', c='d'], , 'capacity'=5, e = lower('f') */ 1"
    )
    assert [(str(problem.at), problem.message) for problem in only(text).problems] == [
        ("line 1, column 19", "A '=' is missing after 'table'."),
        ("line 1, column 35", "oops is not an option."),
        ("line 1, column 47", "The value of 'a' is not a literal."),
        ("line 2, column 2", "The value of 'b' is missing."),
        ("line 2, column 26", "A comma is missing after the value of 'timeout'."),
        ("line 2, column 42", "The key c is not in quotes."),
        ("line 2, column 48", "An option is missing beside this comma."),
        ("line 2, column 66", "The key e is not in quotes."),
        ("line 1, column 12", "This LOOKUP has no closing parenthesis."),
    ]
    assert only(text).options == {"timeout": "3 s", "async": "true", "capacity": "5"}


def test_the_options_around_a_mistake_are_read() -> None:
    text = "SELECT /*+ LOOKUP('table'='c', oops, 'async'='true') */ 1"
    assert only(text).options == {"table": "c", "async": "true"}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 FROM /*+ LOOKUP('table'='c') */ o",
        "/*+ LOOKUP('table'='c') */ SELECT 1",
        "SELECT DISTINCT /*+ LOOKUP('table'='c') */ 1",
        "SELECT `select` /*+ LOOKUP('table'='c') */ FROM o",
    ],
)
def test_a_call_in_the_wrong_place_says_where_it_belongs(text: str) -> None:
    ((select, hint),) = lookups(text)
    assert select == -1
    (problem,) = hint.problems
    assert problem.message == "A LOOKUP hint belongs right after SELECT, not here."
    assert str(problem.at) == f"line 1, column {text.index('LOOKUP') + 1}"


def test_a_comment_that_never_ends_is_one_problem() -> None:
    text = "SELECT /*+ LOOKUP('table'='c') 1 FROM o"
    assert messages(text) == ["The comment of this hint is never closed."]
    assert removals(SqlText(text)) == ()


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("SELECT /*+ BROADCAST(x), LOOKUP('a'='b') */ 1", "SELECT /*+ BROADCAST(x) */ 1"),
        ("SELECT /*+ LOOKUP('a'='b'), BROADCAST( x ) */ 1", "SELECT /*+ BROADCAST( x ) */ 1"),
        ("SELECT /*+ A , LOOKUP('a'='b'),  B(1,2) */ 1", "SELECT /*+ A,  B(1,2) */ 1"),
        ("SELECT /*+ A LOOKUP('a'='b') B */ 1", "SELECT /*+ A B */ 1"),
        ("SELECT /*+ LOOKUP('a'='b') LOOKUP(c), A, LOOKUP(d), LOOKUP(e) */ 1", "SELECT /*+ A */ 1"),
        ("SELECT /*+ LOOKUP('a'='b') */ 1", "SELECT  1"),
        ("SELECT/*+ LOOKUP('a'='b') */ 1", "SELECT 1"),
        ("SELECT/*+ LOOKUP('a'='b') */x", "SELECT x"),
        ("SELECT /*+ LOOKUP(a), LOOKUP(b) */ /*+ A */ 1", "SELECT  /*+ A */ 1"),
        ("SELECT 1 FROM /*+ LOOKUP(a) */ o", "SELECT 1 FROM  o"),
        ("SELECT 'LOOKUP(a)' /* LOOKUP(a) */", "SELECT 'LOOKUP(a)' /* LOOKUP(a) */"),
    ],
)
def test_taking_lookups_out_leaves_the_rest_byte_for_byte(text: str, rest: str) -> None:
    assert without_lookups(text) == rest
    assert lookups(rest) == []

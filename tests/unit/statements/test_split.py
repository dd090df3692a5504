"""Cutting a script into statements."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_hints.errors import QueryError
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import ScriptStatement, split_statements


def texts(script: str) -> list[str]:
    return [statement.text for statement in split_statements(script)]


def test_a_statement_knows_its_place() -> None:
    script = "SET a = 1;\n\n  -- the answer\n  SELECT\n 42 ;\nSELECT 3"
    assert split_statements(script) == [
        ScriptStatement(SqlText("SET a = 1"), 0, 1),
        ScriptStatement(SqlText("SELECT\n 42"), script.index("SELECT"), 4),
        ScriptStatement(SqlText("SELECT 3"), script.index("SELECT 3"), 6),
    ]
    for statement in split_statements(script):
        assert script[statement.offset :].startswith(statement.text)


@pytest.mark.parametrize("script", ["", " \n", ";;", "-- nothing", ";/* no; thing */;", "/* a */ -- b"])
def test_what_is_empty_is_left_out(script: str) -> None:
    assert texts(script) == []


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT ';'",
        'SELECT ";"',
        "SELECT 'it''s; \\'; '",
        "SELECT r'\\', 1",
        "SELECT `a;b`",
        "SELECT 1 -- one; two\n + 2",
        "SELECT 1 /* one; /* two; */ */",
        "SELECT /*+ LOOKUP('table'='a;b') */ 1",
        "SELECT begin, end, repeat('a', 2), if(a, b, c) FROM t",
        "SELECT CASE WHEN a THEN b END",
    ],
)
def test_a_semicolon_inside_ends_nothing(statement: str) -> None:
    assert texts(f"{statement};SELECT 2") == [statement, "SELECT 2"]


SCRIPTS = {
    "nested blocks": "BEGIN BEGIN SELECT 1; END; SELECT 2; END",
    "labels": "outer: BEGIN inner: LOOP LEAVE inner; END LOOP inner; END outer",
    "not atomic": "BEGIN NOT ATOMIC IF a THEN SELECT 1; END IF; END",
    "if": "BEGIN IF a THEN SELECT 1; ELSEIF b THEN SELECT 2; ELSE IF c THEN SELECT 3; END IF; END IF; END",
    "if function": "BEGIN SELECT if(a, 1, 2); SET x = if(a, 1, 2); END",
    "if exists": "BEGIN DROP TABLE IF EXISTS t; END",
    "case statement": "BEGIN CASE WHEN a THEN SELECT 1; ELSE SELECT 2; END CASE; SELECT 3; END",
    "case expression": "BEGIN SELECT CASE WHEN a THEN CASE b WHEN 1 THEN 2 END ELSE if(a, 4, 5) END; END",
    "case in a condition": "BEGIN IF CASE WHEN a THEN b END THEN SELECT 1; END IF; END",
    "case first in a case": "BEGIN CASE CASE WHEN a THEN 1 END WHEN 1 THEN SELECT 1; END CASE; END",
    "while": "BEGIN WHILE i < 3 DO SET i = i + 1; END WHILE; END",
    "repeat": "BEGIN REPEAT SET i = i + 1; UNTIL i > 3 END REPEAT; SELECT repeat('a', 2); END",
    "for": "BEGIN FOR r AS SELECT * FROM t DO SELECT r.a; END FOR; END",
    "handler with a block": (
        "BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN SELECT 1; SELECT 2; END; SELECT 3; END"
    ),
    "handler with a statement": "BEGIN DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = true; SELECT 3; END",
    "time": "BEGIN SELECT * FROM o JOIN c FOR SYSTEM_TIME AS OF o.t AS c ON o.k = c.k; END",
    "columns called like blocks": "BEGIN SELECT t.end, t.case, `end`, begin FROM t; END",
    "merge": "BEGIN MERGE INTO t USING s ON a WHEN MATCHED THEN DELETE; SELECT 1; END",
    "comments": "BEGIN -- BEGIN\n SELECT 'BEGIN'; /* IF a THEN */ END",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_a_sql_script_is_one_statement(script: str) -> None:
    assert texts(f"SELECT 1; {script}; SELECT 2;") == ["SELECT 1", script, "SELECT 2"]
    assert texts(script.lower()) == [script.lower()]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("SELECT 1;\nSELECT 'a;", "line 2, column 8: This quote is never closed."),
        ("SELECT `a;", "line 1, column 8: This quote is never closed."),
        (
            "SELECT 'a FROM t;\nSELECT 'b' FROM u;\nSELECT c FROM d WHERE x = 'y';",
            "line 1, column 8: A quote is never closed, probably this one. Read so, the last one opens at"
            " line 3, column 29.",
        ),
        (
            "SELECT 'two\nlines' AS a,\n 'it's' AS b\nFROM t WHERE c = 'd'",
            "line 3, column 7: A quote is never closed, probably this one. Read so, the last one opens at"
            " line 4, column 20.",
        ),
        (
            "SELECT 'a FROM t\nWHERE x = '%' AND y = 1",
            "line 1, column 8: A quote is never closed, probably this one. Read so, the last one opens at"
            " line 2, column 13.",
        ),
        ("SELECT 1; /* a; */ /* b;", "line 1, column 20: This comment is never closed."),
        (
            "SELECT 1;\nBEGIN\n SELECT 1;",
            "line 2, column 1: This BEGIN is never closed. Write END where it ends.",
        ),
        (
            "BEGIN\n while a DO SELECT 1; END",
            "line 1, column 1: This BEGIN is never closed. Write END where it ends.",
        ),
        (
            "BEGIN\n IF a THEN SELECT 1;",
            "line 2, column 2: This IF is never closed. Write END IF where it ends.",
        ),
        (
            "BEGIN SELECT CASE WHEN a;",
            "line 1, column 14: This CASE is never closed. Write END where it ends.",
        ),
    ],
)
def test_what_is_never_closed_is_shown(script: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        split_statements(script)
    said, line, marks = str(caught.value).splitlines()
    assert said == message
    assert marks.strip("^ ") == ""
    assert line in script.splitlines()


_STATEMENTS = st.lists(
    st.one_of(
        st.sampled_from(
            [*SCRIPTS.values(), "SELECT ';'", "SET a.b = c", "SELECT 1 /* ; */", "SELECT /* a; */ `;`"]
        ),
        st.text(alphabet="aeiou 012().,=<>\n", min_size=1)
        .map(str.strip)
        .filter(bool)
        .map("SELECT {}".format),
    ),
)
_BLANKS = st.text(alphabet=" \n\t", max_size=3)
_BEFORE = st.one_of(_BLANKS, st.sampled_from(["-- it's; so\n", "\n/* a; /* b */ */"]))


@pytest.mark.work(3)
@settings(deadline=None)
@given(_STATEMENTS, st.data())
def test_joining_statements_and_splitting_gives_them_back(statements: list[str], data: st.DataObject) -> None:
    script = "".join(f"{data.draw(_BEFORE)}{statement}{data.draw(_BLANKS)};" for statement in statements)
    assert texts(script) == statements


@settings(deadline=None)
@given(st.text(alphabet="aSELCT';`\"/*-+ \n\\bBEGIND"))
def test_nothing_but_separators_and_comments_is_lost(script: str) -> None:
    try:
        statements = split_statements(script)
    except QueryError:
        return
    at = 0
    for statement in statements:
        assert script[statement.offset :].startswith(statement.text)
        assert script.count("\n", 0, statement.offset) == statement.line - 1
        between = script[at : statement.offset]
        assert split_statements(between) == []
        at = statement.offset + len(statement.text)
    assert split_statements(script[at:]) == []


def test_an_open_quote_behind_a_password_is_told_without_its_line() -> None:
    script = "SELECT 1;\nCREATE TEMPORARY TABLE t (id INT) WITH ('connector' = 'x', 'password' = 'hunter2);"
    with pytest.raises(QueryError, match="line 2, column 73: This quote is never closed") as caught:
        split_statements(script)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(split_statements(script.replace("hunter2", "hunter2'")))

"""sqlglot reads and writes hinted SQL through the dialect ``spark_lookup``."""

from __future__ import annotations

import io
import re
import runpy
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError, TokenError
from sqlglot.lineage import lineage

from lookup_hints.hints import dialect
from lookup_hints.hints.dialect import Lookup, OtherHint, hint_items, place_of, tokens_of
from lookup_hints.sql.lexer import Kind
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import split_statements
from tests.queries.trees import Trees

TESTS = Path(__file__).parent.parent.parent
PAGE = TESTS.parent / "docs" / "sqlglot.md"
SCRIPTS = [
    TESTS / "queries" / "shapes.sql",
    *sorted((TESTS / "queries" / "flights").glob("*.sql")),
    *sorted((TESTS.parent / "sql_examples").glob("*.sql")),
]
DIALECT = "spark_lookup"


def statements() -> list[str]:
    """Statements of all kinds, and random queries."""
    found = [
        statement.text
        for script in SCRIPTS
        if script.name != "refused.sql"  # which holds text that nobody can split
        for statement in split_statements(script.read_text(encoding="utf-8"))
    ]
    return [*found, *(Trees(Random(seed)).query() for seed in range(200))]


STATEMENTS = statements()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT /*+ LOOKUP('table' = 'c') */ 1",
        "SELECT /*+ LOOKUP('table' = 'c', 'async' = 'true', 'capacity' = 5), BROADCAST(x) */ 1",
        "SELECT /*+ LOOKUP('table' = 'c', 'async' = true) */ 1",
        "SELECT /*+ BROADCAST(x), LOOKUP('table' = 'c', 'timeout' = '3 s') */ o.* FROM o JOIN c ON o.id = c.id",
        "SELECT * FROM o JOIN c FOR SYSTEM_TIME AS OF o.proc AS c ON o.id = c.id",
        "SELECT * FROM o TIMESTAMP AS OF '2026-01-01'",
        "CREATE TEMPORARY TABLE c WITH ('connector'='http', 'url'='u')",
        "CREATE OR REPLACE TEMPORARY TABLE c (id BIGINT COMMENT 'key', n STRING NOT NULL,"
        " PRIMARY KEY (id) NOT ENFORCED) WITH ('connector'='http')",
        "CREATE TABLE t USING PARQUET TBLPROPERTIES ('a'='b') AS SELECT 1 AS x",
    ],
)
def test_what_is_read_is_written_as_it_was(text: str) -> None:
    assert sqlglot.parse_one(text, dialect=DIALECT).sql(dialect=DIALECT) == text


def test_a_time_behind_the_alias_is_written_before_it() -> None:
    text = "SELECT * FROM o JOIN c{} FOR SYSTEM_TIME AS OF o.proc{} ON o.id = c.id WHERE o.x = 1"
    tree = sqlglot.parse_one(text.format(" AS d", ""), dialect=DIALECT)
    assert tree.sql(dialect=DIALECT) == text.format("", " AS d")


def test_each_option_says_where_it_stands() -> None:
    text = "SELECT /* x */ /*+ BROADCAST(a) */\n /*+ LOOKUP('table'='it''s', 'capacity' =\n 5) */ 1"
    (hint,) = sqlglot.parse_one(text, dialect=DIALECT).find_all(Lookup)
    assert hint.options == {"table": "it's", "capacity": "5"}
    places = [
        (side.meta["start"], side.meta["end"] + 1)
        for pair in hint.expressions
        for side in pair.unnest_operands()
    ]
    assert [text[start:end] for start, end in places] == ["'table'", "'it''s'", "'capacity'", "5"]


def test_all_items_of_a_hint_comment_are_read_whatever_they_are() -> None:
    text = "SELECT /*+ SHOW, BROADCAST(a), LOOKUP('table'='c', oops, 'async'=TRUE) ; LOOKUP('capacity'=5"
    items = hint_items(text, text.index("/*+"), len(text))
    assert [type(item) for item in items] == [OtherHint, OtherHint, Lookup, OtherHint, Lookup]
    assert [item.name for item in items if isinstance(item, OtherHint)] == ["SHOW", "BROADCAST", ""]
    right, open_ = (item for item in items if isinstance(item, Lookup))
    assert right.options == {"table": "c", "async": "TRUE"}
    assert [problem.message for problem in right.problems] == ["oops is not an option."]
    assert open_.options == {"capacity": "5"}
    assert [problem.message for problem in open_.problems] == ["This LOOKUP has no closing parenthesis."]
    places = [place_of(item, text) for item in items]
    assert text[places[1].start : places[1].end] == "BROADCAST(a)"
    assert text[places[4].start : places[4].end] == "LOOKUP('capacity'=5"


@pytest.mark.parametrize(
    "call",
    [
        "LOOKUP('table' = c)",
        "LOOKUP('table')",
        "LOOKUP(table = 'c')",
        "LOOKUP",
        "LOOKUP('a' = 'b'",
        "LOOKUP('a' = 'b'; 'c' = 'd')",
    ],
)
def test_a_hint_of_another_form_is_kept_as_text(call: str) -> None:
    text = f"SELECT /*+ {call} */ 1"
    tree = sqlglot.parse_one(text, dialect=DIALECT)
    assert tree.find(Lookup) is None
    assert tree.sql(dialect=DIALECT) == text


def test_other_dialects_get_a_hint_that_they_can_pass_over() -> None:
    tree = sqlglot.parse_one("SELECT /*+ LOOKUP('table' = 'c') */ 1", dialect=DIALECT)
    assert tree.sql(dialect="spark") == "SELECT /*+ LOOKUP('table' = 'c') */ 1"
    assert tree.sql(dialect="databricks") == "SELECT /*+ LOOKUP('table' = 'c') */ 1"


def test_lineage_goes_through_a_lookup_join() -> None:
    text = (
        "SELECT /*+ LOOKUP('table'='c') */ o.id, c.name AS customer"
        " FROM o JOIN c FOR SYSTEM_TIME AS OF o.proc AS c ON o.id = c.id"
    )
    node = lineage(
        "customer",
        text,
        schema={"o": {"id": "int", "proc": "timestamp"}, "c": {"id": "int", "name": "string"}},
        dialect=DIALECT,
    )
    assert [leaf.name for leaf in node.walk() if not leaf.downstream] == ["c.name"]


def test_strings_and_comments_are_sparks() -> None:
    text = (
        r"""SELECT 'it''s', r'a\b', "say ""x"", he", 'a\'b' """
        "/* a /* b */ c */ -- d \\\n e\n FROM t"
    )
    tree = sqlglot.parse_one(text, dialect=DIALECT)
    assert [literal.this for literal in tree.find_all(exp.Literal, exp.RawString)] == [
        "it's", r"a\b", 'say "x", he', "a'b",
    ]  # fmt: skip
    assert [table.name for table in tree.find_all(exp.Table)] == ["t"]


@pytest.mark.parametrize("text", ["SELECT 'a", "SELECT `a", "SELECT /* a", "SELECT 1 /*+ x"])
def test_what_is_never_closed_is_an_error(text: str) -> None:
    with pytest.raises(TokenError, match="line 1"):
        sqlglot.parse_one(text, dialect=DIALECT)


def test_the_compiled_build_of_sqlglot_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot_be_made(*args: object, **kwargs: object) -> None:
        raise TypeError("interpreted classes cannot inherit from compiled")

    monkeypatch.setattr(exp.Expression, "__init__", cannot_be_made)
    with pytest.raises(ImportError, match="Run 'pip uninstall sqlglotc'"):
        runpy.run_path(dialect.__file__)


def test_the_page_shows_what_its_examples_print() -> None:
    blocks = re.findall(
        r"^```(python|)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(blocks) == 6
    names: dict[str, object] = {}
    for (_, example), (_, shown) in zip(blocks[::2], blocks[1::2], strict=True):
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(example, names)
        assert printed.getvalue() == shown


# --- against sqlglot's own ------------------------------------------------------------------------


@pytest.mark.work(5)
def test_the_tokens_are_sqlglots_wherever_sqlglot_reads_as_spark_does() -> None:
    compared = [text for text in STATEMENTS if not _is_read_otherwise(text)]
    assert len(compared) > 0.98 * len(STATEMENTS)
    for text in compared:
        assert list(map(_described, tokens_of(text))) == list(
            map(_described, sqlglot.tokenize(text, "spark"))
        ), text


@pytest.mark.work(8)
def test_so_are_the_trees() -> None:
    trees = 0
    for text in STATEMENTS:
        if "/*" in text or "SYSTEM_TIME" in text or _is_read_otherwise(text):
            continue
        try:
            theirs = sqlglot.parse_one(text, dialect="spark")
        except (SqlglotError, AttributeError, TypeError):  # of LIMIT in a pipe it forgets what it read before
            continue
        assert sqlglot.parse_one(text, dialect=DIALECT) == theirs, text
        trees += 1
    assert trees > len(STATEMENTS) / 2


def _is_read_otherwise(text: str) -> bool:
    """Whether sqlglot's own dialect reads it in another way than Spark.

    Two hints, '' in strings, -- with \\, and up to sqlglot 29 0BD, which begins like a binary number.
    """
    found = SqlText(text).pieces
    hints = any(a.kind is b.kind is Kind.HINT for a, b in pairwise(found))
    doubled = any(p.kind is Kind.STRING and p.text[1:-1].count(p.text[0]) for p in found)
    binary = any(p.kind is Kind.NUMBER and p.text.upper().startswith("0B") for p in found)
    return hints or doubled or binary or any(p.kind is Kind.COMMENT and "\\\n" in p.text for p in found)


def _described(token: Token) -> tuple[object, ...]:
    text = None if token.token_type is TokenType.HINT else token.text
    if token.token_type not in (TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER, TokenType.HINT):
        text = token.text.upper()  # versions of sqlglot differ in the case of words
    return token.token_type, text, token.start, token.end, token.line, token.col, tuple(token.comments)


@given(
    st.lists(
        st.sampled_from(
            [
                *"abxX019_.,;()[]<>=!|&-+*/%~^:?@#$ \n\t'\"`\\",
                "/*",
                "*/",
                "/*+",
                "--",
                "SELECT",
                "GROUP BY",
                "1L",
                "ORDER",
                "BY",
                "r'",
            ]
        ),
        max_size=30,
    ).map("".join)
)
def test_tokens_cover_all_code_of_any_text_in_order(text: str) -> None:
    found = SqlText(text).pieces
    if any(piece.kind is Kind.UNCLOSED for piece in found):
        with pytest.raises(TokenError):
            tokens_of(text)
        return
    tokens = [token for token in tokens_of(text) if token.token_type is not TokenType.HINT]
    covered = {at for token in tokens for at in range(token.start, token.end + 1)}
    assert covered >= {at for piece in SqlText(text).code for at in range(piece.start, piece.end)}
    assert [token.start for token in tokens] == sorted(token.start for token in tokens)

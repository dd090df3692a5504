"""Spark's own word EXTERNAL_LOOKUP: LOOKUP without options on a table of ours, and Spark's on any other."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lookup_hints.errors import HintError
from lookup_hints.hints.hint_comments import lookup_hints
from lookup_hints.plan.explain import joins_text
from lookup_hints.sql.sql_text import SqlText
from tests.unit.plan.planning import CUSTOMERS, context, planned

ASKED = "FROM o LATERAL VIEW OUTER inline(ask_customers(o.id)) c"


def written(hints: str, rest: str = "FROM o LEFT JOIN customers c ON o.id = c.id") -> str:
    return planned(f"SELECT {hints} o.id, c.name {rest}").sql


@pytest.mark.parametrize(
    ("hints", "left"),
    [
        ("/*+ EXTERNAL_LOOKUP(c) */", ""),
        ("/*+ external_lookup(`C`) */", ""),
        ("/*+ EXTERNAL_LOOKUP(c), LOOKUP('table'='c') */", ""),
        ("/*+ EXTERNAL_LOOKUP(c, theirs) */", "/*+ EXTERNAL_LOOKUP(theirs) */"),
        ("/*+ EXTERNAL_LOOKUP(a, c, `b`) */", "/*+ EXTERNAL_LOOKUP(a, `b`) */"),
        ("/*+ COALESCE(3), EXTERNAL_LOOKUP(c) */", "/*+ COALESCE(3) */"),
        ("/*+ EXTERNAL_LOOKUP(c), COALESCE(3) */", "/*+ COALESCE(3) */"),
        (
            "/*+ EXTERNAL_LOOKUP(theirs), BROADCAST(theirs) */",
            "/*+ EXTERNAL_LOOKUP(theirs), BROADCAST(theirs) */",
        ),
        ("/*+ EXTERNAL_LOOKUP(db.c) */", "/*+ EXTERNAL_LOOKUP(db.c) */"),
        ("/*+ EXTERNAL_LOOKUP */", "/*+ EXTERNAL_LOOKUP */"),
        ("/*+ BROADCAST(o), EXTERNAL_LOOKUP(c) */", "/*+ BROADCAST(o) */"),
    ],
)
def test_names_of_ours_are_taken_out_and_all_else_stays(hints: str, left: str) -> None:
    assert written(hints).split() == f"SELECT {left} o.id, c.name {ASKED}".split()


def test_it_asks_a_table_that_would_else_be_read() -> None:
    (join,) = planned(
        "SELECT /*+ EXTERNAL_LOOKUP(c) */ o.id, c.name FROM o JOIN customers c ON o.id = c.id"
    ).joins
    assert "access       asked: an EXTERNAL_LOOKUP hint names it\n" in joins_text(
        planned("SELECT /*+ EXTERNAL_LOOKUP(c) */ o.id, c.name FROM o JOIN customers c ON o.id = c.id")
    )
    assert join.use.must_be_asked


def test_a_table_that_says_itself_that_it_is_read_is_read() -> None:
    read = replace(CUSTOMERS, options={**CUSTOMERS.options, "lookup.access": "scan"})
    text = "SELECT /*+ EXTERNAL_LOOKUP(c) */ o.id, c.name FROM o JOIN customers c ON o.id > c.id"
    plan = planned(text, context(tables={"customers": read}))
    assert plan.sql.split()[:2] == ["SELECT", "o.id,"]
    assert [scan.use.alias for scan in plan.scans] == ["c"]


def test_a_hint_of_another_block_is_for_another_table() -> None:
    text = (
        "SELECT /*+ EXTERNAL_LOOKUP(c) */ * FROM (SELECT o.id, c.name FROM o JOIN customers c ON o.id = c.id) x"
        " JOIN theirs c ON x.id = c.id"
    )
    assert "/*+ EXTERNAL_LOOKUP(c) */" in planned(text).sql


def test_a_derived_table_over_one_of_ours_is_ours() -> None:
    text = "SELECT /*+ EXTERNAL_LOOKUP(v) */ * FROM o JOIN (SELECT id, name FROM customers) v ON o.id = v.id"
    plan = planned(text)
    assert plan.sql.split()[:2] == ["SELECT", "*"]
    assert [join.use.alias for join in plan.joins] == ["v"]


@pytest.mark.parametrize(
    "strategy",
    [
        *("BROADCAST", "broadcastjoin", "MAPJOIN", "MERGE", "SHUFFLE_MERGE", "MERGEJOIN"),
        *("SHUFFLE_HASH", "SHUFFLE_REPLICATE_NL"),
    ],
)
def test_a_strategy_of_sparks_for_the_same_relation_is_refused(strategy: str) -> None:
    message = (
        f"EXTERNAL_LOOKUP and {strategy} both say how c is joined. Leave one of them out, as Spark demands for"
        " its own lookup join (CONFLICTING_JOIN_STRATEGY)."
    )
    with pytest.raises(HintError, match=re.escape(message)):
        written(f"/*+ {strategy}(o, C), EXTERNAL_LOOKUP(c) */")
    assert written(f"/*+ {strategy}(o), EXTERNAL_LOOKUP(c) */").startswith(f"SELECT /*+ {strategy}(o) */")


@pytest.mark.parametrize(
    ("hints", "rest", "message"),
    [
        (
            "/*+ EXTERNAL_LOOKUP(customers) */",
            "FROM o LEFT JOIN customers c ON o.id = c.id",
            "line 1, column 28: EXTERNAL_LOOKUP names 'customers', but no lookup join in this query block has that"
            " alias. Where a table has an alias, the hint uses it: 'c'.",
        ),
        (
            "/*+ EXTERNAL_LOOKUP(c) */",
            "FROM customers c JOIN o ON true",
            "EXTERNAL_LOOKUP names 'c', which is read whole, because no equality gives its key.",
        ),
        (
            "/*+ EXTERNAL_LOOKUP(c, 'capacity'='5') */",
            "FROM o LEFT JOIN customers c ON o.id = c.id",
            "line 1, column 12: EXTERNAL_LOOKUP takes names of tables alone. Options are for LOOKUP('table' =",
        ),
        (
            "/*+ EXTERNAL_LOKUP(c) */",
            "FROM o LEFT JOIN customers c ON o.id = c.id",
            "line 1, column 12: There is no hint EXTERNAL_LOKUP. Did you mean EXTERNAL_LOOKUP?",
        ),
    ],
)
def test_mistakes_are_named(hints: str, rest: str, message: str) -> None:
    with pytest.raises(HintError, match=re.escape(message)):
        written(hints, rest)


def test_a_comment_that_belongs_to_no_select_is_sparks() -> None:
    assert lookup_hints(SqlText("FROM o /*+ EXTERNAL_LOOKUP(c) */")) == ()

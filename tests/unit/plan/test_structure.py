"""Our reader of FROM against sqlglot's parser, wherever sqlglot can parse the statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lookup_hints.plan.parse.query_blocks import Block, Chain, Relation, Shape
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import split_statements
from tests.queries.trees import Trees
from tests.unit.plan.golden import golden_cases

TESTS = Path(__file__).parent.parent.parent
SCRIPTS = sorted((TESTS / "queries").rglob("*.sql"))
READ_OTHERWISE = ("TABLE ", "TIMESTAMP AS OF")
"""sqlglot takes TABLE for a table, and a time that is missing for none; Spark does neither."""

From = tuple[tuple[str, str, str], ...]
"""The relations of one FROM in order: the kind of join before each, its name and its alias."""


def texts() -> list[str]:
    scripts = [
        statement.text
        for script in SCRIPTS
        if script.name != "refused.sql"  # which holds text that nobody can split
        for statement in split_statements(script.read_text(encoding="utf-8"))
    ]
    made = [Trees(Random(seed)).query() for seed in range(300)]
    return [*scripts, *(case.text for case in golden_cases()), *made]


# sqlglot says so of the scripts that it cannot parse.
@pytest.mark.work(10)
@pytest.mark.filterwarnings("ignore:.*unsupported syntax")
def test_relations_aliases_and_joins_are_those_that_sqlglot_finds() -> None:
    found = texts()
    compared = 0
    for text in found:
        query = _parsed(text)
        statement = Statement(SqlText(text), lambda _: None)
        if query is None or any(block.pipes for block in statement.structure.blocks):
            continue
        ours = Counter(_from_of(statement, block) for block in statement.structure.blocks if block.source)
        assert ours == Counter(_froms_in(query)), text
        compared += 1
    assert compared > 0.75 * len(found)


def _parsed(text: str) -> exp.Query | None:
    """What sqlglot makes of a query; pipes it turns into something else, some of them after an error."""
    if text.endswith(READ_OTHERWISE) or READ_OTHERWISE[0] in text:
        return None
    try:
        tree = sqlglot.parse_one(text, dialect="spark_lookup")
    except (SqlglotError, AttributeError, TypeError):
        return None
    return tree if isinstance(tree, exp.Query) else None


# --- ours -----------------------------------------------------------------------------------------


def _from_of(statement: Statement, block: Block) -> From:
    assert block.source is not None
    chains = enumerate(block.source.chains)
    return tuple(
        each for number, chain in chains for each in _chain(statement, chain, "CROSS" if number else "")
    )


def _chain(statement: Statement, chain: Chain, join: str) -> Iterator[tuple[str, str, str]]:
    yield from _relation(statement, chain.head, join)
    for step in chain.steps:
        relation = step.right or step.pivoted
        assert relation is not None
        yield from _relation(statement, relation, _kind(step.words))


def _relation(statement: Statement, relation: Relation, join: str) -> Iterator[tuple[str, str, str]]:
    pieces = statement.pieces
    alias = pieces[relation.alias_at].name if relation.alias_at is not None else ""
    if relation.shape is Shape.PIVOT:
        yield "PIVOT", "", alias
    elif relation.chain is not None:
        yield join, "(", alias
        yield from _chain(statement, relation.chain, "")
    else:
        is_table = relation.shape is Shape.TABLE and not pieces[relation.start].is_word("IDENTIFIER")
        yield join, pieces[relation.name_at].name if is_table else "", alias


def _kind(words: Sequence[str]) -> str:
    return " ".join(word for word in words if word and word != "OUTER").upper()


# --- sqlglot's ------------------------------------------------------------------------------------


def _froms_in(query: exp.Query) -> Iterator[From]:
    for select in query.find_all(exp.Select):
        source = select.args.get("from_") or select.args.get("from")  # as sqlglot 27 calls it
        if source is not None:
            yield (*_tree(source.this, ""), *_joins(select))


def _joins(tree: exp.Expr) -> Iterator[tuple[str, str, str]]:
    for join in tree.args.get("joins") or []:
        yield from _tree(join.this, _kind((join.method, join.side, join.kind)))
        yield from _pivots(join)


def _pivots(tree: exp.Expr) -> Iterator[tuple[str, str, str]]:
    for pivot in tree.args.get("pivots") or []:
        yield "PIVOT", "", pivot.alias


def _tree(tree: exp.Expr, join: str) -> Iterator[tuple[str, str, str]]:
    if tree.key == "stream":  # STREAM with an alias, which some versions of sqlglot cannot parse
        tree = tree.this
    if _holds_relations(tree):
        inside = tuple(_tree(tree.this, ""))
        if len(inside) == 1 and isinstance(tree.this, exp.Table):  # (customers c) is customers c
            yield join, inside[0][1], tree.alias or inside[0][2]
        else:
            yield join, "(", tree.alias
            yield from inside
    else:
        is_table = isinstance(tree, exp.Table) and isinstance(tree.this, exp.Identifier)
        yield join, tree.name if is_table else "", tree.alias
    yield from _pivots(tree)
    yield from _joins(tree)


def _holds_relations(tree: exp.Expr) -> bool:
    """Whether it is a pair of parentheses around relations, and not a subquery."""
    if not isinstance(tree, exp.Subquery | exp.Paren):
        return False
    inner = tree.this
    is_query = isinstance(inner, exp.Query) and not isinstance(inner, exp.Subquery)
    is_branch = isinstance(inner, exp.Subquery) and not (
        inner.alias or inner.args.get("joins") or _holds_relations(inner)
    )
    return not (is_query or is_branch)

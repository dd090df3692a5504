"""Shapes in which Spark runs a lookup join more than once, and which no rewrite cures."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from lookup_hints.errors import UnsupportedLookup
from lookup_hints.plan.conditions import conjuncts
from lookup_hints.plan.draft import Draft
from lookup_hints.plan.read.kinds import inserts
from lookup_hints.plan.read.structure import Block, Query, Role
from lookup_hints.sql.lexer import Kind, pieces
from lookup_hints.sql.splice import Cut


def notes_of_ranges(draft: Draft) -> Iterator[str]:
    """REPARTITION_BY_RANGE samples its input, as a global ORDER BY does."""
    hints = (piece.text.upper() for piece in pieces(draft.statement.text) if piece.kind is Kind.HINT)
    if draft.joins and any("REPARTITION_BY_RANGE" in hint for hint in hints):
        yield "REPARTITION_BY_RANGE samples its rows first: right over a lookup join it asks for a key twice"


def notes_of_inserts(draft: Draft) -> Iterator[str]:
    """``FROM ... INSERT ... INSERT ...`` is as many queries over one FROM."""
    found = inserts(draft.statement.tokens)
    is_shared = draft.statement.pieces[0].is_word("FROM", "WITH") and len(found) > 1
    if is_shared and any(join.use.index < found[0] for join in draft.joins):
        yield "each INSERT of this statement computes the FROM before it, and so asks its keys, by itself"


def notes_of_subqueries(draft: Draft) -> Iterator[str]:
    """A scalar or LATERAL subquery with another correlation than equality runs its outer query twice."""
    homes = {id(join.home): join.home for join in draft.joins}
    for home in homes.values():
        inner = [query for query in draft.statement.structure.queries if query.parent is home]
        if any(_is_computed_for_each_row(draft, home, query) for query in inner):
            yield (
                "a subquery that is correlated by more than equalities makes Spark compute the rows around"
                " it, and so the lookup joins among them, twice"
            )


def _is_computed_for_each_row(draft: Draft, home: Block, query: Query) -> bool:
    before = query.first - 2
    is_scalar = query.role is Role.EXPRESSION and not draft.statement.tokens.is_word(before, "EXISTS", "IN")
    if not (is_scalar or query.lateral):
        return False
    return any(
        not isinstance(tree, exp.EQ) and _names_any(draft, home, tree)
        for block in query.blocks
        for where in block.wheres
        for tree in _conditions(draft, where)
    )


def _conditions(draft: Draft, where: Cut) -> list[exp.Expr]:
    try:
        return [conjunct.tree for conjunct in conjuncts(draft.statement, where)]
    except UnsupportedLookup:
        return []


def _names_any(draft: Draft, home: Block, tree: exp.Expr) -> bool:
    aliases = {alias.lower() for each in home.relations if (alias := draft.statement.alias_of(each))}
    return any(column.table.lower() in aliases for column in tree.find_all(exp.Column) if column.table)

"""Conditions of ON that Spark takes neither in a lambda nor in a generator: forms move or refuse them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sqlglot import exp

from lookup_hints.plan.conditions import (
    Conditions,
    Conjunct,
    KeyEquality,
    has_condition_subquery,
    references,
)
from lookup_hints.plan.facts import Facts
from lookup_hints.plan.joins import FoundJoin
from lookup_hints.plan.refusal import cannot_run, refused
from lookup_hints.sql.splice import Cut


@dataclass(frozen=True)
class Sifted:
    """The conditions of a join, those that cannot stand in its view apart.

    Args:
        possible: the others.
        awkward: conditions on the rows found that no lambda takes.
        hard: conditions on the left alone that no generator takes.
        queried: the keys that a query gives; where there are some, no lambda may look at the rows found.
    """

    possible: Conditions
    awkward: tuple[Conjunct, ...]
    hard: tuple[Conjunct, ...]
    queried: tuple[Conjunct, ...]

    @property
    def checked_after(self) -> Conditions:
        """All of them, those that cannot stand in the view checked on the joined rows of an INNER join."""
        return replace(self.possible, after=(*self.possible.after, *self.awkward, *self.hard))

    @property
    def checked_by_query(self) -> Conditions:
        """All of them, as a SEMI or ANTI join has them that is written as a condition."""
        return replace(self.possible, after=self.hard, queries=self.awkward)


def sifted(facts: Facts, join: FoundJoin) -> Sifted:
    """The conditions of ``join``, sifted.

    Raises:
        UnsupportedLookup: one of them is an IN or EXISTS that names both sides.
    """
    conditions = join.conditions
    by_query = queried(facts, conditions.keys)
    awkward = tuple(each for each in conditions.residual if by_query or is_awkward(each.tree))
    hard = tuple(each for each in conditions.left_only if has_condition_subquery(each.tree))
    for conjunct in awkward:
        _refuse_both_sides(facts, join, conjunct)
    possible = replace(
        conditions,
        residual=tuple(each for each in conditions.residual if each not in awkward),
        left_only=tuple(each for each in conditions.left_only if each not in hard),
    )
    return Sifted(possible, awkward, hard, tuple(by_query))


def refuse_queries(facts: Facts, join: FoundJoin, found: Sifted, more: Iterable[Conjunct] = ()) -> None:
    """Refuse the queries in conditions of a join that can move none of them; and ``more``, its keys maybe.

    Raises:
        CannotBeAsked: there is one.
    """
    awkward = (each for each in found.awkward if found.queried or each.tree.find(exp.Query))
    for conjunct in (*awkward, *found.hard, *more):
        tip = "Move it to WHERE." if join.kind == "INNER" else "Compute it in a subquery on the left first."
        reason = "its ON condition has a subquery"
        raise refused(facts.statement, join.use, conjunct.at, reason, tip=tip)


def queried(facts: Facts, keys: Iterable[KeyEquality]) -> list[Conjunct]:
    """The keys that a query gives: Spark takes none in the call whose rows a lambda looks at."""
    trees = ((key, facts.statement.expression(key.left)) for key in keys if isinstance(key.left, Cut))
    return [Conjunct(key.whole, tree) for key, tree in trees if tree is not None and tree.find(exp.Query)]


def is_awkward(tree: exp.Expr) -> bool:
    """Whether a condition cannot stand in a lambda: it holds a query or, maybe, a function of the user's."""
    return tree.find(exp.Query, exp.Anonymous) is not None


def _refuse_both_sides(facts: Facts, join: FoundJoin, conjunct: Conjunct) -> None:
    """Refuse what Spark refuses when it optimizes: an IN or EXISTS of ON that names both sides."""
    scope = facts.scope(join.home)
    for found in conjunct.tree.find_all(exp.Exists, exp.In):
        names_table = any(True for _ in references(found, join.names))
        others = scope.referred(found).relations - {join.use.relation}
        if found.find(exp.Query) and names_table and others:
            reason = "an IN or EXISTS in its ON condition names both sides, which Spark does not take"
            tip = "Move it to WHERE." if join.kind == "INNER" else ""
            raise cannot_run(facts.statement, join.use, conjunct.at, reason, tip)

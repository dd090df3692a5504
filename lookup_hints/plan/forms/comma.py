"""``FROM o, c WHERE c.id = o.id``: a table between commas whose keys WHERE gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from lookup_hints.plan.analysis import LeftSide
from lookup_hints.plan.conditions import Conditions, KeyEquality, chosen_keys
from lookup_hints.plan.forms.facts import Facts
from lookup_hints.plan.read.scope import Referred
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.plan.read.structure import Block, Chain, Relation
from lookup_hints.plan.refusal import CannotBeAsked, refused
from lookup_hints.plan.write.built import Built, Visible
from lookup_hints.plan.write.from_join import FromJoin


@dataclass(frozen=True)
class CommaJoin(FromJoin):
    """A lookup join with the chains that give its keys: it is written behind them, wherever it stands."""

    form: ClassVar[str] = "between commas, keys from WHERE"
    waits: ClassVar[bool] = True

    @classmethod
    def found(cls, facts: Facts, use: LookupUse, waiting: set[Relation]) -> CommaJoin | None:
        """The join of a table that stands alone between commas, with what is not ``waiting`` itself; or None.

        What may be computed from the table waits with it, and is added to ``waiting``.
        """
        if not use.relation.plain or not _is_between_commas(use):
            return None
        waiting |= _computed_from(facts, use)
        equalities = list(_given(facts, use, waiting))
        keys: dict[str, KeyEquality] = {}
        for equality, _ in equalities:
            keys.setdefault(equality.column, equality)
        chosen = chosen_keys(keys.values(), use.table, facts.always(use))
        if not chosen or facts.missing(use, chosen):
            return None
        needs = (referred.relations for equality, referred in equalities if equality in chosen)
        at = facts.statement.tokens.cut(use.relation.first, use.relation.last)
        return facts.join(
            cls, use, "INNER", at, Conditions(chosen), needs=frozenset[Relation]().union(*needs)
        )

    def left_side(self, statement: Statement) -> LeftSide:
        """All of FROM: any of it may give the keys."""
        source = self.home.source
        assert source is not None, "it stands in a FROM"
        return LeftSide(statement.tokens.cut(source.chains[0].first, source.last))

    def behind(self, built: Built, own: Visible) -> Built:
        """``built``, which gives its keys, with its view."""
        return replace(built, visible=[*built.visible, own], views=[*built.views, self])


def without_key(
    facts: Facts, pending: Iterable[LookupUse], scanned: Iterable[LookupUse]
) -> Iterator[CannotBeAsked]:
    """Why those of ``pending`` cannot be asked that stand between commas beside what is no lookup table."""
    heads = {use.relation for use in (*pending, *scanned)}
    for use in pending:
        if not _stands_alone(use):
            continue
        if any(chain.head not in heads and not chain.head.lateral for chain in _chains(use)):
            yield _no_key(facts, use)


def _no_key(facts: Facts, use: LookupUse) -> CannotBeAsked:
    statement, computed = facts.statement, _computed_from(facts, use)
    at = statement.tokens.cut(use.relation.first, use.relation.last)
    if any(referred.relations & computed for _, referred in facts.where_equalities(use)):
        reason = "its key comes from joins behind the comma that name it themselves"
        return refused(statement, use, at, reason, "write CROSS JOIN in place of the comma")
    reason = "no equality in WHERE gives its key, so nothing says which rows to ask for"
    return refused(statement, use, at, reason)


def _chains(use: LookupUse) -> list[Chain]:
    """What stands between the commas of its FROM."""
    return use.block.source.chains if use.block.source is not None else []


def _stands_alone(use: LookupUse) -> bool:
    """Whether nothing is joined to it, and no parentheses stand around it."""
    return use.chain is not None and not (use.chain.steps or use.around)


def _is_between_commas(use: LookupUse) -> bool:
    """Whether it stands alone, and beside others."""
    return _stands_alone(use) and len(_chains(use)) > 1


def _given(facts: Facts, use: LookupUse, waiting: set[Relation]) -> Iterator[tuple[KeyEquality, Referred]]:
    """The equalities of WHERE that relations give which do not wait for keys themselves."""
    for equality, referred in facts.where_equalities(use):
        if referred.relations and not referred.relations & waiting and not referred.outer:
            yield equality, referred


def _computed_from(facts: Facts, use: LookupUse) -> set[Relation]:
    """The relations of chains behind ``use`` that may name it: in a LATERAL relation, or in ON."""
    return {
        relation
        for chain, lateral, conditions in facts.statement.once(_computing, use.block)
        if chain.first > use.index
        if any(facts.may_name(each, use.relation) for each in lateral)
        or any(use.relation in facts.scope(use.block).referred(tree).relations for tree in conditions)
        for relation in chain.relations
    }


def _computing(statement: Statement, block: Block) -> list[tuple[Chain, list[Relation], list[exp.Expr]]]:
    """The chains of the block that can name what stands before their comma, and what does so in them."""
    found = []
    for chain in block.source.chains if block.source is not None else []:
        lateral = [each for each in chain.everything if each.lateral]
        trees = [statement.expression(step.on) for step in chain.steps_in_order if step.on is not None]
        found.append((chain, lateral, [tree for tree in trees if tree is not None]))
    return [(chain, lateral, trees) for chain, lateral, trees in found if lateral or trees]

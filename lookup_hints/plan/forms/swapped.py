"""``FROM c [RIGHT] JOIN o ON ...``: the left side of a join, asked by keys of its right side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from lookup_hints.plan.analysis import LeftSide
from lookup_hints.plan.conditions import Conjunct, conjuncts, sorted_conditions
from lookup_hints.plan.forms.asked import is_asked_from_outside
from lookup_hints.plan.forms.facts import Facts
from lookup_hints.plan.forms.possible import refuse_queries, sifted
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.plan.read.structure import Relation, Step
from lookup_hints.plan.write.built import Built, Visible
from lookup_hints.plan.write.from_join import FromJoin

_KINDS = {
    **dict.fromkeys(((), ("INNER",), ("CROSS",)), "INNER"),
    ("RIGHT",): "LEFT",
    ("RIGHT", "OUTER"): "LEFT",
}


@dataclass(frozen=True)
class SwappedJoin(FromJoin):
    """A lookup join whose table stands first in its chain: what is joined to it is written before it."""

    form: ClassVar[str] = "the left side of a join, swapped"

    @classmethod
    def found(cls, facts: Facts, use: LookupUse, _waiting: set[Relation]) -> SwappedJoin | None:
        """The join whose left side ``use`` is, where its right side gives the keys; else None.

        Raises:
            UnsupportedLookup: its ON holds a query where none can stand.
        """
        if use.chain is None or not use.relation.plain or not use.chain.steps:
            return None
        step = use.chain.steps[0]
        kind, right = _KINDS.get(step.words), step.right
        if kind is None or right is None or right.lateral or step.using:
            return None
        if facts.may_be_asked(right):
            return None
        on = list(conjuncts(facts.statement, step.on)) if step.on is not None else []
        if _name_more(facts, use, right, on):
            return None
        conditions = sorted_conditions(
            facts.statement, on, facts.names(use), facts.askable(use), always=facts.always(use)
        )
        if kind == "INNER":
            conditions = facts.with_where(use, conditions, right)
        if not conditions.keys or all(key.constant for key in conditions.keys):
            return None
        if facts.missing(use, conditions.keys) or is_asked_from_outside(facts, use, conditions.keys):
            return None
        at = facts.statement.tokens.cut(use.relation.first, step.last)
        return facts.join(cls, use, kind, at, conditions)._possible(facts)

    def left_side(self, statement: Statement) -> LeftSide:
        """The right side of the join as the user wrote it."""
        right = self.opens.right
        assert right is not None, "a join has a right side"
        return LeftSide(statement.tokens.cut(right.first, right.last))

    @property
    def opens(self) -> Step:
        """The join whose right side is written first."""
        assert self.use.chain is not None
        return self.use.chain.steps[0]

    def behind(self, built: Built, own: Visible) -> Built:
        """``built`` with its view; its columns still come first."""
        return replace(built, visible=[own, *built.visible], views=[self], reordered=True)

    def _possible(self, facts: Facts) -> SwappedJoin:
        """This join, conditions that cannot stand in its view moved or refused."""
        found = sifted(facts, self)
        if self.kind == "INNER":
            return self.with_(conditions=found.checked_after)
        refuse_queries(facts, self, found)
        return self


def _name_more(facts: Facts, use: LookupUse, right: Relation, on: Iterable[Conjunct]) -> bool:
    """Whether ON names what comes before a comma, too: the swapped sides stand by themselves."""
    own = {use.relation, *right.as_seen(lambda _: True)}
    return any(facts.scope(use.block).referred(each.tree).relations - own for each in on)

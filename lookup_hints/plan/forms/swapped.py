"""``FROM c [RIGHT] JOIN o ON ...``: the left side of a join, asked by keys of its right side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lookup_hints.plan.analysis import LeftSide
from lookup_hints.plan.conditions import Conjunct, conjuncts, sorted_conditions
from lookup_hints.plan.facts import Facts, Others
from lookup_hints.plan.forms.asked import is_asked_from_outside
from lookup_hints.plan.forms.possible import refuse_queries, sifted
from lookup_hints.plan.forms.stated import by_range
from lookup_hints.plan.joins import FoundJoin, LookupJoin
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.plan.read.structure import Relation, Step
from lookup_hints.plan.write.from_part import FromForm, FromPart, Visible

_KINDS = {
    **dict.fromkeys(((), ("INNER",), ("CROSS",)), "INNER"),
    ("RIGHT",): "LEFT",
    ("RIGHT", "OUTER"): "LEFT",
}


class SwappedJoin(FromForm):
    """A lookup join whose table stands first in its chain: what is joined to it is written before it."""

    shown = "the left side of a join, swapped"

    def left_side(self, join: FoundJoin, statement: Statement) -> LeftSide:
        right = self.opens(join).right
        assert right is not None, "a join has a right side"
        return LeftSide(statement.tokens.cut(right.first, right.last))

    def opens(self, join: FoundJoin) -> Step:
        assert join.use.chain is not None
        return join.use.chain.steps[0]

    def behind(self, join: LookupJoin, built: FromPart, own: Visible) -> FromPart:
        """``built`` with its view; its columns still come first."""
        return replace(built, visible=[own, *built.visible], views=[join], reordered=True)


def swapped_join(facts: Facts, use: LookupUse, others: Others) -> FoundJoin | None:
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
    if others.may_be_asked(facts, right):
        return None
    on = list(conjuncts(facts.statement, step.on)) if step.on is not None else []
    if _name_more(facts, use, right, on):
        return None
    conditions = sorted_conditions(
        facts.statement, on, facts.names(use), facts.askable(use), always=facts.always(use)
    )
    if kind == "INNER":
        conditions = facts.with_where(use, conditions, right)
    at = facts.statement.tokens.cut(use.relation.first, step.last)
    join = facts.join(SwappedJoin(), use, kind, at, conditions)
    if not conditions.keys:
        ranged = by_range(facts, join, right.as_seen(lambda _: True))
        if ranged is None:
            return None
        join = ranged
    elif (
        all(key.constant for key in conditions.keys)
        or facts.missing(use, conditions.keys)
        or is_asked_from_outside(facts, use, conditions.keys)
    ):
        return None
    found = sifted(facts, join)
    if kind == "INNER":
        return join.with_(conditions=found.checked_after)
    refuse_queries(facts, join, found)
    return join


def _name_more(facts: Facts, use: LookupUse, right: Relation, on: Iterable[Conjunct]) -> bool:
    """Whether ON names what comes before a comma, too: the swapped sides stand by themselves."""
    own = {use.relation, *right.as_seen(lambda _: True)}
    return any(facts.scope(use.block).referred(each.tree).relations - own for each in on)

"""``FROM o JOIN c ON ...``: the right side of a join, INNER, LEFT, SEMI or ANTI, by ON, USING or NATURAL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from lookup_hints.plan.analysis import LeftSide
from lookup_hints.plan.conditions import Conditions
from lookup_hints.plan.draft import Draft, LookupJoin
from lookup_hints.plan.forms.asked import asked_by_outer
from lookup_hints.plan.forms.connected import MULTIPLIED, is_multiplied_behind
from lookup_hints.plan.forms.facts import Facts
from lookup_hints.plan.forms.possible import refuse_queries, sifted
from lookup_hints.plan.forms.stated import stated, without_outer
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.plan.read.structure import Chain, Relation, Shape
from lookup_hints.plan.refusal import refused
from lookup_hints.plan.write.built import Built, Visible
from lookup_hints.plan.write.from_join import FromJoin
from lookup_hints.plan.write.views import joined
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.splice import Cut, Edit, Fragment


@dataclass(frozen=True)
class StepJoin(FromJoin):
    """A lookup join with what stands before it: its view, or its condition, stands behind that."""

    form: ClassVar[str] = ""

    @classmethod
    def found(cls, facts: Facts, use: LookupUse, _waiting: set[Relation]) -> LookupJoin | None:
        """The join whose right side ``use`` is; None where it is none, or one of pipe syntax.

        Raises:
            UnsupportedLookup: it cannot run; names the reason.
        """
        if use.step is None or use.pipe is not None:
            return None
        join = stated(facts, cls, use, use.step, _before)
        asked = asked_by_outer(facts, join)
        if asked is not None:
            return asked
        join = without_outer(facts, join, can_check_after=join.kind == "INNER")
        possible = _possible(facts, join)
        needs = _before_comma(facts, use, possible)
        join = join.with_(conditions=possible, needs=needs)
        if join.kind == "INNER" and is_multiplied_behind(facts, use, needs):
            join = _unless_read(facts, join)
        return join

    def left_side(self, statement: Statement) -> LeftSide:
        """What stands before it in its chain; where it names more, all of FROM before it."""
        source, step = self.home.source, self.use.step
        if self.needs and source is not None and step is not None:
            return LeftSide(statement.tokens.cut(source.chains[0].first, step.first - 1))
        return _before(statement, self.use)

    @property
    def left_table(self) -> Relation | None:
        """The one table on its left, or None when the left is anything else."""
        chain, source = self.use.chain, self.home.source
        if chain is None or source is None or len(source.chains) > 1:
            return None
        is_first = chain.steps[0] is self.use.step and not self.use.around
        return chain.head if is_first and chain.head.shape is Shape.TABLE and chain.head.plain else None

    def edits(self, draft: Draft, numbers: Iterator[int]) -> Iterator[Edit]:
        """The left table, partitioned by the lookup key, where that is wanted; FROM has its view."""
        if self.shuffled:
            yield self._distributed(draft.statement)

    def _distributed(self, statement: Statement) -> Edit:
        relation = self.left_table
        assert relation is not None, "a join is shuffled only when its left side is one table"
        at = statement.tokens.cut(relation.first, relation.last)
        alias = statement.alias_of(relation)
        assert alias is not None
        keys: Iterable[Fragment] = joined([("(", key.left, ")") for key in self.conditions.keys], ", ")
        return Edit(at, ("(SELECT * FROM ", at, " DISTRIBUTE BY ", *keys, f") AS {quoted(alias)}"))

    def stays_in(self, chain: Chain) -> bool:
        """Whether it stands in ``chain`` itself, not in parentheses there."""
        return self.use.chain is chain

    def behind(self, built: Built, own: Visible) -> Built:
        """``built`` with its view, or its condition, and its columns where it gives some."""
        if not self.is_condition:
            built = replace(built, views=[*built.views, self])
        else:
            built = replace(built, filters=[*built.filters, self])
        return built if self.is_semi else replace(built, visible=[*built.visible, own])


def _unless_read(facts: Facts, join: StepJoin) -> StepJoin:
    """``join``, which asks for the keys of a product, with a note of that.

    Raises:
        CannotBeAsked: the table can be read instead.
    """
    if facts.can_be_read(join.use) and not facts.must_be_asked(join.use):
        raise refused(facts.statement, join.use, join.at, MULTIPLIED)
    return join.with_(notes=(*join.notes, MULTIPLIED))


def _before(statement: Statement, use: LookupUse) -> LeftSide:
    """All that stands before the join in its chain."""
    assert use.chain is not None
    assert use.step is not None
    source = use.block.source
    # A LATERAL subquery needs what stands before it.
    has_lateral = any(each.lateral and each.first < use.index for each in use.chain.everything)
    is_lateral = has_lateral and source is not None and use.chain in source.chains
    first = source.chains[0].first if is_lateral and source is not None else use.chain.first
    return LeftSide(Cut(statement.pieces[first].start, statement.pieces[use.step.first].start))


def _possible(facts: Facts, join: StepJoin) -> Conditions:
    """Its conditions, those that cannot stand in its view moved or refused."""
    found = sifted(facts, join)
    if join.kind == "INNER":
        return found.checked_after
    if join.is_semi:
        return found.checked_by_query
    refuse_queries(facts, join, found)
    return join.conditions


def _before_comma(facts: Facts, use: LookupUse, conditions: Conditions) -> frozenset[Relation]:
    """The relations before a comma that the chain so far names: a comma binds as a JOIN does in Spark."""
    source = use.block.source
    if source is None or use.chain is None or use.chain not in source.chains[1:]:
        return frozenset()
    chains = source.chains[: source.chains.index(use.chain)]
    before = {relation for chain in chains for relation in chain.shown}
    scope, expression = facts.scope(use.block), facts.statement.expression
    steps = use.chain.steps[: use.chain.steps.index(use.step) + 1] if use.step is not None else ()
    computed = [each for each in use.chain.everything if each.lateral and each.first < use.index]
    trees = (expression(step.on) for step in steps if step.on is not None)
    referred = [scope.referred(tree) for tree in trees if tree is not None]
    referred += [facts.referred(scope, key) for key in conditions.keys if not key.shared]
    named = {relation for relation in before for each in computed if facts.may_name(each, relation)}
    return frozenset(before & named.union(*(each.relations for each in referred)))

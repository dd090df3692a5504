"""``(SELECT ... FROM c WHERE c.id = o.id)``: a relation whose key an outer query or a constant gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from lookup_hints.plan.analysis import LeftSide, selected_instead
from lookup_hints.plan.conditions import Conditions, KeyEquality, chosen_keys, conjuncts, key_equality
from lookup_hints.plan.draft import Draft, LookupJoin
from lookup_hints.plan.forms.facts import Facts
from lookup_hints.plan.forms.stated import KINDS
from lookup_hints.plan.read.scope import Referred
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.plan.read.structure import Relation
from lookup_hints.plan.write.views import source_query
from lookup_hints.sql.splice import Edit


@dataclass(frozen=True)
class AskedRelation(LookupJoin):
    """A relation that is the rows of a key from outside its FROM."""

    form: ClassVar[str] = "asked by the outer query or a constant"

    @classmethod
    def found(cls, facts: Facts, use: LookupUse, _waiting: set[Relation]) -> AskedRelation | None:
        """The relation whose keys conditions of its block give from outside, or None."""
        if not use.relation.plain:
            return None
        keys: dict[str, KeyEquality] = {}
        for equality, referred in (*facts.where_equalities(use), *_on_equalities(facts, use)):
            if referred.relations or (referred.outer and not use.keeps_rows):
                continue  # What may be filled with NULLs can name no outer query in Spark.
            if equality.column not in keys or keys[equality.column].constant:
                keys[equality.column] = equality
        chosen = chosen_keys(keys.values(), use.table, facts.always(use))
        if not chosen or facts.missing(use, chosen):
            return None
        at = facts.statement.tokens.cut(use.relation.first, use.relation.last)
        # Of rows filled with NULLs a condition that stays is all that keeps them out.
        conditions = Conditions(_answered(chosen) if use.keeps_rows else chosen)
        return facts.join(cls, use, "INNER", at, conditions, notes=_notes(chosen))

    def left_side(self, statement: Statement) -> LeftSide:
        """The queries around it, or nothing."""
        return LeftSide(None)

    def edits(self, draft: Draft, numbers: Iterator[int]) -> Iterator[Edit]:
        """The relation as a query over its rows; conditions that those rows fulfil are gone."""
        statement, relation = draft.statement, self.use.relation
        yield Edit(statement.tokens.cut(relation.first, relation.last), source_query(statement, self))
        yield from selected_instead(statement, self.use)
        # Left in place, it would name the outer query once more, and Spark's name of the subquery tells.
        yield from (Edit(key.whole, ("true",)) for key in self.conditions.keys if not key.kept)


def asked_by_outer(facts: Facts, join: LookupJoin) -> AskedRelation | None:
    """What ``join`` is where its left side gives no key, but the outer query does; else None."""
    keys = join.conditions.keys
    if not is_asked_from_outside(facts, join.use, keys):
        return None
    return facts.join(
        AskedRelation, join.use, join.kind, join.at, Conditions(_answered(keys)), notes=_notes(keys)
    )


def is_asked_from_outside(facts: Facts, use: LookupUse, keys: Iterable[KeyEquality]) -> bool:
    """Whether only the outer query (and constants) give the keys, nothing on the left side."""
    if not facts.statement.has_outer(use.block):
        return False
    scope = facts.scope(use.block)
    referred = [facts.referred(scope, key) for key in keys]
    return not any(each.relations for each in referred) and any(each.outer for each in referred)


def _on_equalities(facts: Facts, use: LookupUse) -> Iterator[tuple[KeyEquality, Referred]]:
    """The key equalities in the ON of the INNER joins right behind the relation."""
    statement, names, scope = facts.statement, facts.names(use), facts.scope(use.block)
    for step in use.chain.steps if use.chain is not None else ():
        if KINDS.get(step.words) != "INNER":
            break
        for conjunct in conjuncts(statement, step.on) if step.on is not None else ():
            equality = key_equality(statement, conjunct, names)
            if equality is not None and equality.column in facts.askable(use):
                yield replace(equality, kept=True), facts.referred(scope, equality)


def _answered(keys: Iterable[KeyEquality]) -> tuple[KeyEquality, ...]:
    """``keys`` that the rows asked for fulfil, so that nothing of them stays."""
    return tuple(replace(key, kept=key.implied) for key in keys)


def _notes(keys: Iterable[KeyEquality]) -> tuple[str, ...]:
    """What EXPLAIN says of a relation that the outer query asks for rows."""
    if all(key.constant for key in keys):
        return ()
    return ("Spark computes the outer query twice for it: once for its distinct keys, which are asked",)

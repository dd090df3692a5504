"""``(SELECT ... FROM c WHERE c.id = o.id)``: a relation whose key an outer query or a constant gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lookup_hints.plan.analysis import Analysis, LeftSide, selected_instead
from lookup_hints.plan.conditions import Conditions, KeyEquality, chosen_keys, conjuncts, key_equality
from lookup_hints.plan.facts import Facts
from lookup_hints.plan.forms.stated import KINDS
from lookup_hints.plan.joins import Form, FoundJoin, LookupJoin
from lookup_hints.plan.read.scope import Referred
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.plan.write.views import source_query
from lookup_hints.sql.splice import Edit


class AskedRelation(Form):
    """A relation that is the rows of a key from outside its FROM."""

    shown = "asked by the outer query or a constant"

    def left_side(self, join: FoundJoin, statement: Statement) -> LeftSide:
        return LeftSide(None)

    def edits(self, join: LookupJoin, analysis: Analysis, numbers: Iterator[int]) -> Iterator[Edit]:
        statement, relation = analysis.statement, join.use.relation
        yield Edit(statement.tokens.cut(relation.first, relation.last), source_query(statement, join))
        yield from selected_instead(statement, join.use)
        # Left in place, it would name the outer query once more, and Spark's name of the subquery tells.
        yield from (Edit(key.whole, ("true",)) for key in join.conditions.keys if not key.kept)


def asked_relation(facts: Facts, use: LookupUse) -> FoundJoin | None:
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
    return facts.join(AskedRelation(), use, "INNER", at, conditions, notes=_notes(chosen))


def asked_by_outer(facts: Facts, join: FoundJoin) -> FoundJoin | None:
    """What ``join`` is where its left side gives no key, but the outer query does; else None."""
    keys = join.conditions.keys
    if not is_asked_from_outside(facts, join.use, keys):
        return None
    conditions, notes = Conditions(_answered(keys)), _notes(keys)
    return facts.join(AskedRelation(), join.use, join.kind, join.at, conditions, notes=notes)


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
    if all(key.constant for key in keys):
        return ()
    return ("Spark computes the outer query twice for it: once for its distinct keys, which are asked",)

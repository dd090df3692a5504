"""The keys of USING and NATURAL: columns that both sides of a join have by one name."""

from __future__ import annotations

from collections.abc import Callable

from lookup_hints.plan.analysis import LeftSide
from lookup_hints.plan.conditions import KeyEquality
from lookup_hints.plan.forms.facts import Facts
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.plan.read.structure import Step
from lookup_hints.plan.refusal import cannot_run, refused
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.splice import Cut

Before = Callable[[Statement, LookupUse], LeftSide]
"""What stands before the right side of a join."""


def shared_keys(facts: Facts, use: LookupUse, step: Step, before: Before) -> list[KeyEquality]:
    """What USING names, or what both sides of a NATURAL join have; nothing for other joins.

    Raises:
        UnsupportedLookup: there is nothing that both sides have, or the source cannot be asked by it.
    """
    head = facts.statement.tokens.cut(step.first, use.relation.last)
    if step.words[:1] == ("NATURAL",):
        common = _common(facts, use, head, before)
        return [_key(facts, use, name, quoted(name), head, position) for position, name in enumerate(common)]
    pieces, cut = facts.statement.pieces, facts.statement.tokens.cut
    return [
        _key(facts, use, pieces[index].name, cut(index, index), cut(index, index), position)
        for position, index in enumerate(step.using)
    ]


def _common(facts: Facts, use: LookupUse, head: Cut, before: Before) -> list[str]:
    """The names that both sides of a NATURAL join have."""
    left = facts.analysis.columns_before(use.block, before(facts.statement, use))
    own = {name.lower() for name in use.column_aliases or use.table.schema.names}
    common = [name for name in left or () if name.lower() in own]
    if not common:
        reason = "NATURAL JOIN finds no column of the same name"
        raise refused(facts.statement, use, head, reason, "write JOIN ... ON with the equality")
    return common


def _key(facts: Facts, use: LookupUse, name: str, left: str | Cut, at: Cut, position: int) -> KeyEquality:
    column = facts.names(use).own_name(name)
    reason = f"{use.alias} cannot be looked up by column {name}"
    if column is None:
        raise cannot_run(facts.statement, use, at, reason)
    if column not in facts.askable(use):
        raise refused(facts.statement, use, at, reason)
    return KeyEquality(column, left, at, shared=True, position=position)

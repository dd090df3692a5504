"""Whether each row of a left side is sure to be asked for: nothing else in the statement takes rows away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lookup_hints.errors import UnsupportedLookup
from lookup_hints.plan.analysis import LeftSide
from lookup_hints.plan.conditions import Conjunct, conjuncts, references
from lookup_hints.plan.draft import Draft, LookupJoin
from lookup_hints.plan.read.structure import Block, Relation, Role
from lookup_hints.sql.splice import Cut


def certain_left(draft: Draft, join: LookupJoin) -> LeftSide | None:
    """The part of FROM whose rows all reach the lookup; None where some may not.

    Spark lets conditions sink below a lookup join, also those of queries around it and what it infers from
    equalities. So none may stand there but on columns of the table that are no keys.
    """
    if _is_filtered(draft, join) or _is_filtered_around(draft, join.home):
        return None
    asked = {each.use.relation for each in draft.joins if each.home is join.home}
    others = [relation for relation in join.home.relations if relation not in asked]
    if any(relation.lateral for relation in others):
        return None
    if len(others) == 1:
        left = LeftSide(draft.statement.tokens.cut(others[0].first, others[0].last))
    else:
        left = join.left_side(draft.statement)
    return None if left.at is None or _holds_lookups(draft, join.home, left.at) else left


def _holds_lookups(draft: Draft, block: Block, part: Cut) -> bool:
    """Whether the part, or a CTE that it may name, holds a lookup table: Spark sees an empty one there."""
    parts = [part, *(cte.at for level in block.query.levels for cte in level)]
    places = [draft.offset_of(use.index) for use in draft.statement.uses]
    return any(each.start <= place < each.end for each in parts for place in places)


def _is_filtered(draft: Draft, join: LookupJoin) -> bool:
    """Whether something in the block of the join may take left rows away before they are asked for."""
    home = join.home
    here = [each for each in draft.joins if each.home is home]
    if home.pipes or home.views_last > -1 or any(each.conditions.left_only for each in here):
        return True
    if any(each.kind != "LEFT" for each in here if each.use.index < join.use.index):
        return True
    asked = {each.use.relation for each in here}
    steps = (step for step in home.steps if draft.offset_of(step.first) >= join.at.end)
    behind = (step for step in steps if step.right not in asked)
    if any("LEFT" not in step.words or step.hides_right for step in behind):
        return True
    return any(_may_sink(join, conjunct) for conjunct in _conditions(draft, home))


def _conditions(draft: Draft, home: Block) -> Iterator[Conjunct | None]:
    """The conditions of its WHERE; None for one that cannot be read."""
    for where in home.wheres:
        try:
            yield from conjuncts(draft.statement, where)
        except UnsupportedLookup:
            yield None


def _may_sink(join: LookupJoin, conjunct: Conjunct | None) -> bool:
    keys = join.conditions.keys
    if conjunct is None:
        return True
    if conjunct.at == join.at or any(key.whole == conjunct.at for key in keys):
        return False
    named = {reference.column for reference in references(conjunct.tree, join.names)}
    return not named or bool(named & {key.column for key in keys})


def _is_filtered_around(draft: Draft, block: Block) -> bool:
    """Whether a HAVING, a LIMIT or a query around the block may take rows of it away."""
    while not _has_having(draft, block):
        query = block.query
        if query.limit_at is not None and not query.ordered:
            return True
        if query.role is Role.STATEMENT:
            return False
        around = query.parent
        if query.role is not Role.RELATION or query.lateral or around is None:
            return True
        if around.wheres or around.pipes or not _is_alone(around.everything):
            return True
        block = around
    return True


def _is_alone(relations: Iterable[Relation]) -> bool:
    return len(list(relations)) == 1


def _has_having(draft: Draft, block: Block) -> bool:
    tokens = draft.statement.tokens
    places = (at for word in ("HAVING", "QUALIFY") for at in tokens.places(word, block.first, block.last))
    return any(tokens.is_word(at, "HAVING", "QUALIFY") for at in places)

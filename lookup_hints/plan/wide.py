"""Which blocks carry their left rows through a lookup as structs: those that give all columns of wide ones.

Spark's Generate copies a row field by field, twice; one that is a struct it copies as one run of bytes. The
struct is taken apart behind it, where a projection would copy the fields anyway. Where a query leaves columns
out, Spark's optimizer takes the struct apart early, and nothing is gained.
"""

from __future__ import annotations

from lookup_hints.plan.columns import own_stars
from lookup_hints.plan.draft import Draft, Place
from lookup_hints.plan.reading import Statement
from lookup_hints.plan.shared import qualified_names
from lookup_hints.plan.structure import Block, Relation, Step

WIDE_ROWS = 24
"""From this many columns on a struct costs less than it saves (docs/decisions/0030)."""


def wide_blocks(draft: Draft) -> frozenset[Block]:
    """The blocks whose left rows are to be carried as structs.

    None over DataFrames: ``df.id`` would not be found in what came out of a struct.
    """
    if draft.context.over_frames or draft.output is None or len(draft.output) < WIDE_ROWS:
        return frozenset()
    found = frozenset(block for block in {join.home for join in draft.joins} if _is_wide(draft, block))
    left = [relation for block in found for relation in _left(draft, block)]
    return found if draft.analysis.stars_show_all(left) else frozenset()


def _is_wide(draft: Draft, block: Block) -> bool:
    return _joins_at_the_end(draft, block) and _gives_left_rows(draft, block) and _stands_alone(block)


def _joins_at_the_end(draft: Draft, block: Block) -> bool:
    """Whether its FROM is one chain that ends with all its lookup joins, no columns shared before them."""
    if block.source is None or len(block.source.chains) != 1 or block.pipes:
        return False
    chain = block.source.chains[0]
    looked_up = {join.use.step for join in draft.joins if join.home is block and join.place is Place.STEP}
    before = [step for step in chain.steps if step not in looked_up]
    is_last = bool(looked_up) and set(chain.steps[len(before) :]) == looked_up
    in_parentheses = any(relation.open_chain is not None for relation in chain.direct)
    return is_last and not (in_parentheses or any(map(_is_shared, before)))


def _is_shared(step: Step) -> bool:
    """Whether it is no join by a condition: USING, NATURAL and PIVOT change which columns there are."""
    return step.right is None or bool(step.using) or "NATURAL" in step.words


def _left(draft: Draft, block: Block) -> list[Relation]:
    """The relations on the left of its lookup joins."""
    asked = {join.use.relation for join in draft.joins}
    return [relation for relation in block.shown if relation not in asked]


def _gives_left_rows(draft: Draft, block: Block) -> bool:
    """Whether a star of its SELECT gives back all columns of a relation on the left."""
    statement = draft.statement
    if len(block.selects) != 1:
        return False
    if next(own_stars(statement, block), None) is not None:
        return True
    return any(_has_star(statement, block, relation) for relation in _left(draft, block))


def _has_star(statement: Statement, block: Block, relation: Relation) -> bool:
    alias = statement.alias_of(relation)
    return alias is not None and any(
        statement.tokens.is_symbol(index, "*") for index in qualified_names(statement, block, alias)
    )


def _stands_alone(block: Block) -> bool:
    """Whether it can name no columns of queries around it, which a derived table could not see.

    Nor does a query stand alone that reads itself.
    """
    around: Block | None = block
    while around is not None:
        if any(relation.cte is not None and relation.cte.recursive for relation in around.everything):
            return False
        around = around.query.parent
    return block.query.stands_alone

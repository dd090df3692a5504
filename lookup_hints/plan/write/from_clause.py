"""The FROM of one block with its lookup joins as views.

A lookup join at the end of its FROM becomes a ``LATERAL VIEW`` where it stands. Where more of the FROM
follows, or relations must change places, the relations so far are packed (``packing``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from lookup_hints.plan.columns import own_stars
from lookup_hints.plan.joins import LookupJoin
from lookup_hints.plan.read.structure import Block, Chain, Relation
from lookup_hints.plan.refusal import refused
from lookup_hints.plan.write.chains import built_chain, side_by_side
from lookup_hints.plan.write.from_part import FromForm, FromPart, Visible, form_of, using_in
from lookup_hints.plan.write.packing import (
    MOST_VIEWS,
    given_back,
    packed,
    packed_if_long,
    packing,
    refuse_using,
)
from lookup_hints.plan.write.rewrite import Rewrite
from lookup_hints.plan.write.views import Text
from lookup_hints.sql.splice import Cut, Edit, Fragment


def from_edits(rewrite: Rewrite, block: Block, joins: Sequence[LookupJoin]) -> Iterator[Edit]:
    source = block.source
    if source is None:
        return
    behind = tuple(part for join in joins for part in _behind(rewrite, join))
    views = [join for join in joins if isinstance(join.form, FromForm) and not join.use.around]
    if views:
        _refuse_using_behind_comma(rewrite, block, views[0])
    if _is_simple(block, views):
        direct = (relation for chain in source.chains for relation in chain.direct_shown)
        rewrite.hidden[block] = [column for relation in direct for column in rewrite.hidden_in(relation)]
        for join in views:
            yield Edit(join.at, rewrite.view(join))
    else:
        at = rewrite.statement.tokens.cut(source.chains[0].first, source.last)
        yield Edit(at, _rebuilt(rewrite, block, source.chains))
    if behind:
        end = rewrite.end(max(source.last, block.views_last))
        yield Edit(Cut(end, end), behind)


def _behind(rewrite: Rewrite, join: LookupJoin) -> Text:
    text = join.form.behind_from(join, rewrite.statement, rewrite.numbers)
    return (" ", *text) if text else ()


def _refuse_using_behind_comma(rewrite: Rewrite, block: Block, join: LookupJoin) -> None:
    """Refuse USING whose left column may be that of a relation before the comma.

    A comma binds no looser than JOIN in Spark: ``a, b JOIN c USING (id)`` is ``(a, b) JOIN c``.
    """
    assert block.source is not None
    before: list[Relation] = []
    for chain in block.source.chains:
        for step in using_in(chain) if before else ():
            names = {rewrite.statement.pieces[at].name.lower() for at in step.using}
            columns = [rewrite.analysis.columns_of(relation) for relation in before]
            if not names or any(each is None or names & set(map(str.lower, each)) for each in columns):
                reason = (
                    "a join with USING or NATURAL follows a comma, where its columns may be those"
                    " of a relation before the comma"
                )
                raise refused(rewrite.statement, join.use, join.at, reason, "write ON with the equality")
        before += chain.shown


def _is_simple(block: Block, joins: Sequence[LookupJoin]) -> bool:
    """Whether each lookup join can become its view where it stands: all of them are last in FROM."""
    assert block.source is not None
    if not joins:
        return True
    chain = block.source.chains[-1]
    if len(joins) > MOST_VIEWS or not all(form_of(join).stays_in(join, chain) for join in joins):
        return False
    # What stands before a comma need not go through the lookup, unless the lookup names it.
    if len(block.source.chains) > 1 and not any(join.needs for join in joins):
        return False
    if any(join.conditions.after or join.is_condition for join in joins):
        return False
    moved = {join.use.relation for join in joins}
    looked_up = [step.right in moved for step in chain.steps]
    return all(looked_up[looked_up.index(True) :])


# --- several chains --------------------------------------------------------------------------------


def _rebuilt(rewrite: Rewrite, block: Block, chains: Sequence[Chain]) -> Text:
    groups: list[FromPart] = []
    waiting, shown = list(chains), set[Relation]()
    while waiting:
        chain = next(_ready(rewrite, waiting, shown))
        waiting.remove(chain)
        shown.update(chain.shown)
        groups = _with_chain(rewrite, groups, chain)
    order = [rewrite.seen(relation) for chain in chains for relation in chain.shown]
    only = groups[0] if len(groups) == 1 else None
    if only is not None and not (only.must_be_packed or _shows_order(rewrite, only, order, block)):
        rewrite.hidden[block] = only.hidden
        return (*only.parts, *rewrite.views(only.views))
    return _in_order(rewrite, groups, order, block)


def _shows_order(rewrite: Rewrite, built: FromPart, order: list[Visible], block: Block) -> bool:
    """Whether the order of relations matters and is not the user's."""
    if not built.reordered and built.relations == [visible.relation for visible in order]:
        return False
    return _order_is_seen(rewrite, block)


def _order_is_seen(rewrite: Rewrite, block: Block) -> bool:
    """Whether the columns of the block come out in the order of its relations."""
    return not selects_first(block) or next(own_stars(rewrite.statement, block), None) is not None


def selects_first(block: Block) -> bool:
    """Whether a SELECT list, not a pipe operator, takes the columns of its FROM."""
    return bool(block.selects) and not (block.pipes and block.pipes[0].first < block.selects[0])


def _ready(rewrite: Rewrite, waiting: list[Chain], shown: set[Relation]) -> Iterator[Chain]:
    """The chains that can be written next: ordinary ones first, and a leaning one behind all before it.

    Where what stands before a LATERAL one waits for its rows, it does not name that.
    """
    before = list(takewhile(lambda chain: not _leans(rewrite, chain), waiting))
    for chains in (before, waiting if before else []):
        yield from (each for each in chains if _waiting(rewrite, each) is None and not _leans(rewrite, each))
        waiting_for = ((each, _waiting(rewrite, each)) for each in chains)
        yield from (each for each, join in waiting_for if join is not None and join.needs <= shown)
    yield from (each for each in waiting if _leans(rewrite, each))


def _waiting(rewrite: Rewrite, chain: Chain) -> LookupJoin | None:
    """The lookup join that the chain is, where it waits for those that give its keys; else None."""
    join = rewrite.view_of(chain.head)
    return join if join is not None and form_of(join).waits else None


def _leans(rewrite: Rewrite, chain: Chain) -> bool:
    """Whether the chain must be written behind all before it, in one derived table where it needs one."""
    return chain.head.lateral or bool(_needed(rewrite, chain))


def _needed(rewrite: Rewrite, chain: Chain) -> frozenset[Relation]:
    """What the lookup joins of the chain name from before the comma."""
    needs = (join.needs for join in rewrite.views_in(chain) if not form_of(join).waits)
    return frozenset[Relation]().union(*needs)


def _with_chain(rewrite: Rewrite, groups: list[FromPart], chain: Chain) -> list[FromPart]:
    join = _waiting(rewrite, chain)
    if join is not None:
        return _joined_by(rewrite, join, groups)
    if _leans(rewrite, chain):
        return [built_chain(rewrite, chain, groups)]
    return [*groups, built_chain(rewrite, chain)]


def _joined_by(rewrite: Rewrite, join: LookupJoin, groups: list[FromPart]) -> list[FromPart]:
    """``groups`` with the ones that give the keys of ``join`` made one, and joined with it."""
    own = [built for built in groups if any(map(built.shows, join.needs))]
    before_it = packed_if_long(rewrite, side_by_side(rewrite, own))
    whole = form_of(join).behind(join, before_it, rewrite.seen(join.use.relation))
    first = next(number for number, built in enumerate(groups) if built in own)
    before = groups[:first]
    return [*before, whole, *(built for built in groups[first:] if built not in own)]


def _in_order(rewrite: Rewrite, groups: list[FromPart], order: list[Visible], block: Block) -> Text:
    """The groups with commas between them; where it is seen, their relations are in the user's order.

    No projection stands between them: Spark reorders no joins across one.
    """
    places = {visible.relation: number for number, visible in enumerate(order)}
    by_place = sorted((_sorted(built, places) for built in groups), key=lambda built: _first(built, places))
    is_in_place = [places[relation] for built in by_place for relation in built.relations] == [
        *range(len(order))
    ]
    if _order_is_seen(rewrite, block) and not is_in_place:
        return _all_packed(rewrite, by_place, order, block)
    hidden = rewrite.hidden.setdefault(block, [])
    out: list[Fragment] = []
    for built in by_place:
        if built.is_open:
            refuse_using(rewrite, built)
            built = packed(rewrite, built)
        out += [", ", *built.behind_comma()] if out else built.parts
        hidden += built.hidden
    return tuple(out)


def _sorted(built: FromPart, places: Mapping[Relation, int]) -> FromPart:
    """``built``, its relations in order where that is still to be written."""
    if not built.is_open:
        return built
    return replace(built, visible=sorted(built.visible, key=lambda visible: places[visible.relation]))


def _first(built: FromPart, places: Mapping[Relation, int]) -> int:
    return min((places[relation] for relation in built.relations), default=-1)


def _all_packed(rewrite: Rewrite, groups: list[FromPart], order: list[Visible], block: Block) -> Text:
    """Every group packed, and their relations given back behind all of them."""
    hidden = rewrite.hidden.setdefault(block, [])
    columns: dict[Relation, str] = {}
    out: list[Fragment] = []
    for built in groups:
        refuse_using(rewrite, built)
        text, own = packing(rewrite, built)
        out += [", " if out else "", *text]
        columns |= own
        hidden += own.values()
    for visible in order:
        out += [" JOIN ", *given_back(visible, f"{columns[visible.relation]}.*")]
    return tuple(out)

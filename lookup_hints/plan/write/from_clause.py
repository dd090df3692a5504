"""Write the FROM of one block with its lookup joins as views: first each chain, then the comma list.

A lookup join at the end of its FROM becomes a ``LATERAL VIEW`` in place. If more of the FROM follows, or
relations must change places, the relations so far are packed (``struct_packing``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from sqlglot import exp

from lookup_hints.plan.column_pruning import own_stars
from lookup_hints.plan.joins import LookupJoin
from lookup_hints.plan.parse.query_blocks import Block, Chain, Relation, Step
from lookup_hints.plan.write.from_parts import FromForm, FromPart, Rewrite, Visible, form_of, using_in
from lookup_hints.plan.write.lateral_view import Text, joined
from lookup_hints.plan.write.struct_packing import (
    MOST_VIEWS,
    given_back,
    packed,
    packed_if_long,
    packing,
    refuse_using,
)
from lookup_hints.sql.text_edits import Cut, Edit, Fragment


def from_edits(rewrite: Rewrite, block: Block, joins: Sequence[LookupJoin]) -> Iterator[Edit]:
    source = block.source
    if source is None:
        return
    texts = [join.form.behind_from(join, rewrite.statement, rewrite.numbers) for join in joins]
    behind = tuple(part for text in texts if text for part in (" ", *text))
    views = [join for join in joins if isinstance(join.form, FromForm) and not join.use.around]
    if views:
        _refuse_using_behind_comma(rewrite, block, views[0])
    if _is_simple(block, views):
        direct = (relation for chain in source.chains for relation in chain.direct_shown)
        rewrite.hidden[block] = [column for relation in direct for column in rewrite.hidden_in(relation)]
        for join in views:
            yield Edit(join.at, rewrite.view(join))
    else:
        at = rewrite.statement.tokens.place(source)
        yield Edit(at, _rebuild_from(rewrite, block, source.chains))
    if behind:
        end = rewrite.end(max(source.last, block.views_last))
        yield Edit(Cut(end, end), behind)


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
                raise join.use.refused(join.at, reason, "write ON with the equality")
        before += chain.shown


def _is_simple(block: Block, joins: Sequence[LookupJoin]) -> bool:
    """Whether each lookup join can become a view in place, as all of them are last in FROM."""
    assert block.source is not None
    if not joins:
        return True
    chain = block.source.chains[-1]
    if len(joins) > MOST_VIEWS or not all(form_of(join).stays_in(join, chain) for join in joins):
        return False
    # Relations before a comma need not pass through the lookup, unless the lookup refers to them.
    if len(block.source.chains) > 1 and not any(join.needs for join in joins):
        return False
    if any(join.conditions.after or join.is_condition for join in joins):
        return False
    moved = {join.use.relation for join in joins}
    looked_up = [step.right in moved for step in chain.steps]
    return all(looked_up[looked_up.index(True) :])


# --- several chains --------------------------------------------------------------------------------


def _rebuild_from(rewrite: Rewrite, block: Block, chains: Sequence[Chain]) -> Text:
    groups: list[FromPart] = []
    waiting, shown = list(chains), set[Relation]()
    while waiting:
        chain = next(_ready_chains(rewrite, waiting, shown))
        waiting.remove(chain)
        shown.update(chain.shown)
        groups = _with_chain(rewrite, groups, chain)
    order = [rewrite.seen(relation) for chain in chains for relation in chain.shown]
    only = groups[0] if len(groups) == 1 else None
    if only is not None and not only.must_be_packed:
        is_in_order = not only.reordered and only.relations == [visible.relation for visible in order]
        if is_in_order or not _order_is_seen(rewrite, block):
            rewrite.hidden[block] = only.hidden
            return (*only.parts, *rewrite.views(only.views))
    return _in_order(rewrite, groups, order, block)


def _order_is_seen(rewrite: Rewrite, block: Block) -> bool:
    """Whether the columns of the block come out in the order of its relations."""
    return not selects_first(block) or next(own_stars(rewrite.statement, block), None) is not None


def selects_first(block: Block) -> bool:
    """Whether a SELECT list, not a pipe operator, takes the columns of its FROM."""
    return bool(block.selects) and not (block.pipes and block.pipes[0].first < block.selects[0])


def _ready_chains(rewrite: Rewrite, waiting: list[Chain], shown: set[Relation]) -> Iterator[Chain]:
    """The chains that can be written next: ordinary ones first, a leaning one after all before it.

    A LATERAL chain does not refer to relations that wait for its rows.
    """
    before = list(takewhile(lambda chain: not _leans_on_previous(rewrite, chain), waiting))
    for chains in (before, waiting if before else []):
        yield from (
            each
            for each in chains
            if _waiting_join(rewrite, each) is None and not _leans_on_previous(rewrite, each)
        )
        waiting_for = ((each, _waiting_join(rewrite, each)) for each in chains)
        yield from (each for each, join in waiting_for if join is not None and join.needs <= shown)
    yield from (each for each in waiting if _leans_on_previous(rewrite, each))


def _waiting_join(rewrite: Rewrite, chain: Chain) -> LookupJoin | None:
    """The lookup join that the chain is, where it waits for those that give its keys; else None."""
    join = rewrite.view_of(chain.head)
    return join if join is not None and form_of(join).waits else None


# Such a chain is packed together with all before it: packed alone, it would not see them.
# (docs/decisions/0100)
def _leans_on_previous(rewrite: Rewrite, chain: Chain) -> bool:
    """Whether the chain must be written behind all before it, in one derived table where it needs one."""
    names_before = any(join.needs for join in rewrite.views_in(chain) if not form_of(join).waits)
    return chain.head.lateral or names_before


def _with_chain(rewrite: Rewrite, groups: list[FromPart], chain: Chain) -> list[FromPart]:
    join = _waiting_join(rewrite, chain)
    if join is not None:
        return _joined_by(rewrite, join, groups)
    if _leans_on_previous(rewrite, chain):
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
    """The groups, separated by commas; in the user's order if the order of the columns is seen.

    There is no projection between them, as Spark does not reorder joins across one.
    """
    places = {visible.relation: number for number, visible in enumerate(order)}

    def first(built: FromPart) -> int:
        return min((places[relation] for relation in built.relations), default=-1)

    by_place = sorted((_sort_relations(built, places) for built in groups), key=first)
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


def _sort_relations(built: FromPart, places: Mapping[Relation, int]) -> FromPart:
    """``built``, its relations in order where that is still to be written."""
    if not built.is_open:
        return built
    return replace(built, visible=sorted(built.visible, key=lambda visible: places[visible.relation]))


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


def built_chain(rewrite: Rewrite, chain: Chain, before: Sequence[FromPart] = ()) -> FromPart:
    """The relations of a chain after the parts ``before``; lookup joins in the middle are packed."""
    built, end, steps = _open_chain(rewrite, chain)
    is_long = len(rewrite.views_in(chain)) > MOST_VIEWS
    built.open_ended = any(relation.lateral for relation in chain.everything)
    if before:
        built = side_by_side(rewrite, [*before, built])
    for step in steps:
        join = rewrite.view_of(step.right)
        if join is not None:
            built = form_of(join).behind(
                join, packed_if_long(rewrite, built), rewrite.seen(join.use.relation)
            )
        else:
            if built.is_open and is_long and _may_come_first(rewrite, built, step):
                built.reordered = True
            elif built.is_open:
                if step.right is None:
                    reason, join = "a PIVOT or UNPIVOT follows it", built.asked[-1]
                    instead = "put the join into a subquery"
                    raise join.use.refused(join.at, reason, instead)
                built = packed(rewrite, built)
            _append_step(rewrite, built, step, end)
        end = rewrite.end(step.last)
    return built


# Independent chains stay apart: else a lookup would run for each pair of rows.
# (docs/decisions/0100)
def side_by_side(rewrite: Rewrite, groups: Sequence[FromPart]) -> FromPart:
    """``groups`` with commas between them; only the last may have lookup joins left to append."""
    if len(groups) == 1:
        return groups[0]
    closed = [packed(rewrite, built) if built.is_open else built for built in groups[:-1]]
    closed.append(groups[-1])
    return FromPart(
        list(joined([closed[0].parts, *(built.behind_comma() for built in closed[1:])], ", ")),
        [visible for built in closed for visible in built.visible],
        list(groups[-1].views),
        list(groups[-1].filters),
        reordered=any(built.reordered for built in closed),
        hidden=[column for built in closed for column in built.hidden],
        using=[step for built in closed for step in built.using],
        first=min(built.first for built in closed),
        open_ended=any(built.open_ended for built in closed),
    )


def _open_chain(rewrite: Rewrite, chain: Chain) -> tuple[FromPart, int, Sequence[Step]]:
    """The first part of a chain, its end in the text, and the joins that follow."""
    join = rewrite.view_of(chain.head)
    opening = None if join is None else form_of(join).opens(join)
    if join is not None and opening is not None and opening.right is not None:
        built = form_of(join).behind(join, rewrite.ordinary(opening.right), rewrite.seen(chain.head))
        return built, rewrite.end(opening.last), chain.steps[1:]
    is_pivoted = bool(chain.steps) and chain.steps[0].pivoted is not None
    return rewrite.ordinary(chain.head, named=not is_pivoted), rewrite.end(chain.head.last), chain.steps


def _append_step(rewrite: Rewrite, built: FromPart, step: Step, end: int) -> None:
    """Append an ordinary join, with the text between ``end`` and it."""
    right = step.right
    if step.pivoted is not None:
        seen = rewrite.seen(step.pivoted)
        name = f" AS {seen.alias}" if step.pivoted.alias_at is None else ""
        built.parts += [Cut(end, rewrite.end(step.last)), name]
        built.visible = [seen]
        return
    assert right is not None, "a step joins, or pivots"
    added = rewrite.ordinary(right)
    built.parts += [Cut(end, rewrite.statement.pieces[right.first].start), *added.parts]
    built.parts.append(Cut(rewrite.end(right.last), rewrite.end(step.last)))
    built.using += [step] if step.using or "NATURAL" in step.words else []
    if not step.hides_right:
        built.visible += added.visible
        built.hidden += added.hidden
        built.using += added.using


def _may_come_first(rewrite: Rewrite, built: FromPart, step: Step) -> bool:
    """Whether an ordinary join gives the same rows before the lookup joins that are still to be appended.

    Each packing of many relations gives all of their names back: with many ordinary joins among many lookup
    joins, Spark's analyzer would overflow its stack.
    """
    right = step.right
    is_kept = step.words in ((), ("INNER",), ("CROSS",), ("LEFT",), ("LEFT", "OUTER"))
    if not is_kept or right is None or right.lateral or step.using or built.must_be_packed:
        return False
    return not any(
        _is_named_in(rewrite, join, step) or not _is_qualified(rewrite, join) for join in built.views
    )


def _is_named_in(rewrite: Rewrite, join: LookupJoin, step: Step) -> bool:
    """Whether the text of the step may name the looked up table: by its alias, or a bare column."""
    tokens = rewrite.statement.tokens
    named = any(True for _ in tokens.places(join.use.alias, step.first, step.last))
    bare = (at for name in join.use.names.columns for at in tokens.places(name, step.first, step.last))
    return named or any(not tokens.is_symbol(at - 1, ".") for at in bare)


def _is_qualified(rewrite: Rewrite, join: LookupJoin) -> bool:
    """Whether each column in its keys and conditions says whose it is, so that it means the same later."""
    conditions = join.conditions
    cuts = [key.left for key in join.answered if isinstance(key.left, Cut)]
    cuts += [each.at for each in (*conditions.residual, *conditions.left_only, *conditions.queries)]
    trees = [rewrite.statement.expression(each) for each in cuts]
    columns = [column for tree in trees if tree is not None for column in tree.find_all(exp.Column)]
    return None not in trees and not conditions.shared_keys and all(column.table for column in columns)


# --- parentheses -----------------------------------------------------------------------------------


def parentheses(rewrite: Rewrite, block: Block) -> Iterator[Edit]:
    """Edits of relations in parentheses that hold lookup joins: no LATERAL VIEW is allowed there."""
    around: set[Relation] = set()
    for join in rewrite.joins:
        if join.home is block and join.use.around and isinstance(join.form, FromForm):
            # A name of its own makes a star of all columns, private ones of those inside it too.
            named = (relation for relation in join.use.around if relation.alias_at is not None)
            around |= {join.use.around[-1], *named}
    for relation in sorted(around, key=lambda relation: relation.first, reverse=True):
        assert relation.chain is not None
        at = rewrite.statement.tokens.place(relation.chain)
        if relation.alias_at is None:
            built = built_chain(rewrite, relation.chain)
            built = packed(rewrite, built) if built.is_open else built
            rewrite.hidden[relation], rewrite.using[relation] = built.hidden, built.using
            yield Edit(at, tuple(built.parts))
        else:
            yield Edit(at, _named_chain(rewrite, relation.chain))


def _named_chain(rewrite: Rewrite, chain: Chain) -> Text:
    """A chain in parentheses that has a name of its own, as a query."""
    already = len(rewrite.merged)
    built = built_chain(rewrite, chain)
    if built.must_be_packed or built.reordered:
        built = packed(rewrite, built)
    for merged in rewrite.merged[already:]:
        reason = "it is in named parentheses behind a join with USING"
        raise merged.join.use.refused(merged.join.at, reason, "write ON with the equality")
    star = f"* EXCEPT ({', '.join(built.hidden)})" if built.hidden else "*"
    return (f"SELECT {star} FROM ", *built.parts, *rewrite.views(built.views))  # noqa: S608 (the user's text)

"""One chain of joins written again: what stands between the commas of a FROM, or in parentheses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from lookup_hints.plan.joins import LookupJoin
from lookup_hints.plan.read.structure import Block, Chain, Relation, Step
from lookup_hints.plan.refusal import refused
from lookup_hints.plan.write.from_part import FromForm, FromPart, form_of
from lookup_hints.plan.write.packing import MOST_VIEWS, packed, packed_if_long
from lookup_hints.plan.write.rewrite import Rewrite
from lookup_hints.plan.write.views import Text, joined
from lookup_hints.sql.splice import Cut, Edit


def built_chain(rewrite: Rewrite, chain: Chain, before: Sequence[FromPart] = ()) -> FromPart:
    """The relations of a chain behind what stands ``before``, lookup joins in the middle packed."""
    built, end, steps = _opening(rewrite, chain)
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
                    raise refused(rewrite.statement, join.use, join.at, reason, instead)
                built = packed(rewrite, built)
            _append(rewrite, built, step, end)
        end = rewrite.end(step.last)
    return built


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


def _opening(rewrite: Rewrite, chain: Chain) -> tuple[FromPart, int, Sequence[Step]]:
    """What a chain begins with, where that ends in the text, and the joins that follow."""
    join = rewrite.view_of(chain.head)
    opening = None if join is None else form_of(join).opens(join)
    if join is not None and opening is not None and opening.right is not None:
        built = form_of(join).behind(join, rewrite.ordinary(opening.right), rewrite.seen(chain.head))
        return built, rewrite.end(opening.last), chain.steps[1:]
    is_pivoted = bool(chain.steps) and chain.steps[0].pivoted is not None
    return rewrite.ordinary(chain.head, named=not is_pivoted), rewrite.end(chain.head.last), chain.steps


def _append(rewrite: Rewrite, built: FromPart, step: Step, end: int) -> None:
    """Add an ordinary join, with what stands between ``end`` and it."""
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
    bare = (at for name in join.names.columns for at in tokens.places(name, step.first, step.last))
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
    """The edits of relations in parentheses that hold lookup joins: no LATERAL VIEW can stand there."""
    around: set[Relation] = set()
    for join in rewrite.joins:
        if join.home is block and join.use.around and isinstance(join.form, FromForm):
            # A name of its own makes a star of all columns, private ones of those inside it too.
            named = (relation for relation in join.use.around if relation.alias_at is not None)
            around |= {join.use.around[-1], *named}
    for relation in sorted(around, key=lambda relation: relation.first, reverse=True):
        assert relation.chain is not None
        at = rewrite.statement.tokens.cut(relation.chain.first, relation.chain.last)
        if relation.alias_at is None:
            built = built_chain(rewrite, relation.chain)
            built = packed(rewrite, built) if built.is_open else built
            rewrite.hidden[relation], rewrite.using[relation] = built.hidden, built.using
            yield Edit(at, tuple(built.parts))
        else:
            yield Edit(at, _named(rewrite, relation.chain))


def _named(rewrite: Rewrite, chain: Chain) -> Text:
    """A chain in parentheses that has a name of its own, as a query."""
    already = len(rewrite.merged)
    built = built_chain(rewrite, chain)
    if built.must_be_packed or built.reordered:
        built = packed(rewrite, built)
    for merged in rewrite.merged[already:]:
        reason = "it is in named parentheses behind a join with USING"
        raise refused(
            rewrite.statement, merged.join.use, merged.join.at, reason, "write ON with the equality"
        )
    star = f"* EXCEPT ({', '.join(built.hidden)})" if built.hidden else "*"
    return (f"SELECT {star} FROM ", *built.parts, *rewrite.views(built.views))  # noqa: S608 (the user's text)

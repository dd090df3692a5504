"""One chain of joins written anew: what stands between the commas of a FROM, or in parentheses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lookup_hints.plan.draft import LookupJoin
from lookup_hints.plan.read.structure import Block, Chain, Relation, Step
from lookup_hints.plan.refusal import refused
from lookup_hints.plan.write.built import Built
from lookup_hints.plan.write.from_join import FromJoin
from lookup_hints.plan.write.packing import packed
from lookup_hints.plan.write.sheet import Sheet
from lookup_hints.plan.write.views import Text, joined
from lookup_hints.sql.splice import Cut, Edit


def built_chain(sheet: Sheet, chain: Chain, before: Sequence[Built] = ()) -> Built:
    """The relations of a chain behind what stands ``before``, lookup joins in the middle packed."""
    built, end, steps = _opening(sheet, chain)
    built.open_ended = any(relation.lateral for relation in chain.everything)
    if before:
        built = side_by_side(sheet, [*before, built])
    for step in steps:
        join = sheet.view_of(step.right)
        if join is not None:
            built = join.behind(built, sheet.seen(join.use.relation))
        else:
            if built.is_open:
                _refuse_pivot(sheet, built.asked[-1], step)
                built = packed(sheet, built)
            _append(sheet, built, step, end)
        end = sheet.end(step.last)
    return built


def side_by_side(sheet: Sheet, groups: Sequence[Built]) -> Built:
    """``groups`` with commas between them; only the last may have lookup joins left to append."""
    closed = [packed(sheet, built) if built.is_open else built for built in groups[:-1]]
    closed.append(groups[-1])
    return Built(
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


def _opening(sheet: Sheet, chain: Chain) -> tuple[Built, int, Sequence[Step]]:
    """What a chain begins with, where that ends in the text, and the joins that follow."""
    join = sheet.view_of(chain.head)
    opening = None if join is None else join.opens
    if join is not None and opening is not None and opening.right is not None:
        built = join.behind(sheet.ordinary(opening.right), sheet.seen(chain.head))
        return built, sheet.end(opening.last), chain.steps[1:]
    is_pivoted = bool(chain.steps) and chain.steps[0].pivoted is not None
    return sheet.ordinary(chain.head, named=not is_pivoted), sheet.end(chain.head.last), chain.steps


def _append(sheet: Sheet, built: Built, step: Step, end: int) -> None:
    """Add an ordinary join, with what stands between ``end`` and it."""
    right = step.right
    if step.pivoted is not None:
        seen = sheet.seen(step.pivoted)
        name = f" AS {seen.alias}" if step.pivoted.alias_at is None else ""
        built.parts += [Cut(end, sheet.end(step.last)), name]
        built.visible = [seen]
        return
    assert right is not None, "a step joins, or pivots"
    added = sheet.ordinary(right)
    built.parts += [Cut(end, sheet.statement.pieces[right.first].start), *added.parts]
    built.parts.append(Cut(sheet.end(right.last), sheet.end(step.last)))
    built.using += [step] if step.using or "NATURAL" in step.words else []
    if not step.hides_right:
        built.visible += added.visible
        built.hidden += added.hidden
        built.using += added.using


def _refuse_pivot(sheet: Sheet, join: LookupJoin, step: Step) -> None:
    if step.right is None:
        reason = "a PIVOT or UNPIVOT follows it"
        raise refused(sheet.statement, join.use, join.at, reason, "put the join into a subquery")


# --- parentheses -----------------------------------------------------------------------------------


def parentheses(sheet: Sheet, block: Block) -> Iterator[Edit]:
    """The edits of relations in parentheses that hold lookup joins: no LATERAL VIEW can stand there."""
    around: set[Relation] = set()
    for join in sheet.draft.joins:
        if join.home is block and join.use.around and isinstance(join, FromJoin):
            # A name of its own makes a star of all columns, private ones of those inside it too.
            named = (relation for relation in join.use.around if relation.alias_at is not None)
            around |= {join.use.around[-1], *named}
    for relation in sorted(around, key=lambda relation: relation.first, reverse=True):
        assert relation.chain is not None
        at = sheet.statement.tokens.cut(relation.chain.first, relation.chain.last)
        if relation.alias_at is None:
            built = built_chain(sheet, relation.chain)
            built = packed(sheet, built) if built.is_open else built
            sheet.hidden[relation], sheet.using[relation] = built.hidden, built.using
            yield Edit(at, tuple(built.parts))
        else:
            yield Edit(at, _named(sheet, relation.chain))


def _named(sheet: Sheet, chain: Chain) -> Text:
    """A chain in parentheses that has a name of its own, as a query."""
    already = len(sheet.merged)
    built = built_chain(sheet, chain)
    if built.must_be_packed or built.reordered:
        built = packed(sheet, built)
    for merged in sheet.merged[already:]:
        reason = "it stands in named parentheses behind a join with USING"
        raise refused(sheet.statement, merged.join.use, merged.join.at, reason, "write ON with the equality")
    star = f"* EXCEPT ({', '.join(built.hidden)})" if built.hidden else "*"
    return (f"SELECT {star} FROM ", *built.parts, *sheet.views(built.views))  # noqa: S608 (the user's text)

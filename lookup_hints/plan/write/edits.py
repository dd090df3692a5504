"""The edits that turn a planned statement into Spark SQL: of each join by itself, then of each FROM."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from lookup_hints.plan.analysis import guarded, removed_hints
from lookup_hints.plan.ctes import private_columns
from lookup_hints.plan.draft import Draft, LookupJoin
from lookup_hints.plan.read.structure import Block
from lookup_hints.plan.times import dropped_times
from lookup_hints.plan.write.chains import parentheses
from lookup_hints.plan.write.concealed import concealed_edits
from lookup_hints.plan.write.from_clause import from_edits, selects_first
from lookup_hints.plan.write.from_join import FromJoin
from lookup_hints.plan.write.pipes import is_projected, last_before_columns
from lookup_hints.plan.write.sheet import Sheet
from lookup_hints.plan.write.using import merged_by, shared_edits, short_names, star_edits, star_of_all
from lookup_hints.sql.splice import Cut, Edit


def edits_of(draft: Draft) -> tuple[Edit, ...]:
    """All edits of a draft whose joins are complete."""
    beside = (*removed_hints(draft.statement), *dropped_times(draft.statement), *private_columns(draft))
    return (*beside, *_edits(Sheet(draft)))


def _edits(sheet: Sheet) -> Iterator[Edit]:
    draft = sheet.draft
    for use in draft.bypassed:
        yield from guarded(draft.statement, use)
    for scan in draft.scans:
        yield from scan.edits(draft.statement)
    for join in draft.joins:
        yield from join.edits(draft, sheet.numbers)
    by_home: dict[Block, list[LookupJoin]] = defaultdict(list)
    for join in draft.joins:
        by_home[join.home].append(join)
    for block in draft.statement.structure.blocks:
        if joins := by_home[block]:
            sheet.merged, sheet.concealed, sheet.block = [], [], block
            yield from parentheses(sheet, block)
            yield from from_edits(sheet, block, joins)
            yield from _names(sheet, block, joins)


def _names(sheet: Sheet, block: Block, joins: list[LookupJoin]) -> Iterator[Edit]:
    """The edits of stars and names that private columns make necessary."""
    draft, statement = sheet.draft, sheet.statement
    hidden = [*sheet.hidden.get(block, []), *(name for each in sheet.concealed for name in each.qualified)]
    looked_up = (merged_by(join) for join in joins if isinstance(join, FromJoin))
    merged = [*sheet.merged, *(each for each in looked_up if each is not None)]
    if selects_first(block):
        yield from star_edits(draft, block, merged, hidden)
    elif block.source is not None and not is_projected(statement, block):
        star = star_of_all(draft, block, merged, hidden)
        end = sheet.end(last_before_columns(statement, block))
        if star is not None:
            yield Edit(Cut(end, end), (f" |> SELECT {star}",))
        elif sheet.concealed:
            yield Edit(Cut(end, end), (f" |> SELECT * EXCEPT ({', '.join(hidden)})",))
        elif hidden:
            yield Edit(Cut(end, end), (f" |> DROP {', '.join(hidden)}",))
    yield from shared_edits(draft, block, merged)
    yield from concealed_edits(statement, block, sheet.concealed, merged)
    if hidden:
        yield from short_names(statement, block)

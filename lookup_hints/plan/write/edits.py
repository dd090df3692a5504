"""The edits that turn a planned statement into Spark SQL: of each join by itself, then of each FROM."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from lookup_hints.plan.analysis import (
    Analysis,
    alias_text,
    dropped_times,
    extended,
    guarded,
    removed_hints,
    selected_instead,
)
from lookup_hints.plan.joins import LookupJoin, TableScan
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.plan.read.structure import Block
from lookup_hints.plan.repeated import private_columns
from lookup_hints.plan.write.chains import parentheses
from lookup_hints.plan.write.concealed import concealed_edits
from lookup_hints.plan.write.from_clause import from_edits, selects_first
from lookup_hints.plan.write.from_form import FromForm
from lookup_hints.plan.write.pipes import is_projected, last_before_columns
from lookup_hints.plan.write.sheet import Sheet
from lookup_hints.plan.write.using import merged_by, shared_edits, short_names, star_edits, star_of_all
from lookup_hints.sql.splice import Cut, Edit


def edits_of(
    analysis: Analysis,
    joins: Sequence[LookupJoin],
    scans: Sequence[TableScan],
    bypassed: Sequence[LookupUse],
) -> list[Edit]:
    """All edits of a statement whose ``joins`` ask, whose ``scans`` read, and of which nothing else is read.

    Raises:
        CannotBeAsked: one of the joins cannot be written where it stands.
    """
    statement = analysis.statement
    out = [*removed_hints(statement), *dropped_times(statement), *private_columns(analysis, joins)]
    out += [edit for use in bypassed for edit in guarded(statement, use)]
    out += [edit for scan in scans for edit in _of_scan(statement, scan)]
    return [*out, *_of_joins(Sheet(analysis, joins))]


def _of_scan(statement: Statement, scan: TableScan) -> Iterator[Edit]:
    """The edits that read the table; what stands between its name and its alias stays."""
    relation = scan.use.relation
    yield from selected_instead(statement, scan.use)
    rows = extended((scan.relation,), relation.extensions)
    at = statement.tokens.cut(relation.start, relation.last)
    yield Edit(at, (*rows, f" AS {alias_text(statement, relation)}"))


def _of_joins(sheet: Sheet) -> Iterator[Edit]:
    for join in sheet.joins:
        yield from join.form.edits(join, sheet.analysis, sheet.numbers)
    by_home: dict[Block, list[LookupJoin]] = defaultdict(list)
    for join in sheet.joins:
        by_home[join.home].append(join)
    for block in sheet.statement.structure.blocks:
        if joins := by_home[block]:
            sheet.merged, sheet.concealed, sheet.block = [], [], block
            yield from parentheses(sheet, block)
            yield from from_edits(sheet, block, joins)
            yield from _names(sheet, block, joins)


def _names(sheet: Sheet, block: Block, joins: list[LookupJoin]) -> Iterator[Edit]:
    """The edits of stars and names that private columns make necessary."""
    analysis, statement = sheet.analysis, sheet.statement
    hidden = [*sheet.hidden.get(block, []), *(name for each in sheet.concealed for name in each.qualified)]
    looked_up = (merged_by(join) for join in joins if isinstance(join.form, FromForm))
    merged = [*sheet.merged, *(each for each in looked_up if each is not None)]
    if selects_first(block):
        yield from star_edits(analysis, block, merged, hidden)
    elif block.source is not None and not is_projected(statement, block):
        star = star_of_all(analysis, block, merged, hidden)
        end = sheet.end(last_before_columns(statement, block))
        if star is not None:
            yield Edit(Cut(end, end), (f" |> SELECT {star}",))
        elif sheet.concealed:
            yield Edit(Cut(end, end), (f" |> SELECT * EXCEPT ({', '.join(hidden)})",))
        elif hidden:
            yield Edit(Cut(end, end), (f" |> DROP {', '.join(hidden)}",))
    yield from shared_edits(analysis, block, merged)
    yield from concealed_edits(statement, block, sheet.concealed, merged)
    if hidden:
        yield from short_names(statement, block)

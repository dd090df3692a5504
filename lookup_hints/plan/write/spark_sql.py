"""The edits that turn a planned statement into Spark SQL: of each join by itself, then of each FROM."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from lookup_hints.plan.column_pruning import is_projected, last_before_columns
from lookup_hints.plan.cte_read_twice import private_columns
from lookup_hints.plan.decide.ask_or_read import is_plain
from lookup_hints.plan.joins import LookupJoin, TableScan
from lookup_hints.plan.parse.lookup_use import LookupUse
from lookup_hints.plan.parse.query_blocks import Block, Relation
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.spark_analysis import (
    Analysis,
    alias_text,
    extended,
    guarded,
    selected_instead,
    without_hints_and_times,
)
from lookup_hints.plan.write.from_clause import from_edits, parentheses, selects_first
from lookup_hints.plan.write.from_parts import FromForm, Rewrite
from lookup_hints.plan.write.struct_packing import concealed_edits
from lookup_hints.plan.write.using_and_stars import (
    merged_by,
    shared_edits,
    short_names,
    star_edits,
    star_of_all,
)
from lookup_hints.sql.text_edits import Cut, Edit


def edits_of(
    analysis: Analysis,
    joins: Sequence[LookupJoin],
    scans: Sequence[TableScan],
    bypassed: Sequence[LookupUse],
) -> list[Edit]:
    """All edits of a statement: ``joins`` become calls, ``scans`` read views, bypassed uses become errors.

    Raises:
        CannotBeAsked: one of the joins cannot be written in its place.
    """
    statement = analysis.statement
    out = [*without_hints_and_times(statement), *private_columns(analysis, joins)]
    out += [edit for use in bypassed for edit in guarded(statement, use)]
    out += [edit for scan in scans for edit in _of_scan(statement, scan)]
    return [*out, *_of_joins(Rewrite(analysis, joins))]


def _of_scan(statement: Statement, scan: TableScan) -> Iterator[Edit]:
    """The edits that read the table; the text between its name and its alias stays."""
    relation = scan.use.relation
    yield from selected_instead(statement, scan.use)
    rows = extended((scan.relation,), relation.extensions)
    at = statement.tokens.cut(relation.start, relation.last)
    yield Edit(at, (*rows, f" AS {alias_text(statement, relation)}"))


def _of_joins(rewrite: Rewrite) -> Iterator[Edit]:
    for join in rewrite.joins:
        yield from join.form.edits(join, rewrite.analysis, rewrite.numbers)
    by_home: dict[Block, list[LookupJoin]] = defaultdict(list)
    for join in rewrite.joins:
        by_home[join.home].append(join)
    for block in rewrite.statement.structure.blocks:
        if joins := by_home[block]:
            rewrite.merged, rewrite.concealed, rewrite.block = [], [], block
            yield from parentheses(rewrite, block)
            yield from from_edits(rewrite, block, joins)
            yield from _edits_of_names(rewrite, block, joins)


def _edits_of_names(rewrite: Rewrite, block: Block, joins: list[LookupJoin]) -> Iterator[Edit]:
    """The edits of stars and names that private columns make necessary."""
    analysis, statement = rewrite.analysis, rewrite.statement
    hidden = [
        *rewrite.hidden.get(block, []),
        *(name for each in rewrite.concealed for name in each.qualified),
    ]
    looked_up = (merged_by(join) for join in joins if isinstance(join.form, FromForm))
    merged = [*rewrite.merged, *(each for each in looked_up if each is not None)]
    if selects_first(block):
        yield from star_edits(analysis, block, merged, hidden)
    elif block.source is not None and not is_projected(statement, block):
        star = star_of_all(analysis, block, merged, hidden)
        end = rewrite.end(last_before_columns(statement, block))
        if star is not None:
            yield Edit(Cut(end, end), (f" |> SELECT {star}",))
        elif rewrite.concealed:
            yield Edit(Cut(end, end), (f" |> SELECT * EXCEPT ({', '.join(hidden)})",))
        elif hidden:
            yield Edit(Cut(end, end), (f" |> DROP {', '.join(hidden)}",))
    yield from shared_edits(analysis, block, merged)
    yield from concealed_edits(statement, block, rewrite.concealed, merged)
    if hidden:
        yield from short_names(statement, block)


# --- global ORDER BY --------------------------------------------------------------------------------


def rebalanced(statement: Statement, joins: Sequence[LookupJoin], *, adaptive: bool) -> list[Edit]:
    """Edits that put a shuffle between a lookup and a global ORDER BY over it.

    Sorting by range samples its input first; with a shuffle between, the sample is taken from the
    shuffled rows. Not needed under a LIMIT, a GROUP BY or a DISTINCT, which shuffle anyway.
    """
    asked = {join.use.relation for join in joins}
    hint = f"/*+ {'REBALANCE' if adaptive else 'REPARTITION'} */"
    # The order of a subquery in an expression, or of a LATERAL one, means nothing.
    places = {
        statement.pieces[block.selects[0]].end
        for query in statement.structure.queries
        if query.ordered and query.limit_at is None and query.stands_alone
        for block in query.blocks
        if block.selects and not block.pipes and is_plain(block) and _reads_lookup(statement, asked, block)
    }
    edits = [Edit(Cut(place, place), (f" {hint}",)) for place in sorted(places)]
    return [*edits, *_in_pipes(statement, asked, hint)]


def _in_pipes(statement: Statement, asked: set[Relation], hint: str) -> Iterator[Edit]:
    for block in statement.structure.blocks:
        for number, pipe in enumerate(block.pipes):
            following = block.pipes[number + 1].first + 1 if number + 1 < len(block.pipes) else -1
            is_limited = statement.tokens.is_word(following, "LIMIT")
            if pipe.ordered and not is_limited and _reads_lookup(statement, asked, block):
                end = statement.pieces[pipe.first].end
                yield Edit(Cut(end, end), (f" SELECT {hint} * |>",))


def _reads_lookup(statement: Statement, asked: set[Relation], block: Block) -> bool:
    """Whether the block reads a looked-up table, directly or through CTEs."""
    here = (each for _, each in statement.structure.relations if block.first <= each.first <= block.last)
    return not asked.isdisjoint(statement.read_by(*here))

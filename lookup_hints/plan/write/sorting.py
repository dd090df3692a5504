"""Global ORDER BY over a lookup: its sampling would ask for every key twice, so a shuffle goes between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lookup_hints.plan.joins import LookupJoin
from lookup_hints.plan.read.statement import Statement
from lookup_hints.plan.read.structure import Block, Relation
from lookup_hints.plan.stopping import is_plain
from lookup_hints.sql.splice import Cut, Edit


def rebalanced(statement: Statement, joins: Sequence[LookupJoin], *, adaptive: bool) -> list[Edit]:
    """Edits that put a shuffle between a lookup and a global ORDER BY over it.

    Sorting by range samples its input first; with a shuffle between, the sample is taken from the
    shuffled rows. Not needed under a LIMIT, a GROUP BY or a DISTINCT, which shuffle anyway.
    """
    asked = {join.use.index for join in joins}
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


def _in_pipes(statement: Statement, asked: set[int], hint: str) -> Iterator[Edit]:
    for block in statement.structure.blocks:
        for number, pipe in enumerate(block.pipes):
            following = block.pipes[number + 1].first + 1 if number + 1 < len(block.pipes) else -1
            is_limited = statement.tokens.is_word(following, "LIMIT")
            if pipe.ordered and not is_limited and _reads_lookup(statement, asked, block):
                end = statement.pieces[pipe.first].end
                yield Edit(Cut(end, end), (f" SELECT {hint} * |>",))


def _reads_lookup(statement: Statement, asked: set[int], block: Block) -> bool:
    return any(index in asked for index in _read_by(statement, block.first, block.last, set()))


def _read_by(statement: Statement, first: int, last: int, seen: set[Relation]) -> Iterator[int]:
    """The indices of tables that are read between the pieces, by way of CTEs too."""
    tokens = statement.tokens
    for block in statement.structure.blocks:
        for relation in block.everything:
            if not first <= relation.first <= last or relation in seen:
                continue
            seen.add(relation)
            yield relation.name_at
            if relation.cte is not None:
                at = relation.cte.at
                yield from _read_by(statement, tokens.index_at(at.start), tokens.index_at(at.end - 1), seen)

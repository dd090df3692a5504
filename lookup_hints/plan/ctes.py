"""Lookup joins in CTEs that are read more than once: Spark would compute the CTE for each that reads it.

A function that is not deterministic makes it compute the CTE once. But Spark takes no such function below
LATERAL, in ON, in an aggregate and the like (docs/decisions/0101).
"""

from __future__ import annotations

from collections.abc import Iterator

from lookup_hints.plan.draft import Draft, LookupJoin
from lookup_hints.plan.look_through import names_of_cte
from lookup_hints.plan.read.statement import Statement
from lookup_hints.plan.read.structure import Block, Cte, Query, Relation, Role
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.splice import Edit


def must_run_once(statement: Statement, join: LookupJoin) -> bool:
    """Whether the rows of ``join`` are read more than once, and Spark can be made to compute them once."""
    return _is_read_again(statement, join) and _can_run_once(statement, join)


def notes_of_ctes(draft: Draft) -> Iterator[str]:
    """What EXPLAIN says of the lookup joins that each reader of a CTE runs again."""
    for join in draft.joins:
        if _is_read_again(draft.statement, join) and not join.repeated:
            yield (
                f"the lookup join with {join.use.alias} is in a CTE that is read more than once, and that"
                " Spark can only compute for each that reads it"
            )


def private_columns(draft: Draft) -> Iterator[Edit]:
    """The edits by which CTEs that are computed once have private columns; their readers give the names back.

    Spark puts the conditions of all readers into such a CTE, and later others in their place: in the plan
    that it had before, by the columns that it has now. In between it drops aliases that rename nothing, as
    those of packed relations; then the columns are others, and the plan is invalid. A new name is kept.
    """
    once = {cte: None for join in draft.joins if join.repeated for cte in _ctes_around(draft.statement, join)}
    for cte in once:
        readers = draft.statement.once(_readers, cte)
        columns = _columns(draft, cte, readers)
        if len(readers) > 1 and columns and all(_can_give_back(draft, *reader) for reader in readers):
            yield _with_private_columns(draft.statement, cte, len(columns))
            listed = f"({', '.join(map(quoted, columns))})"
            yield from (
                _given_back(draft.statement, relation, listed)
                for _, relation in readers
                if not relation.columns
            )


def _columns(draft: Draft, cte: Cte, readers: list[tuple[Block, Relation]]) -> tuple[str, ...]:
    """What the columns of the CTE are called; nothing where that is not known."""
    given = names_of_cte(draft.statement, cte)
    if given or cte.recursive or not readers:
        return () if cte.recursive else given
    return draft.analysis.columns_of_cte(cte, readers[0][0]) or ()


def _can_give_back(draft: Draft, block: Block, relation: Relation) -> bool:
    """Whether the reader can have a list of columns."""
    is_table_query = block.source is not None and draft.statement.tokens.is_word(block.source.at, "TABLE")
    is_shuffled = any(join.shuffled and join.left_table is relation for join in draft.joins)
    return not (is_table_query or is_shuffled or (relation.time is not None and relation.alias_at is None))


def _with_private_columns(statement: Statement, cte: Cte, count: int) -> Edit:
    name = statement.tokens.index_at(cte.at.start)
    has_list = statement.tokens.is_symbol(name + 1, "(")
    last = statement.tokens.closing(name + 1) if has_list else name
    listed = ", ".join(quoted(f"__lookup_column_{number}") for number in range(1, count + 1))
    at = statement.tokens.cut(name, last)
    return Edit(at, (statement.tokens.cut(name, name), f"({listed})"))


def _given_back(statement: Statement, relation: Relation, listed: str) -> Edit:
    if relation.alias_at is not None:
        at, alias = statement.tokens.cut(relation.alias_at, relation.alias_at), ""
    else:
        at, alias = statement.tokens.cut(relation.last, relation.last), f" AS {quoted(relation.name)}"
    return Edit(at, (at, f"{alias}{listed}"))


def _is_read_again(statement: Statement, join: LookupJoin) -> bool:
    return any(len(statement.once(_readers, cte)) > 1 for cte in _ctes_around(statement, join))


def _can_run_once(statement: Statement, join: LookupJoin) -> bool:
    around = _ctes_around(statement, join)
    reading = [block for cte in around for block, _ in statement.once(_readers, cte)]
    may_be_random = (_may_be_random(statement, block) for block in (join.home, *reading))
    return all(cte.holder.stands_alone for cte in around) and all(may_be_random)


def _ctes_around(statement: Statement, join: LookupJoin) -> list[Cte]:
    """The CTEs through which the rows of ``join`` come out: the one that holds it, those that read that."""
    found: list[Cte] = []
    waiting = [_innermost(statement, join.at.start)]
    while waiting:
        cte = waiting.pop()
        if cte is not None and cte not in found:
            found.append(cte)
            starts = (statement.pieces[relation.first].start for _, relation in statement.once(_readers, cte))
            waiting += [_innermost(statement, start) for start in starts]
    return found


def _readers(statement: Statement, cte: Cte) -> list[tuple[Block, Relation]]:
    """The relations that read ``cte``, with their blocks; but for those inside it, as it may read itself."""
    return [
        (block, relation)
        for block in statement.structure.blocks
        for relation in block.everything
        if relation.cte is cte and not cte.at.holds(statement.tokens.cut(relation.first, relation.last))
    ]


def _innermost(statement: Statement, offset: int) -> Cte | None:
    holding = [cte for cte in statement.structure.ctes if cte.at.start <= offset < cte.at.end]
    return max(holding, key=lambda cte: cte.at.start, default=None)


def _may_be_random(statement: Statement, block: Block) -> bool:
    """Whether Spark takes functions that are not deterministic where ``block`` stands."""
    query = block.query
    while query.parent is not None:
        is_expression = query.role is Role.EXPRESSION
        if query.lateral or (is_expression and not _is_filter_or_item(statement, query, query.parent)):
            return False
        query = query.parent.query
    return True


def _is_filter_or_item(statement: Statement, query: Query, parent: Block) -> bool:
    """Whether the subquery stands in a WHERE of ``parent``, or in its SELECT list, but in no call there.

    ON, GROUP BY and ORDER BY want the same each time, as do aggregates.
    """
    place, tokens = statement.tokens.cut(query.first, query.last), statement.tokens
    wheres = (*parent.wheres, *(pipe.where for pipe in parent.pipes if pipe.where is not None))
    if any(where.holds(place) for where in wheres):
        return True
    if parent.grouped or parent.source is None or not parent.selects:
        return False
    is_listed = parent.selects[0] < query.first < parent.source.at
    return is_listed and tokens.depth(query.first) == tokens.depth(parent.selects[0]) + 1

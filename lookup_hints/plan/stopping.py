"""Which lookup joins Spark may stop early, as a LIMIT is content with their first rows."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from lookup_hints.plan.facts import Facts
from lookup_hints.plan.joins import FoundJoin
from lookup_hints.plan.read.kinds import gives_rows
from lookup_hints.plan.read.structure import Block, Role
from lookup_hints.sql.lexer import Kind

FEW_ROWS = 10_000
"""A LIMIT of more rows than this wants them fast rather than few."""

_OVER_ALL_ROWS = frozenset(
    name
    for function in exp.ALL_FUNCTIONS
    if issubclass(function, exp.AggFunc)
    for name in function.sql_names()
) | {"COLLECT_LIST", "COLLECT_SET", "PERCENTILE", "OVER"}


def stopped_early(facts: Facts, joins: Iterable[FoundJoin]) -> frozenset[int]:
    """The indices of the tables of joins whose rows go to a LIMIT as they come: neither sorted nor grouped.

    A statement of which the first rows alone will be taken is like one with a LIMIT.
    """
    homes = {join.home for join in joins}
    stopped = {home for home in homes if _stops(facts, home, frozenset())}
    return frozenset(join.use.index for join in joins if join.home in stopped)


def _stops(facts: Facts, block: Block, inside: frozenset[Block]) -> bool:
    """Whether the rows of ``block`` go to a LIMIT, in it or around it, as they come."""
    if block in inside or not is_plain(block) or _needs_all(facts, block):
        return False
    in_pipes = _stops_in_pipes(facts, block)
    if in_pipes is not None:
        return in_pipes
    holding = [query for query in facts.statement.structure.queries if block in query.blocks]
    for query in sorted(holding, key=lambda query: query.first, reverse=True):
        if query.ordered:
            return False
        if query.limit_at is not None and _is_few(facts, query.limit_at):
            return True
    if block.query.role is Role.STATEMENT:
        return facts.context.few_rows and gives_rows(facts.statement)
    readers = _readers(facts, block)
    return bool(readers) and all(_stops(facts, reader, inside | {block}) for reader in readers)


def _readers(facts: Facts, block: Block) -> list[Block]:
    """The blocks whose FROM reads the rows of ``block``; none where an expression does."""
    structure = facts.statement.structure
    if block.query.role is Role.RELATION:
        return [] if block.query.parent is None else [block.query.parent]
    return [
        reader
        for reader in structure.blocks
        for relation in reader.everything
        if relation.cte is not None and block in relation.cte.query.blocks
    ]


def _needs_all(facts: Facts, block: Block) -> bool:
    """Whether an aggregate or a window is over all rows of the FROM."""
    structure, pieces = facts.statement.structure, facts.statement.pieces
    inner = [query for query in structure.queries if query.parent is block]
    end = block.pipes[0].first if block.pipes else block.last
    return any(
        pieces[index].is_name
        and pieces[index].name.upper() in _OVER_ALL_ROWS
        and facts.statement.tokens.is_symbol(index + 1, "(")
        for index in range(block.first, end)
        if not any(query.first <= index <= query.last for query in inner)
    )


def _stops_in_pipes(facts: Facts, block: Block) -> bool | None:
    """Whether a pipe operator is a LIMIT over rows as they come; None where the rows just go on."""
    for pipe in block.pipes:
        if pipe.ordered or facts.statement.tokens.is_word(pipe.first + 1, "AGGREGATE", "DISTINCT"):
            return False
        if facts.statement.tokens.is_word(pipe.first + 1, "LIMIT") and _is_few(facts, pipe.first + 1):
            return True
    return None


def _is_few(facts: Facts, limit_at: int) -> bool:
    """Whether the LIMIT is of few rows; one that is not a number is taken for such."""
    pieces = facts.statement.pieces
    if limit_at + 1 >= len(pieces) or pieces[limit_at + 1].kind is not Kind.NUMBER:
        return True
    text = pieces[limit_at + 1].text
    return not text.isdecimal() or int(text) <= FEW_ROWS


def is_plain(block: Block) -> bool:
    """Whether nothing between its FROM and its rows shuffles them anyway."""
    return not (block.grouped or block.distinct)

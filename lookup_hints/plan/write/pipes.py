"""Which pipe operators leave the columns so far as they are, and which select some by name."""

from __future__ import annotations

from lookup_hints.plan.columns import stars
from lookup_hints.plan.read.statement import Statement
from lookup_hints.plan.read.structure import Block, Pipe


def last_of_projection(statement: Statement, block: Block, join: Pipe) -> int | None:
    """Index of the last piece of the operator behind ``join`` that selects columns by name, or None.

    None too where a star, or another operator that changes the columns, stands before its end.
    """
    for pipe in block.pipes[block.pipes.index(join) + 1 :]:
        if statement.tokens.is_word(pipe.first + 1, "SELECT", "AGGREGATE"):
            has_star = any(at > join.last for at in stars(statement, block, pipe.last + 1))
            return None if has_star else pipe.last
        if not _keeps_columns(statement, pipe):
            return None
    return None


def is_projected(statement: Statement, block: Block) -> bool:
    """Whether a pipe operator selects columns by name before private ones are seen."""
    tokens = statement.tokens
    for pipe in block.pipes:
        if tokens.is_word(pipe.first + 1, "SELECT", "AGGREGATE"):
            return not any(at > pipe.first for at in stars(statement, block, pipe.last + 1))
        if not _keeps_columns(statement, pipe):
            return False
    return False


def last_before_columns(statement: Statement, block: Block) -> int:
    """Index of the last piece of FROM and the pipe operators behind it that leave its columns as they are.

    So far a column of USING can be named by its qualifier.
    """
    assert block.source is not None
    last = max(block.source.last, block.views_last)
    for pipe in block.pipes:
        if not _keeps_columns(statement, pipe):
            break
        last = pipe.last
    return last


def _keeps_columns(statement: Statement, pipe: Pipe) -> bool:
    """Whether the columns so far stay first, in their order, with their qualifiers."""
    if pipe.join is not None:
        return not (pipe.join.using or "NATURAL" in pipe.join.words)
    return statement.tokens.is_word(
        pipe.first + 1, "WHERE", "ORDER", "LIMIT", "OFFSET", "TABLESAMPLE", "EXTEND"
    )

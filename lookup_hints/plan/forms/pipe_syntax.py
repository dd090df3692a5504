"""``|> JOIN c ON ...``: a join of pipe syntax, written as the operators that give the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lookup_hints.plan.column_pruning import last_of_projection
from lookup_hints.plan.forms.on_using_natural import (
    left_of_step,
)
from lookup_hints.plan.joins import Form, FoundJoin, LookupJoin, refused
from lookup_hints.plan.parse.query_blocks import Pipe
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.spark_analysis import Analysis, LeftSide
from lookup_hints.plan.write.lateral_view import pipe_operators
from lookup_hints.plan.write.using_and_stars import Merged, merged_by, qualified_names, shared_edits
from lookup_hints.sql.text_edits import Cut, Edit


class PipeJoin(Form):
    """A lookup join with the rows that come out of the operators before it."""

    shown = "a join of pipe syntax"

    def left_side(self, join: FoundJoin, statement: Statement) -> LeftSide:
        return left_of_step(statement, join.use)

    def edits(self, join: LookupJoin, analysis: Analysis, numbers: Iterator[int]) -> Iterator[Edit]:
        statement, pipe = analysis.statement, join.use.pipe
        assert pipe is not None
        merged = _merged(statement, join, pipe)
        text = pipe_operators(statement, join, next(numbers), private=merged is not None)
        yield Edit(Cut(statement.pieces[pipe.first].end, statement.pieces[pipe.last].end), text)
        if merged is not None:
            yield from shared_edits(analysis, join.home, [merged])


def _merged(statement: Statement, join: LookupJoin, pipe: Pipe) -> Merged | None:
    """What ``|> JOIN c USING (id)`` shares, where ``c.id`` or ``c.*`` stands behind it; else None.

    Raises:
        UnsupportedLookup: no list of columns behind it takes the private column away again.
    """
    merged = merged_by(join)
    if merged is None:
        return None
    named = next((at for at in _shared_names(statement, merged) if at > pipe.last), None)
    if named is None:
        return None
    end = last_of_projection(statement, join.home, pipe)
    if end is not None:
        return replace(merged, own=(end + 1, join.home.last))
    alias, piece = join.use.alias, statement.pieces[named]
    if piece.is_symbol("*"):
        reason = f"{alias}.* holds a column of USING, and no list of columns follows"
        instead = f"list the columns, and name that one without {alias}"
    else:
        reason = f"{piece.text} is a column of USING, and no list of columns follows"
        instead = f"name it without {alias}"
    raise refused(statement, join.use, statement.tokens.cut(named - 2, named), reason, instead)


def _shared_names(statement: Statement, merged: Merged) -> Iterator[int]:
    """The places behind ``c.`` of columns of USING and of stars."""
    shared = set(map(str.lower, merged.columns))
    for index in qualified_names(statement, merged.join.home, merged.alias):
        piece = statement.pieces[index]
        if piece.is_symbol("*") or (piece.is_name and piece.name.lower() in shared):
            yield index

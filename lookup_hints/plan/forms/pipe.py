"""``|> JOIN c ON ...``: a join of pipe syntax, written as the operators that give the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from lookup_hints.errors import UnsupportedLookup
from lookup_hints.plan.analysis import LeftSide
from lookup_hints.plan.draft import Draft, LookupJoin
from lookup_hints.plan.forms.asked import asked_by_outer
from lookup_hints.plan.forms.facts import Facts
from lookup_hints.plan.forms.possible import refuse_queries, sifted
from lookup_hints.plan.forms.stated import stated, without_outer
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.plan.read.structure import Pipe, Relation
from lookup_hints.plan.refusal import refused
from lookup_hints.plan.write.pipes import last_of_projection
from lookup_hints.plan.write.using import Merged, merged_by, qualified_names, shared_edits
from lookup_hints.plan.write.views import pipe_operators
from lookup_hints.sql.splice import Cut, Edit


@dataclass(frozen=True)
class PipeJoin(LookupJoin):
    """A lookup join with the rows that come out of the operators before it."""

    form: ClassVar[str] = "a join of pipe syntax"

    @classmethod
    def found(cls, facts: Facts, use: LookupUse, _waiting: set[Relation]) -> LookupJoin | None:
        """The join whose right side ``use`` is in a pipe operator; None where it stands elsewhere.

        Raises:
            UnsupportedLookup: it cannot run; names the reason.
        """
        if use.step is None or use.pipe is None:
            return None
        join = stated(facts, cls, use, use.step, _before)
        asked = asked_by_outer(facts, join)
        if asked is not None:
            return asked
        join = without_outer(facts, join, can_check_after=False)
        found = sifted(facts, join)
        # A lambda pads what a LEFT JOIN finds.
        refuse_queries(facts, join, found, more=found.queried if join.kind == "LEFT" else ())
        return join

    def left_side(self, statement: Statement) -> LeftSide:
        """The query that the operators before it are."""
        return _before(statement, self.use)

    def edits(self, draft: Draft, numbers: Iterator[int]) -> Iterator[Edit]:
        """The operator, written again, and the names behind it that mean a column of USING."""
        pieces, pipe = draft.statement.pieces, self._pipe
        merged = self._merged(draft.statement)
        text = pipe_operators(draft.statement, self, next(numbers), private=merged is not None)
        yield Edit(Cut(pieces[pipe.first].end, pieces[pipe.last].end), text)
        if merged is not None:
            yield from shared_edits(draft, self.home, [merged])

    @property
    def _pipe(self) -> Pipe:
        assert self.use.pipe is not None
        return self.use.pipe

    def _merged(self, statement: Statement) -> Merged | None:
        """What ``|> JOIN c USING (id)`` shares, where ``c.id`` or ``c.*`` stands behind it; else None.

        Raises:
            UnsupportedLookup: no list of columns behind it takes the private column away again.
        """
        merged = merged_by(self)
        if merged is None:
            return None
        named = next((at for at in _shared_names(statement, merged) if at > self._pipe.last), None)
        if named is None:
            return None
        end = last_of_projection(statement, self.home, self._pipe)
        if end is None:
            raise self._not_projected(statement, named)
        return replace(merged, own=(end + 1, self.home.last))

    def _not_projected(self, statement: Statement, index: int) -> UnsupportedLookup:
        alias, piece = self.use.alias, statement.pieces[index]
        if piece.is_symbol("*"):
            reason = f"{alias}.* holds a column of USING, and no list of columns follows"
            instead = f"list the columns, and name that one without {alias}"
        else:
            reason = f"{piece.text} is a column of USING, and no list of columns follows"
            instead = f"name it without {alias}"
        return refused(statement, self.use, statement.tokens.cut(index - 2, index), reason, instead)


def _before(statement: Statement, use: LookupUse) -> LeftSide:
    """The query that the operators before the join are."""
    assert use.pipe is not None
    start, end = statement.pieces[use.block.first].start, statement.pieces[use.pipe.first].start
    return LeftSide(Cut(start, end), is_query=True)


def _shared_names(statement: Statement, merged: Merged) -> Iterator[int]:
    """The places behind ``c.`` of columns of USING and of stars."""
    shared = set(map(str.lower, merged.columns))
    for index in qualified_names(statement, merged.join.home, merged.alias):
        piece = statement.pieces[index]
        if piece.is_symbol("*") or (piece.is_name and piece.name.lower() in shared):
            yield index

"""A statement whose text was changed before it is planned, and errors about it in terms of the user's."""

from __future__ import annotations

from dataclasses import dataclass

from lookup_hints.errors import Problem, QueryError, Span
from lookup_hints.plan.spark_analysis import change_text_of, put_in_place
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut, Edit, original_offset


@dataclass(frozen=True)
class ChangedText:
    """A statement with ``lookup_get`` and what it became.

    Args:
        written: the text before.
        text: the new text.
        edits: the edits that made it.
    """

    written: SqlText
    text: SqlText
    edits: tuple[Edit, ...]

    def put_in_place(self, error: Exception) -> None:
        """Let ``error``, which is about the new text, show the places and names of the text before."""
        if isinstance(error, QueryError):
            error.problems = tuple(
                Problem(
                    self._without_private(each.message),
                    self._written_span(each.at),
                    self._without_private(each.tip),
                )
                for each in error.problems
            )
            error.args = (error.problems,)
            return
        put_in_place(error, self.written, self.edits, Cut(0, len(self.written)))
        change_text_of(error, self._without_private)

    def _without_private(self, text: str) -> str:
        """``text`` with what the user knows in place of private names."""
        raise NotImplementedError

    def _span_of_added(self, at: Span) -> Span | None:
        """What the user wrote where the edits add ``at``; None where that is nothing."""
        return None

    def _written_span(self, at: Span | None) -> Span | None:
        if at is None or at.text == self.written:
            return at
        whole = Cut(0, len(self.written))
        first, last = (
            original_offset(self.written, self.edits, whole, offset) for offset in (at.start, at.end - 1)
        )
        if first is not None and last is not None and first <= last:
            return Span(self.written, first, last + 1)
        return self._span_of_added(at) or (None if first is None else Span(self.written, first, first + 1))

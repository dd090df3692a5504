"""A text of SQL that is cut into pieces once, however many look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, TypeVar

from lookup_hints.sql.lexer import NO_CODE, Piece, blanked, cut_into_pieces
from lookup_hints.sql.text_edits import Edit, spliced
from lookup_hints.sql.tokens import Tokens

Answer = TypeVar("Answer")


class SqlText(str):
    """A text of SQL with its pieces, which are cut when they are first wanted, and handed on with it.

    It is a ``str``, so Spark and errors take it as it is. Any other text that is made of it, by slicing, say,
    is a plain ``str`` without pieces; the methods here keep them.

    >>> [piece.text for piece in SqlText("SELECT a -- b").code]
    ['SELECT', 'a']
    """

    @classmethod
    def of(cls, text: str) -> SqlText:
        """``text`` itself where it has been cut into pieces already, as the statements of a script have."""
        return text if isinstance(text, cls) else cls(text)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """All but white space. A quote or comment that is never closed is one last ``UNCLOSED`` piece."""
        return cut_into_pieces(self)

    @cached_property
    def code(self) -> Tokens:
        """The pieces that are neither comments nor hints."""
        return Tokens(piece for piece in self.pieces if piece.kind not in NO_CODE)

    def once(self, question: Callable[[SqlText], Answer]) -> Answer:
        """The memoized result of ``question`` for the text."""
        answers: dict[Callable[[SqlText], Any], Any] = vars(self).setdefault("_answers", {})
        if question not in answers:
            answers[question] = question(self)
        found: Answer = answers[question]
        return found

    def starts_with(self, *words: str) -> bool:
        """Whether the first of its code is one of ``words``."""
        return self.code.is_word(0, *words)

    def has_word(self, word: str) -> bool:
        return any(piece.is_word(word) for piece in self.code)

    def blank_before(self, place: int) -> SqlText:
        """The text with everything before ``place``, which must not split a piece, replaced by blanks."""
        kept = (piece for piece in self.pieces if piece.start >= place)
        return _with_pieces(blanked(self, 0, place), kept)

    def part(self, start: int, end: int) -> SqlText:
        """``text[start:end]``, which begins with a piece and ends with white space or between pieces."""
        inside = (piece for piece in self.pieces if start <= piece.start < end)
        # A line comment keeps no blanks at the end of the part.
        kept = (Piece(each.kind, each.text[: end - each.start], each.start - start) for each in inside)
        return _with_pieces(self[start:end], kept)

    def edited(self, edits: Iterable[Edit]) -> SqlText:
        """The text with ``edits`` made; it is cut anew only where they change something."""
        made = spliced(self, edits)
        return self if made == self else SqlText(made)


def _with_pieces(text: str, pieces: Iterable[Piece]) -> SqlText:
    made = SqlText(text)
    vars(made)["pieces"] = tuple(pieces)
    return made

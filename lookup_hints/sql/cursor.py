"""Reads the code of a statement piece by piece; errors give the place of a missing piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from lookup_hints.errors import Problem, Span
from lookup_hints.sql.lexer import Kind, Piece
from lookup_hints.sql.tokens import Tokens


class Unreadable(Exception):
    """The next pieces cannot be read; the owner of the cursor decides where to resume.

    A signal between readers; users see an error of ours with its problem.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


class Cursor:
    """Reads ``found`` piece by piece.

    Args:
        shown: the statement for errors: with secrets masked, and all places unchanged.
        found: the pieces to read.
        end: the place for errors about something missing after the last piece.
    """

    def __init__(self, shown: str, found: Sequence[Piece], end: int) -> None:
        self.shown = shown
        self.tokens = found if isinstance(found, Tokens) else Tokens(found)
        self._end, self._at = end, 0

    @property
    def rest(self) -> Sequence[Piece]:
        return self.tokens[self._at :]

    def peek(self, ahead: int = 0) -> Piece:
        """The next piece, or the one ``ahead`` of it; at the end an empty symbol."""
        at = self._at + ahead
        return self.tokens[at] if at < len(self.tokens) else Piece(Kind.SYMBOL, "", self._end)

    def take(self) -> Piece:
        piece = self.peek()
        self._at += 1
        return piece

    def is_word(self, *words: str) -> bool:
        """Whether the next piece is one of ``words``."""
        return self.tokens.is_word(self._at, *words)

    def is_symbol(self, symbol: str, ahead: int = 0) -> bool:
        """Whether the next piece, or the one ``ahead`` of it, is ``symbol``."""
        return self.tokens.is_symbol(self._at + ahead, symbol)

    def words(self, *words: str) -> bool:
        """Whether ``words`` come next, in this order; if so they are read."""
        found = self.tokens.are_words(self._at, *words)
        self._at += len(words) if found else 0
        return found

    def symbol(self, symbol: str) -> bool:
        """Whether ``symbol`` comes next; if so it is read."""
        found = self.tokens.is_symbol(self._at, symbol)
        self._at += found
        return found

    def expect(self, symbol: str, where: str) -> None:
        """Read ``symbol``, or fail: it is missing ``where``."""
        if not self.symbol(symbol):
            self.fail_missing(f"{symbol!r} {where}")

    def name(self, what: str) -> Piece:
        """Read an identifier, or fail with ``what`` as the missing thing."""
        if not self.peek().is_name:
            self.fail_missing(what)
        return self.take()

    def dotted_name(self, what: str) -> Sequence[Piece]:
        """Read identifiers separated by dots, or fail with ``what`` as the missing thing."""
        parts = [self.name(what)]
        while self.symbol("."):
            parts.append(self.name(what))
        return parts

    def string(self, what: str) -> str:
        """Read a string literal, or fail with ``what`` as the missing thing."""
        if self.peek().kind is not Kind.STRING:
            self.fail_missing(what)
        return self.take().value

    def integer(self, what: str) -> int:
        """Read a whole number, or fail with ``what`` as the missing thing."""
        if not self.peek().text.isdecimal():
            self.fail_missing(what)
        return int(self.take().text)

    def span(self, found: Sequence[Piece]) -> Span:
        """The place of ``found``; if empty, the end of the pieces read."""
        start, end = (found[0].start, found[-1].end) if found else (self._end, self._end)
        return Span(self.shown, start, end)

    def fail(self, message: str, found: Sequence[Piece] | None = None, tip: str = "") -> NoReturn:
        """Fail with ``message`` at the place of ``found``, by default the next piece."""
        raise Unreadable(Problem(message, self.span(self.rest[:1] if found is None else found), tip))

    def fail_missing(self, what: str, tip: str = "") -> NoReturn:
        """Fail because ``what`` is missing here."""
        at = self.span(self.rest[:1])
        before = at.text[at.start : at.end]
        raise Unreadable(Problem(f"{what} is missing{before and f' before {before}'}.", at, tip))

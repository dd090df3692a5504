"""A cursor over the pieces of a statement, which gathers the mistakes that it meets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NoReturn

import pyarrow as pa

from lookup_hints.errors import Problem, Span
from lookup_hints.spi.secrets import MASK
from lookup_hints.spi.types import TIMESTAMP
from lookup_hints.sql.lexer import Kind, Piece


class Unreadable(Exception):
    """What comes next cannot be read; the reader's owner decides where reading goes on.

    A signal inside this package; whoever calls it sees a ``DdlError``.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


class DdlReader:
    """Reads ``found``, piece after piece.

    Args:
        shown: the statement as errors may show it: values of options are masked, places are true.
        found: what to read.
        problems: where mistakes are gathered; shared by the readers of one statement.
        end: place to point at when something is missing after the last piece.
        timestamp: the type that TIMESTAMP is.
    """

    def __init__(
        self,
        shown: str,
        found: Sequence[Piece],
        problems: list[Problem],
        end: int,
        timestamp: pa.DataType = TIMESTAMP,
    ) -> None:
        self.problems = problems
        self.shown = shown
        self.timestamp = timestamp
        self._found, self._end = found, end
        self._at = 0

    @property
    def rest(self) -> Sequence[Piece]:
        return self._found[self._at :]

    def over(self, found: Sequence[Piece], end: int) -> DdlReader:
        """A reader of a part, with the same list of problems."""
        return DdlReader(self.shown, found, self.problems, end, self.timestamp)

    def words(self, *words: str) -> bool:
        """Whether ``words`` come next, in this order; if so they are read."""
        ahead = self.rest[: len(words)]
        found = len(ahead) == len(words) and all(
            piece.is_word(word) for piece, word in zip(ahead, words, strict=True)
        )
        self._at += len(words) if found else 0
        return found

    def symbol(self, symbol: str) -> bool:
        """Whether ``symbol`` comes next; if so it is read."""
        found = bool(self.rest) and self.rest[0].is_symbol(symbol)
        self._at += found
        return found

    def expect(self, symbol: str, where: str) -> None:
        """Read ``symbol``, or fail: it is missing ``where``."""
        if not self.symbol(symbol):
            self.fail_missing(f"{symbol!r} {where}")

    def name(self, what: str) -> Piece:
        """Read an identifier, or fail: ``what`` is missing."""
        if not (self.rest and self.rest[0].is_name):
            self.fail_missing(what)
        return self._take()

    def shown_name(self, name: Piece) -> str:
        """``name`` as errors may show it: behind a forgotten quote, a name can hold values of options."""
        is_masked = self.shown[name.start : name.end] != name.text
        return MASK if is_masked else name.name

    def last_name(self) -> str | None:
        """The identifier that is all that is left, or None."""
        return self.rest[0].name if len(self.rest) == 1 and self.rest[0].is_name else None

    def string(self, what: str) -> str:
        """Read a string literal, or fail: ``what`` is missing."""
        if not (self.rest and self.rest[0].kind is Kind.STRING):
            self.fail_missing(what)
        return self._take().value

    def integer(self, what: str) -> int:
        """Read a whole number, or fail: ``what`` is missing."""
        if not (self.rest and self.rest[0].text.isdecimal()):
            self.fail_missing(what)
        return int(self._take().text)

    def parenthesised(self) -> DdlReader:
        """A reader of what stands between the parenthesis that comes next and its partner."""
        ahead = self.rest
        depths = accumulate(piece.is_symbol("(") - piece.is_symbol(")") for piece in ahead)
        partner = next((index for index, depth in enumerate(depths) if depth == 0), None)
        if partner is None and ahead[-1].kind is Kind.UNCLOSED:
            self.fail("This quote or comment is never closed.", ahead[-1:])
        if partner is None:
            self.fail("This parenthesis is never closed.", ahead[:1])
        self._at += partner + 1
        return self.over(ahead[1:partner], end=ahead[partner].start)

    def span(self, found: Sequence[Piece]) -> Span:
        """Where ``found`` stands; the end of what is read, when it is empty."""
        start, end = (found[0].start, found[-1].end) if found else (self._end, self._end)
        return Span(self.shown, start, end)

    def report(self, message: str, found: Sequence[Piece], tip: str = "") -> None:
        """Note a mistake in ``found`` and go on."""
        self.problems.append(Problem(message, self.span(found), tip))

    def fail(self, message: str, found: Sequence[Piece] | None = None, tip: str = "") -> NoReturn:
        """Give up: ``message`` says what is wrong with ``found`` (with what comes next)."""
        raise Unreadable(Problem(message, self.span(self.rest[:1] if found is None else found), tip))

    def fail_missing(self, what: str, tip: str = "") -> NoReturn:
        """Give up: ``what`` does not come next."""
        at = self.span(self.rest[:1])
        before = at.text[at.start : at.end]
        raise Unreadable(Problem(f"{what} is missing{before and f' before {before}'}.", at, tip))

    def _take(self) -> Piece:
        self._at += 1
        return self._found[self._at - 1]

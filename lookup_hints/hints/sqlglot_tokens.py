"""Pieces of Spark's SQL as the tokens that sqlglot's parser reads.

Where a token stands and what it holds is decided by our lexer, which is exact; which kind of token it is,
by the keywords of sqlglot's own dialect of Spark. Comments travel as in sqlglot: with the token before them
where that stands on the same line, or else with the token behind them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from lookup_hints.sql.lexer import Kind, Piece, pieces

HINT_MARK = "/*+"

_SPARK = Spark.Tokenizer
_KEYWORDS: Mapping[str, TokenType] = _SPARK.KEYWORDS
_SINGLE: Mapping[str, TokenType] = _SPARK.SINGLE_TOKENS
_SUFFIXES: Mapping[str, str] = _SPARK.NUMERIC_LITERALS
_LONGEST_SYMBOL = 4
_WORDS = {
    first: max(len(k.split()) for k in _KEYWORDS if k.startswith(f"{first} "))
    for first in {keyword.split()[0] for keyword in _KEYWORDS if " " in keyword}
}
_BEFORE_HINT = frozenset({*_SPARK.TOKENS_PRECEDING_HINT, TokenType.HINT})
_BEFORE_COMMAND = frozenset({TokenType.SEMICOLON, TokenType.BEGIN})


def tokens_of(text: str) -> list[Token]:
    """The tokens of ``text``, for sqlglot's parser.

    Raises:
        TokenError: a quote or a comment is never closed.
    """
    return _Tokens(text, pieces(text)).read()


def hint_tokens(text: str, start: int, end: int) -> list[Token]:
    """The tokens inside the hint comment that begins at ``start`` of ``text``, placed as in ``text``.

    In a hint nothing is a command, nothing separates statements, and what is never closed is one token.
    """
    offset = start + len(HINT_MARK)
    inside = [replace(piece, start=piece.start + offset) for piece in pieces(text[offset:end])]
    return option_tokens(text, inside)


def option_tokens(text: str, found: Sequence[Piece]) -> list[Token]:
    """The tokens of a part of ``text``, which are read as those of a hint."""
    return _HintTokens(text, found).read()


def is_unclosed(token: Token) -> bool:
    """Whether this token of a hint is a quote or a comment that is never closed, and all behind it."""
    return token.token_type is TokenType.UNKNOWN and token.text[0] in "'\"`/"


@dataclass
class _Tokens:
    text: str
    _pieces: Sequence[Piece]
    tokens: list[Token] = field(default_factory=list)
    _waiting: list[str] = field(default_factory=list)
    """Comments for the next token."""

    def __post_init__(self) -> None:
        self._lines = [0, *(at + 1 for at, char in enumerate(self.text) if char == "\n")]

    def read(self) -> list[Token]:
        at = 0
        while at < len(self._pieces):
            at = self._take(at)
        if self.tokens:
            self.tokens[-1].comments.extend(self._waiting)
        return self.tokens

    def _take(self, at: int) -> int:
        """Read what begins with the piece at ``at``; the index of the piece behind it."""
        piece = self._pieces[at]
        if piece.kind is Kind.UNCLOSED:
            return self._unclosed(at)
        if piece.kind in (Kind.COMMENT, Kind.HINT):
            self._comment(piece)
            return at + 1
        if piece.kind is Kind.QUOTED:
            return self._add(TokenType.IDENTIFIER, at, text=piece.name)
        if piece.kind is Kind.STRING:
            kind = TokenType.RAW_STRING if piece.text[0] in "rR" else TokenType.STRING
            return self._add(kind, at, text=piece.value)
        if piece.kind is Kind.NUMBER:
            return self._number(at)
        if piece.kind is Kind.WORD:
            return self._word(at)
        return self._symbol(at)

    def _unclosed(self, at: int) -> int:
        piece = self._pieces[at]
        raise TokenError(
            f"Missing the end of what begins at line {self._line(piece.start)}: {piece.text[:20]}"
        )

    def _comment(self, piece: Piece) -> None:
        is_line = piece.text.startswith("--")
        mark = HINT_MARK if piece.kind is Kind.HINT else piece.text[:2]
        self._waiting.append(piece.text[len(mark) :] if is_line else piece.text[len(mark) : -2])
        before = self.tokens[-1] if self.tokens else None
        if piece.kind is Kind.HINT and self._takes_hint(before):
            self._append(TokenType.HINT, piece.start, piece.end, piece.text)
        elif before is not None and before.line == self._line(piece.start):
            before.comments.extend(self._waiting)
            self._waiting = []

    def _takes_hint(self, before: Token | None) -> bool:
        return before is not None and before.token_type in _BEFORE_HINT

    def _word(self, at: int) -> int:
        piece = self._pieces[at]
        for after in self._pieces[at + 1 : at + 2] if piece.text in "xX" else ():
            if after.kind is Kind.STRING and after.start == piece.end:
                return self._add(TokenType.HEX_STRING, at, after=at + 2, text=after.value)
        for count in range(_WORDS.get(piece.text.upper(), 1), 1, -1):
            phrase = self._pieces[at : at + count]
            keyword = " ".join(each.text.upper() for each in phrase)
            if keyword in _KEYWORDS and all(each.kind is Kind.WORD for each in phrase):
                return self._add(_KEYWORDS[keyword], at, after=at + len(phrase), text=keyword)
        is_parameter = bool(self.tokens) and self.tokens[-1].token_type is TokenType.PARAMETER
        kind = TokenType.VAR if is_parameter else _KEYWORDS.get(piece.text.upper(), TokenType.VAR)
        behind = self._add(kind, at)
        return self._command(behind) if kind in _SPARK.COMMANDS else behind

    def _command(self, at: int) -> int:
        """What stands behind the word of a command, up to a semicolon, as one string."""
        if len(self.tokens) > 1 and self.tokens[-2].token_type not in _BEFORE_COMMAND:
            return at
        count = len(self._pieces)
        end = next((i for i in range(at, count) if self._pieces[i].is_symbol(";")), count)
        if end > at:
            start, stop = self._pieces[at].start, self._pieces[end - 1].end
            self._append(TokenType.STRING, start, stop, self.text[start:stop])
        return end

    def _number(self, at: int) -> int:
        piece = self._pieces[at]
        digits = piece.text.rstrip("lLsSyYfFdDbB")
        suffix = piece.text[len(digits) :]
        if not suffix:
            return self._add(TokenType.NUMBER, at)
        self._add(TokenType.NUMBER, at, text=digits)
        self._append(TokenType.DCOLON, piece.start, piece.end, "::")
        return self._add(_KEYWORDS[_SUFFIXES[suffix.upper()]], at, text=suffix)

    def _symbol(self, at: int) -> int:
        together = self._pieces[at].text
        found: tuple[int, str] | None = (at + 1, together) if together in _KEYWORDS else None
        for index, piece in self._touching(at):
            together += piece.text
            if together in _KEYWORDS:
                found = index + 1, together
        if found is not None:
            return self._add(_KEYWORDS[found[1]], at, after=found[0], text=found[1])
        return self._add(_SINGLE.get(self._pieces[at].text, TokenType.UNKNOWN), at)

    def _touching(self, at: int) -> Iterator[tuple[int, Piece]]:
        for index in range(at + 1, min(at + _LONGEST_SYMBOL, len(self._pieces))):
            piece = self._pieces[index]
            if piece.kind is not Kind.SYMBOL or piece.start != self._pieces[index - 1].end:
                return
            yield index, piece

    def _add(self, kind: TokenType, at: int, *, after: int | None = None, text: str | None = None) -> int:
        after = at + 1 if after is None else after
        first = self._pieces[at]
        self._append(kind, first.start, self._pieces[after - 1].end, first.text if text is None else text)
        return after

    def _append(self, kind: TokenType, start: int, end: int, text: str) -> None:
        line = self._line(end - 1)
        column = end - self._lines[line - 1]
        self.tokens.append(Token(kind, text, line, column, start, end - 1, self._waiting))
        self._waiting = []

    def _line(self, at: int) -> int:
        return bisect_right(self._lines, at)


class _HintTokens(_Tokens):
    def _takes_hint(self, before: Token | None) -> bool:
        return False

    def _unclosed(self, at: int) -> int:
        return self._add(TokenType.UNKNOWN, at)

    def _command(self, at: int) -> int:
        return at

    def _number(self, at: int) -> int:
        return self._add(TokenType.NUMBER, at)

    def _symbol(self, at: int) -> int:
        if self._pieces[at].is_symbol(";"):
            return self._add(TokenType.UNKNOWN, at)
        return super()._symbol(at)

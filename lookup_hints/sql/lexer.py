"""Tokenize SQL as Spark's lexer does: words, quoted names, strings, comments and hints, with places.

Covers only what splicing and splitting need, but exactly: nested comments, ``--`` lines, backslashes and
doubled quotes in strings, raw strings. sqlglot's tokenizer merges comments into their neighbours and splits
``'it''s'`` in two, so its places cannot be used for edits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

_OPENING, _CLOSING = "(<[", ")>]"


class Kind(Enum):
    """The kind of a piece of text."""

    WORD = "word"
    QUOTED = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    HINT = "hint"
    COMMENT = "comment"
    UNCLOSED = "unclosed"


# A member is found by its class in a call before Python 3.12, and these are compared with each piece.
_WORD, _QUOTED, _SYMBOL = Kind.WORD, Kind.QUOTED, Kind.SYMBOL
NO_CODE = (Kind.COMMENT, Kind.HINT)


@dataclass(frozen=True)
class Piece:
    """``text`` of one kind, from ``start`` to ``end`` (exclusive) of the whole text."""

    kind: Kind
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    def is_word(self, *words: str) -> bool:
        """Whether this is one of ``words`` (given in capitals), unquoted."""
        return self.kind is _WORD and self.text.upper() in words

    def is_symbol(self, symbol: str) -> bool:
        return self.kind is _SYMBOL and self.text == symbol

    @property
    def is_name(self) -> bool:
        return self.kind is _WORD or self.kind is _QUOTED

    @property
    def name(self) -> str:
        return self.text[1:-1].replace("``", "`") if self.kind is _QUOTED else self.text

    @property
    def value(self) -> str:
        return _string_value(self.text)


# Our own lexer, as edits need exact places: sqlglot's tokens fold hint comments together and cut `'it''s'` in
# two. (docs/decisions/0004)
_PIECE = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<line>--(?:\\\n|[^\r\n])*)
    | (?P<block>/\*)
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?:[lLsSyYfFdD]|[bB][dD])?(?![\w.]))
    | (?P<word>\w+)
    | (?P<open>[`'"])
    | (?P<symbol><=>|<>|!=|>=|<=|==|\|\||\|>|->|::|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_KINDS = {
    "line": Kind.COMMENT,
    "quoted": Kind.QUOTED,
    "raw": Kind.STRING,
    "string": Kind.STRING,
    "number": Kind.NUMBER,
    "word": Kind.WORD,
    "symbol": Kind.SYMBOL,
}


def cut_into_pieces(text: str) -> tuple[Piece, ...]:
    """Every piece of ``text`` but white space, in order; ``SqlText`` keeps them for all who want them."""
    found: list[Piece] = []
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        assert match is not None, "the last alternative takes any character"
        group = match.lastgroup
        if group == "block":
            end = _end_of_comment(text, at)
            is_hint = text.startswith("/*+", at)
            kind = Kind.UNCLOSED if end < 0 else Kind.HINT if is_hint else Kind.COMMENT
            found.append(Piece(kind, text[at : end if end >= 0 else len(text)], at))
        elif group == "open":
            found.append(Piece(Kind.UNCLOSED, text[at:], at))
        elif group != "space" and group is not None:
            found.append(Piece(_KINDS[group], match[0], at))
        at = found[-1].end if group in ("block", "open") else match.end()
    return tuple(found)


def comma_groups(found: Sequence[Piece]) -> Iterator[tuple[Piece | None, Sequence[Piece]]]:
    """The runs of ``found`` between commas outside brackets, each with the comma before it."""
    depth, start = 0, 0
    comma: Piece | None = None
    for index, piece in enumerate(found):
        if piece.kind is Kind.SYMBOL and piece.text in _OPENING:
            depth += 1
        elif piece.kind is Kind.SYMBOL and piece.text in _CLOSING:
            depth -= 1
        elif piece.is_symbol(",") and depth == 0:
            yield comma, found[start:index]
            comma, start = piece, index + 1
    yield comma, found[start:]


def blanked(text: str, start: int, end: int, mark: str = " ") -> str:
    """``text`` with ``text[start:end]`` turned into ``mark``s, line ends kept, so that places stay true."""
    return text[:start] + re.sub(r"[^\r\n]", mark, text[start:end]) + text[end:]


def quoted(name: str) -> str:
    """``name`` in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def string_literal(value: str) -> str:
    """``value`` as a string literal of Spark SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def text_value(value: str) -> str:
    """An expression that gives ``value``, however the session reads literals, and names variables in them."""
    if not set(value) & {"'", "\\", "$"}:
        return string_literal(value)
    return f"CAST(X'{value.encode().hex()}' AS STRING)"


def _end_of_comment(text: str, at: int) -> int:
    """Place after the comment that opens at ``at``, or -1; comments nest, as in Spark."""
    depth, place = 0, at
    for mark in re.finditer(r"/\*|\*/", text[at:]):
        if at + mark.start() < place:
            continue
        place = at + mark.end()
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return place
    return -1


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\([0-3][0-7]{2})|\\(.)", re.DOTALL)


def _string_value(literal: str) -> str:
    if literal[:1] in "rR":
        return literal[2:-1]
    quote = literal[0]

    def unescaped(match: re.Match[str]) -> str:
        if match[1] or match[2]:
            return chr(int(match[1] or match[2], 16))
        if match[3]:
            return chr(int(match[3], 8))
        # Spark keeps the backslash before % and _, for LIKE.
        return "\\" + match[4] if match[4] in "%_" else _ESCAPES.get(match[4], match[4])

    return _ESCAPE.sub(unescaped, literal[1:-1].replace(quote * 2, quote))

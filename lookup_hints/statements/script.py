"""A SQL file -> its statements, and the parameters given beside it.

Statements end at ``;`` outside strings, quoted names, comments and hints. A SQL script (``BEGIN ... END``)
is one statement, whatever ends inside it.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from lookup_hints.errors import Problem, QueryError, Span, nearest
from lookup_hints.spi.secrets import masked_text
from lookup_hints.sql.lexer import Kind, Piece, code, pieces


@dataclass(frozen=True)
class ScriptStatement:
    """One statement of a script."""

    text: str = field(repr=False)  # DDL may hold a password
    offset: int
    line: int
    column: int = field(default=1, compare=False)  # the offset tells it already


def split_statements(text: str) -> list[ScriptStatement]:
    """The statements of a script, in order; what is empty or only comments is left out.

    >>> [statement.text for statement in split_statements("SET a = 1; SELECT ';' -- ;")]
    ['SET a = 1', "SELECT ';' -- ;"]

    Raises:
        QueryError: a quote, a comment or a BEGIN is never closed.
    """
    found = pieces(text)
    _refuse_unclosed(text, found)
    solid = [piece.start for piece in found if piece.kind is not Kind.COMMENT]
    statements: list[ScriptStatement] = []
    start = 0
    for end in _ends(text, code(found)):
        first = bisect_left(solid, start)
        if first < len(solid) and solid[first] < end:
            at = solid[first]
            begins = Span(text, at, end)
            statements.append(ScriptStatement(text[at:end].rstrip(), at, begins.line, begins.column))
        start = end + 1
    return statements


def read_script(path_or_text: str | os.PathLike[str]) -> str:
    """The script in a file, if ``path_or_text`` is the path of one, else ``path_or_text`` itself.

    Raises:
        QueryError: it ends with ``.sql`` and there is no such file, or the file cannot be read.
    """
    if isinstance(path_or_text, str) and not _is_path(path_or_text):
        return path_or_text
    path = Path(path_or_text)
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        tip = nearest(path.name, sorted(other.name for other in path.parent.glob("*.sql")))
        raise QueryError(Problem(f"There is no file {str(path)!r}.", tip=tip)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError(Problem(f"The file {str(path)!r} cannot be read: {error}.")) from error


def parse_params(params: Iterable[str]) -> dict[str, Any]:
    """The values of ``name=value`` parameters, typed as Spark SQL types the same literals.

    >>> parse_params(["n=5", "share=0.5", "day=2013-01-01", "code='007'"])
    {'n': 5, 'share': Decimal('0.5'), 'day': '2013-01-01', 'code': '007'}

    Raises:
        QueryError: all that are not ``name=value``, or give a name twice.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for param in params:
        name, sign, value = param.partition("=")
        name = name.strip()
        if not sign or not name.isidentifier():
            problems.append(Problem(f"The parameter {param!r} is not name=value.", tip="Write it as in n=5."))
        elif name in values:
            problems.append(Problem(f"The parameter {name!r} is given twice."))
        else:
            values[name] = _param_value(value.strip())
    if problems:
        raise QueryError(problems)
    return values


# --- splitting -------------------------------------------------------------------------------------


def _refuse_unclosed(text: str, found: Sequence[Piece]) -> None:
    if found and found[-1].kind is Kind.UNCLOSED:
        is_comment = found[-1].text.startswith("/*")
        at = Span(text, found[-1].start, found[-1].start + (2 if is_comment else 1))
        message = f"This {'comment' if is_comment else 'quote'} is never closed."
        if masked_text(at.underlined()) != at.underlined():
            # The line holds a password: say where, and no more.
            raise QueryError(Problem(f"{at}: {message}"))
        raise QueryError(Problem(message, at))


def _ends(text: str, found: Sequence[Piece]) -> Iterator[int]:
    """Where statements end: at each ``;`` outside a SQL script, and at the end of the text."""
    blocks = _Blocks()
    for before, piece, after in zip([None, *found], found, [*found[1:], None], strict=False):
        if piece.is_symbol(";") and not blocks.open:
            yield piece.start
        blocks.read(piece, before, after)
    if blocks.open:
        word = blocks.open[-1].word
        end = "END" if word.is_word("BEGIN") or blocks.open[-1].is_expression else f"END {word.text.upper()}"
        at = Span(text, word.start, word.end)
        raise QueryError(Problem(f"This {word.text} is never closed.", at, tip=f"Write {end} where it ends."))
    yield len(text)


@dataclass(frozen=True)
class _ScriptBlock:
    """An open block of a SQL script: the word that opens it, and whether it is a CASE expression."""

    word: Piece
    is_expression: bool = False


class _Blocks:
    """Follows a SQL script and knows which of its blocks are open.

    Most of the words that open and close blocks are also names of functions and columns (``IF``,
    ``REPEAT``, ``end``), so they count only where a statement begins.
    """

    def __init__(self) -> None:
        self.open: list[_ScriptBlock] = []
        self._begins = True
        self._declares = False

    def read(self, piece: Piece, before: Piece | None, after: Piece | None) -> None:
        """Take the next piece into account; ``before`` and ``after`` are its neighbours."""
        begins, self._begins = self._begins, self._next_begins(piece, after)
        if piece.is_symbol(";"):
            self._declares = False
        elif piece.kind is not Kind.WORD or (before is not None and before.is_symbol(".")):
            return
        elif piece.is_word("END"):
            self._close(begins, after)
        elif self._opens(piece, begins):
            self.open.append(_ScriptBlock(piece))
            self._begins = piece.is_word("BEGIN", "LOOP", "REPEAT")
        elif piece.is_word("CASE") and self.open and not (before is not None and before.is_word("END")):
            self.open.append(_ScriptBlock(piece, is_expression=True))
        elif begins and piece.is_word("DECLARE"):
            self._declares = True

    def _next_begins(self, piece: Piece, after: Piece | None) -> bool:
        if piece.is_symbol(";"):
            return True
        is_label = piece.is_symbol(":") or (after is not None and after.is_symbol(":"))
        if self._begins and (is_label or piece.is_word("NOT", "ATOMIC")):
            return True
        if not self.open or self.open[-1].is_expression:
            return False
        inside = self.open[-1].word
        return (inside.is_word("IF", "CASE") and piece.is_word("THEN", "ELSE")) or (
            inside.is_word("WHILE", "FOR") and piece.is_word("DO")
        )

    def _opens(self, piece: Piece, begins: bool) -> bool:
        if piece.is_word("BEGIN"):
            # DECLARE ... HANDLER FOR ... BEGIN ... END holds a block in the middle of a statement.
            return begins or self._declares
        return begins and bool(self.open) and piece.is_word("IF", "CASE", "WHILE", "LOOP", "REPEAT", "FOR")

    def _close(self, begins: bool, after: Piece | None) -> None:
        if not self.open:
            return
        block = self.open[-1]
        # UNTIL <condition> END REPEAT: the one END of a block that begins no statement.
        ends_repeat = block.word.is_word("REPEAT") and after is not None and after.is_word("REPEAT")
        if begins or block.is_expression or ends_repeat:
            self.open.pop()


# --- files and parameters --------------------------------------------------------------------------


def _is_path(text: str) -> bool:
    if "\n" in text or "\0" in text:
        return False
    if text.lower().endswith(".sql"):
        return True
    try:
        return Path(text).is_file()
    except OSError:  # longer than the system allows for a name
        return False


_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+)")
_DOUBLE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
_WORDS = {"true": True, "false": False, "null": None}


def _param_value(text: str) -> Any:
    found = pieces(text)
    if len(found) == 1 and found[0].kind is Kind.STRING:
        return found[0].value
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for pattern, kind in ((_INTEGER, int), (_DECIMAL, Decimal), (_DOUBLE, float)):
        if pattern.fullmatch(text):
            return kind(text)
    return text

"""Text of a statement -> the LOOKUP calls of its hints, with places; and the edits that take them out.

A hint comment ``/*+ ... */`` holds items ``NAME`` or ``NAME(...)``, separated by commas or blanks, and
belongs to the SELECT right before it. The dialect reads the items; those that are not LOOKUP are Spark's
and are never touched. The statement around a hint comment is not parsed, so it may be of any form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from sqlglot import exp

from lookup_hints.errors import Problem, Span
from lookup_hints.hints.dialect import Lookup, hint_items, place_of
from lookup_hints.hints.tokens import HINT_MARK
from lookup_hints.sql.lexer import Kind, Piece, pieces
from lookup_hints.sql.option_list import Pair

_AS_CLOSE = 0.79


@dataclass(frozen=True)
class ParsedHint:
    """One LOOKUP call as written.

    Args:
        at: the whole call.
        select: where the SELECT that it belongs to stands, or -1 when it stands after something else.
        arguments: its ``'key' = 'value'`` pairs, in order.
        problems: what is wrong with its form; its arguments may then be incomplete.
    """

    at: Span
    select: int
    arguments: tuple[Pair, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class _Item:
    """One item of a hint comment, and where it stands."""

    expression: exp.Expression
    at: Span

    @property
    def is_lookup(self) -> bool:
        return isinstance(self.expression, Lookup)

    @property
    def is_misspelt(self) -> bool:
        """Whether its name is nearly ours: Spark takes no notice of a hint that it does not know."""
        name = self.expression.name.upper().replace("_", "")
        return not self.is_lookup and bool(get_close_matches(name, [Lookup.sql_name()], cutoff=_AS_CLOSE))


@dataclass(frozen=True)
class _HintBlock:
    """One hint comment and the SELECT before it (-1: something else stands before it)."""

    comment: Piece
    select: int
    items: tuple[_Item, ...]

    @property
    def lookups(self) -> list[_Item]:
        return [item for item in self.items if item.is_lookup]


def parse_hints(text: str) -> tuple[ParsedHint, ...]:
    """Every LOOKUP call in the hints of ``text``, in order; mistakes of form are kept in each.

    >>> [pair.value for pair in parse_hints("SELECT /*+ LOOKUP('table'='c') */ 1")[0].arguments]
    ['c']
    """
    return tuple(_parsed(text, block, item) for block in _blocks(text) for item in block.lookups)


def misspelt_hints(text: str) -> tuple[Problem, ...]:
    """The hints of ``text`` whose names are nearly LOOKUP.

    >>> [problem.message for problem in misspelt_hints("SELECT /*+ LOKUP('table'='c') */ 1")]
    ['There is no hint LOKUP.']
    """
    return tuple(
        Problem(
            f"There is no hint {item.expression.name}.",
            place_of(item.expression.this, text),
            "Did you mean LOOKUP?",
        )
        for block in _blocks(text)
        for item in block.items
        if item.is_misspelt
    )


def removals(text: str) -> tuple[tuple[int, int, str], ...]:
    """The edits (start, end, replacement) that take every LOOKUP call out of ``text``.

    Other hints stay as they are, byte for byte; a comment that holds nothing else goes as a whole.
    """
    return tuple(
        edit
        for block in _blocks(text)
        if block.lookups and block.comment.kind is Kind.HINT
        for edit in _edits(text, block)
    )


@lru_cache(maxsize=8)  # finding hints, mistakes in names and edits each begin with it
def _blocks(text: str) -> tuple[_HintBlock, ...]:
    found = []
    before: Piece | None = None
    for piece in pieces(text):
        if _is_hint(piece):
            select = before.start if before is not None and before.is_word("SELECT") else -1
            found.append(_HintBlock(piece, select, _items(text, piece)))
        elif piece.kind is not Kind.COMMENT:
            before = piece
    return tuple(found)


def _is_hint(piece: Piece) -> bool:
    is_open = piece.kind is Kind.UNCLOSED and piece.text.startswith(HINT_MARK)
    return is_open or piece.kind is Kind.HINT


def _items(text: str, comment: Piece) -> tuple[_Item, ...]:
    end = comment.end if comment.kind is Kind.UNCLOSED else comment.end - len("*/")
    return tuple(_Item(each, place_of(each, text)) for each in hint_items(text, comment.start, end))


def _parsed(text: str, block: _HintBlock, item: _Item) -> ParsedHint:
    if block.comment.kind is Kind.UNCLOSED:
        opening = Span(text, block.comment.start, block.comment.start + len(HINT_MARK))
        problem = Problem("The comment of this hint is never closed.", opening, tip="End it with */.")
        return ParsedHint(item.at, block.select, problems=(problem,))
    problems: tuple[Problem, ...] = ()
    if block.select < 0:
        problems = (Problem("A LOOKUP hint belongs right after SELECT, not here.", item.at),)
    hint = item.expression
    assert isinstance(hint, Lookup)
    return ParsedHint(item.at, block.select, hint.pairs(text), (*problems, *hint.problems))


def _edits(text: str, block: _HintBlock) -> Iterator[tuple[int, int, str]]:
    kept = [item for item in block.items if not item.is_lookup]
    if not kept:
        comment = block.comment
        around = text[comment.start - 1 : comment.start] + text[comment.end : comment.end + 1]
        yield comment.start, comment.end, "" if any(map(str.isspace, around)) else " "
        return
    first_kept = kept[0].at.start
    # Calls before the first other item go with what follows them, later ones with what precedes them.
    if block.items[0].is_lookup:
        yield block.items[0].at.start, first_kept, ""
    end = first_kept
    for item in block.items:
        start, after = item.at.start, item.at.end
        if item.is_lookup and start > first_kept:
            yield end, after, ""
        end = after

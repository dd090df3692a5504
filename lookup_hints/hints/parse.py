"""Text of a statement -> the LOOKUP calls of its hints, with places; and the edits that take them out.

A hint comment ``/*+ ... */`` holds items ``NAME`` or ``NAME(...)``, separated by commas or blanks, and
belongs to the SELECT right before it. Items that are not LOOKUP are Spark's and are never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from lookup_hints.errors import Problem, Span
from lookup_hints.sql.lexer import Kind, Piece, code, pieces
from lookup_hints.sql.option_list import Pair, read_pairs, span_of

_NAME = "LOOKUP"
_AS_CLOSE = 0.79
_MARK = "/*+"
_EXAMPLE = "Write LOOKUP('table' = '<alias of the lookup table>')."


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
    """One item of a hint comment: its pieces, from the name to the closing parenthesis."""

    pieces: Sequence[Piece]

    @property
    def is_lookup(self) -> bool:
        return self.pieces[0].is_name and self.pieces[0].name.upper() == _NAME

    @property
    def is_misspelt(self) -> bool:
        """Whether its name is nearly ours: Spark takes no notice of a hint that it does not know."""
        if self.is_lookup or not self.pieces[0].is_name:
            return False
        name = self.pieces[0].name.upper().replace("_", "")
        return bool(get_close_matches(name, [_NAME], cutoff=_AS_CLOSE))


@dataclass(frozen=True)
class _Block:
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
            f"There is no hint {item.pieces[0].name}.", span_of(text, item.pieces[:1]), "Did you mean LOOKUP?"
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


def _blocks(text: str) -> Iterator[_Block]:
    before: Piece | None = None
    for piece in pieces(text):
        if piece.kind is Kind.HINT or (piece.kind is Kind.UNCLOSED and piece.text.startswith(_MARK)):
            select = before.start if before is not None and before.is_word("SELECT") else -1
            yield _Block(piece, select, tuple(_items(piece)))
        elif piece.kind is not Kind.COMMENT:
            before = piece


def _items(comment: Piece) -> Iterator[_Item]:
    found = _body(comment)
    at = 0
    while at < len(found):
        end = at + 1
        if found[at].is_name and end < len(found) and found[end].is_symbol("("):
            end = _after_parenthesis(found, end)
        if not found[at].is_symbol(","):
            yield _Item(found[at:end])
        at = end


def _body(comment: Piece) -> list[Piece]:
    """The code pieces inside a hint comment, placed as in the whole text."""
    inside = comment.text[len(_MARK) :]
    inside = inside if comment.kind is Kind.UNCLOSED else inside[:-2]
    offset = comment.start + len(_MARK)
    return [replace(piece, start=piece.start + offset) for piece in code(pieces(inside))]


def _after_parenthesis(found: Sequence[Piece], opening: int) -> int:
    """Index after the parenthesis that closes the one at ``opening``; the end when none does."""
    depth = 0
    for index in range(opening, len(found)):
        depth += found[index].is_symbol("(") - found[index].is_symbol(")")
        if depth == 0:
            return index + 1
    return len(found)


def _parsed(text: str, block: _Block, item: _Item) -> ParsedHint:
    at = span_of(text, item.pieces)
    if block.comment.kind is Kind.UNCLOSED:
        opening = Span(text, block.comment.start, block.comment.start + len(_MARK))
        problem = Problem("The comment of this hint is never closed.", opening, tip="End it with */.")
        return ParsedHint(at, block.select, problems=(problem,))
    problems: list[Problem] = []
    if block.select < 0:
        problems.append(Problem("A LOOKUP hint stands right after SELECT, not here.", at))
    if len(item.pieces) == 1:
        problems.append(Problem("LOOKUP has no options.", at, tip=_EXAMPLE))
        return ParsedHint(at, block.select, problems=tuple(problems))
    pairs, mistakes = read_pairs(text, _arguments(item))
    problems += mistakes
    # An open quote swallows the parenthesis: one mistake, not two.
    if not item.pieces[-1].is_symbol(")") and item.pieces[-1].kind is not Kind.UNCLOSED:
        problems.append(Problem("This LOOKUP has no closing parenthesis.", at))
    return ParsedHint(at, block.select, tuple(pairs), tuple(problems))


def _arguments(item: _Item) -> Sequence[Piece]:
    """The pieces between the parentheses of ``item``."""
    closed = item.pieces[-1].is_symbol(")")
    return item.pieces[2:-1] if closed else item.pieces[2:]


def _edits(text: str, block: _Block) -> Iterator[tuple[int, int, str]]:
    kept = [item for item in block.items if not item.is_lookup]
    if not kept:
        comment = block.comment
        around = text[comment.start - 1 : comment.start] + text[comment.end : comment.end + 1]
        yield comment.start, comment.end, "" if any(map(str.isspace, around)) else " "
        return
    first_kept = kept[0].pieces[0].start
    # Calls before the first other item go with what follows them, later ones with what precedes them.
    if block.items[0].is_lookup:
        yield block.items[0].pieces[0].start, first_kept, ""
    end = first_kept
    for item in block.items:
        start, after = item.pieces[0].start, item.pieces[-1].end
        if item.is_lookup and start > first_kept:
            yield end, after, ""
        end = after

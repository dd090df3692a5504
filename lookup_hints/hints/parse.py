"""Text of a statement -> its hint comments, with the LOOKUP calls in them; and the edits that take those out.

A hint comment ``/*+ ... */`` holds items ``NAME`` or ``NAME(...)``, separated by commas or blanks, and
belongs to the SELECT right before it. The dialect reads the items; those that are not LOOKUP are Spark's
and are never touched. The statement around a hint comment is not parsed, so it may be of any form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from lookup_hints.errors import Problem, Span
from lookup_hints.hints.dialect import Lookup, hint_items, place_of
from lookup_hints.hints.tokens import HINT_MARK
from lookup_hints.sql.lexer import Kind, Piece, pieces


@dataclass(frozen=True)
class HintComment:
    """One hint comment.

    Args:
        is_closed: whether it ends.
        at: where it stands.
        select: where the SELECT that it belongs to stands, or -1 when it stands after something else.
        items: each ``Lookup`` and ``OtherHint`` in it, in order, with its place and its mistakes of form.
    """

    is_closed: bool
    at: Span
    select: int
    items: tuple[exp.Expression, ...]

    @property
    def lookups(self) -> list[Lookup]:
        return [item for item in self.items if isinstance(item, Lookup)]


@lru_cache(maxsize=8)  # finding hints, mistakes in names and edits each begin with it
def hint_comments(text: str) -> tuple[HintComment, ...]:
    """The hint comments of ``text``, in order.

    >>> [hint.options for hint in hint_comments("SELECT /*+ LOOKUP('table'='c') */ 1")[0].lookups]
    [{'table': 'c'}]
    """
    found = []
    before: Piece | None = None
    for piece in pieces(text):
        if piece.kind is Kind.HINT or (piece.kind is Kind.UNCLOSED and piece.text.startswith(HINT_MARK)):
            select = before.start if before is not None and before.is_word("SELECT") else -1
            found.append(_read(text, piece, select))
        elif piece.kind is not Kind.COMMENT:
            before = piece
    return tuple(found)


def removals(text: str) -> tuple[tuple[int, int, str], ...]:
    """The edits (start, end, replacement) that take every LOOKUP call out of ``text``.

    Other hints stay as they are, byte for byte; a comment that holds nothing else goes as a whole.
    """
    return tuple(
        edit
        for comment in hint_comments(text)
        if comment.lookups and comment.is_closed
        for edit in _edits(comment)
    )


def _read(text: str, comment: Piece, select: int) -> HintComment:
    is_closed = comment.kind is Kind.HINT
    items = hint_items(text, comment.start, comment.end - (len("*/") if is_closed else 0))
    for item in items:
        if isinstance(item, Lookup) and not is_closed:
            item.set("expressions", [])
            opening = Span(text, comment.start, comment.start + len(HINT_MARK))
            problem = Problem("The comment of this hint is never closed.", opening, "End it with */.")
            item.problems = (problem,)
        elif isinstance(item, Lookup) and select < 0:
            problem = Problem("A LOOKUP hint belongs right after SELECT, not here.", place_of(item, text))
            item.problems = (problem, *item.problems)
    return HintComment(is_closed, Span(text, comment.start, comment.end), select, tuple(items))


def _edits(comment: HintComment) -> Iterator[tuple[int, int, str]]:
    at = comment.at
    kept = [item for item in comment.items if not isinstance(item, Lookup)]
    if not kept:
        around = at.text[at.start - 1 : at.start] + at.text[at.end : at.end + 1]
        yield at.start, at.end, "" if any(map(str.isspace, around)) else " "
        return
    first_kept = place_of(kept[0], at.text).start
    # Calls before the first other item go with what follows them, later ones with what precedes them.
    if isinstance(comment.items[0], Lookup):
        yield place_of(comment.items[0], at.text).start, first_kept, ""
    end = first_kept
    for item in comment.items:
        place = place_of(item, at.text)
        if isinstance(item, Lookup) and place.start > first_kept:
            yield end, place.end, ""
        end = place.end

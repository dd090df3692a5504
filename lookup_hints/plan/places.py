"""Spark's errors about the text over stubs, with the places that they have in the user's text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lookup_hints.hints.parse import removals
from lookup_hints.plan.splice import Cut, Edit, spliced
from lookup_hints.sqltext import code, pieces

_PLACE = re.compile(r"\bline (\d+)(,?) pos (\d+)")
_HOLDING_TEXT = ("_desc", "_message")
"""Where PySpark's errors have what they say: those of the JVM, and those of Spark Connect."""


def put_in_place(error: Exception, text: str, edits: Sequence[Edit], part: Cut) -> None:
    """Change the places that ``error`` names in the analysed ``part`` to those in ``text``.

    A place that is not found in ``text`` stays as it is.
    """

    def moved(match: re.Match[str]) -> str:
        found = original_place(text, edits, part, int(match[1]), int(match[3]))
        return match[0] if found is None else f"line {found[0]}{match[2]} pos {found[1]}"

    for name in _HOLDING_TEXT:
        told = getattr(error, name, None)
        if isinstance(told, str):
            setattr(error, name, _PLACE.sub(moved, told))


def original_place(
    text: str, edits: Sequence[Edit], part: Cut, line: int, column: int
) -> tuple[int, int] | None:
    """Line (from 1) and column (from 0) in ``text`` of a place in what ``edits`` make of ``part``.

    >>> original_place("SELECT x FROM long_name a, b", [Edit(Cut(14, 23), ("n",))], Cut(0, 28), 1, 19)
    (1, 27)
    """
    made = spliced(text, edits, part).split("\n")
    offset = sum(len(each) + 1 for each in made[: line - 1]) + column
    for piece in code(pieces(text)):
        inside = any(edit.at.start < piece.start < edit.at.end for edit in edits)
        is_there = part.start <= piece.start < part.end and not inside
        if is_there and len(spliced(text, edits, Cut(part.start, piece.start))) == offset:
            before = text[: piece.start]
            return before.count("\n") + 1, piece.start - before.rfind("\n") - 1
    return None


def as_written(text: str, part: Cut) -> str:
    """``part`` at its place in ``text``: with blanks for what stands before it, and for LOOKUP hints."""
    out = text[: part.end]
    for start, end, new in removals(text):
        if end <= part.end:
            out = out[:start] + new + _blanks(text[start:end])[len(new) :] + out[end:]
    return _blanks(out[: part.start]) + out[part.start :]


def _blanks(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)

"""Spark's errors about the text over stubs, with the places that they have in the user's text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lookup_hints.hints.parse import removals
from lookup_hints.sql.splice import Cut, Edit, original_offset, spliced

_PLACE = re.compile(r"(?P<before>; )?\bline (?P<line>\d+)(?P<comma>,?) pos (?P<column>\d+)")
_HOLDING_TEXT = ("_desc", "_message")
"""Where PySpark's errors have what they say: those of the JVM, and those of Spark Connect."""


def put_in_place(error: Exception, text: str, edits: Sequence[Edit], part: Cut) -> None:
    """Change the places that ``error`` names in the analysed ``part`` to those in ``text``.

    A place that is not found in ``text`` is left out, where the error says it last.
    """

    def moved(match: re.Match[str]) -> str:
        found = original_place(text, edits, part, int(match["line"]), int(match["column"]))
        before = match["before"] or ""
        if found is None:
            return "" if before else match[0]
        return f"{before}line {found[0]}{match['comma']} pos {found[1]}"

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
    lines = spliced(text, edits, part).split("\n")[: line - 1]
    offset = original_offset(text, edits, part, sum(len(each) + 1 for each in lines) + column)
    if offset is None:
        return None
    before = text[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n") - 1


def as_written(text: str, part: Cut) -> str:
    """``part`` at its place in ``text``: with blanks for what stands before it, and for LOOKUP hints."""
    out = text[: part.end]
    for start, end, new in removals(text):
        if end <= part.end:
            out = out[:start] + new + _blanks(text[start:end])[len(new) :] + out[end:]
    return _blanks(out[: part.start]) + out[part.start :]


def _blanks(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)

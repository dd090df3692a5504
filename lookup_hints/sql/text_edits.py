"""Edits of the user's text by place: everything outside an edit stays byte for byte."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Cut:
    """A stretch ``[start, end)`` of the statement's text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        return text[self.start : self.end]

    def holds(self, other: Cut) -> bool:
        return self.start <= other.start and other.end <= self.end


class AsWritten(Cut):
    """A stretch of the user's text in new text, without the edits inside it."""


Fragment = str | Cut
"""A piece of new text: literal, or a stretch of the user's text with the edits inside it applied."""


@dataclass(frozen=True)
class Edit:
    """Replace the text at ``at`` by ``new``; an empty ``at`` inserts."""

    at: Cut
    new: tuple[Fragment, ...]


def spliced(text: str, edits: Iterable[Edit], within: Cut | None = None) -> str:
    """``text`` (or the part ``within``) with ``edits`` made.

    An edit may hand on stretches of the text that it replaces, and edits inside those are made too: a
    join's key may hold a subquery with a lookup join of its own. Line breaks that an edit takes away
    are given back after it, so that lines further down keep their numbers in Spark's errors.
    """
    return "".join(each.text for each in _render_stretches(text, edits, within))


def original_offset(text: str, edits: Iterable[Edit], within: Cut, offset: int) -> int | None:
    """Map ``offset`` in the result of ``spliced`` back to ``text``; None for text that an edit adds.

    >>> original_offset("SELECT a FROM b", [Edit(Cut(7, 8), ("max(", Cut(7, 8), ")"))], Cut(0, 15), 11)
    7
    """
    at = 0
    for each in _render_stretches(text, edits, within):
        if at <= offset < at + len(each.text):
            return None if each.start is None else each.start + offset - at
        at += len(each.text)
    return None


@dataclass(frozen=True)
class _Stretch:
    """A stretch of new text; ``start`` is its position in the user's text, None for what an edit adds."""

    text: str
    start: int | None = None


def _render_stretches(text: str, edits: Iterable[Edit], within: Cut | None) -> list[_Stretch]:
    return list(_separate_words(_Splice(text, edits).render(within or Cut(0, len(text)), None)))


def _sort_key(edit: Edit) -> tuple[int, int, int]:
    # An insertion comes before the edit of the text that it precedes.
    is_replacement = edit.at.end > edit.at.start
    return edit.at.start, int(is_replacement), -edit.at.end


class _Splice:
    def __init__(self, text: str, edits: Iterable[Edit]) -> None:
        self._text, self._edits = text, sorted(edits, key=_sort_key)
        self._starts = [edit.at.start for edit in self._edits]

    def render(self, part: Cut, inside: Edit | None) -> Iterator[_Stretch]:
        """The text of ``part``; ``inside`` is the edit that hands it on, which is not made again."""
        at = part.start
        first, end = bisect_left(self._starts, part.start), bisect_right(self._starts, part.end)
        for edit in self._edits[first:end]:
            around = inside is not None and (edit is inside or edit.at.holds(inside.at))
            # An insertion at the edge of a moved stretch belongs to the text around it.
            at_edge = (
                inside is not None
                and edit.at.start == edit.at.end
                and edit.at.start in (part.start, part.end)
            )
            if around or at_edge or not part.holds(edit.at) or edit.at.start < at:
                continue
            yield _Stretch(self._text[at : edit.at.start], at)
            yield from self._render_edit(edit)
            at = edit.at.end
        yield _Stretch(self._text[at : part.end], at)

    def _render_edit(self, edit: Edit) -> Iterator[_Stretch]:
        breaks = 0
        for fragment in edit.new:
            for each in self._render_fragment(fragment, edit):
                breaks += each.text.count("\n")
                yield each
        yield _Stretch("\n" * (edit.at.of(self._text).count("\n") - breaks))

    def _render_fragment(self, fragment: Fragment, edit: Edit) -> Iterator[_Stretch]:
        if isinstance(fragment, str):
            yield _Stretch(fragment)
        elif isinstance(fragment, AsWritten):
            yield _Stretch(fragment.of(self._text), fragment.start)
        else:
            yield from self.render(fragment, edit)


def _separate_words(stretches: Iterable[_Stretch]) -> Iterator[_Stretch]:
    """``stretches`` that are not empty, with a blank where two words would become one."""
    before = ""
    for each in stretches:
        if not each.text:
            continue
        if _is_of_word(before) and _is_of_word(each.text[:1]):
            yield _Stretch(" ")
        yield each
        before = each.text[-1]


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character in ("_", "`") if character else False

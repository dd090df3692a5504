"""Edits of the user's text by place: everything outside an edit stays byte for byte."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Cut:
    """A stretch ``[start, end)`` of the statement's text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """What stands there."""
        return text[self.start : self.end]

    def holds(self, other: Cut) -> bool:
        """Whether ``other`` lies within this stretch."""
        return self.start <= other.start and other.end <= self.end


Fragment = str | Cut
"""A piece of new text: literal, or a stretch of the user's text with the edits inside it applied."""


@dataclass(frozen=True)
class Edit:
    """Put ``new`` where ``at`` stands; an empty ``at`` inserts."""

    at: Cut
    new: tuple[Fragment, ...]


def spliced(text: str, edits: Iterable[Edit], within: Cut | None = None) -> str:
    """``text`` (or the part ``within``) with ``edits`` made.

    An edit may hand on stretches of the text that it replaces, and edits inside those are made too: a
    join's key may hold a subquery with a lookup join of its own. Line breaks that an edit takes away
    are given back after it, so that lines further down keep their numbers in Spark's errors.
    """
    return _Splice(text, sorted(edits, key=_outer_first)).render(within or Cut(0, len(text)), None)


def _outer_first(edit: Edit) -> tuple[int, int, int]:
    # An insertion comes before the edit of the text that it precedes.
    is_replacement = edit.at.end > edit.at.start
    return edit.at.start, int(is_replacement), -edit.at.end


class _Splice:
    def __init__(self, text: str, edits: Sequence[Edit]) -> None:
        self._text, self._edits = text, edits

    def render(self, part: Cut, inside: Edit | None) -> str:
        """The text of ``part``; ``inside`` is the edit that hands it on, which is not made again."""
        out: list[str] = []
        at = part.start
        for edit in self._edits:
            around = inside is not None and (edit is inside or edit.at.holds(inside.at))
            # What is inserted at the edge of a stretch that is handed on belongs to the text around it.
            at_edge = (
                inside is not None
                and edit.at.start == edit.at.end
                and edit.at.start in (part.start, part.end)
            )
            if around or at_edge or not part.holds(edit.at) or edit.at.start < at:
                continue
            out += self._text[at : edit.at.start], self._made(edit)
            at = edit.at.end
        return _joined([*out, self._text[at : part.end]])

    def _made(self, edit: Edit) -> str:
        new = _joined(
            [self.render(fragment, edit) if isinstance(fragment, Cut) else fragment for fragment in edit.new]
        )
        lost = edit.at.of(self._text).count("\n") - new.count("\n")
        return new + "\n" * lost


def _joined(parts: list[str]) -> str:
    """``parts`` one after the other, with a blank where two words would become one."""
    out = ""
    for part in parts:
        touches = _is_of_word(out[-1:]) and _is_of_word(part[:1])
        out += f" {part}" if touches else part
    return out


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character in ("_", "`") if character else False

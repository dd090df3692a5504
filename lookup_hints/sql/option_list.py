"""Lists of ``'key' = 'value'``, as in a LOOKUP hint and a ``WITH`` clause, with places and mistakes.

Keys are string literals; values are string literals, numbers, ``true`` or ``false``. Nothing else is
taken: a list that merely looks like options must not become some.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lookup_hints.errors import Problem, Span
from lookup_hints.sql.lexer import Kind, Piece

_OPENING, _CLOSING = "(<[", ")>]"


@dataclass(frozen=True)
class Pair:
    """One ``'key' = 'value'`` and where its two sides stand."""

    key: str
    value: str
    key_at: Span
    value_at: Span


def read_pairs(shown: str, found: Sequence[Piece]) -> tuple[list[Pair], list[Problem]]:
    """The pairs that ``found`` lists between commas, and what is wrong with the rest.

    ``shown`` is the text that ``found`` was read from, or one of the same length with secrets masked:
    whatever a problem quotes is taken from it.
    """
    pairs: list[Pair] = []
    problems: list[Problem] = []
    groups = list(comma_groups(found)) if found else []
    for comma, group in groups:
        if not group:
            at = span_of(shown, [comma]) if comma else span_of(shown, found[:1])
            problems.append(
                Problem("An option is missing beside this comma.", at, tip="Leave the comma out.")
            )
        while group:
            if not _is_pair(group[:3]):
                problems.append(_malformed(shown, group))
                break
            pairs.append(_pair(shown, group[0], group[2]))
            group = group[3:]
            if len(group) > 1 and group[1].is_symbol("="):
                at = span_of(shown, group[:1])
                problems.append(
                    Problem(f"A comma is missing after the value of {_quote(pairs[-1].key_at)}.", at)
                )
    return pairs, problems


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


def span_of(shown: str, found: Sequence[Piece]) -> Span:
    """The stretch of ``shown`` from the first of ``found`` to the last."""
    return Span(shown, found[0].start, found[-1].end)


def _is_pair(group: Sequence[Piece]) -> bool:
    return (
        len(group) == 3
        and group[0].kind is Kind.STRING
        and group[1].is_symbol("=")
        and (group[2].kind in (Kind.STRING, Kind.NUMBER) or group[2].is_word("TRUE", "FALSE"))
    )


def _pair(shown: str, key: Piece, value: Piece) -> Pair:
    text = value.value if value.kind is Kind.STRING else value.text
    return Pair(key.value, text, span_of(shown, [key]), span_of(shown, [value]))


def _malformed(shown: str, group: Sequence[Piece]) -> Problem:
    """The problem of a run of pieces that does not start with a pair."""
    for piece in group:
        if piece.kind is Kind.UNCLOSED:
            return Problem("This quote is never closed.", span_of(shown, [piece]))
    at, key_at = span_of(shown, group), span_of(shown, group[:1])
    if group[0].kind is Kind.STRING and len(group) > 1:
        if not group[1].is_symbol("="):
            return Problem(f"A '=' is missing after {_quote(key_at)}.", at)
        if len(group) == 2:
            return Problem(f"The value of {_quote(key_at)} is missing.", at)
        value_at = span_of(shown, group[2:])
        return Problem(
            f"The value of {_quote(key_at)} is not a literal.", value_at, tip="Write it in single quotes."
        )
    if len(group) > 1 and group[1].is_symbol("="):
        return Problem(
            f"The key {_quote(key_at)} is not in quotes.", key_at, tip=f"Write '{_quote(key_at)}'."
        )
    return Problem(f"{_quote(at)} is not an option.", at, tip="Write 'key' = 'value'.")


def _quote(at: Span) -> str:
    return at.text[at.start : at.end]

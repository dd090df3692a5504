"""Statements with small mistakes in them: tokens dropped, doubled, swapped, put in, and texts cut off."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from lookup_hints.sqltext import Piece, pieces

WORDS = (
    *(
        "(",
        ")",
        ",",
        ";",
        "|>",
        "`",
        "'",
        '"',
        "/*",
        "*/",
        "/*+",
        "--",
        "\n",
        ".",
        "=",
        "<=>",
        "::",
        "*",
        "1",
        "'x'",
    ),
    *(
        "SELECT",
        "FROM",
        "JOIN",
        "LEFT",
        "SEMI",
        "ANTI",
        "CROSS",
        "NATURAL",
        "USING",
        "ON",
        "AS",
        "AND",
        "OR",
        "NOT",
    ),
    *(
        "WHERE",
        "EXISTS",
        "IN",
        "IS",
        "NULL",
        "CASE",
        "END",
        "BETWEEN",
        "WITH",
        "LATERAL VIEW",
        "LATERAL",
        "OUTER",
    ),
    *(
        "UNION ALL",
        "EXCEPT",
        "GROUP BY",
        "ORDER BY",
        "HAVING",
        "PIVOT",
        "VALUES",
        "DISTINCT",
        "FOR SYSTEM_TIME AS OF",
    ),
    *(
        "/* a comment */",
        "-- a comment\n",
        "/*+ LOOKUP('table'='c') */",
        "?",
        ":p",
        "[",
        "]",
        "{",
        "}",
        "$",
        "@",
        "\\",
    ),
)


def mutated(text: str, random: Random, words: Sequence[str] = WORDS) -> str:
    """``text`` with one to three mistakes."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        found = pieces(text)
        if not found:
            return text
        text = random.choice(_MISTAKES)(text, found, random, words)
    return text


def _dropped(text: str, found: list[Piece], random: Random, words: Sequence[str]) -> str:
    piece = random.choice(found)
    return text[: piece.start] + text[piece.end :]


def _doubled(text: str, found: list[Piece], random: Random, words: Sequence[str]) -> str:
    piece = random.choice(found)
    return f"{text[: piece.end]} {piece.text} {text[piece.end :]}"


def _swapped(text: str, found: list[Piece], random: Random, words: Sequence[str]) -> str:
    one, other = sorted((random.choice(found), random.choice(found)), key=lambda piece: piece.start)
    if one.end > other.start:
        return text
    between = text[one.end : other.start]
    return text[: one.start] + other.text + between + one.text + text[other.end :]


def _put_in(text: str, found: list[Piece], random: Random, words: Sequence[str]) -> str:
    at = random.choice(found).start
    return f"{text[:at]} {random.choice(words)} {text[at:]}"


def _replaced(text: str, found: list[Piece], random: Random, words: Sequence[str]) -> str:
    piece = random.choice(found)
    return text[: piece.start] + random.choice(words) + text[piece.end :]


def _cut_off(text: str, found: list[Piece], random: Random, words: Sequence[str]) -> str:
    piece = random.choice(found)
    return text[: piece.end] if random.random() < 0.7 else text[piece.start :]


_MISTAKES = (_dropped, _dropped, _doubled, _swapped, _put_in, _put_in, _put_in, _replaced, _cut_off)

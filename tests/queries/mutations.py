"""Statements with small mistakes in them: tokens dropped, doubled, swapped, put in, and texts cut off."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from lookup_hints.sql.lexer import Kind, Piece
from lookup_hints.sql.sql_text import SqlText

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
        found = SqlText(text).pieces
        if not found:
            return text
        text = random.choice(_MISTAKES)(text, found, random, words)
    return text


def changed(text: str, random: Random) -> str:
    """``text`` with one to three changes after which it often means something, mostly something else."""
    for _ in range(random.choice((1, 1, 2, 3))):
        text = random.choice(_CHANGES)(text, SqlText(text).pieces, random)
    return text


def respelled_names(text: str, random: Random, *, double_quoted: bool, variable: str) -> str:
    """``text`` with one of its names in double quotes, or in the variable ``v``, whose value is ``variable``."""
    names = [piece for piece in SqlText(text).pieces if piece.kind is Kind.WORD and piece.text == variable]
    if not names:
        return text
    piece = random.choice(names)
    spelled = f'"{piece.text}"' if double_quoted else "${v}"
    return text[: piece.start] + spelled + text[piece.end :]


def _dropped(text: str, found: Sequence[Piece], random: Random, words: Sequence[str]) -> str:
    piece = random.choice(found)
    return text[: piece.start] + text[piece.end :]


def _doubled(text: str, found: Sequence[Piece], random: Random, words: Sequence[str]) -> str:
    piece = random.choice(found)
    return f"{text[: piece.end]} {piece.text} {text[piece.end :]}"


def _swapped(text: str, found: Sequence[Piece], random: Random, words: Sequence[str]) -> str:
    one, other = sorted((random.choice(found), random.choice(found)), key=lambda piece: piece.start)
    if one.end > other.start:
        return text
    between = text[one.end : other.start]
    return text[: one.start] + other.text + between + one.text + text[other.end :]


def _put_in(text: str, found: Sequence[Piece], random: Random, words: Sequence[str]) -> str:
    at = random.choice(found).start
    return f"{text[:at]} {random.choice(words)} {text[at:]}"


def _replaced(text: str, found: Sequence[Piece], random: Random, words: Sequence[str]) -> str:
    piece = random.choice(found)
    return text[: piece.start] + random.choice(words) + text[piece.end :]


def _cut_off(text: str, found: Sequence[Piece], random: Random, words: Sequence[str]) -> str:
    piece = random.choice(found)
    return text[: piece.end] if random.random() < 0.7 else text[piece.start :]


def _alike_swapped(text: str, found: Sequence[Piece], random: Random) -> str:
    """Two names, two literals or two symbols change places."""
    one = random.choice(found)
    alike = [piece for piece in found if piece.kind == one.kind and piece.text != one.text]
    if not alike:
        return text
    first, second = sorted((one, random.choice(alike)), key=lambda piece: piece.start)
    between = text[first.end : second.start]
    return text[: first.start] + second.text + between + first.text + text[second.end :]


def _respelled(text: str, found: Sequence[Piece], random: Random) -> str:
    """A piece in another case, between comments, or on a line of its own."""
    piece = random.choice(found)
    spelled = random.choice(
        (piece.text.upper(), piece.text.lower(), f"/* ( */{piece.text}-- ' )\n", f"\n{piece.text}\t")
    )
    return text[: piece.start] + (piece.text if piece.text[0] in "'\"`" else spelled) + text[piece.end :]


def _another_word(text: str, found: Sequence[Piece], random: Random) -> str:
    """A word of a group becomes another of the group."""
    group = random.choice(_GROUPS)
    candidates = [piece for piece in found if piece.text in group]
    if not candidates:
        return text
    piece = random.choice(candidates)
    return text[: piece.start] + random.choice(group) + text[piece.end :]


_GROUPS = (
    ("INNER", "LEFT", "LEFT SEMI", "LEFT ANTI", "RIGHT", "FULL", "CROSS", "NATURAL"),
    ("SEMI", "ANTI", "OUTER", "INNER"),
    ("=", "<>", "<", ">=", "<=>", "=="),
    ("AND", "OR", "AND NOT", "<>"),
    ("EXISTS", "NOT EXISTS"),
    ("IN", "NOT IN"),
    ("t1", "t2", "t3", "d1", "d2", "d3"),
    ("UNION ALL", "UNION", "EXCEPT"),
    ("k", "s", "v", "j", "u", "w"),
)
_CHANGES = (_alike_swapped, _respelled, _another_word, _another_word)
_MISTAKES = (_dropped, _dropped, _doubled, _swapped, _put_in, _put_in, _put_in, _replaced, _cut_off)

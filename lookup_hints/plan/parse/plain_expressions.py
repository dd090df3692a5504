"""Columns, literals and comparisons of two of them, which most conditions of joins are, read from the pieces.

They become the trees that sqlglot makes of them, all parts of a condition at once. The rest is left to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from lookup_hints.sql.lexer import Kind, Piece
from lookup_hints.sql.text_edits import Cut

_COMPARISONS: dict[str, type[exp.Expr]] = {
    "=": exp.EQ,
    "==": exp.EQ,
    "<=>": exp.NullSafeEQ,
    "<>": exp.NEQ,
    "!=": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
}
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_STRING = re.compile(r"'[^'\\]*'")
_PARTS = ("this", "table", "db", "catalog")


# sqlglot tokenizes and parses each condition five times over; comparisons of columns are read here.
# (docs/decisions/0194)
def plain_trees(found: Sequence[Piece]) -> dict[Cut, exp.Expr]:
    """The tree of comparisons that AND joins, or of one operand, and the trees in it, by their places.

    Nothing where ``found`` is anything more.
    """
    trees: dict[Cut, exp.Expr] = {}
    whole, begin = None, 0
    for end in (*(at for at, piece in enumerate(found) if piece.is_word("AND")), len(found)):
        condition = _parse_condition(found[begin:end], trees)
        if condition is None:
            return {}
        whole = condition if whole is None else exp.And(this=whole, expression=condition)
        trees[Cut(found[0].start, found[end - 1].end)] = whole
        begin = end + 1
    return trees


def _parse_condition(found: Sequence[Piece], trees: dict[Cut, exp.Expr]) -> exp.Expr | None:
    at = next((at for at, piece in enumerate(found) if piece.text in _COMPARISONS), None)
    if at is None:
        condition = _parse_operand(found)
    else:
        left, right = _parse_operand(found[:at]), _parse_operand(found[at + 1 :])
        if left is None or right is None:
            return None
        trees[Cut(found[0].start, found[at - 1].end)] = left
        trees[Cut(found[at + 1].start, found[-1].end)] = right
        condition = _COMPARISONS[found[at].text](this=left, expression=right)
    if condition is not None:
        trees[Cut(found[0].start, found[-1].end)] = condition
    return condition


def _parse_operand(found: Sequence[Piece]) -> exp.Expr | None:
    first = found[0] if len(found) == 1 else None
    if first is not None and first.kind is Kind.NUMBER and _NUMBER.fullmatch(first.text):
        return exp.Literal.number(first.text)
    if first is not None and first.kind is Kind.STRING and _STRING.fullmatch(first.text):
        return exp.Literal.string(first.text[1:-1])
    names = found[::2]
    is_column = len(found) % 2 == 1 and len(names) <= len(_PARTS) and all(map(_is_plain_name, names))
    if not is_column or not all(piece.is_symbol(".") for piece in found[1::2]):
        return None
    return exp.Column(**dict(zip(_PARTS, map(_make_identifier, reversed(names)), strict=False)))


def _is_plain_name(piece: Piece) -> bool:
    if piece.kind is Kind.QUOTED:
        return bool(piece.name)
    is_word = piece.kind is Kind.WORD and _WORD.fullmatch(piece.text)
    return bool(is_word) and piece.text.upper() not in _words_of_sqlglot()


def _make_identifier(piece: Piece) -> exp.Identifier:
    identifier = exp.Identifier(this=piece.name, quoted=piece.kind is Kind.QUOTED)
    identifier.meta.update(start=piece.start, end=piece.end - 1)
    return identifier


@cache
def _words_of_sqlglot() -> frozenset[str]:
    """The words that may be anything but a name for it."""
    dialect = Dialect.get_or_raise("spark")
    keywords, calls = dialect.tokenizer_class.KEYWORDS, dialect.parser_class.NO_PAREN_FUNCTION_PARSERS
    return frozenset({*keywords, *calls})

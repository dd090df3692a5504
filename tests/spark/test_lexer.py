"""Our lexer against Spark's own: the same words, names, numbers and strings, at the same places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

import pytest
from pyspark.sql import SparkSession

from lookup_hints.sql.lexer import Kind
from lookup_hints.sql.sql_text import SqlText
from tests.unit.hints.test_dialect import STATEMENTS

ODD = [
    *("'it''s'", r"'a\'b'", r"'\\'", r"'%\_'", "'a\nb'", '"a""b"', '"it\'s"', "`a``b`", "`a.b`.c", "'a' 'b'"),
    *(r"r'a\b'", 'R"x\\"', "r'a''b'", "x'1F'", "N'x'", "date'2020-01-01'"),
    *("1L", "1.5e3BD", "1.", "1.e", "1e5", "1a", "1DAY", "a.1b", "0x1F", "1_000"),
    *(
        "-- c\n 1",
        "1 -- c \\\n d\n",
        "a-->b\n",
        "1 /* a /* b */ c */",
        "1 /* /*+ x */ */",
        "/**/1",
        "/*/ */1",
    ),
    *("/*+ A */ /*+ B */ 1", "/*+ A('x''y') */ 1", "/*+ A /* b */ */ 1"),
    *("{fn x}", "@@a", "a:b.c", "t.`a`", "é", "a -> b", "a::b", "a <=> b", "|> x"),
]


def made_up() -> list[str]:
    random = Random(5)
    return [" ".join(random.choice(ODD) for _ in range(random.randint(1, 8))) for _ in range(300)]


@pytest.mark.parametrize("texts", [STATEMENTS, [f"SELECT {odd} FROM t" for odd in ODD], made_up()], ids=len)
def test_pieces_are_those_of_sparks_lexer(spark: SparkSession, texts: list[str]) -> None:
    for text in texts:
        assert set(_ours(text)) == set(_sparks(spark, text)), text


def _ours(text: str) -> Iterator[tuple[int, int]]:
    for piece in SqlText(text).pieces:
        assert piece.kind is not Kind.UNCLOSED
        if piece.kind is Kind.HINT:  # in which Spark reads on
            start = piece.start + len("/*+")
            yield from ((start + at, start + end) for at, end in _ours(piece.text[3:-2]))
        elif piece.kind not in (Kind.COMMENT, Kind.SYMBOL):
            yield piece.start, piece.end


def _sparks(spark: SparkSession, text: str) -> Iterator[tuple[int, int]]:
    """Where Spark's tokens stand that are neither symbols nor comments, nor white space."""
    jvm = spark._jvm
    assert jvm is not None
    stream = jvm.org.antlr.v4.runtime.CharStreams.fromString(text)
    parser = jvm.org.apache.spark.sql.catalyst.parser
    lexer = parser.SqlBaseLexer(parser.UpperCaseCharStream(stream))
    shown = lexer.getAllTokens().toString()
    at = 0
    for token in re.finditer(r"\[@-?\d+,(\d+):(\d+)='", shown):
        start, end = int(token[1]), int(token[2]) + 1
        if start != at:  # a text that looks like a token
            continue
        at = end
        found = text[start:end]
        is_comment = found.startswith("--") or (found.startswith("/*") and found != "/*+")
        if not is_comment and re.search(r"[\w`'\"]", found):
            yield start, end
    assert at == len(text)

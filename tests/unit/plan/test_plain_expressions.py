"""What is read from the pieces alone is what sqlglot reads."""

from __future__ import annotations

from random import Random

import pytest
import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from lookup_hints.plan.parse.plain_expressions import plain_trees
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut

ROUNDS = 4000
SIGNS = ("=", "==", "<=>", "<>", "!=", "<", "<=", ">", ">=")
OTHERS = (
    "OR",
    "NOT",
    "-",
    "(",
    ")",
    "IS NULL",
    "+",
    "1L",
    "1e3",
    "'a\\'b'",
    '"a"',
    "'it''s'",
    "r'a'",
    "*",
    "::INT",
)
WORDS = sorted(
    {word for word in Dialect.get_or_raise("spark").tokenizer_class.KEYWORDS if word.isidentifier()}
)


def as_sqlglot_reads(text: str) -> exp.Expr | None:
    try:
        tree: exp.Expr = sqlglot.parse_one(f"SELECT {text}", dialect="spark").expressions[0]
    except SqlglotError:
        return None
    return tree


def operand(random: Random) -> str:
    if random.random() < 0.2:
        return random.choice(("1", "1.50", "007", "'text'", "''", "'%_'", *OTHERS))
    names = ("a", "o", "Name_1", "`a b`", "`a``b`", "`select`", "_x", "1a", "ü", random.choice(WORDS))
    return ".".join(random.choice(names) for _ in range(random.choice((1, 2, 2, 2, 3, 4, 5))))


def condition(random: Random) -> str:
    if random.random() < 0.15:
        return operand(random)
    return f"{operand(random)} {random.choice(SIGNS)}{random.choice(('', ' '))}{operand(random)}"


@pytest.mark.parametrize("seed", range(4))
def test_a_plain_expression_is_read_as_sqlglot_reads_it(seed: int) -> None:
    random, plain = Random(seed), 0
    for _ in range(ROUNDS // 4):
        text = " AND ".join(condition(random) for _ in range(random.choice((1, 1, 2, 3))))
        trees = plain_trees(SqlText(text).pieces)
        for part, tree in trees.items():
            assert tree == as_sqlglot_reads(part.of(text)), text
        if not trees:
            continue
        plain += 1
        found, other = trees[Cut(0, len(text))], as_sqlglot_reads(text)
        assert other is not None
        places = [
            [(name.meta["start"] - by, name.meta["end"] - by) for name in tree.find_all(exp.Identifier)]
            for tree, by in ((found, 0), (other, len("SELECT ")))
        ]
        assert places[0] == places[1], text
    assert plain > ROUNDS / 4 / 20


@pytest.mark.parametrize(
    "text",
    ["o.k = c.id", "`o`.`a b` <=> c.id AND c.score > 1.5", "c.state != 'x' AND a.b.c.d = 7", "key", "'text'"],
)
def test_conditions_of_most_joins_are_plain(text: str) -> None:
    assert Cut(0, len(text)) in plain_trees(SqlText(text).pieces)

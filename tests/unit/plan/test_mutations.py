"""Statements with mistakes in them are planned or refused with a place: never a traceback from inside."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from random import Random

import pytest

from lookup_hints.errors import Problem, QueryError
from lookup_hints.hints.hint_comments import read_hints
from lookup_hints.plan.planner import mentions_lookup, plan
from lookup_hints.plan.spark_analysis import NamesAndTypes
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.session_syntax import with_backquotes, with_escapes, with_long_pipes, with_variables
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import explained, own_setting, split_statements
from lookup_hints.tables.ddl import parse_ddl
from tests.queries.corpus import cases
from tests.queries.mutations import mutated
from tests.unit.plan.golden import golden_cases
from tests.unit.plan.planning import CUSTOMERS, TABLES, context, table

ROUNDS = int(os.environ.get("PLANNED_MUTATIONS", "2000"))
SEED = int(os.environ.get("SEED", "0"))
# The corpus names other tables; what they are does not matter here, so each is the customers.
NAMES = ("planes", "airlines", "weather", "edges")
KNOWN: dict[str, LookupTable] = {
    **TABLES,
    **{
        name: table(name, "both", {column.name: column.type for column in CUSTOMERS.schema}, ("id",))
        for name in NAMES
    },
}
TEXTS = [case.text for case in golden_cases()] + [
    statement.text for case in cases() for statement in split_statements(case.text)
]
# What Spark would say of the types; None plans without Spark, as `lookup-hints check` does.
ANALYSES: tuple[NamesAndTypes | None, ...] = (None, (("k0", "bigint"), ("k1", "string"), ("k2", "bigint")))


CONFS: tuple[dict[str, str], ...] = (
    {},
    {"spark.sql.caseSensitive": "true", "spark.sql.ansi.enabled": "false"},
    {"spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.session.timeZone": "UTC"},
)
AS_READ: tuple[Callable[[SqlText], SqlText], ...] = (
    lambda text: text,
    with_backquotes,
    with_escapes,
    with_long_pipes,
    lambda text: with_variables(SqlText(text), str.upper),
)


def read(given: str, analysis: NamesAndTypes | None, conf: dict[str, str]) -> None:
    """All that is done with a statement before Spark sees it."""
    text = SqlText(given)
    parse_ddl(text)
    own_setting(text)
    explained(text)
    hints, problems = read_hints(text)
    using = context(conf=conf, analyse=analysis, tables=KNOWN)
    if mentions_lookup(text, using.find_table):
        plan(text, () if problems else hints, using)


def problems_of(
    text: str, analysis: NamesAndTypes | None, conf: dict[str, str] | None = None
) -> tuple[Problem, ...]:
    """What is wrong with a statement; anything but our own errors about it fails the test."""
    try:
        read(text, analysis, conf or {})
    except QueryError as error:
        return error.problems
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error} from\n{text}") from error
    return ()


@pytest.mark.work(1 + ROUNDS / 500)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_mistakes_are_reported_and_never_crash(seed: int) -> None:
    random = Random(seed)
    for number in range(ROUNDS // 4):
        text = AS_READ[number % len(AS_READ)](SqlText(mutated(random.choice(TEXTS), random)))
        began = time.thread_time()
        for problem in problems_of(text, ANALYSES[number % 2], CONFS[number % 3]):
            assert str(problem)
            assert problem.at is None or 0 <= problem.at.start <= problem.at.end <= len(problem.at.text), text
        assert time.thread_time() - began < 5, f"too slow:\n{text}"


@pytest.mark.parametrize("end", ["IDENTIFIER(", "IDENTIFIER('customers'", "VALUES (", "f("])
def test_a_statement_that_ends_in_the_middle_of_a_relation_never_crashes(end: str) -> None:
    text = f"SELECT c.name FROM orders o JOIN customers c ON o.k = c.id JOIN {end}"
    for analysis in ANALYSES:
        problems_of(text, analysis)


def test_a_pipe_on_which_sqlglot_itself_fails_is_no_crash() -> None:
    text = "SELECT o.id FROM orders o JOIN customers c ON o.k = c.id {} o.x > (SELECT a FROM t |> LIMIT 1)"
    assert problems_of(text.format("WHERE"), None) == ()
    (problem,) = problems_of(text.format("AND"), None)
    assert problem.message == "This condition of a lookup join cannot be parsed."

"""How often the text of one statement is cut into pieces, from the session down to the planner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession
from lookup_hints.cli.check import check_script
from lookup_hints.sql import sql_text
from lookup_hints.sql.lexer import Piece, cut_into_pieces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CREATE = (
    "CREATE TEMPORARY TABLE c (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
    " WITH ('connector' = 'memory', 'rows' = '[]')"
)
QUERY = "SELECT /*+ LOOKUP('table' = 'c') */ o.n, c.name FROM o LEFT JOIN c ON o.k = c.id"


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are cut into pieces, but for small parts of them, such as the key of a join."""
    texts: list[str] = []

    def noting(text: str) -> tuple[Piece, ...]:
        if " " in text:
            texts.append(text)
        return cut_into_pieces(text)

    monkeypatch.setattr(sql_text, "cut_into_pieces", noting)
    return texts


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> LookupSession:
    session = LookupSession(spark.newSession())
    session.spark.range(3).selectExpr("id AS n", "id AS k").createOrReplaceTempView("o")
    session.sql(CREATE)
    return session


@pytest.mark.parametrize(
    "statement",
    [QUERY, "SELECT 1 AS one", f"EXPLAIN {QUERY}", f"CREATE TEMPORARY VIEW {{}} AS {QUERY}", CREATE],
)
def test_the_text_of_a_statement_is_cut_into_pieces_once(
    session: LookupSession, cut: list[str], statement: str
) -> None:
    text = statement.replace("{}", "v").replace("CREATE TEMPORARY TABLE c", "CREATE TEMPORARY TABLE d")
    session.prepare(text)
    assert cut == [text]
    del cut[:]
    session.explain(text)
    assert cut == [text]


def test_a_text_that_is_rewritten_is_cut_once_more(session: LookupSession, cut: list[str]) -> None:
    session.spark.conf.set("wanted", "2")
    session.prepare(f"{QUERY} WHERE n < ${{wanted}}")
    assert cut == [f"{QUERY} WHERE n < ${{wanted}}", f"{QUERY} WHERE n < 2"]
    del cut[:]
    session.prepare(f"{QUERY} WHERE n < ?", [2])
    assert cut == [f"{QUERY} WHERE n < ?", f"{QUERY} WHERE n < :__p0"]


def test_a_script_is_cut_once_and_hands_its_statements_their_pieces(
    session: LookupSession, cut: list[str]
) -> None:
    script = f"-- two of them\n{CREATE};\n{QUERY};"
    assert not check_script(script)
    assert cut == [script]

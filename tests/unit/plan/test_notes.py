"""What EXPLAIN says of work that Spark does twice."""

from __future__ import annotations

import pytest

from tests.unit.plan.planning import planned

JOINED = "FROM orders o JOIN customers c ON o.k = c.id"
CASES = {
    f"{JOINED} INSERT INTO t SELECT c.name INSERT INTO u SELECT o.id": "each INSERT of this statement",
    f"SELECT /*+ REPARTITION_BY_RANGE(name) */ c.name {JOINED}": "REPARTITION_BY_RANGE samples its rows first",
    f"SELECT (SELECT max(x) FROM t WHERE t.x < c.id) {JOINED}": "correlated by more than equalities",
    f"WITH q AS (SELECT c.name {JOINED}) SELECT * FROM q, LATERAL (SELECT max(name) FROM q) x": "read more than once",
    f"WITH q AS (SELECT o.id {JOINED}) SELECT (SELECT max(id) FROM q) FROM q GROUP BY id": "read more than once",
    f"SELECT c.name {JOINED} ORDER BY c.name": "a shuffle was added below the global ORDER BY",
}


@pytest.mark.parametrize(("text", "said"), CASES.items())
def test_explain_notes_repeated_lookups(text: str, said: str) -> None:
    (note,) = planned(text).notes
    assert said in note


def test_a_correlated_exists_says_nothing() -> None:
    assert planned(f"SELECT c.name {JOINED} WHERE EXISTS (SELECT 1 FROM t WHERE t.x < c.id)").notes == ()


def test_a_single_insert_says_nothing() -> None:
    assert planned(f"INSERT INTO t SELECT c.name {JOINED}").notes == ()
    assert planned(f"{JOINED} INSERT INTO t SELECT c.name").notes == ()

"""What Spark does not take as we write it is read whole; where it cannot be, that is said with the reason."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from lookup_hints.driver.attempts import NotTaken
from lookup_hints.driver.statement_scope import state_of
from lookup_hints.errors import UnsupportedLookup
from lookup_hints.plan import planner
from lookup_hints.plan.forms.choose_form import find_lookups
from tests.spark.oracle import Twins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lookup_hints.plan.facts_of_lookup_tables import Facts

# Without it, Spark takes no LATERAL projection, with which packed relations get their names back.
SETTING = "spark.sql.optimizer.decorrelateInnerQuery.enabled"
CHAIN = "SELECT o.n, c.name, z.w FROM o LEFT JOIN c ON o.k = c.id JOIN z ON z.id = o.n"


@pytest.fixture(scope="module")
def twins(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    made = Twins(spark.newSession, tmp_path_factory.mktemp("not_taken"))
    made.table("o", "n INT, k BIGINT", [(1, 1), (2, 5)], partitions=1)
    made.table("z", "id INT, w STRING", [(1, "a"), (2, "b")], partitions=1)
    made.dimension("c", "id BIGINT, name STRING", [(1, "x"), (2, "y")], key="id")
    made.conf(SETTING, "false")
    yield made
    for spark_session in made.sessions:
        spark_session.conf.unset(SETTING)


def test_it_is_read_whole_and_explain_says_why(twins: Twins) -> None:
    twins.forget()
    assert len(twins.check(CHAIN)) == 2
    assert not twins.calls("c").keys, "it is not asked"
    shown = twins.session.explain(CHAIN)
    assert "read because Spark does not take the text that asking it becomes" in " ".join(shown.split())
    twins.session.sql(f"CREATE OR REPLACE TEMPORARY VIEW v AS {CHAIN}")
    assert twins.session.sql("SELECT * FROM v").count() == 2


def test_what_is_to_be_asked_is_refused_with_sparks_reason(twins: Twins) -> None:
    with pytest.raises(UnsupportedLookup, match="Spark takes this statement, but not the one") as caught:
        twins.session.sql(CHAIN.replace("SELECT", "SELECT /*+ LOOKUP('table'='c') */", 1))
    assert isinstance(caught.value, NotTaken)
    assert "CORRELATED_REFERENCE" in str(caught.value)
    assert "Try the lookup join in a subquery" in str(caught.value)
    assert "please report" not in str(caught.value)


def a_generator_without_a_value() -> Iterator[object]:
    yield next(iter(()))


@pytest.mark.parametrize(
    ("fail", "shown"),
    [
        (lambda: {"y": 1}["x"], "KeyError: 'x'"),
        (lambda: list(a_generator_without_a_value()), "RuntimeError: generator raised StopIteration"),
    ],
    ids=["key", "generator"],
)
def test_a_planner_that_fails_is_logged_and_counted_though_the_table_is_read(
    fail: Callable[[], object],
    shown: str,
    twins: Twins,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail_at_asking(facts: Facts, *arguments: Any) -> Any:
        if not facts.context.read_because:
            fail()
        return find_lookups(facts, *arguments)

    monkeypatch.setattr(planner, "find_lookups", fail_at_asking)
    failures = state_of(twins.session.spark).failures
    before = failures.count
    with caplog.at_level(logging.WARNING, logger="lookup_hints"):
        prepared = twins.session.prepare("SELECT o.n, c.name FROM o JOIN c ON o.k = c.id", line=12)
    assert twins.session.run(prepared).count() == 1
    assert failures.count == before + 1
    assert "Statement at line 12: its lookup tables are read whole, because the planner failed" in caplog.text
    assert shown in caplog.text

"""Keys and rows by way of Arrow and by way of pandas: the way that is chosen is taken, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession
from lookup_hints.errors import OptionError
from tests.spark.versions import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOIN = "SELECT r.id, t.name FROM range(3) r LEFT JOIN t ON r.id = t.id"
BY_ARROW = pytest.param(
    "arrow", marks=pytest.mark.skipif(SPARK < (4, 1), reason="PySpark has Arrow functions from 4.1 on")
)
NATURAL = 251 if SPARK >= (4, 1) else 204


@pytest.fixture
def session(spark: SparkSession) -> LookupSession:
    own = LookupSession(spark.newSession())
    own.sql("CREATE TEMPORARY TABLE t (id BIGINT, name STRING) WITH ('connector' = 'memory', 'rows' = '[]')")
    return own


# PythonEvalType, as plans show it, of functions over iterators of arrays and of Series.
@pytest.mark.parametrize(
    ("transport", "evaluation"),
    [pytest.param(*BY_ARROW.values, 251, marks=BY_ARROW.marks), ("auto", NATURAL), ("pandas", 204)],
)
def test_the_chosen_way_is_taken(session: LookupSession, transport: str, evaluation: int) -> None:
    session.sql(f"SET lookup.transport = {transport}")
    assert f"], {evaluation}\n" in session.explain(JOIN)


def test_functions_of_both_ways_live_side_by_side(session: LookupSession) -> None:
    by_arrow = session.sql(JOIN)
    session.sql("SET lookup.transport = pandas")
    by_pandas = session.sql(JOIN)
    assert by_arrow.collect() == by_pandas.collect() == by_arrow.collect()


def test_arrow_is_refused_where_spark_has_none(
    session: LookupSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("pyspark.sql.functions.arrow_udf", raising=False)
    session.sql("SET lookup.transport = arrow")
    with pytest.raises(OptionError, match="PySpark has Arrow functions from 4"):
        session.sql(JOIN)


def test_a_way_that_does_not_exist(session: LookupSession) -> None:
    session.spark.conf.set("lookup.transport", "pigeon")
    with pytest.raises(OptionError, match=r"session: 'lookup.transport' cannot be 'pigeon': .*arrow.*pandas"):
        session.sql(JOIN)

"""EXPLAIN ESTIMATE as a statement: what it says, prices, refuses and does not run."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lookup_hints import LookupSession
from lookup_hints.errors import QueryError
from lookup_hints.estimate.report import LookupEstimate
from tests.spark.counting import Counting

NUMBERS = "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED"


@pytest.fixture
def counting(spark: SparkSession, tmp_path: Path) -> Counting:
    return Counting(LookupSession(spark.newSession()), tmp_path)


def estimated(counting: Counting, query: str) -> LookupEstimate:
    return counting.session.estimate(query).lookups[0]


def test_a_lookup_behind_a_lookup_is_unknown_with_its_bound(counting: Counting) -> None:
    counting.table("numbers", NUMBERS)
    counting.table("names", "name STRING, country STRING, PRIMARY KEY (name) NOT ENFORCED")
    query = (
        "SELECT n.country FROM range(0, 300, 1, 1) o JOIN numbers p ON p.id = o.id"
        " JOIN names n ON n.name = p.name"
    )
    first, second = counting.session.estimate(query).lookups
    assert first.keys is not None
    assert first.keys.is_exact
    assert second.keys is not None
    assert (second.keys.least, second.keys.most) == (0, 300)
    assert "UNKNOWN, at most 300" in dict(second.facts())["keys"]
    assert second.notes[0] == "its keys come from the lookup of p"


def test_joins_that_share_a_left_side_are_counted_by_one_query(counting: Counting) -> None:
    counting.table("numbers", NUMBERS)
    counting.table("others", NUMBERS)
    query = (
        "SELECT p.name, q.name FROM range(0, 3000, 1, 1) o LEFT JOIN numbers p ON p.id = o.id % 10"
        " LEFT JOIN others q ON q.id = o.id % 300"
    )
    first, second = counting.session.estimate(query).lookups
    keys = counting.run(query, "numbers")[0], counting.run(query, "others")[0]
    assert [each.keys and each.keys.least for each in (first, second)] == list(keys)


def test_price_and_seconds_follow_from_the_requests(counting: Counting) -> None:
    counting.table(
        "numbers",
        NUMBERS,
        lookup_price_per_request="0.005",
        lookup_price_per_row="0.0001",
        lookup_rate_limit="10",
    )
    query = (
        "SELECT /*+ LOOKUP('table'='p', 'batch-size'='100') */ p.name FROM range(0, 1000, 1, 1) o"
        " LEFT JOIN numbers p ON p.id = o.id"
    )
    found = estimated(counting, query)
    assert found.requests is not None
    assert found.requests.is_exact
    assert found.money is not None
    requests = int(found.requests.least)
    assert found.money.least == Decimal("0.005") * requests
    assert found.money.most == Decimal("0.005") * requests + Decimal("0.0001") * 1000
    assert found.seconds is not None
    assert found.seconds.least == requests / 10


def test_a_dataframe_of_the_session_is_estimated_and_others_are_refused(counting: Counting) -> None:
    counting.table("numbers", NUMBERS)
    frame = counting.session.lookup_join(
        counting.session.spark.range(0, 700, 1, 2), "numbers", on="id", how="left"
    )
    found = counting.session.estimate(frame).lookups[0]
    assert found.keys is not None
    assert found.keys.least == found.keys.most == 700
    with pytest.raises(QueryError, match="No lookup join of this session made this DataFrame"):
        counting.session.estimate(counting.session.spark.range(3))


def test_explain_estimate_is_a_statement(counting: Counting) -> None:
    counting.table("numbers", NUMBERS)
    query = "SELECT p.name FROM range(0, 700, 1, 2) o LEFT JOIN numbers p ON p.id = o.id"
    text = counting.session.sql(f"EXPLAIN ESTIMATE {query}").collect()[0][0]
    assert text.startswith(
        "The left side was run and counted; no lookup was made.\n\n(1) numbers AS p, line 1"
    )
    assert "    keys       700\n" in text
    assert not (counting.folder / "numbers.log").exists()
    assert "no lookup join" in counting.session.sql("EXPLAIN ESTIMATE SELECT 1").collect()[0][0]


@pytest.mark.parametrize("admission", ["off", "warn", "refuse"])
def test_admission_holds_the_limit_before_the_first_request(
    counting: Counting, admission: str, caplog: pytest.LogCaptureFixture
) -> None:
    counting.table("numbers", NUMBERS, lookup_admission=admission, lookup_max_requests="5", batch_size="100")
    query = "SELECT p.name FROM range(0, 1000, 1, 1) o LEFT JOIN numbers p ON p.id = o.id"
    said = "table numbers: the estimate is 10 requests, and 'lookup.max-requests' is 5"
    if admission == "refuse":
        with pytest.raises(QueryError) as refused:
            counting.session.sql(query)
        assert said in str(refused.value)
        assert "Raise 'lookup.max-requests'" in str(refused.value)
        assert not (counting.folder / "numbers.log").exists()
        return
    counting.session.sql(query)
    assert (said in caplog.text) == (admission == "warn")


def test_a_share_that_is_none_is_refused(counting: Counting) -> None:
    with pytest.raises(QueryError, match=r"at most 1, not 2\. Write sample=0\.01"):
        counting.session.estimate("SELECT 1", sample=2.0)
    with pytest.raises(QueryError, match=r"At least one key is looked up, not 0\. Write ask=100"):
        counting.session.estimate("SELECT 1", ask=0)

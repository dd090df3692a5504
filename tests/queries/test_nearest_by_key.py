"""The nearest rows of a key are asked for as other rows are: again, within limits, and kept; the rows are Spark's."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lookup_hints.driver.spark_versions import spark_version
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from tests.spark.ailing import letters
from tests.spark.answers import Answer
from tests.spark.oracle import Twins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASKING = [
    (1, "a", 1, [1.0, 0.0]),
    (2, "a", 1, [1.0, 0.0]),
    (3, "a", 1, [9.0, 9.5]),
    (4, "b", 1, [0.0, 1.0]),
    (5, "b", 2, [0.0, 1.0]),
    (6, "none", 1, [0.0, 1.0]),
    (7, None, 1, [0.0, 1.0]),
    (8, "a", 1, None),
]
# No two rows of a key are equally near to a row that asks: Spark may take either of such rows.
HELD = [
    (10, "a", 1, [1.5, 0.0]),
    (11, "a", 1, [9.0, 9.0]),
    (12, "a", 1, None),
    (13, "b", 1, [0.0, 4.0]),
    (14, "b", 2, [0.0, 1.5]),
    (15, None, 1, [0.0, 1.0]),
]
QUERY = (
    "SELECT {hint} o.id, c.cid, c.g FROM o {kind} JOIN c EXACT NEAREST {most} BY DISTANCE"
    " CASE WHEN c.g = o.g THEN vector_l2_distance(c.v, o.v) END {where}"
)
FOUND = ["10", "10", "11", "14", "14", None, None, None]
BOTH_KEYS = QUERY.replace("c.g = o.g", "c.g = o.g AND c.h = o.h")
KEYS = Counter({("'a'",): 1, ("'b'",): 1, ("'none'",): 1})
WORKER, SOURCE = "tests.spark.ailing:TroubledConnector", "tests.spark.ailing:TroubledFinder"
PAIRS = Counter(
    {
        ("'a'", "[1.0, 0.0]"): 1,
        ("'a'", "[9.0, 9.5]"): 1,
        ("'b'", "[0.0, 1.0]"): 1,
        ("'none'", "[0.0, 1.0]"): 1,
    }
)
OTHERS = [("b", 1), ("b", 2), ("none", 1)]
RETRY = "'retry-strategy'='fixed_delay', 'fixed-delay'='10 ms', 'max-attempts'='3'"


class Searched:
    """A lookup table among whose rows the nearest are found, and the same rows for Spark."""

    def __init__(self, twins: Twins, folder: Path) -> None:
        self.twins = twins
        self.folder = folder
        self.troubles = folder / "troubles"
        self.trouble()

    def trouble(self, *each: str) -> None:
        """What befalls the next requests, one by one."""
        self.troubles.write_text("".join(f"{line}\n" for line in each), encoding="utf-8")

    def hold(self, **options: str) -> None:
        """Create the lookup table with ``options``."""
        self.twins.dimension(
            "c",
            "cid INT, g STRING, h INT, v ARRAY<FLOAT>",
            HELD,
            key="cid",
            **{"connector": WORKER, "troubles": str(self.troubles), **options},
        )

    def check(
        self, hint: str = "", kind: str = "LEFT", most: int = 1, where: str = "", text: str = QUERY
    ) -> Answer:
        """The answer, which is that of Spark's own NEAREST BY; what the source is asked counts from here."""
        self.twins.forget()
        given = f"/*+ LOOKUP('table'='c', {hint}) */" if hint else ""
        (answer,) = self.twins.check_all([text.format(hint=given, kind=kind, most=most, where=where)])
        return answer

    def found(self, hint: str = "", **more: Any) -> list[str | None]:
        """Who is nearest, in order, as texts; Spark finds the same."""
        return sorted((row[1] for row in self.check(hint, **more).rows), key=lambda cid: cid or "z")

    def counted(self, hint: str, found: list[str | None]) -> LookupMetrics:
        """What the lookup counted while it found ``found``."""
        before = self.twins.session.metrics()
        assert self.found(hint) == found
        (counts,) = (new for name, new in self.twins.session.metrics().items() if name not in before)
        return counts

    @property
    def asked(self) -> Counter[tuple[str, ...]]:
        """How often each key was asked for."""
        return self.twins.calls("c").keys

    @property
    def requests(self) -> int:
        """How many requests were sent; the table was never read."""
        calls = self.twins.calls("c")
        assert not calls.scans
        return len(calls.requests)


@pytest.fixture
def searched(spark: SparkSession, tmp_path: Path) -> Searched:
    if spark_version(spark) < (4, 3):
        pytest.skip("NEAREST BY is tested with Spark 4.3")
    twins = Twins(spark.newSession, tmp_path)
    twins.table("o", "id INT, g STRING, h INT, v ARRAY<FLOAT>", ASKING, partitions=1)
    return Searched(twins, tmp_path)


@pytest.mark.parametrize("runner", ["true", "false"])
def test_a_source_that_fails_twice_is_asked_three_times(searched: Searched, runner: str) -> None:
    searched.hold()
    searched.trouble("fails", "fails")
    counts = searched.counted(
        f"'async'='{runner}', 'batch-size'='10', 'retry-predicate'='exception', {RETRY}", found=FOUND
    )
    assert searched.asked == Counter(dict.fromkeys(KEYS, 3))
    assert (counts.requests, counts.retried_keys, counts.keys) == (3, 6, 3)


def test_a_source_that_goes_on_failing_fails_the_statement(searched: Searched) -> None:
    searched.hold()
    searched.trouble(*["fails"] * 9)
    with pytest.raises(
        Exception,
        match=r"the source fails\. The lookup of 3 keys \(g = 'a'; g = 'b'; g = 'none'\) in table c failed after 4",
    ):
        searched.check(f"'batch-size'='10', 'retry-predicate'='exception', {RETRY}")
    assert searched.requests == 4


def test_rows_that_come_late_are_asked_for_again(searched: Searched) -> None:
    searched.hold()
    searched.trouble("empty")
    again = f"'batch-size'='10', 'retry-predicate'='lookup_miss', {RETRY}"
    assert searched.found(again) == FOUND
    # A key that no row has is asked for to the end.
    assert searched.asked == Counter({("'a'",): 2, ("'b'",): 2, ("'none'",): 4})
    # Nothing is near to a row without a vector: it is not asked for.
    assert searched.found(again, where="WHERE o.id = 8") == [None]
    assert searched.requests == 0


def test_a_row_without_a_nearest_one_is_kept_by_left_alone(searched: Searched) -> None:
    searched.hold()
    assert searched.found(most=2) == ["10", "10", "10", "11", "11", "11", "13", "13", "14", "14", *[None] * 3]
    assert searched.found(kind="INNER") == FOUND[:5]
    assert searched.asked == KEYS


def test_requests_of_a_statement_are_bounded(searched: Searched) -> None:
    searched.hold(**{"lookup.max-requests": "3", "batch-size": "1"})
    for _ in range(2):
        assert searched.found() == FOUND
        assert searched.requests == 3
    hint = "'max-requests'='2'"
    with pytest.raises(
        Exception, match=r"this statement has sent 2 requests, and 'lookup\.max-requests' = 2 allows no more"
    ):
        searched.check(hint)
    assert searched.requests == 2
    searched.trouble("fails")
    with pytest.raises(
        Exception, match=r"this statement has sent 3 requests, and 'lookup\.max-requests' = 3"
    ):
        searched.check(f"'retry-predicate'='exception', {RETRY}")


def test_requests_come_at_the_rate_of_the_table(searched: Searched) -> None:
    searched.hold(**{"lookup.rate-limit": "4", "batch-size": "1"})
    counts = searched.counted("", found=FOUND)
    assert counts.waited.counts["budget"] > 0.2, counts.waited
    assert searched.requests == 3


@pytest.mark.parametrize("runner", ["true", "false"])
def test_a_letter_names_the_keys_without_the_vector(searched: Searched, runner: str) -> None:
    searched.hold()
    searched.trouble("ill")
    folder = searched.folder / "letters"
    hint = (
        f"/*+ LOOKUP('table'='c', 'async'='{runner}', 'batch-size'='10', 'on-error'='dead-letter',"
        f" 'dead-letter.path'='{folder}') */"
    )
    text = BOTH_KEYS.format(hint=hint, kind="LEFT", most=1, where="")
    session = searched.twins.session
    assert {row.cid for row in session.sql(text).collect()} == {None}
    kept = letters(session.spark, folder)
    assert sorted(str(letter["key"]) for letter in kept) == [
        json.dumps({"g": g, "h": h}) for g, h in [("a", 1), *OTHERS]
    ]
    assert {(letter["table"], letter["error"], letter["attempts"]) for letter in kept} == {
        ("c", "the source ill", 1)
    }
    # The source is well again: the rows whose keys have letters find what Spark finds.
    found = searched.found(text=BOTH_KEYS)
    assert found == ["10", "10", "11", "13", "14", None, None, None]
    again = session.sql(
        "SELECT o.id, c.cid FROM (SELECT o.* FROM o JOIN (SELECT DISTINCT from_json(key, 'g STRING, h INT') AS k"
        f" FROM parquet.`{folder}` WHERE table = 'c') l ON o.g = l.k.g AND o.h = l.k.h) o"
        " JOIN c EXACT NEAREST 1 BY DISTANCE"
        " CASE WHEN c.g = o.g AND c.h = o.h THEN vector_l2_distance(c.v, o.v) END"
    )
    assert sorted(map(tuple, again.collect())) == [(1, 10), (2, 10), (3, 11), (4, 13), (5, 14)]


def test_rows_of_a_key_that_failed_may_be_null_or_dropped(searched: Searched) -> None:
    searched.hold()
    session = searched.twins.session
    for then, ids in (("null", [1, 2, 3, 4, 5, 6, 7, 8]), ("skip", [7, 8])):
        searched.trouble("ill")
        hint = f"/*+ LOOKUP('table'='c', 'batch-size'='10', 'on-error'='{then}') */"
        rows = session.sql(QUERY.format(hint=hint, kind="LEFT", most=1, where="")).collect()
        assert sorted(map(tuple, rows)) == [(number, None, None) for number in ids]


@pytest.mark.parametrize("runner", ["true", "false"])
def test_the_rows_of_a_key_are_cached_for_each_vector(searched: Searched, runner: str) -> None:
    searched.hold(**{"lookup.cache": "partial"})
    hint = f"'async'='{runner}', 'batch-size'='10'"
    assert searched.found(hint) == FOUND
    assert searched.asked == KEYS
    assert searched.found(hint) == FOUND
    searched.found(hint, most=2)
    assert searched.requests == 0
    searched.twins.table(
        "o", "id INT, g STRING, h INT, v ARRAY<FLOAT>", [(1, "a", 1, [8.0, 8.0]), (2, "b", 1, [0.0, 2.0])]
    )
    assert searched.found(hint) == ["11", "14"]
    assert searched.requests == 0
    assert searched.found("'cache'='none'") == ["11", "14"]
    assert set(searched.asked) == {("'a'",), ("'b'",)}


# --- the source finds the nearest rows: it is asked by key and vector ---


@pytest.mark.parametrize("runner", ["true", "false"])
def test_a_source_that_searches_is_asked_for_each_key_and_vector_once(
    searched: Searched, runner: str
) -> None:
    searched.hold(connector=SOURCE)
    text = QUERY.format(hint="", kind="LEFT", most=1, where="")
    assert "found by the source" in searched.twins.session.explain(text)
    hint = f"'async'='{runner}', 'batch-size'='10'"
    assert searched.found(hint) == FOUND
    assert searched.asked == PAIRS
    searched.trouble("fails", "fails")
    assert searched.found(f"{hint}, 'retry-predicate'='exception', {RETRY}") == FOUND
    assert searched.asked == Counter(dict.fromkeys(PAIRS, 3))
    searched.trouble("empty")
    assert searched.found(f"{hint}, 'retry-predicate'='lookup_miss', {RETRY}") == FOUND
    assert searched.asked == Counter({pair: 4 if pair[0] == "'none'" else 2 for pair in PAIRS})
    assert searched.found(hint, most=2)[:10] == ["10", "10", "10", "11", "11", "11", "13", "13", "14", "14"]


def test_a_letter_of_a_source_that_searches_names_the_key_and_the_vector(searched: Searched) -> None:
    searched.hold(connector=SOURCE)
    searched.trouble("ill")
    folder = searched.folder / "letters"
    hint = f"/*+ LOOKUP('table'='c', 'batch-size'='10', 'on-error'='dead-letter', 'dead-letter.path'='{folder}') */"
    session = searched.twins.session
    assert session.sql(BOTH_KEYS.format(hint=hint, kind="LEFT", most=1, where="")).count() == 8
    kept = letters(session.spark, folder)
    asked = [("a", 1, [1.0, 0.0]), ("a", 1, [9.0, 9.5]), *((g, h, [0.0, 1.0]) for g, h in OTHERS)]
    assert sorted(str(letter["key"]) for letter in kept) == [
        json.dumps({"g": g, "h": h, "nearest to v": v}) for g, h, v in asked
    ]
    # So the letters alone tell what to look up again.
    again = session.sql(
        "SELECT o.g, o.h, c.cid FROM (SELECT k.g, k.h, k.`nearest to v` AS v FROM (SELECT DISTINCT"
        f" from_json(key, 'g STRING, h INT, `nearest to v` ARRAY<FLOAT>') AS k FROM parquet.`{folder}`)) o"
        " LEFT JOIN c EXACT NEAREST 1 BY DISTANCE"
        " CASE WHEN c.g = o.g AND c.h = o.h THEN vector_l2_distance(c.v, o.v) END"
    )
    found = [("a", 1, 10), ("a", 1, 11), ("b", 1, 13), ("b", 2, 14), ("none", 1, None)]
    assert sorted(map(tuple, again.collect()), key=str) == found


def test_a_cache_keeps_the_rows_of_a_key_where_the_source_could_search(searched: Searched) -> None:
    searched.hold(**{"connector": SOURCE, "lookup.cache": "partial", "batch-size": "10"})
    assert searched.found() == FOUND
    assert searched.asked == KEYS
    searched.found(most=2)
    assert searched.requests == 0


# --- streams ---


@pytest.mark.parametrize(
    ("connector", "gate"), [(WORKER, "c.g = o.g"), (SOURCE, "c.g = o.g AND c.h = o.h"), (WORKER, "")]
)
def test_a_stream_finds_what_spark_finds_in_a_table(searched: Searched, connector: str, gate: str) -> None:
    searched.hold(connector=connector)
    session, plain = searched.twins.session, searched.twins.plain
    rows = session.spark.table("o")
    arrived = str(searched.folder / "arrived")
    for half in ("id <= 4", "id > 4"):
        rows.where(half).coalesce(1).write.mode("append").parquet(arrived)
    stream = session.spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(arrived)
    stream.createOrReplaceTempView("arriving")
    distance = "vector_l2_distance(c.v, o.v)"
    by = f"CASE WHEN {gate} THEN {distance} END" if gate else distance
    text = f"SELECT o.id, c.cid FROM {{}} o LEFT JOIN c EXACT NEAREST 2 BY DISTANCE {by}"
    name = f"near_{searched.folder.name}".replace("-", "_")
    query = (
        session.sql(text.format("arriving"))
        .writeStream.trigger(availableNow=True)
        .format("memory")
        .queryName(name)
        .start()
    )
    query.awaitTermination()
    assert len([each for each in query.recentProgress if each.numInputRows]) == 2
    expected = plain.sql(text.format("o")).collect()
    assert sorted(session.spark.table(name).collect(), key=str) == sorted(expected, key=str)
    calls = searched.twins.calls("c")
    assert bool(calls.requests) == bool(gate)
    assert bool(calls.scans) == (not gate)
